"""How far each level is delivered, on disk: restarts, kills, damage, and queues that change."""

import json
import shutil
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.service.scheduling.delay_offsets import DelayOffsets
from cqstore.store.service.scheduling.level_delivery import MAX_BATCH
from tests.kit.crash_images import crash_image
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
    put,
    scheduled,
    service,
)
from tests.kit.faults import ENOSPC, Faults
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.logs import BACKENDS
from tests.kit.mutations import in_time
from tests.kit.own_threads import own_threads
from tests.kit.waiting import until

IGNORED = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
"""A file that was opened as it was interrupted is closed when it is let go."""
FILE = "config/delayOffset.json"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_restart_goes_on(tmp_path: Path, clock: Clock, backend: str) -> None:
    with opened(tmp_path, clock, backend) as store:
        put(store, 1, 1, 2)
        put(store, 2, 3)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert not (tmp_path / FILE).exists()
    assert on_disk(tmp_path) == {1: 2}
    with opened(tmp_path, clock, backend) as store:
        deliver(store)
        assert numbers(store) == [1, 2]
        clock.ahead = 2 * HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [1, 2, 3]
    assert on_disk(tmp_path) == {1: 2, 2: 1}
    with opened(tmp_path, clock, backend) as store:
        deliver(store)
        assert numbers(store) == [1, 2, 3]
        assert THREAD not in own_threads()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kill_delivers_again_what_was_not_written_and_skips_nothing(
    tmp_path: Path, clock: Clock, backend: str
) -> None:
    with opened(tmp_path / "a", clock, backend) as store:
        put(store, 1, *range(6))
        clock.ahead = HOUR_SECONDS
        deliver(store)
        service(store).persist()
        put(store, 1, *range(6, 9))
        clock.ahead = 2 * HOUR_SECONDS
        deliver(store)
        put(store, 1, 9)
        crash_image(tmp_path / "a", tmp_path / "b")
    assert on_disk(tmp_path / "b") == {1: 6}
    with opened(tmp_path / "b", clock, backend) as store:
        deliver(store)
        assert numbers(store) == [*range(9), *range(6, 9)]
        clock.ahead = 4 * HOUR_SECONDS
        deliver(store)
        assert numbers(store)[-1] == 9


