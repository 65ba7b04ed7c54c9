"""Delay levels of an embedded log, and messages that a group sends back."""

from pathlib import Path
from typing import Any

import pytest

from cqstore import (
    EmbeddedLog,
    MessageStore,
    PutRefusedError,
    ReadOnlyStoreError,
    RefusedStoreError,
    TailMessage,
)
from cqstore.embedded.tail import Tail
from cqstore.store.record.message import SCHEDULE_TOPIC
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from tests.kit.delays import HOUR_SECONDS, Clock, config_of, deliver
from tests.kit.logs import BACKENDS, stored_topics
from tests.kit.logs import opened as opened_without
from tests.kit.operating import rows
from tests.kit.waiting import run

LEVELS = " ".join(f"{level}h" for level in range(1, 19))
"""Level n takes n hours."""
RETRY, DLQ = "%RETRY%billing", "%DLQ%billing"


def opened(root: Path, clock: Clock, backend: str = "file") -> EmbeddedLog:
    config = config_of(message_delay_level=LEVELS)
    store = open_served(MessageStore, root, config, OpenOptions(backend=backend, environment=clock))
    return EmbeddedLog(store, 2, 3600.0)


def advance(log: EmbeddedLog, clock: Clock, hours: int) -> None:
    clock.ahead += hours * HOUR_SECONDS
    deliver(log.store)


