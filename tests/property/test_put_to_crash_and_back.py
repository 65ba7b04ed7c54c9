"""Any message at all, put in any way: what is acknowledged is there once after a crash, as it was.

The rest was refused, with a reason and before a byte was written: nothing else lies in the log.
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import IllegalMessageError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import LMQ_PREFIX, Message, is_queued
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.messages import LIGHT, LIGHT_OFFSETS, MAX_BODY, V6_BITS, WAYS, messages, put

OTHER = {"file": "rocksdb", "rocksdb": "file"}


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
    log = components_of(store).log
    assert [record.phy_offset for record in log.scan(0)] == sorted(stored)
    units: Counter[int] = Counter()
    for key in store.queue_keys():
        for unit in components_of(store).queues.queue(*key).iterate(store.min_offset(*key)):
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
        mapped_file_size_commit_log=1 << 17, max_message_size=MAX_BODY, enable_lmq=enable_lmq,
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
            crash_image(folder / "store", folder / "crashed")
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