def test_offsets_are_written_at_the_interval_and_behind_the_log(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave a level ahead of the log, and its messages be skipped."""
    with opened(tmp_path, clock, flush_delay_offset_interval=60_000) as store:
        log = components_of(store).log
        seen: list[tuple[int, int]] = []
        write = service(store)._offsets.write

        def writing(offsets: Any) -> None:
            seen.append((log.flushed_phy_offset(), log.max_phy_offset()))
            write(offsets)

        monkeypatch.setattr(service(store)._offsets, "write", writing)
        put(store, 1, 1)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [1]
        deliver(store)
        assert seen == []
        clock.ahead += 61
        deliver(store)
        assert [flushed == end for flushed, end in seen] == [True]
        assert on_disk(tmp_path) == {1: 1}
        store.flush()
        assert len(seen) == 1, "nothing has changed"
        put(store, 1, 2)
        clock.ahead += HOUR_SECONDS
        deliver(store)
        store.flush()
        assert on_disk(tmp_path) == {1: 2}


def test_a_full_disk_is_tried_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    with opened(tmp_path, clock) as store:
        put(store, 1, 1)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        faults.fail("write", ENOSPC, FILE)
        with pytest.raises(StoreIOError):
            store.flush()
        assert store.put_message(Message("t", b"2")).ok
        faults.heal()
        store.flush()
        assert on_disk(tmp_path) == {1: 1}


def test_the_thread_tries_again_what_a_full_disk_refused(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.store.service.scheduling.schedule_message_service.RETRY_MS", 5)
    faults = Faults(monkeypatch)
    with opened(tmp_path, clock, flush_delay_offset_interval=1) as store:
        put(store, 1, 1)
        faults.fail("write", ENOSPC, FILE)
        clock.ahead = HOUR_SECONDS
        service(store)._wake.set()
        until(lambda: service(store).failures >= 2)
        assert numbers(store) == [1]
        assert on_disk(tmp_path) == {}
        faults.heal()
        until(lambda: on_disk(tmp_path) == {1: 1})


def test_a_thread_that_ended_unexpectedly_is_followed_by_another(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ValueError("unexpected")

    with opened(tmp_path, clock) as store:
        with monkeypatch.context() as patched:
            patched.setattr(service(store), "run", fail)
            put(store, 1, 1)
            until(lambda: service(store).failures == 1 and THREAD not in own_threads())
        put(store, 1, 2)
        until(lambda: service(store).deliveries[1].due is not None)
        assert own_threads().count(THREAD) == 1


def test_a_disk_that_takes_no_puts_holds_deliveries_up(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as store:
        put(store, 1, 1, 2)
        components_of(store).state.set_disk_full("no room")
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert numbers(store) == []
        deliver(store)
        components_of(store).state.set_disk_full("")
        clock.ahead += 2
        deliver(store)
        assert numbers(store) == [1, 2]


# ---- the file


def test_a_brokers_file_is_read_and_what_is_not_known_stays(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(
        '{"dataVersion":{"counter":7,"stateVersion":3,"timestamp":5},"offsetTable":{1:1,18:4},'
        '"later":"kept"}'
    )
    before = path.read_bytes()
    with MessageStore.open(tmp_path, config_of(), housekeeping=False) as store:
        put(store, 1, 1, 2)
    clock.ahead = HOUR_SECONDS
    with opened(tmp_path, clock) as store:
        deliver(store)
        assert numbers(store) == [2]
    found = json.loads(path.read_text())
    assert found["offsetTable"] == {"1": 2, "18": 4}
    assert found["later"] == "kept"
    assert (found["dataVersion"]["counter"], found["dataVersion"]["stateVersion"]) == (8, 3)
    assert path.with_name("delayOffset.json.bak").read_bytes() == before


@pytest.mark.parametrize("torn", [b"", b'{"offsetTable":{1:', b"[1]", b'{"offsetTable":{"1":"x"}}'])
def test_a_torn_file_is_read_from_its_backup(tmp_path: Path, torn: bytes) -> None:
    offsets = DelayOffsets(tmp_path / FILE)
    assert offsets.read() == {}
    offsets.write({1: 1})
    offsets.write({1: 2})
    (tmp_path / FILE).write_bytes(torn)
    again = DelayOffsets(tmp_path / FILE)
    assert again.read() == {1: 1}
    again.write({1: 5})
    assert DelayOffsets(tmp_path / FILE).read() == {1: 5}
    (tmp_path / FILE).unlink()
    assert DelayOffsets(tmp_path / FILE).read() == {1: 1}, "what could be read, not what was torn"


def test_where_no_file_can_be_read_nothing_is_opened(tmp_path: Path, clock: Clock) -> None:
    opened(tmp_path, clock).close()
    path = tmp_path / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    with pytest.raises(CorruptionError, match="are delivered again"):
        opened(tmp_path, clock)
    assert path.read_text() == "{"
    path.unlink()
    opened(tmp_path, clock).close()


@IGNORED
def test_a_write_that_is_cut_short_anywhere_leaves_the_one_or_the_other(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    offsets = DelayOffsets(path)
    offsets.write({1: 0})
    offsets.write({1: 1})
    places = run_interrupted(lambda: offsets.write({1: 2}))
    assert places > 20
    for number in range(1, places + 1):
        with suppress(Interrupted):
            run_interrupted(lambda: offsets.write({1: number + 2}), number)  # noqa: B023
        assert DelayOffsets(path).read() in ({1: number + 1}, {1: number + 2})
        backup = DelayOffsets(path.with_name("delayOffset.json.bak"))
        assert backup.read()[1] <= number + 1
        offsets.write({1: number + 2})
        assert {each.name for each in path.parent.iterdir()} == {path.name, f"{path.name}.bak"}


@IGNORED
def test_a_persist_that_is_cut_short_anywhere_skips_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, clock) as store:
        monkeypatch.setattr(service(store), "_flush_log", lambda: None)  # of that a store fails
        places, number = 1, 0
        while number <= places:
            put(store, 1, number)
            clock.ahead += HOUR_SECONDS
            deliver(store)
            with suppress(Interrupted):
                places = run_interrupted(service(store).persist, number)
            assert on_disk(tmp_path).get(1, 0) in {number, number + 1}
            service(store).persist()
            assert on_disk(tmp_path) == {1: number + 1}
            number += 1
        assert numbers(store) == [*range(number)]


@IGNORED
def test_a_put_that_is_cut_short_anywhere_comes_or_is_not_there(
    tmp_path: Path, clock: Clock
) -> None:
    """Where the thread was not woken the next delayed put does it, or the next opening."""
    places, number = 1, 0
    with ExitStack() as stores:
        store = stores.enter_context(opened(tmp_path, clock))
        while number <= places:
            with suppress(Interrupted):
                places = run_interrupted(partial(store.put_message, delayed(number, 1)), number)
            if components_of(store).state.failure is not None:  # cut short in what must be whole
                store.close()
                store = stores.enter_context(opened(tmp_path, clock))
            clock.ahead += HOUR_SECONDS
            deliver(store)  # so that the next put finds nothing that waits
            service(store).persist()
            number += 1
        put(store, 1, number)
        clock.ahead += HOUR_SECONDS
        deliver(store)
        stored = numbers(store, SCHEDULE_TOPIC)
        assert numbers(store) == stored
        assert [stored[0], stored[-1], len(stored) > 5, number > 50] == [0, number, True, True]


def test_a_close_ends_the_thread_of_an_interrupted_start_too(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Worker.start

    def interrupted(worker: Worker) -> None:
        start(worker)
        raise Interrupted

    with opened(tmp_path, clock) as store:
        with monkeypatch.context() as patched, suppress(Interrupted):
            patched.setattr(Worker, "start", interrupted)
            put(store, 1, 1)
        until(lambda: service(store).deliveries[1].due is not None)
        put(store, 2, 2)
        until(lambda: service(store).deliveries[2].due is not None)
        assert own_threads().count(THREAD) == 2
        with in_time(30):
            store.close()
    assert THREAD not in own_threads()


# ---- queues that are not as they were


def test_an_offset_outside_of_its_queue_is_set_into_it(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """As RocketMQ's ``correctDelayOffset``; an offset ahead would skip what comes."""
    with opened(tmp_path, clock) as store:
        put(store, 1, 1)
    DelayOffsets(tmp_path / FILE).write({1: 40, 2: 3, 3: -1})
    with opened(tmp_path, clock) as store:
        put(store, 1, 2)
        put(store, 2, 3)
        put(store, 3, 4)
        clock.ahead = 10 * HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [2, 3, 4]
    assert [words for words in caplog.messages if "continues at queue offset" in words] == [
        "delay level 1 continues at queue offset 1, not at 40: its queue is [0, 1)",
        "delay level 2 continues at queue offset 0, not at 3: its queue is [0, 0)",
        "delay level 3 continues at queue offset 0, not at -1: its queue is [0, 0)",
    ]


def test_what_expires_before_it_is_due_is_passed_over(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, clock, mapped_file_size_commit_log=4096) as store:
        put(store, 1, 1)
        for _ in range(3):
            assert store.put_message(Message("other", bytes(3000))).ok
        put(store, 1, 2)
        store.delete_expired_files(components_of(store).log.files.files()[-1].file_from_offset)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [2]
        assert "1 messages of delay level 1 expired" in caplog.text


def test_a_rebuild_of_the_schedule_delivers_nothing_twice(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path, clock) as store:
        put(store, 1, 1, 2)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        put(store, 1, 3)
        store.rebuild_queues(SCHEDULE_TOPIC)
        deliver(store)
        clock.ahead = 3 * HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [1, 2, 3]


def test_a_damaged_message_holds_up_no_other(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, clock) as store:
        put(store, 1, 11111, 22222, 33333)
        store.flush()
        path = min((tmp_path / "commitlog").iterdir())
        data = bytearray(path.read_bytes())
        data[data.index(b"22222")] ^= 1
        with path.open("r+b") as file:
            file.write(data)
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [11111, 33333]
        assert "message 1 of delay level 1 is not delivered: the body's CRC" in caplog.text
        assert service(store).deliveries[1].failures == 1


def test_a_message_of_nowhere_holds_up_no_other(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Put by another program, straight into the schedule."""
    with MessageStore.open(tmp_path, config_of(enable_schedule_message_service=False)) as store:
        for homes in ({}, {"REAL_TOPIC": "t"}, {"REAL_TOPIC": "t", "REAL_QID": "x"},
                      {"REAL_TOPIC": SCHEDULE_TOPIC, "REAL_QID": "0"},
                      {"REAL_TOPIC": "a/b", "REAL_QID": "0"},
                      {"REAL_TOPIC": "t", "REAL_QID": "0"}):  # fmt: skip
            message = Message(SCHEDULE_TOPIC, b"7", 0, {"DELAY": "1", **homes})
            assert store.put_message(message).ok
    clock.ahead = HOUR_SECONDS
    with opened(tmp_path, clock) as store:
        until(lambda: numbers(store) == [7])
        assert service(store).deliveries[1].failures == 5
    assert "a delayed message has no valid target topic or queue" in caplog.text
    assert "topic 'a/b' refuses the message" in caplog.text


def test_a_clock_that_was_set_back_delays_no_longer_than_the_level(
    tmp_path: Path, clock: Clock
) -> None:
    """RocketMQ ``correctDeliverTimestamp``."""
    with opened(tmp_path, clock) as store:
        put(store, 2, 1)
        clock.ahead = -HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [1]


def test_a_due_time_that_lay_beside_the_queue_and_is_lost_is_reckoned_again(
    tmp_path: Path, clock: Clock
) -> None:
    """Such a unit has no tags code: RocketMQ then takes the store time of its record."""
    with opened(tmp_path, clock) as store:
        put(store, 2, 1)
        assert scheduled(store, 2) == 1
        (unit,) = components_of(store).queues.queue(SCHEDULE_TOPIC, 1).iterate(0)
        reckoned = service(store).deliveries[2]._due_time(None, unit.phy_offset, unit.size, 1 << 60)
        assert reckoned == unit.tags_code


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_than_a_batch_comes_in_order(tmp_path: Path, clock: Clock, backend: str) -> None:
    count = 2 * MAX_BATCH + 3
    with opened(tmp_path, clock, backend, flush_disk_type="SYNC_FLUSH") as store:
        put(store, 1, *range(count))
        clock.ahead = HOUR_SECONDS
        deliver(store)
        assert numbers(store) == [*range(count)]
        assert scheduled(store, 1) == count


def test_a_copy_of_the_folder_is_delivered_from_its_own_offsets(
    tmp_path: Path, clock: Clock
) -> None:
    with opened(tmp_path / "a", clock) as store:
        put(store, 1, 1)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    clock.ahead = HOUR_SECONDS
    for name in "ab":
        with opened(tmp_path / name, clock) as store:
            until(lambda: numbers(store) == [1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_waits_at_a_level_that_is_no_longer_configured_is_reported(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    with opened(tmp_path, clock, backend) as store:
        for number in range(2):
            assert store.put_message(delayed(number, 3)).ok
        assert store.put_message(delayed(9, 1)).ok
    clock.ahead += 11 * HOUR_SECONDS
    assert "messageDelayLevel" not in caplog.text
    with opened(tmp_path, clock, backend, message_delay_level="1h 2h") as store:
        deliver(store)
        assert numbers(store) == [9]
        (sentence,) = [words for words in caplog.messages if "messageDelayLevel" in words]
        assert sentence == (
            "2 messages of delay level 3 are not delivered: messageDelayLevel has 2 levels. Add"
            " the level again to deliver them"
        )
        levels = {each.level: each for each in service(store).figures()}
        assert (levels[3].waiting, levels[3].delivered, levels[1].waiting) == (2, 0, 0)
        assert levels[3].lag_ms == pytest.approx(HOUR_SECONDS * 1000, abs=600_000)
    caplog.clear()
    with opened(tmp_path, clock, backend) as store:
        deliver(store)
        assert sorted(numbers(store)) == [0, 1, 9]
        assert {each.level: each.waiting for each in service(store).figures()} == {1: 0, 3: 0}
    assert "messageDelayLevel" not in caplog.text