async def take(tail: Tail, count: int) -> list[TailMessage]:
    return [await anext(tail) for _ in range(count)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_delayed_message_comes_to_a_tail_when_it_is_due(
    tmp_path: Path, clock: Clock, backend: str
) -> None:
    with opened(tmp_path, clock, backend) as log:
        log.put("orders", b"later", key="k", tags="new", delay_level=3)
        await log.put_async("orders", b"later still", key="k", delay_level=4)
        log.put("orders", b"now", key="k", delay_level=0)
        async with log.tail("orders", group="billing") as tail:
            assert [each.body for each in await take(tail, 1)] == [b"now"]
            advance(log, clock, 3)
            (message,) = await take(tail, 1)
            assert (message.body, message.key, message.tags) == (b"later", "k", "new")
            assert "DELAY" not in message.properties
            advance(log, clock, 1)
            (other,) = await take(tail, 1)
            assert other.queue_id == message.queue_id, "of its key"


def test_without_the_service_a_delay_is_refused(tmp_path: Path) -> None:
    with opened_without(tmp_path) as log:
        with pytest.raises(PutRefusedError, match="enableScheduleMessageService"):
            log.put("orders", b"x", delay_level=3)
        log.put("orders", b"x")
        (message,) = log.read("orders")
        with pytest.raises(RefusedStoreError, match="enable_schedule_message_service"):
            log.send_back(message, "billing")


@pytest.mark.parametrize("level", ["3", 3.0, True])
def test_what_is_no_level_is_refused(tmp_path: Path, clock: Clock, level: Any) -> None:
    with opened(tmp_path, clock) as log:
        with pytest.raises(RefusedStoreError, match="invalid delay level"):
            log.put("orders", b"x", delay_level=level)
        log.put("orders", b"x")
        (message,) = log.read("orders")
        with pytest.raises(RefusedStoreError, match="invalid delay level"):
            log.send_back(message, "billing", level)
        assert log.topics() == ["orders"]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_was_sent_back_comes_again_later_each_time(
    tmp_path: Path, clock: Clock, backend: str
) -> None:
    """Level 3 first, then 4 and so on: RocketMQ ``consumerSendMsgBack``."""
    with opened(tmp_path, clock, backend) as log:
        log.put("orders", b"bad", key="k", tags="new", properties={"own": "x"})
        async with log.tail("orders", group="billing", tags="new") as tail:
            first = message = await anext(tail)
            origin = log.store.get_message("orders", first.queue_id, 0).messages()[0].message_id
            for times in range(3):
                assert message.reconsume_times == times
                log.send_back(message, "billing")
                advance(log, clock, 2 + times)
                assert log.store.max_offset(RETRY, 0) == times
                advance(log, clock, 1)
                message = await anext(tail)
                assert (message.body, message.key, message.tags) == (b"bad", "k", "new")
                assert (message.topic, message.origin_topic) == (RETRY, "orders")
                assert message.properties["RETRY_TOPIC"] == "orders"
                assert message.properties["ORIGIN_MESSAGE_ID"] == origin
                assert message.properties["own"] == "x"
        assert log.committed("billing", RETRY) == {0: 3}
        assert log.committed("billing", "orders") == {first.queue_id: 1}
        assert log.store.max_offset(SCHEDULE_TOPIC, 2) == 1
    row = stored_topics(tmp_path)[RETRY]
    assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (1, 1, 6)


async def test_after_sixteen_times_it_is_a_dead_letter(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as log:
        log.put("orders", b"bad")
        async with log.tail("orders", group="billing") as tail:
            message = await anext(tail)
            for times in range(16):
                await log.send_back_async(message, "billing", 1)
                advance(log, clock, 1)
                message = await anext(tail)
                assert message.reconsume_times == times + 1
            log.send_back(message, "billing", 1)
        (dead,) = log.read(DLQ)
        assert (dead.body, dead.reconsume_times, dead.origin_topic) == (b"bad", 17, "orders")
        advance(log, clock, 18)
        assert log.store.max_offset(RETRY, 0) == 16


def test_a_dead_letter_at_once_and_levels_that_are_given(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as log:
        log.put("orders", b"x")
        (message,) = log.read("orders")
        log.send_back(message, "billing", -1)
        log.send_back(message, "audit", max_reconsume_times=0)
        assert [each.body for each in (*log.read(DLQ), *log.read("%DLQ%audit"))] == [b"x", b"x"]
        log.send_back(message, "billing", 7)
        log.send_back(message, "billing", 99)
        levels = [log.store.max_offset(SCHEDULE_TOPIC, level - 1) for level in (7, 18)]
        assert levels == [1, 1]


def test_what_is_gone_cannot_be_sent_back(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as log:
        log.put("orders", b"x", queue_id=0)
        (message,) = log.read("orders")
        log.store.delete_topic("orders")
        with pytest.raises(RefusedStoreError, match="no longer exists"):
            log.send_back(message, "billing")
    with MessageStore.open(tmp_path, config_of(), read_only=True) as store:
        reader = EmbeddedLog(store)
        with pytest.raises(ReadOnlyStoreError):
            reader.send_back(message, "billing")


async def test_one_consumer_of_a_group_gets_what_came_back(tmp_path: Path, clock: Clock) -> None:
    """Of whatever topic, as a consumer of RocketMQ's does; or none, where it wants none."""
    with opened(tmp_path, clock) as log:
        log.put("orders", b"order")
        log.put("payments", b"payment")
        for topic in ("orders", "payments"):
            (message,) = log.read(topic)
            log.send_back(message, "billing", 1)
        advance(log, clock, 1)
        async with (
            log.tail("orders", group="billing", begin="latest") as one,
            log.tail("payments", group="billing", begin="latest", retries=False) as other,
        ):
            received = await take(one, 2)
            assert [each.origin_topic for each in received] == ["orders", "payments"]
            log.put("payments", b"new")
            assert [each.body for each in await take(other, 1)] == [b"new"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_group_of_several_topics_has_one_retry_topic_and_figures_say_so(
    tmp_path: Path, clock: Clock, backend: str
) -> None:
    """As in RocketMQ, whose retry topic is the group's; dead letters name their topics."""

    async def story() -> None:
        with opened(tmp_path, clock, backend) as log:
            figures = log.store.metrics.by_topic(9, log.offsets)

            def lags() -> dict[str, int]:
                return {each.topic: each.lag for each in figures.sample().groups.groups}

            for number in range(3):
                log.put("orders", b"order %d" % number)
            log.put("payments", b"payment 0")
            log.put("payments", b"payment 1")
            for topic in ("orders", "payments"):
                dead, *others = log.read(topic)
                log.send_back(dead, "billing", -1)
                for each in others:
                    log.send_back(each, "billing", 1)
            assert lags() == {RETRY: 0}
            advance(log, clock, 1)
            assert log.store.max_offset(RETRY, 0) == 3
            assert lags() == {RETRY: 3}, "also before a tail reads them"
            async with (
                log.tail("orders", group="billing", begin="latest", retries=False) as orders,
                log.tail("payments", group="billing", begin="latest", retries=False) as payments,
                log.tail(RETRY, group="billing") as retries,
            ):
                received = await take(retries, 3)
                assert [each.origin_topic for each in received] == ["orders", "orders", "payments"]
                log.put("orders", b"new")
                log.put("payments", b"new")
                for tail in (orders, payments):
                    assert [each.body for each in await take(tail, 1)] == [b"new"]
            assert lags() == {"orders": 0, "payments": 0, RETRY: 0}

    run(story())
    (group,) = rows("groups", tmp_path)
    names = ("group", "topics", "lag", "retryLag", "deadLetters")
    assert [group[name] for name in names] == ["billing", 2, 0, 0, 2]
    found = [(row["group"], row["originTopic"], row["messages"]) for row in rows("dlq", tmp_path)]
    assert sorted(found) == [("billing", "orders", 1), ("billing", "payments", 1)]


async def test_a_retry_topic_is_read_by_its_name_too(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as log:
        log.put("orders", b"x")
        (message,) = log.read("orders")
        log.send_back(message, "billing", 1)
        advance(log, clock, 1)
        async with log.tail(RETRY, group="billing") as tail:
            assert [each.body for each in await take(tail, 1)] == [b"x"]
            assert tail.queue_ids == [0]
        with pytest.raises(RefusedStoreError, match="has open consumers of"):
            async with log.tail("orders", group="billing"), log.tail("orders", group="x"):
                log.reset_group("billing", RETRY, to="earliest")


async def test_a_group_whose_retry_topic_no_broker_would_take_has_none(
    tmp_path: Path, clock: Clock
) -> None:
    with opened(tmp_path, clock) as log:
        log.put("orders", b"x")
        async with log.tail("orders", group="g" * 121) as tail:
            assert (await anext(tail)).body == b"x"
        assert log.topics() == ["orders"]
