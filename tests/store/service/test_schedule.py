"""Messages with a delay level: where they go, when they come, and what is refused.

What is compared with stands in RocketMQ's ``HookUtils`` and ``ScheduleMessageService``; the interop
tests compare with a broker.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import SCHEDULE_TOPIC, Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.delays import (
    HOUR_SECONDS,
    THREAD,
    Clock,
    config_of,
    delayed,
    deliver,
    numbers,
    on_disk,
    opened,
    scheduled,
    service,
)
from tests.kit.logs import BACKENDS
from tests.kit.own_threads import own_threads
from tests.kit.waiting import until

ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
HOUR_MS = HOUR_SECONDS * 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


WHOLE = Message(
    "orders", b"body", 5, {"KEYS": "k", "TAGS": "new", "DELAY": "2", "own": "x"}, flag=7,
    sys_flag=0x8, born_timestamp=1_700_000_000_000, born_host=Host.of("10.1.2.3", 99),
    store_host=Host.of("2001:db8::1", 10911), reconsume_times=3,
)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_waits_in_the_schedule_and_comes_as_it_was(
    tmp_path: Path, clock: Clock, backend: str
) -> None:
    with opened(tmp_path, clock, backend) as store:
        result = store.put_message(WHOLE)
        assert result.ok
        assert result.queue_offset == 0
        (waits,) = store.get_message(SCHEDULE_TOPIC, 1, 0).messages()
        assert waits.properties == {
            "KEYS": "k", "TAGS": "new", "DELAY": "2", "own": "x", "REAL_TOPIC": "orders",
            "REAL_QID": "5",
        }  # fmt: skip
        (unit,) = components_of(store).queues.queue(SCHEDULE_TOPIC, 1).iterate(0)
        assert unit.tags_code == waits.store_timestamp + 2 * HOUR_MS
        assert WHOLE.properties["DELAY"] == "2", "the caller's own message stays"
        clock.ahead = 2 * HOUR_SECONDS - 60
        deliver(store)
        assert store.max_offset("orders", 5) == 0
        clock.ahead = 2 * HOUR_SECONDS
        deliver(store)
        pulled = store.get_message("orders", 5, 0, tags=TagFilter("new"))
        (received,) = pulled.messages()
        assert bytes(received.body) == b"body"
        assert received.properties == {
            "KEYS": "k", "TAGS": "new", "own": "x", "REAL_TOPIC": "orders", "REAL_QID": "5"
        }  # fmt: skip
        assert (received.head.flag, received.tail.reconsume_times) == (7, 3)
        assert received.sys_flag == 0x8 | 0x20, "committed, and a store host of IPv6"
        assert received.head.born_timestamp == 1_700_000_000_000
        assert (received.born_host, received.store_host) == (WHOLE.born_host, WHOLE.store_host)
        assert [each.phy_offset for each in store.query_message("orders", "k")] == [
            received.phy_offset
        ]
        deliver(store)
        assert store.max_offset("orders", 5) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_way_to_put_delays(tmp_path: Path, clock: Clock, backend: str) -> None:
    with opened(tmp_path, clock, backend) as store:
        assert store.put_message(delayed(0, 1)).ok
        assert store.put_message_future(delayed(1, 1)).result().ok
        assert asyncio.run(store.put_message_async(delayed(2, 1))).ok
        mixed = [
            delayed(3, 1),
            Message("t", b"100"),
            delayed(4, 1),
            delayed(5, 2),
            Message("t", b"101"),
        ]
        assert all(result.ok for result in store.put_messages(mixed))
        assert numbers(store) == [100, 101]
        assert (scheduled(store, 1), scheduled(store, 2)) == (5, 1)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [100, 101, 0, 1, 2, 3, 4]
        clock.ahead = 2 * HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [100, 101, 0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("level", "queue_id", "kept"), [("3", 2, "3"), ("99", 2, "3"), ("+1", 0, "+1")]
)
def test_a_level_beyond_the_last_is_the_last(
    tmp_path: Path, clock: Clock, level: str, queue_id: int, kept: str
) -> None:
    with opened(tmp_path, clock) as store:
        assert store.put_message(Message("t", b"x", 0, {"DELAY": level})).ok
        (found,) = store.get_message(SCHEDULE_TOPIC, queue_id, 0).messages()
        assert found.properties["DELAY"] == kept


def test_a_level_goes_before_a_time_of_its_own(tmp_path: Path, clock: Clock) -> None:
    """RocketMQ ``HookUtils.checkIfTimerMessage``: the three are removed."""
    times = {"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "1", "TIMER_DELIVER_MS": "1"}
    with opened(tmp_path, clock) as store:
        assert store.put_message(Message("t", b"1", 0, {"DELAY": "1", **times})).ok
        (found,) = store.get_message(SCHEDULE_TOPIC, 0, 0).messages()
        assert not times.keys() & found.properties.keys()


@pytest.mark.parametrize("properties", [{"DELAY": "0"}, {"DELAY": "-1"}, {}])
def test_what_asks_for_no_delay_comes_at_once(
    tmp_path: Path, clock: Clock, properties: dict[str, str]
) -> None:
    with opened(tmp_path, clock) as store:
        assert store.put_message(Message("t", b"1", 0, properties)).ok
        half = Message("t", b"2", 0, {"DELAY": "1"}, sys_flag=0x4)
        assert store.put_message(half).ok, "it is delayed when it is committed"
        assert numbers(store) == [1]
        assert scheduled(store, 1) == 0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"properties": {"DELAY": "x"}}, "invalid delay level 'x' in DELAY"),
    ({"properties": {"DELAY": "9" * 10}}, "invalid delay level '9999999999' in DELAY"),
    ({"properties": {"DELAY": 3}}, "invalid delay level 3 in DELAY"),
    ({"properties": {"TIMER_DELAY_SEC": "5"}},
     "TIMER_DELAY_SEC is '5', but timer messages are not supported"),
    ({"topic": SCHEDULE_TOPIC}, "a topic of the store itself"),
    ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "a topic of the store itself"),
    ({"topic": "a/b"}, "invalid topic name"),
    ({"topic": "t" * 128}, "at most 127"),
    ({"topic": None}, "topic"),
    ({"queue_id": -1}, "invalid queue id -1"),
    ({"queue_id": 1 << 31}, "invalid queue id 2147483648"),
    ({"queue_id": "1"}, "invalid queue id '1'"),
    ({"properties": {"DELAY": "1", "INNER_NUM": "2"}}, "INNER_NUM"),
    ({"properties": {"DELAY": "1", "INNER_MULTI_DISPATCH": "a"}}, "'a' in INNER_MULTI_DISPATCH"),
    ({"properties": {"DELAY": "1", "INNER_MULTI_DISPATCH": "%LMQ%a"}, "body": bytes(999)},
     "for light queues, at most"),
    ({"body": bytes(1001)}, "body too large: 1001 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), REFUSED)
def test_what_could_not_be_delivered_is_refused_at_its_put(
    tmp_path: Path, clock: Clock, fields: dict[str, Any], words: str
) -> None:
    given = {"topic": "t", "body": b"x", "properties": {"DELAY": "1"}} | fields
    with opened(
        tmp_path, clock, enable_lmq=True, enable_multi_dispatch=True, max_message_size=1000
    ) as store:
        end = store.max_phy_offset()
        for result in (
            store.put_message(Message(**given)),
            *store.put_messages([Message(**given)]),
        ):
            assert result.status is ILLEGAL
            assert words in result.reason
        assert store.max_phy_offset() == end
        assert THREAD not in own_threads()


def test_a_copy_of_what_waits_elsewhere_waits_here(tmp_path: Path, clock: Clock) -> None:
    """As ``cqstore import`` puts it."""
    with opened(tmp_path, clock) as store:
        properties = {"DELAY": "2", "REAL_TOPIC": "t", "REAL_QID": "1"}
        assert store.put_message(Message(SCHEDULE_TOPIC, b"5", 1, properties)).ok
        clock.ahead = 2 * HOUR_SECONDS
        deliver(store)
        assert numbers(store, "t", 1) == [5]


def test_a_client_batch_has_no_delays(tmp_path: Path, clock: Clock) -> None:
    """RocketMQ delays none of its messages."""
    with opened(tmp_path, clock) as store:
        batch = Message("t", encode_client_batch([delayed(1, 1)]))
        (result,) = store.put_client_batch(batch)
        assert result.status is ILLEGAL


def test_light_queues_get_it_when_it_is_due(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock, enable_lmq=True, enable_multi_dispatch=True) as store:
        properties = {"DELAY": "1", "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
        assert store.put_message(Message("t", b"1", 0, properties)).ok
        assert store.max_offset("%LMQ%a", 0) == 0
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert [numbers(store, name) for name in ("t", "%LMQ%a", "%LMQ%b")] == [[1], [1], [1]]


# ---- the thread


def test_where_nothing_waits_there_is_no_thread(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock, flush_delay_offset_interval=1) as store:
        assert store.put_message(Message("t", b"1")).ok
        assert THREAD not in own_threads()
        assert store.put_message(delayed(2, 1)).ok
        assert own_threads().count(THREAD) == 1
        until(lambda: service(store).deliveries[1].due is not None)
        assert store.put_message(delayed(3, 1)).ok
        assert own_threads().count(THREAD) == 1
        clock.ahead = 2 * HOUR_SECONDS
        assert store.put_message(delayed(4, 2)).ok  # wakes it
        until(lambda: numbers(store) == [1, 2, 3])
        clock.ahead = 5 * HOUR_SECONDS
        service(store)._wake.set()
        until(lambda: THREAD not in own_threads())  # all is delivered and written
        assert numbers(store) == [1, 2, 3, 4]
        assert on_disk(tmp_path) == {1: 2, 2: 1}
        assert store.put_message(delayed(5, 1)).ok
        until(lambda: own_threads().count(THREAD) == 1)
    assert THREAD not in own_threads()


def test_the_thread_sleeps_until_the_next_message_is_due(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as store:
        assert store.put_message(delayed(1, 2)).ok
        assert store.put_message(delayed(2, 1)).ok
        until(lambda: all(service(store).deliveries[level].due is not None for level in (1, 2)))
        clock.ahead = HOUR_SECONDS - 0.05
        service(store)._wake.set()
        assert store.wait_for("t", 0, 0, 30), "not at the end of a minute's sleep alone"
        assert numbers(store) == [2]


def test_a_thread_that_cannot_be_started_is_tried_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with opened(tmp_path, clock) as store:
        assert store.put_message(Message("t", b"0")).ok  # another thread makes the next file
        with monkeypatch.context() as patched:
            patched.setattr(
                "cqstore.store.service.runtime.watched_thread.StoreThread.start", refuse
            )
            assert store.put_message(delayed(1, 1)).ok
        assert not service(store)._is_running
        assert store.put_message(delayed(2, 1)).ok
        assert own_threads().count(THREAD) == 1


# ---- stores that deliver, and stores that do not


def test_who_only_reads_or_keeps_no_house_delivers_nothing(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, config_of(), housekeeping=False) as store:
        assert components_of(store).schedule is None
        assert store.put_message(delayed(1, 1)).ok
        assert scheduled(store, 1) == 1
    with MessageStore.open(tmp_path, config_of(), read_only=True) as store:
        assert components_of(store).schedule is None
    clock.ahead = HOUR_SECONDS
    with opened(tmp_path, clock) as store:
        until(lambda: numbers(store) == [1])


def test_who_delivers_follows_no_master_and_keeps_the_schedule(
    tmp_path: Path, clock: Clock
) -> None:
    with opened(tmp_path, clock) as store:
        with pytest.raises(RefusedStoreError, match="its master delivers delayed messages"):
            store.append_to_commit_log(0, b"")
        with pytest.raises(RefusedStoreError, match="the store delivers delayed messages from it"):
            store.delete_topics(["t", SCHEDULE_TOPIC])
    learner = config_of().without_schedule()
    assert not learner.enable_schedule_message_service


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"allowDelayWithoutService": "true"}, "exclude each other"),
        ({"messageDelayLevel": " "}, "needs levels"),
        ({"messageDelayLevel": "1s x"}, "invalid delay 'x'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(StoreConfigError, match=words):
        MessageStore.open(
            tmp_path,
            StoreConfig.from_mapping({"enableScheduleMessageService": "true", **settings}),
        )
    assert list(tmp_path.rglob("*.json")) == []
