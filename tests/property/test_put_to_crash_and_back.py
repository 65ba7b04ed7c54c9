"""Any message at all, put in any way: what is acknowledged is there once after a crash, as it was.

The rest was refused, with a reason and before a byte was written: nothing else lies in the log.
"""

import shutil
import tempfile
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migration.planning.planner import make_plan
from migration.workspace import Workspace
from store.config import StoreConfig
from store.errors import IllegalMessageError
from store.queue.backends import backend_names
from store.record.client_batch import encode_client_batch
from store.record.decoder import StoredMessage
from store.record.encoder import is_queued
from store.record.message import LMQ_PREFIX, LOOPBACK, Host, Message, MessageProperty, SysFlag
from store.service.message_store import MessageStore
from store.service.results import PutMessageResult, PutMessageStatus

MOST_BODY = 4096
LIGHT, LIGHT_OFFSETS = (
    MessageProperty.INNER_MULTI_DISPATCH,
    MessageProperty.INNER_MULTI_QUEUE_OFFSET,
)
INT, LONG = 1 << 31, 1 << 63
V6_BITS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
OTHER = {"file": "rocksdb", "rocksdb": "file"}


def _changed(message: Message, name: str, value: object) -> Message:
    setattr(message, name, value)
    return message


def _host_of(wire: bytes) -> Host:
    """A host of any bytes, if there is one."""
    try:
        return Host(wire)
    except IllegalMessageError:
        return LOOPBACK


topics: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["t", "u"]),
    st.sampled_from([
        "", " ", ".", "..", "a/b", "a\0b", "a\nb", "\ud800", "\udc80", "T" * 127, "T" * 128,
        "é" * 63, "é" * 64, "𝄞" * 31, "%RETRY%" + "r" * 248, "%RETRY%" + "r" * 249, "%LMQ%a",
        "SCHEDULE_TOPIC_XXXX", "CHECKPOINT_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", b"t", None, 7, [],
    ]),
    st.text(max_size=130),
)  # fmt: skip
wild: st.SearchStrategy[Any] = st.sampled_from([None, 0.5, "1", b"1", True, [], -LONG - 1, LONG])
ints: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([0, 1, -1, INT - 1, INT, -INT, -INT - 1, LONG - 1, -LONG]),
    st.integers(0, INT - 1),
    wild,
)
names: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([
        "TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "INNER_NUM", "INNER_BASE", LIGHT,
        LIGHT_OFFSETS, "__CRC32#", "", "a\x01b", "a\x02b", "\udc80", b"TAGS", 5, None,
    ]),
    st.text(max_size=9),
)  # fmt: skip
texts: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=9),
    st.sampled_from([
        "", " ", "0", "3", "-1", "9" * 5000, "٣", "false", "%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a/b",
        "%LMQ%\udc80", "0,0", str(1 << 58), str(LONG), "a\x01b", "a\x02", "\ud800", "x" * 32_760,
        "x" * 40_000, 5, None, b"x", True,
    ]),
)  # fmt: skip
hosts = st.one_of(
    st.just(LOOPBACK),
    st.builds(Host.of, st.sampled_from(["10.0.0.1", "::1"]), st.sampled_from([0, 65535])),
    st.binary(min_size=20, max_size=20).map(Host),
    st.binary(max_size=24).map(_host_of),
    st.sampled_from([None, "127.0.0.1", b"\x7f\0\0\1\0\0\0\0"]),
)
bodies: st.SearchStrategy[Any] = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([
        b"", bytes(MOST_BODY), bytes(MOST_BODY + 1), bytearray(b"ab"), "ab", None, 5,
    ]),
    st.builds(lambda: memoryview(array("i", [1, 2, 3]))),
)  # fmt: skip
plain = st.builds(
    Message, st.just("t"), st.binary(max_size=40), st.integers(0, 1),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS"]), st.text("ab ", min_size=1), max_size=2),
)  # fmt: skip
light = st.builds(
    Message, st.just("t"), st.binary(max_size=9), st.just(0),
    st.fixed_dictionaries({LIGHT: st.sampled_from(["%LMQ%a", "%LMQ%b,%LMQ%a"])}),
)  # fmt: skip
odd = st.builds(
    Message, topics, bodies, ints,
    st.one_of(st.dictionaries(names, texts, max_size=4), st.sampled_from([None, [], "ab"])),
    ints, ints, ints, hosts, hosts, ints, ints,
)  # fmt: skip
nearly = st.builds(
    _changed,
    plain,
    st.sampled_from([field for field in Message.__slots__ if field != "properties"]),
    st.one_of(topics, bodies, ints, hosts),
)
with_property = st.builds(
    lambda message, name, value: _changed(message, "properties", {name: value}),
    st.one_of(plain, st.builds(Message, st.just("SCHEDULE_TOPIC_XXXX"), st.just(b""))),
    names,
    texts,
)
messages = st.one_of(plain, light, nearly, with_property, odd)
WAYS = ["one", "async", "list", "batch"]


