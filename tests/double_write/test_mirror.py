"""Reads that are mirrored to the other backend: equal ones, wrong ones, and what time explains."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.config import StoreConfig
from store.errors import ConsumeQueueError, StoreConfigError
from store.queue.backends import backend
from store.queue.time_search import BoundaryType
from store.queue.units import PACKED_PREFIX, UnitBatch, UnitBlock
from store.record.message import Message
from store.service.message_store import MessageStore
from store.service.mirroring import mirror as mirror_module
from store.service.mirroring import verdict as verdict_module
from store.service.mirroring.differences import read_differences
from store.service.mirroring.figures import AGAIN, Way, read_figures
from store.service.mirroring.reads import Answer, Failed, Units
from store.service.mirroring.shares import Shares
from store.service.mirroring.verdict import Outcome
from store.service.operation_lines import StoreOp
from store.service.puller import TagFilter
from tests.kit.double_write import OTHER, QUEUES, Told, open_store, refuse
from tests.kit.mirrored import (
    by_hand,
    drive,
    figures,
    mirror_of,
    open_mirrored,
    outcomes,
    until,
)

BOTH = list(OTHER)
SAME, EXPLAINED, DIFFERENT = Outcome.SAME, Outcome.EXPLAINED, Outcome.DIFFERENT


def read_all(store: MessageStore, topic: str = "t") -> int:
    """Ask everything that is mirrored once of each queue; return how many reads that were."""
    for queue_id in range(QUEUES):
        store.get_message("g", topic, queue_id, 0)
        store.get_message("g", topic, queue_id, 2, 3, TagFilter("tag17 || tag3"))
        store.get_message("g", topic, queue_id, 1 << 40)
        store.min_offset(topic, queue_id)
        store.max_offset(topic, queue_id)
        store.offset_by_time(topic, queue_id, 1 << 41, BoundaryType.LOWER)
        store.offset_by_time(topic, queue_id, 0, BoundaryType.UPPER)
        store.estimate_message_count(topic, queue_id, 0, 1 << 30, TagFilter("tag3"))
    return 8 * QUEUES


@pytest.mark.parametrize("read", BOTH)
def test_equal_backends_answer_alike_whatever_is_asked(tmp_path: Path, read: str) -> None:
    with open_mirrored(tmp_path, read) as store:
        Told().put(store, 100)
        asked = read_all(store) + read_all(store, "none") + 1  # `put` has asked for an end
        until(lambda: sum(outcomes(store).values()) == asked)
        assert outcomes(store) == {SAME: asked}
        assert {each.op for each in figures(store).reads} == {
            StoreOp.PULL, StoreOp.MIN_OFFSET, StoreOp.MAX_OFFSET, StoreOp.TIME_SEARCH,
            StoreOp.ESTIMATE,
        }  # fmt: skip
        assert figures(store).dropped == 0
    assert not store.paths.ab_differences.exists()


@pytest.mark.parametrize("read", BOTH)
def test_figures_of_both_sides_go_on_after_a_restart(
    tmp_path: Path, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "ALIKE", 1)
    for opening in (1, 2):
        with open_mirrored(tmp_path, read) as store:
            Told().put(store, 25, f"t{opening}")
            for queue_id in range(QUEUES):
                store.get_message("g", f"t{opening}", queue_id, 0)
            drive(store)
            found = figures(store)
        assert found.count(SAME, op="pull") == QUEUES * opening
        pulls = {(each.side, each.way): each for each in found.seconds if each.op == "pull"}
        sides = [read, read + AGAIN, OTHER[read]]
        assert pulls.keys() == {(read, Way.SERVED), *((side, Way.MIRRORED) for side in sides)}
        for each in pulls.values():
            assert sum(each.counts) == sum(each.coarse.counts) == QUEUES * opening
            assert 0 < each.total_seconds < 60
        hours = [each for each in found.hours if each.op == "pull"]
        for side in sides:
            mine = [each for each in hours if each.side == side]
            assert len(mine) >= opening  # one for each hour of each opening
            assert sum(each.reads for each in mine) == QUEUES * opening
            assert sum(each.items for each in mine) == 25 * opening
            total = sum(each.seconds for each in mine)
            assert total == pytest.approx(pulls[side, Way.MIRRORED].total_seconds)
            assert all(0 < each.cpu_seconds < 60 for each in mine)
            assert all(0 < each.p50 <= each.p99 < 60 for each in mine)
        saved = read_figures(store.paths.ab_figures)
        assert saved is not None
        assert (saved.reads, saved.hours) == (found.reads, found.hours)
        assert saved.began == found.began > 0


def wrong_units(
    patched: pytest.MonkeyPatch, name: str, spoil: Callable[[UnitBlock], UnitBlock | None]
) -> None:
    """Let what ``spoil`` gives be read of backend ``name``; ``None``: what is right."""
    kind = backend(name)
    real = kind.read_units

    def read_units(self: object, topic: str, queue_id: int, at: int, most: int) -> UnitBlock:
        block: UnitBlock = real(self, topic, queue_id, at, most)  # type: ignore[arg-type]
        return spoil(block) or block

    patched.setattr(kind, "read_units", read_units)


def another_phy(block: UnitBlock) -> UnitBlock:
    """Move the third unit of a block by one byte."""
    data = bytearray(block.data)
    data[2 * block.stride + 7] ^= 1
    return UnitBlock(block.queue_offset, bytes(data), block.stride, block.stop)


@pytest.mark.parametrize("wrong", BOTH)
@pytest.mark.parametrize("read", BOTH)
def test_a_wrong_unit_is_found_and_named_whichever_side_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, wrong: str
) -> None:
    by_hand(monkeypatch)
    told = Told()
    with open_mirrored(tmp_path, read) as store:
        told.put(store, 50)
        with monkeypatch.context() as patch:
            wrong_units(patch, wrong, another_phy)
            for _ in range(3):
                store.get_message("g", "t", 1, 4, 6)
            drive(store)
        assert outcomes(store)[DIFFERENT] == 3
        (found,) = read_differences(store.paths.ab_differences)
    right = told.phys["t", 1][6]  # type: ignore[index]
    assert (found.op, found.queue, found.queue_offset) == ("pull", ("t", 1), 6)
    assert found.asked == {"offset": 4, "count": 6}
    assert found.wrong == wrong
    assert found.answers.keys() == set(BOTH)
    assert f" at {right}," in found.answers[OTHER[wrong]]
    assert f" at {right ^ 1}," in found.answers[wrong]
    assert found.phy_offset in {right, right ^ 1}
    assert found.time > 1.7e9


@pytest.mark.parametrize("read", BOTH)
def test_one_wrong_answer_in_a_thousand_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    calls = 0

    def now_and_then(block: UnitBlock) -> UnitBlock | None:
        nonlocal calls
        calls += 1
        return another_phy(block) if calls == 700 else None

    with open_mirrored(tmp_path, read) as store:
        Told().put(store, 50)
        wrong_units(monkeypatch, OTHER[read], now_and_then)
        for _ in range(1000):
            store.get_message("g", "t", 1, 0, 5)
        drive(store)
        assert outcomes(store) == {SAME: 1000, DIFFERENT: 1}
        (found,) = read_differences(store.paths.ab_differences)
        assert found.wrong == OTHER[read]


def without_last(block: UnitBlock) -> UnitBlock:
    data = bytes(block.data)[: -block.stride]
    return UnitBlock(block.queue_offset, data, block.stride, block.stop)


@pytest.mark.parametrize("read", BOTH)
def test_a_backend_that_loses_a_unit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        told = Told()
        told.put(store, 50)
        wrong_units(monkeypatch, OTHER[read], without_last)
        store.get_message("g", "t", 3, 0)
        drive(store)
        (found,) = read_differences(store.paths.ab_differences)
    assert found.answers[OTHER[read]] == "no unit 9"
    assert found.phy_offset == told.phys["t", 3][9]  # type: ignore[index]
    assert found.wrong == OTHER[read]


def test_a_unit_that_is_lacking_between_two_blocks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        Told().put(store, 50)
        wrong_units(
            monkeypatch, "rocksdb", lambda block: without_last(block) if block.count == 3 else None
        )
        store.get_message("g", "t", 2, 1, 3, TagFilter("tag47"))
        drive(store)
        (found,) = read_differences(store.paths.ab_differences)
    assert (found.asked, found.queue_offset) == ({"offset": 1, "count": 9}, 3)
    assert found.answers["rocksdb"] == "no unit 3"


@pytest.mark.parametrize("read", BOTH)
def test_a_unit_that_is_lacking_once_is_found_if_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    calls = 0

    def once(block: UnitBlock) -> UnitBlock | None:
        nonlocal calls
        calls += 1
        return without_last(block) if calls == 1 else None

    with open_mirrored(tmp_path, read) as store:
        Told().put(store, 50)
        drive(store)
        store.get_message("g", "t", 3, 0)
        wrong_units(monkeypatch, OTHER[read], once)
        drive(store)
        assert outcomes(store) == {SAME: 1, DIFFERENT: 1}


@pytest.mark.parametrize("read", BOTH)
def test_a_unit_that_is_lacking_for_good_is_found_whatever_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        told = Told()
        told.put(store, 50)
        drive(store)
        wrong_units(monkeypatch, OTHER[read], without_last)
        store.get_message("g", "t", 3, 0)
        told.put(store, 5)
        drive(store)
        assert outcomes(store)[DIFFERENT] == 1


@pytest.mark.parametrize(
    ("op", "method"),
    [
        ("minOffset", "min_offset"), ("maxOffset", "max_offset"),
        ("timeSearch", "offset_by_time"), ("estimate", "estimate_message_count"),
    ],
)  # fmt: skip
def test_wrong_numbers_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, method: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        Told().put(store, 50)
        drive(store)
        monkeypatch.setattr(backend("rocksdb"), method, lambda *_: 7)
        read_all(store)
        drive(store)
        found = [each for each in read_differences(store.paths.ab_differences) if each.op == op]
    assert {each.queue for each in found} == {("t", queue_id) for queue_id in range(QUEUES)}
    assert {each.answers["rocksdb"] for each in found} == {"7"}
    assert {"7"}.isdisjoint(each.answers["file"] for each in found)
    assert {(each.queue_offset, each.phy_offset, each.wrong) for each in found} == {(-1, -1, "")}


@pytest.mark.parametrize("failing", BOTH)
def test_a_backend_that_cannot_answer_has_answered_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        Told().put(store, 50)
        drive(store)
        with monkeypatch.context() as patch:
            refuse(patch, failing, "read_units")
            refuse(patch, failing, "offset_by_time")
            for call in (
                lambda: store.get_message("g", "t", 1, 0),
                lambda: store.offset_by_time("t", 1, 0),
            ):
                if failing == "file":  # the one that is read
                    with pytest.raises(ConsumeQueueError):
                        call()
                else:
                    call()
            drive(store)
        assert outcomes(store)[DIFFERENT] == 2
        told = read_differences(store.paths.ab_differences)
        assert store.put_message(Message("t", b"x", 1)).ok
    assert {each.answers[failing] for each in told} == {"cannot be read: ConsumeQueueError"}


# ---- what time explains


@pytest.mark.parametrize("read", BOTH)
def test_what_was_put_since_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    told = Told()
    with open_mirrored(tmp_path, read) as store:
        told.put(store, 50)
        asked = read_all(store)
        told.put(store, 50)
        drive(store)
        assert outcomes(store).keys() == {SAME, EXPLAINED}
        assert outcomes(store)[EXPLAINED] >= asked / 2


@pytest.mark.parametrize("read", BOTH)
def test_deletion_expiry_and_a_rebuild_since_are_no_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        for topic in ("gone", "again", "expired", "rebuilt"):
            Told().put(store, 200, topic)
        drive(store)
        for topic in ("gone", "again", "expired", "rebuilt"):
            read_all(store, topic)
        store.delete_topics(["gone", "again"])
        store.put_message(Message("again", b"of a new life"))
        store.rebuild_queues("rebuilt")
        files = store.commit_log.files.files()
        store.delete_expired_files(files[-2].file_from_offset)
        assert store.queues.min_offset("expired", 0) > 0
        drive(store)
        assert outcomes(store).keys() == {SAME, EXPLAINED}
    assert not store.paths.ab_differences.exists()


@pytest.mark.parametrize("read", BOTH)
def test_a_backend_that_is_still_getting_its_units_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    monkeypatch.setattr(verdict_module, "_TRIES", 1 << 30)
    kind, arrived, go_on = backend(OTHER[read]), threading.Event(), threading.Event()
    real = kind.put_batch

    def put_batch(self: object, batch: UnitBatch) -> object:
        arrived.set()
        assert go_on.wait(60)
        return real(self, batch)  # type: ignore[arg-type]

    with open_mirrored(tmp_path, read) as store:
        monkeypatch.setattr(kind, "put_batch", put_batch)
        store.put_message(Message("t", b"x"))
        putting = threading.Thread(target=store.max_offset, args=("u", 0))
        putting.start()
        assert arrived.wait(60)
        # As a reader who came before the batch: the one that is read has it, the other has not.
        mirror = mirror_of(store)
        assert mirror.max_offset("t", 0) == 1
        assert mirror.pull("t", 0, 0, 32, None, 1 << 20).queue_offsets == [0]
        until(lambda: len(mirror._waiting) < 2)
        assert outcomes(store) == {}
        go_on.set()
        putting.join()
        until(lambda: sum(outcomes(store).values()) == 3)
        assert outcomes(store).keys() <= {EXPLAINED, SAME}
        assert outcomes(store)[EXPLAINED] >= 1


@pytest.mark.parametrize("read", BOTH)
def test_what_is_written_between_the_two_that_are_asked_again_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    kind = backend(OTHER[read])
    real, left = kind.max_offset, 3

    with open_mirrored(tmp_path, read) as store:

        def put_first(self: object, topic: str, queue_id: int) -> int:
            nonlocal left
            if topic == "t" and left:
                left -= 1
                store.put_message(Message("t", b"x"))
                store.queue_keys()
            return real(self, topic, queue_id)  # type: ignore[arg-type]

        store.put_message(Message("t", b"x"))
        assert store.max_offset("t", 0) == 1
        monkeypatch.setattr(kind, "max_offset", put_first)
        drive(store)
        assert left == 0
        assert outcomes(store) == {EXPLAINED: 1}


def test_what_never_stands_still_is_not_accused_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(verdict_module, "_PAUSE_SECONDS", 0)
    with open_mirrored(tmp_path) as store:
        Told().put(store, 5)
        wrong_units(monkeypatch, "rocksdb", lambda _: UnitBlock(0, b"", PACKED_PREFIX, _.stop))
        store.get_message("g", "t", 0, 0)
        with mirror_of(store)._queues.changes:
            drive(store)
    assert outcomes_of(tmp_path) == {SAME: 1, Outcome.UNSETTLED: 1}


def outcomes_of(root: Path) -> dict[Outcome, int]:
    found = read_figures(root / "cqstore" / "ab" / "figures")
    assert found is not None
    return {outcome: n for outcome in Outcome if (n := found.count(outcome))}


@pytest.mark.parametrize("read", BOTH)
def test_a_value_that_never_was_is_not_explained_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """The other backend answers wrongly once, and something was put meanwhile."""
    by_hand(monkeypatch)
    calls = 0

    def once(block: UnitBlock) -> UnitBlock | None:
        nonlocal calls
        calls += 1
        return another_phy(block) if calls == 1 else None

    with open_mirrored(tmp_path, read) as store:
        Told().put(store, 50)
        drive(store)
        wrong_units(monkeypatch, OTHER[read], once)
        store.get_message("g", "t", 1, 0)
        monkeypatch.setattr(backend(OTHER[read]), "max_offset", _once(99, OTHER[read]))
        store.max_offset("t", 2)
        store.put_message(Message("t", b"x"))
        store.queues.context.log.max_phy_offset()
        store.min_offset("t", 4)
        drive(store)
        found = read_differences(store.paths.ab_differences)
    assert {(each.op, each.wrong) for each in found} == {("pull", OTHER[read]), ("maxOffset", "")}


@pytest.mark.parametrize("read", BOTH)
def test_what_the_one_that_serves_said_wrongly_once_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    calls = 0

    def once(block: UnitBlock) -> UnitBlock | None:
        nonlocal calls
        calls += 1
        return another_phy(block) if calls == 1 else None

    with open_mirrored(tmp_path, read) as store:
        told = Told()
        told.put(store, 50)
        drive(store)
        wrong_units(monkeypatch, read, once)
        store.get_message("g", "t", 1, 0)
        told.put(store, 5)
        drive(store)
        (found,) = read_differences(store.paths.ab_differences)
    assert (found.op, found.wrong) == ("pull", read)


def _once(answer: int, name: str) -> Callable[..., int]:
    """Answer so at the second call, the first pull's being the first; else as ever."""
    real: Callable[..., int] = backend(name).max_offset
    calls = 0

    def max_offset(*args: object) -> int:
        nonlocal calls
        calls += args[1:] == ("t", 2)
        return answer if args[1:] == ("t", 2) and calls == 1 else real(*args)

    return max_offset


