"""Messages that no record can hold, or that could not be read back: refused by every put."""

import re
import shutil
from array import array
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import IllegalMessageError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig

ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "7"}
CONFIG = StoreConfig(mapped_file_size_commit_log=5 << 20)  # above the longest message
SCHEDULED = "SCHEDULE_TOPIC_XXXX"


class _Duck:
    wire = b"\x7f\0\0\1"


@pytest.fixture(params=backend_names())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=request.param) as opened:
        yield opened


@pytest.mark.parametrize(
    "wire", [b"", b"\x7f\0\0\1", bytes(12), bytes(21), bytearray(8), "1.2.3.4"]
)
def test_a_host_has_8_or_20_bytes(wire: Any) -> None:
    with pytest.raises(IllegalMessageError, match=r"invalid host .*: expected 8 or 20 bytes"):
        Host(wire)


@pytest.mark.parametrize(
    "place", [("fe80::1%eth0", 1), ("fe80::1%" + "x" * 99, 1), (b"\x7f\0\0\1", 1), ("::1", "1"),
              ("::1", True), ("::1", -1), ("::1", 65536), (2130706433, 1)],
)  # fmt: skip
def test_an_address_is_text_without_a_zone(place: tuple[Any, Any]) -> None:
    with pytest.raises(IllegalMessageError):
        Host.of(*place)


def test_a_filter_is_text() -> None:
    with pytest.raises(TypeError, match="a filter must be a string, not None"):
        TagFilter(None)  # type: ignore[arg-type]


ODD: list[tuple[dict[str, Any], str]] = [
    ({"topic": b"t"}, "topic is b't', not str"),
    ({"topic": None}, "topic is None, not str"),
    ({"topic": memoryview(array("i", [1]))}, "topic is <memory"),
    ({"topic": "CHECKPOINT_TOPIC"}, "the name is reserved"),
    ({"topic": "a/b"}, "'/', blanks and control characters are not allowed"),
    ({"topic": "a\0b"}, "'/', blanks and control characters are not allowed"),
    ({"topic": ".."}, "the name is reserved"),
    ({"topic": "\udc80"}, "Unicode|UTF-8"),
    ({"body": "x"}, "body is 'x', not bytes"),
    ({"body": None}, "body is None, not bytes"),
    ({"body": 5}, "body is 5, not bytes"),
    ({"queue_id": -1}, "queue_id is -1, not between 0 and 2147483647"),
    ({"queue_id": 1 << 31}, "queue_id is .*, not between 0 and 2147483647"),
    ({"queue_id": True}, "queue_id is True, not int"),
    ({"queue_id": 1.0}, "queue_id is 1.0, not int"),
    ({"flag": 1 << 31}, "flag is"),
    ({"sys_flag": -(1 << 40)}, "sys_flag is"),
    ({"sys_flag": 0.5}, "sys_flag is 0.5, not int"),
    ({"sys_flag": 0x80}, "an inner batch"),
    ({"born_timestamp": 1 << 63}, "born_timestamp is"),
    ({"born_timestamp": 1.5}, "born_timestamp is 1.5, not int"),
    ({"born_host": "127.0.0.1"}, "born_host is '127.0.0.1', not Host"),
    ({"store_host": None}, "store_host is None, not Host"),
    ({"store_host": _Duck()}, "store_host is .*, not Host"),
    ({"reconsume_times": 1 << 31}, "reconsume_times is"),
    ({"prepared_transaction_offset": 1 << 63}, "prepared_transaction_offset is"),
    ({"properties": None}, "properties is None, not Mapping"),
    ({"properties": {"KEYS": 5}}, "invalid property 'KEYS' = 5"),
    ({"properties": {"KEYS": 5, "a": "b"}}, "invalid property 'KEYS' = 5"),
    ({"properties": {"TAGS": 5}}, "invalid property 'TAGS' = 5"),
    ({"properties": {b"a": "b", "c": "d"}}, "invalid property b'a' = 'b'"),
    ({"properties": {"a": ""}}, "name and value must not be empty"),
    ({"properties": {"": "a", "b": "c"}}, "name and value must not be empty"),
    ({"properties": {"INNER_NUM": "2"}}, "INNER_NUM"),
    ({"properties": LIGHT}, "INNER_MULTI_QUEUE_OFFSET must not be set: the store assigns it"),
    (
        {"properties": LIGHT | {"INNER_MULTI_QUEUE_OFFSET": str(1 << 60)}},
        "must not be set: the store assigns it",
    ),
    ({"topic": SCHEDULED, "properties": {"DELAY": "abc"}}, "invalid delay level 'abc' in DELAY"),
    ({"topic": SCHEDULED, "properties": {"DELAY": "9" * 5000}}, "invalid delay level '9+ in DELAY"),
]