def put(
    store: MessageStore, way: str, given: list[Message]
) -> list[tuple[Message, PutMessageResult]]:
    """Put in one of the ways; return each message with what the store says of it."""
    if way == "one":
        return [(message, store.put_message(message)) for message in given]
    if way == "async":
        return [(message, store.put_message_async(message).result()) for message in given]
    if way == "list":
        return list(zip(given, store.put_messages(given), strict=True))
    (batch, *inner) = given
    try:
        body = encode_client_batch(inner)
    except IllegalMessageError:
        return []
    results = store.put_client_batch(_changed(batch, "body", body))
    if len(results) != len(inner):
        assert not any(result.ok for result in results)
        return [(batch, result) for result in results]
    stored = [
        Message(
            batch.topic, message.body, batch.queue_id, message.properties, message.flag,
            batch.sys_flag, batch.born_timestamp, batch.born_host, batch.store_host,
            batch.reconsume_times,
        )
        for message in inner
    ]  # fmt: skip
    return list(zip(stored, results, strict=True))


def compare(message: Message, found: StoredMessage) -> None:
    properties = dict(message.properties)
    if LIGHT in properties and LIGHT_OFFSETS in found.properties:
        properties[LIGHT_OFFSETS] = found.properties[LIGHT_OFFSETS]
    assert found.properties == properties
    assert found.topic == message.topic
    assert bytes(found.stored_body) == bytes(message.body)
    assert found.queue_id == message.queue_id
    assert found.head.flag == message.flag
    assert found.sys_flag & ~V6_BITS == message.sys_flag & ~V6_BITS
    assert found.born_host == message.born_host
    assert found.store_host == message.store_host
    assert found.head.born_timestamp == message.born_timestamp or not message.born_timestamp
    assert found.tail.reconsume_times == message.reconsume_times
    assert found.tail.prepared_transaction_offset == message.prepared_transaction_offset


def check(store: MessageStore, stored: dict[int, Message]) -> None:
    """Compare the log, the queues and the index with what was acknowledged, by phy offset."""
    log = store.commit_log
    assert [record.phy_offset for record in log.scan(0)] == sorted(stored)
    units: Counter[int] = Counter()
    for key in store.queue_keys():
        for unit in store.queues.queue(*key).iterate(store.min_offset(*key)):
            found = log.message(unit.phy_offset)
            if key == (found.topic, found.queue_id):
                assert found.queue_offset == unit.queue_offset
                units[unit.phy_offset] += 1
            else:
                assert key.topic.startswith(LMQ_PREFIX)
                assert key.topic in found.properties[LIGHT].split(",")
    for phy_offset, message in stored.items():
        compare(message, log.message(phy_offset))
        assert units[phy_offset] == is_queued(message.sys_flag)
    assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", backend_names())
@settings(max_examples=15)
@given(
    calls=st.lists(st.tuples(st.sampled_from(WAYS), st.lists(messages, min_size=1, max_size=6)),
                   min_size=1, max_size=6),
    enable_lmq=st.booleans(),
)  # fmt: skip
def test_what_is_acknowledged_comes_back_after_a_crash(
    backend: str, calls: list[tuple[str, list[Message]]], *, enable_lmq: bool
) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=1 << 17, max_message_size=MOST_BODY, enable_lmq=enable_lmq,
        enable_multi_dispatch=enable_lmq, max_hash_slot_num=64, max_index_num=4096,
    )  # fmt: skip
    folder = Path(tempfile.mkdtemp())
    try:
        with MessageStore.open(folder / "store", config, backend=backend) as store:
            stored: dict[int, Message] = {}
            for way, given_messages in calls:
                for message, result in put(store, way, given_messages):
                    if result.ok:
                        assert result.phy_offset not in stored
                        stored[result.phy_offset] = message
                    else:
                        assert result.status is not PutMessageStatus.PUT_OK
                        assert result.reason
            shutil.copytree(folder / "store", folder / "crashed")
        for name in ("crashed", "store"):
            with MessageStore.open(folder / name, config) as store:
                check(store, stored)
        if any(is_queued(message.sys_flag) for message in stored.values()):
            _plans(folder / "store", config, OTHER[backend])
    finally:
        shutil.rmtree(folder)


def _plans(root: Path, config: StoreConfig, target: str) -> None:
    """A move can be planned; light queues alone may have names that no file queue can have."""
    try:
        plan = make_plan(root, config, target=target, workspace=Workspace(root.parent / "plan"))
    except IllegalMessageError as exc:
        assert "%LMQ%a/b" in str(exc)  # noqa: PT017 - what else is refused is a fault
    else:
        assert plan.queues