UNITS = Units(0, 9, 3, ((30, 1, 7), (40, 1, 7)))


@pytest.mark.parametrize(
    ("op", "said", "first", "now", "never"),
    [
        ("maxOffset", 9, 5, 8, True), ("maxOffset", 8, 5, 8, False), ("maxOffset", 1, 5, 8, False),
        ("timeSearch", 9, 9, 8, False), ("estimate", 9, 5, 8, False),
        ("maxOffset", Failed("ConsumeQueueError"), 5, 8, True),
        ("maxOffset", 9, Failed("ConsumeQueueError"), 9, False),
        ("pull", UNITS, UNITS, UNITS, False),
        ("pull", UNITS._replace(high=10), UNITS, UNITS, True),
        ("pull", UNITS._replace(high=10), UNITS, UNITS._replace(high=10), False),
        ("pull", UNITS._replace(low=2, high=8, rows=UNITS.rows[:1]), UNITS, UNITS, False),
        ("pull", UNITS._replace(rows=((30, 1, 7), (41, 1, 7))), UNITS, UNITS, True),
        ("pull", UNITS._replace(rows=((30, 1, 8),)), UNITS, UNITS, True),
        ("pull", UNITS._replace(rows=((31, 1, 7),)), UNITS, UNITS._replace(low=4), False),
        ("pull", UNITS, UNITS, Failed("ConsumeQueueError"), True),
    ],
)  # fmt: skip
def test_what_never_was_is_told_from_what_is_not_there_any_more(
    op: str, said: Answer, first: Answer, now: Answer, *, never: bool
) -> None:
    assert verdict_module._never_was(StoreOp(op), said, first, now) is never