@pytest.mark.parametrize(("fields", "reason"), ODD)
def test_every_put_refuses_it_and_writes_nothing(
    store: MessageStore, fields: dict[str, Any], reason: str
) -> None:
    message = Message(**{"topic": "t", "body": b"x", **fields})
    results = [store.put_message(message), store.put_message_future(message).result()]
    results += store.put_messages([message])
    for result in results:
        assert result.status is ILLEGAL
        assert re.search(reason, result.reason), result.reason
    assert store.max_phy_offset() == 0
    assert store.put_message(Message("t", b"y")).queue_offset == 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"properties": LIGHT}, "must not be set: the store assigns it"),
        ({"properties": {"INNER_NUM": "2", "INNER_BASE": "x"}}, "INNER_NUM"),
        ({"topic": SCHEDULED, "properties": {"DELAY": "x"}}, "invalid delay level 'x' in DELAY"),
    ],
)
def test_a_client_batch_with_it_is_refused_whole(
    store: MessageStore, fields: dict[str, Any], reason: str
) -> None:
    inner = [Message("t", b"x"), Message(**{"topic": "t", "body": b"x", **fields})]
    batch = Message(inner[1].topic, encode_client_batch(inner))
    (result,) = store.put_client_batch(batch)
    assert result.status is ILLEGAL
    assert reason in result.reason
    assert store.max_phy_offset() == 0


@pytest.mark.parametrize(
    "fields",
    [{"body": "x"}, {"properties": None}, {"properties": {"DELAY": "9" * 5000}},
     {"properties": {"DELAY": "٣"}}, {"sys_flag": None}, {"queue_id": -1}],
)  # fmt: skip
def test_an_odd_client_batch_is_refused(store: MessageStore, fields: dict[str, Any]) -> None:
    body = encode_client_batch([Message("t", b"x")])
    (result,) = store.put_client_batch(Message(**{"topic": "t", "body": body, **fields}))
    assert result.status is ILLEGAL
    assert result.reason
    assert store.max_phy_offset() == 0


@pytest.mark.parametrize("fields", [{"body": None}, {"flag": 1 << 31}, {"properties": {"a": 5}},
                                    {"properties": {"a": "x" * 70_000}}])  # fmt: skip
def test_what_no_batch_can_hold_is_not_encoded(fields: dict[str, Any]) -> None:
    with pytest.raises(IllegalMessageError):
        encode_client_batch([Message(**{"topic": "t", "body": b"x", **fields})])


def test_a_body_that_may_change_is_copied(store: MessageStore) -> None:
    numbers = array("i", [1, 2, 3])
    for body in (bytearray(b"abc"), memoryview(b"abc"), memoryview(numbers)):
        result = store.put_message(Message("t", body))  # type: ignore[arg-type]
        assert components_of(store).log.message(result.phy_offset).body == bytes(body)


@pytest.mark.parametrize("name", backend_names())
def test_a_light_queue_that_the_backend_cannot_hold_is_passed_over_in_the_log(
    tmp_path: Path, name: str
) -> None:
    """As RocketMQ does with files; such a store could not be opened."""
    config = CONFIG.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    with MessageStore.open(tmp_path, config, backend=name) as store:
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%aXb,%LMQ%c"}
        store.put_message(Message("t", b"x", properties=properties))
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(file.read(4096).index(b"aXb") + 1)
        file.write(b"/")
    shutil.rmtree(tmp_path / "consumequeue")
    with MessageStore.open(tmp_path, config, backend=name) as store:
        there = {key.topic for key in store.queue_keys() if store.max_offset(*key) == 1}
        assert there == {"t", "%LMQ%c"} | ({"%LMQ%a/b"} if name == "rocksdb" else set())


