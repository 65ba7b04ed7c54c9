"""``LogPrefault``: how far ahead of the log pages are brought in, and when."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore import Message, MessageStore, StoreConfig
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.writing.log_prefault import (
    MAX_AHEAD,
    MIN_AHEAD,
    LogPrefault,
    bytes_ahead,
)
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.waiting import until

MIB = 1 << 20
FILE = 16 * MIB
Span = tuple[int, int]


@pytest.mark.parametrize(
    ("grown", "seconds", "ahead"),
    [
        (MIB, 0.1, MIB),  # ten MiB a second: what comes in a tenth of one
        (4 * MIB, 0.2, 2 * MIB),
        (4 * MIB, 0.01, MAX_AHEAD),
        (MIN_AHEAD, 0.1, MIN_AHEAD),
        (MIN_AHEAD - 1, 0.1, 0),  # so slow that it needs no help
        (MIN_AHEAD, 3600.0, 0),
        (0, 1.0, 0),
        (MIB, 0.0, 0),  # a clock that stood still
        (-MIB, 0.1, 0),  # cut back
    ],
)
def test_how_far_ahead(grown: int, seconds: float, ahead: int) -> None:
    assert bytes_ahead(grown, seconds) == ahead


class Drive:
    """A log by hand: it grows as it is told, at a time that is told; spans are noted."""

    def __init__(self, folder: Path) -> None:
        config = StoreConfig(mapped_file_size_commit_log=FILE)
        self.log = CommitLog([folder], config, read_only=False)
        self.log.load()
        self.log.set_end(0)
        self.now = 100.0
        self.spans: list[Span] = []
        self.can = True
        self.ahead = LogPrefault(self.log, self._bring_in, lambda: self.now)

    def _bring_in(self, target: object, start: int, end: int) -> bool:
        assert self.log.current is not None
        assert target is self.log.current.map()
        self.spans.append((start, end))
        return self.can

    def grow(self, size: int, seconds: float) -> list[Span]:
        """Let the log grow; return what is brought in then."""
        self.log._writable(size)
        assert self.log.current is not None
        self.log.current.wrote_position += size
        self.log.end += size
        self.now += seconds
        self.spans.clear()
        assert self.ahead.step() is self.can
        return list(self.spans)


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    """An empty log."""
    made = Drive(tmp_path)
    yield made
    made.log.close()


def test_a_log_that_grows_is_kept_ahead_of(drive: Drive) -> None:
    assert drive.grow(MIB, 0.1) == [(MIB, 2 * MIB)]
    assert drive.grow(MIB // 2, 0.05) == [(2 * MIB, 2 * MIB + MIB // 2)]
    assert drive.ahead.brought == 2 * MIB + MIB // 2
    assert drive.grow(MIB // 4, 0.05) == []  # slower: the present pages suffice


def test_a_slow_log_is_left_alone(drive: Drive) -> None:
    assert drive.grow(MIB, 1.0) == []
    assert drive.ahead.brought == 0


def test_the_end_of_a_file_is_the_end_of_what_is_brought_in(drive: Drive) -> None:
    assert drive.grow(15 * MIB, 0.1) == [(15 * MIB, FILE)]
    assert drive.grow(MIB // 2, 0.01) == []
    rolled = drive.grow(MIB, 0.1)  # into the next file
    assert rolled == [(MIB, MIB + MIB * 3 // 2)]
    assert drive.ahead.brought == FILE + MIB * 5 // 2


def test_a_log_that_overtook_is_met_where_it_is(drive: Drive) -> None:
    assert drive.grow(MIB, 0.1) == [(MIB, 2 * MIB)]
    assert drive.grow(4 * MIB, 0.4) == [(5 * MIB, 6 * MIB)]


def test_it_is_due_where_half_of_what_was_brought_in_is_used(drive: Drive) -> None:
    drive.grow(MIB, 0.1)
    due = []
    for end in (MIB + MIB // 2 - 1, MIB + MIB // 2):
        drive.log.end = end
        drive.ahead.wake_if_due()
        due.append(drive.ahead._wake.wait(0))
    assert due == [False, True]


def test_a_put_that_is_interrupted_leaves_the_thread_to_be_woken_by_a_later_one(
    drive: Drive,
) -> None:
    def look_at(number: int) -> int:
        drive.grow(MIB, 0.1)
        drive.log.end = drive.ahead._due
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(drive.ahead.wake_if_due, number)
        drive.log.end += MIN_AHEAD
        drive.ahead.wake_if_due()
        assert drive.ahead._wake.wait(0), number
        return places

    places = look_at(0)
    assert places > 1
    for number in range(1, places + 1):
        look_at(number)


def test_a_file_that_is_gone_ends_nothing(drive: Drive) -> None:
    drive.grow(MIB, 0.1)
    assert drive.log.prepared is not None
    drive.log.prepared.close()
    drive.spans.clear()
    drive.log.end += MIB
    drive.now += 0.1
    drive.ahead.wake_if_due()
    assert drive.ahead._wake.wait(0)
    assert drive.ahead.step()
    assert drive.spans == []
    drive.log.end += MIB
    drive.ahead.wake_if_due()
    assert drive.ahead._wake.wait(0)


def test_a_kernel_that_cannot_is_asked_once(drive: Drive) -> None:
    drive.can = False
    assert drive.grow(MIB, 0.1) == [(MIB, 2 * MIB)]


@pytest.mark.disk
def test_puts_have_pages_brought_in_by_the_thread(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        ahead = components_of(store).ahead
        assert ahead is not None
        message = Message("T", bytes(32 << 10), 0, {})

        def brought() -> bool:
            for _ in range(64):
                assert store.put_message(message).ok
            return ahead.brought > store.max_phy_offset()

        until(brought)
        assert list(store.check()) == []


def test_there_is_no_thread_where_records_wait_in_memory(tmp_path: Path) -> None:
    config = StoreConfig(transient_store_pool_enable=True)
    with MessageStore.open(tmp_path, config) as store:
        assert components_of(store).ahead is None


@pytest.mark.disk
def test_a_store_that_is_only_read_has_no_such_thread(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        assert store.put_message(Message("T", b"x", 0, {})).ok
    with MessageStore.open(tmp_path, read_only=True) as store:
        assert components_of(store).ahead is None