# ---- bounds and failures


def test_more_reads_than_can_wait_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "MOST_WAITING", 5)
    for opening in (1, 2):
        with open_mirrored(tmp_path) as store:
            for _ in range(12):
                store.max_offset("t", 0)
            assert drive(store) == 5
            assert figures(store).dropped == 7 * opening
            assert figures(store).dropped == 7 * opening
    assert outcomes_of(tmp_path) == {SAME: 10}


@pytest.mark.parametrize(("bound", "most"), [("MOST_KEPT", 3), ("MOST_BYTES", 450)])
def test_the_journal_keeps_the_first_of_each_place_and_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(f"store.service.mirroring.differences.{bound}", most)
    for opening in (1, 2):
        with open_mirrored(tmp_path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(backend("rocksdb"), "min_offset", lambda *_: 7)
                for queue_id in (0, 0, 1, 2, 3):
                    store.min_offset(f"t{opening}", queue_id)
                drive(store)
            assert outcomes(store) == {DIFFERENT: 5 * opening}
            kept = read_differences(store.paths.ab_differences)
            assert [each.queue for each in kept] == [("t1", 0), ("t1", 1), ("t1", 2)]


def test_a_mirror_that_fails_ends_and_the_store_goes_on(tmp_path: Path) -> None:
    with open_mirrored(tmp_path) as store:
        Told().put(store, 5)
        figures_file = store.paths.ab_figures
    figures_file.write_bytes(b"no figures\n")
    with open_mirrored(tmp_path) as store:
        until(lambda: bool(mirror_of(store).snapshot().failure))
        snapshot = store.metrics.snapshot().mirror
        assert snapshot is not None
        assert "figures" in snapshot.failure
        read_all(store)
        assert snapshot.waiting == len(mirror_of(store)._waiting) == 0
        assert store.put_message(Message("t", b"x")).ok
    assert figures_file.read_bytes() == b"no figures\n"
    figures_file.unlink()
    with open_mirrored(tmp_path) as store:
        assert store.last_exit_ok
        assert store.max_offset("t", 0) == 2
        until(lambda: outcomes(store) == {SAME: 1})


def test_a_torn_end_of_the_journal_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    for opening in (1, 2):
        with open_mirrored(tmp_path) as store, monkeypatch.context() as patch:
            patch.setattr(backend("rocksdb"), "min_offset", lambda *_: 7)
            store.min_offset(f"t{opening}", 0)
            drive(store)
        journal = store.paths.ab_differences
        kept = read_differences(journal)
        assert [each.queue.topic for each in kept] == [f"t{n + 1}" for n in range(opening)]
        with journal.open("ab") as file:
            file.write(journal.read_bytes()[:40])
        assert read_differences(journal) == kept


def test_a_journal_that_is_damaged_ends_the_mirror_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        monkeypatch.setattr(backend("rocksdb"), "min_offset", lambda *_: 7)
        store.min_offset("t", 0)
        store.min_offset("u", 0)
        drive(store)
    data = store.paths.ab_differences.read_bytes()
    store.paths.ab_differences.write_bytes(data[:20] + b"?" + data[21:])
    with open_mirrored(tmp_path) as store:
        assert "journal" in mirror_of(store).snapshot().failure
        assert store.put_message(Message("t", b"x")).ok


def test_a_backend_that_is_set_aside_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        Told().put(store, 5)
        drive(store)
        store.max_offset("t", 0)
        with monkeypatch.context() as patch:
            refuse(patch, "rocksdb", "put_batch")
            store.put_message(Message("t", b"x"))
            assert store.max_offset("t", 0) == 2
        assert list(store.backends_set_aside()) == ["rocksdb"]
        store.max_offset("t", 0)
        assert drive(store) == 1
        assert outcomes(store) == {SAME: 1, Outcome.GONE: 1}


@pytest.mark.parametrize(
    ("changes", "mirrors"),
    [
        ({}, 0),
        ({"ab_share": 0.5}, 1),
        ({"ab_shares": "orders=0.1"}, 1),
        ({"ab_shares": "orders=0"}, 0),
        ({"ab_share": 1, "rocksdb_cq_double_write_enable": False}, 0),
    ],
)
def test_nothing_is_made_or_asked_unless_a_share_is_given(
    tmp_path: Path, changes: dict[str, Any], mirrors: int
) -> None:
    with open_store(tmp_path, **changes) as store:
        assert (store._tap is not None) == bool(mirrors)
        assert (store.metrics.snapshot().mirror is not None) == bool(mirrors)
        store.max_offset("t", 0)
    assert (tmp_path / "cqstore" / "ab").exists() == bool(mirrors)


def test_a_read_only_store_mirrors_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        Told().put(store, 5)
    config = store.config.model_copy(update={"ab_share": 1.0})
    with MessageStore.open(tmp_path, config, read_only=True) as store:
        assert len(store.queues.parts()) == 2
        assert store._tap is None


def test_light_queues_that_lie_apart_have_no_other_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(
        tmp_path, enable_lmq=True, enable_multi_dispatch=True, combine_cq_use_rocksdb_for_lmq=True
    ) as store:
        store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%a"}))
        assert store.max_offset("%LMQ%a", 0) == 1
        assert store.get_message("g", "%LMQ%a", 0, 0).queue_offsets == [0]
        assert drive(store) == 0
        assert store.max_offset("t", 0) == 1
        assert drive(store) == 1


# ---- shares


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_a_share_of_reads_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "MOST_WAITING", 1 << 20)
    with open_mirrored(tmp_path, ab_share=share) as store:
        for _ in range(20_000):
            store.max_offset("t", 0)
        assert len(mirror_of(store)._waiting) == pytest.approx(20_000 * share, rel=0.4)


def test_classes_of_topics_have_shares_of_their_own() -> None:
    config = StoreConfig.from_mapping(
        {"abShare": "0.5", "abShares": "%RETRY%*=0; %DLQ%*=1 ;orders=0.25;a=b=0.1"}
    )
    shares = Shares(config.ab_share, config.ab_share_classes)
    topics = {"%RETRY%g": 0, "%DLQ%g": 1, "orders": 0.25, "orders2": 0.5, "a=b": 0.1, "x": 0.5}
    assert {topic: shares.of(topic) for topic in [*topics] * 2} == topics
    assert shares.most == 1
    drawn = sum(shares.takes("orders") for _ in range(20_000))
    assert drawn == pytest.approx(5_000, rel=0.2)
    assert not any(shares.takes("%RETRY%g") for _ in range(100))


@pytest.mark.parametrize("text", ["orders", "orders=", "=0.5", "orders=2", "orders=x", "a=1;b=-1"])
def test_shares_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StoreConfigError, match="share"):
        StoreConfig.from_mapping({"abShares": text})
    for bad in ("-0.1", "1.1", "x"):
        with pytest.raises(StoreConfigError, match="abShare"):
            StoreConfig.from_mapping({"abShare": bad})