def test_a_refused_message_takes_no_place_of_the_light_quota(tmp_path: Path) -> None:
    config = StoreConfig(
        enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=1,
        max_message_size=1000, mapped_file_size_commit_log=65536,
    )  # fmt: skip
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    with MessageStore.open(tmp_path, config, backend="file") as store:
        assert store.put_message(Message("t", bytes(999), properties=light)).status is ILLEGAL
        assert store.put_message(Message("t", b"x", -1, light)).status is ILLEGAL
        assert store.put_message(Message("t", b"x", properties=light)).ok
        other = Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%b"})
        status = store.put_message(other).status
        assert status is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


DELAYED = [
    {"DELAY": "1"}, {"DELAY": "+18"}, {"DELAY": "3", "TAGS": "a"}, {"DELAY": "x"}, {"DELAY": "٣"},
    {"TIMER_DELAY_SEC": "5"}, {"TIMER_DELAY_MS": "5000"}, {"TIMER_DELIVER_MS": "1893456000000"},
]  # fmt: skip
AT_ONCE = [
    {"DELAY": "0"}, {"DELAY": "-1"}, {"DELAY": "+00"}, {"DELAYED": "3"}, {"TIMER": "3"},
    {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1893456000000"},
]  # fmt: skip


@pytest.mark.parametrize("properties", DELAYED, ids=str)
@pytest.mark.parametrize("sys_flag", [0, 0x8])
def test_a_message_that_is_to_come_later_is_refused(
    store: MessageStore, properties: dict[str, str], sys_flag: int
) -> None:
    message = Message("t", b"x", 0, properties, sys_flag=sys_flag)
    others = [Message("t", b"a"), message, Message("t", b"b")]
    results = [
        store.put_message(message), store.put_message_future(message).result(),
        store.put_messages(others)[1],
    ]  # fmt: skip
    if not sys_flag:
        results += store.put_client_batch(Message("t", encode_client_batch([message])))
    for result in results:
        assert result.status is ILLEGAL
        assert "allowDelayWithoutService" in result.reason
    assert store.max_offset("t", 0) == 2


@pytest.mark.parametrize("properties", AT_ONCE, ids=str)
def test_what_no_broker_would_delay_is_stored(
    store: MessageStore, properties: dict[str, str]
) -> None:
    assert store.put_message(Message("t", b"x", 0, properties)).ok
    (found,) = store.get_message("t", 0, 0, 32).messages()
    assert found.properties == properties


@pytest.mark.parametrize("properties", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "5"}])
def test_what_is_in_a_schedule_already_is_stored(
    store: MessageStore, properties: dict[str, str]
) -> None:
    topic = SCHEDULED if "DELAY" in properties else "rmq_sys_wheel_timer"
    assert store.put_message(Message(topic, b"x", 0, properties)).ok
    prepared = Message("t", b"x", 0, properties, sys_flag=0x4)
    assert store.put_message(prepared).ok  # it is delayed when it is committed


@pytest.mark.parametrize("properties", DELAYED[:3] + DELAYED[5:], ids=str)
def test_a_setting_stores_it_all_the_same(tmp_path: Path, properties: dict[str, str]) -> None:
    config = StoreConfig(mapped_file_size_commit_log=65536, allow_delay_without_service=True)
    with MessageStore.open(tmp_path / "s", config) as opened:
        message = Message("t", b"x", 0, properties)
        assert opened.put_message(message).ok
        assert [result.ok for result in opened.put_messages([message, message])] == [True, True]
        (first, _, _) = opened.get_message("t", 0, 0, 32).messages()
        assert first.properties == properties
