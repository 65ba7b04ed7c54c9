"""What a store tells of deliveries of delayed messages, by a clock that the test sets forward."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cqstore.metrics.prometheus import register
from cqstore.store.errors import CorruptionError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.metrics import MetricsSnapshot
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.service.scheduling.level_delivery import RETRY_MS, DelayLevelFigures
from cqstore.store.service.scheduling.schedule_message_service import LATE_BOUNDS
from tests.kit.delays import (
    HOUR_SECONDS,
    Clock,
    config_of,
    deliver,
    numbers,
    opened,
    put,
    service,
)
from tests.kit.logs import BACKENDS, CONFIG

HOUR_MS = HOUR_SECONDS * 1000
FILE = 65536
MINUTE_MS = 60_000
"""More than a test takes between two steps, unless the machine pauses."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def reported(store: MessageStore) -> MetricsSnapshot:
    store.max_offset("t", 0)  # dispatches what was put
    return store.metrics.snapshot()


def levels(store: MessageStore) -> dict[int, tuple[int, int, int, int]]:
    """Return level → delivered, waiting, offset, and minutes that the first one is overdue."""
    found = {}
    for each in reported(store).delay_levels:
        assert each.lag_ms is not None
        found[each.level] = each.delivered, each.waiting, each.offset, each.lag_ms // MINUTE_MS
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_level_tells_what_came_what_waits_and_how_long_that_is_overdue(
    tmp_path: Path, clock: Clock, backend: str
) -> None:
    with opened(tmp_path, clock, backend) as store:
        assert reported(store).delay_levels == ()
        with service(store)._running.entry():  # so that no thread delivers before it is looked at
            put(store, 1, 1, 2)
            put(store, 2, 3)
            assert levels(store) == {1: (0, 2, 0, 0), 2: (0, 1, 0, 0)}
            clock.ahead = HOUR_SECONDS + 10 * 60 + 30
            assert levels(store) == {1: (0, 2, 0, 10), 2: (0, 1, 0, 0)}
        deliver(store)
        assert levels(store) == {1: (2, 0, 2, 0), 2: (0, 1, 0, 0)}
        put(store, 1, 4)
        assert levels(store) == {1: (2, 1, 2, 0), 2: (0, 1, 0, 0)}
    with opened(tmp_path, clock, backend) as store:  # counts begin with an opening, offsets go on
        assert levels(store) == {1: (0, 1, 2, 0), 2: (0, 1, 0, 0)}


def test_how_late_messages_come_is_a_histogram(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as store:
        with service(store)._running.entry():
            put(store, 1, 1, 2)
            put(store, 2, 3)
            clock.ahead = 2 * HOUR_SECONDS + 5 * 60
        deliver(store)
        assert numbers(store) == [1, 2, 3]
        late = reported(store).delay_late_seconds
    assert late is not None
    assert late.bounds == LATE_BOUNDS
    by_bound = dict(zip((*late.bounds, None), late.counts, strict=True))
    assert {bound: count for bound, count in by_bound.items() if count} == {600.0: 1, 43200.0: 2}
    assert late.total_seconds == pytest.approx(2 * HOUR_SECONDS + 3 * 5 * 60, abs=180)


def test_what_is_refused_for_now_waits_and_what_is_refused_for_ever_is_counted(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, clock) as store:
        delivery = service(store).deliveries[1]
        real, answers = delivery._put, [PutMessageStatus.SERVICE_NOT_AVAILABLE]

        def refuse(messages: list[Message], /) -> list[object]:
            results = real(messages[:1])
            status = answers[0]
            return [*results, *[type(results[0])(status) for _ in messages[1:]]]

        monkeypatch.setattr(delivery, "_put", refuse)
        with service(store)._running.entry():
            put(store, 1, 1, 2, 3)
            assert levels(store) == {1: (0, 3, 0, 0)}
            clock.ahead = HOUR_SECONDS + 10 * 60 + 30
            now = int(clock.now() * 1000)
            delivery.deliver(now)
            assert delivery.due == now + RETRY_MS
            assert levels(store) == {1: (1, 2, 1, 10)}, "from when it was due, not from the retry"
            answers[0] = PutMessageStatus.MESSAGE_ILLEGAL
            delivery.deliver(now)
        (found,) = reported(store).delay_levels
    assert (found.delivered, found.failures, found.waiting, found.lag_ms) == (2, 1, 0, 0)


def test_what_expired_waits_no_more(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock, mapped_file_size_commit_log=FILE) as store:
        with service(store)._running.entry():
            put(store, 1, 1)
            clock.ahead = 10 * 60 + 30
            assert store.put_message(Message("t", bytes(FILE - 300))).ok
            put(store, 1, 2)
            assert levels(store)[1] == (0, 2, 0, 0)
            store.delete_expired_files(FILE)
            clock.ahead += HOUR_SECONDS
            assert levels(store)[1] == (0, 1, 1, 0), "overdue since just now, not for ten minutes"
        deliver(store)
        assert levels(store)[1] == (1, 0, 2, 0)


def test_a_unit_that_cannot_be_read_tells_no_lag(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> int:
        raise CorruptionError("it is damaged")

    registry = CollectorRegistry()
    with opened(tmp_path, clock) as store:
        put(store, 1, 1)
        assert levels(store) == {1: (0, 1, 0, 0)}
        register(store, registry=registry)
        assert 'cqstore_delay_lag_seconds{level="1"' in generate_latest(registry).decode()
        monkeypatch.setattr(service(store).deliveries[1], "_due_time", unreadable)
        assert [each.lag_ms for each in reported(store).delay_levels] == [None]
        scraped = generate_latest(registry).decode()
    assert 'cqstore_delay_waiting{level="1"' in scraped
    assert 'cqstore_delay_lag_seconds{level="1"' not in scraped


def test_prometheus_has_a_series_for_each_level_that_had_a_message(
    tmp_path: Path, clock: Clock
) -> None:
    registry = CollectorRegistry()
    with opened(tmp_path, clock) as store:
        register(store, registry=registry)
        put(store, 1, 1, 2)
        put(store, 3, 3)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        text = generate_latest(registry).decode()
    found = {
        line.split("{")[0]: line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith("cqstore_delay") and ('level="1"' in line or "_count" in line)
    }
    assert found == {
        "cqstore_delay_delivered_total": "2.0", "cqstore_delay_failures_total": "0.0",
        "cqstore_delay_waiting": "0.0", "cqstore_delay_lag_seconds": "0.0",
        "cqstore_delay_late_seconds_count": "2.0",
    }  # fmt: skip
    assert 'cqstore_delay_waiting{level="3"' in text
    assert 'level="2"' not in text


def test_who_delivers_nothing_tells_nothing(tmp_path: Path, clock: Clock) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        found = store.metrics.snapshot()
        assert (found.delay_levels, found.delay_late_seconds) == ((), None)
    with opened(tmp_path, clock) as store:
        put(store, 1, 1)
    with MessageStore.open(tmp_path, config_of(), read_only=True) as store:
        assert store.metrics.snapshot().delay_levels == ()


def test_an_offset_behind_the_end_waits_for_nothing() -> None:
    """As while the queue of a level is rebuilt."""
    assert DelayLevelFigures(1, 0, 0, 7, 5, 0).waiting == 0
