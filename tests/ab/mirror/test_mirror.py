"""Reads that are mirrored to the other backend: equal ones are, wrong ones are named."""

from pathlib import Path

import pytest

from cqstore.ab.mirror import mirror as mirror_module
from cqstore.ab.mirror.mirror_figures import AGAIN, ReadOrigin, read_figures
from cqstore.ab.mirror.mismatches import read_mismatches
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.ab.trace.operation_lines import StoreOp
from cqstore.store.errors import ConsumeQueueError
from cqstore.store.record.message import Message
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from tests.kit.double_write import OTHER, QUEUES, StoredOffsets, refuse
from tests.kit.mirrored import (
    another_phy,
    by_hand,
    drive,
    figures,
    mirror_of,
    only,
    open_mirrored,
    outcomes,
    read_all,
    without_last,
    wrong_units,
)
from tests.kit.queue_of import QUEUES_OF
from tests.kit.waiting import until

BOTH = list(OTHER)
SAME, EXPLAINED, DIFFERENT = ReadOutcome.SAME, ReadOutcome.EXPLAINED, ReadOutcome.DIFFERENT


@pytest.mark.parametrize("read", BOTH)
def test_equal_backends_answer_alike_whatever_is_asked(tmp_path: Path, read: str) -> None:
    with open_mirrored(tmp_path, read) as store:
        StoredOffsets().put(store, 100)
        requested = read_all(store) + read_all(store, "none") + 1  # `put` has asked for an end
        until(lambda: sum(outcomes(store).values()) == requested)
        assert outcomes(store) == {SAME: requested}
        assert {each.op for each in figures(store).reads} == {
            StoreOp.PULL, StoreOp.MIN_OFFSET, StoreOp.MAX_OFFSET, StoreOp.TIME_SEARCH,
            StoreOp.ESTIMATE,
        }  # fmt: skip
        assert figures(store).dropped == 0
    assert not components_of(store).paths.ab_differences.exists()


@pytest.mark.parametrize("read", BOTH)
def test_figures_of_both_sides_go_on_after_a_restart(
    tmp_path: Path, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "ALIKE", 1)
    for opening in (1, 2):
        with open_mirrored(tmp_path, read) as store:
            StoredOffsets().put(store, 25, f"t{opening}")
            for queue_id in range(QUEUES):
                store.get_message(f"t{opening}", queue_id, 0)
            drive(store)
            found = figures(store)
        assert found.count(SAME, op="pull") == QUEUES * opening
        pulls = {(each.side, each.way): each for each in found.seconds if each.op == "pull"}
        sides = [read, read + AGAIN, OTHER[read]]
        assert pulls.keys() == {
            (read, ReadOrigin.SERVED),
            *((side, ReadOrigin.MIRRORED) for side in sides),
        }
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
            assert total == pytest.approx(pulls[side, ReadOrigin.MIRRORED].total_seconds)
            assert all(0 < each.cpu_seconds < 60 for each in mine)
            assert all(0 < each.p50 <= each.p99 < 60 for each in mine)
        saved = read_figures(components_of(store).paths.ab_figures)
        assert saved is not None
        assert (saved.reads, saved.hours) == (found.reads, found.hours)
        assert saved.began == found.began > 0


@pytest.mark.parametrize(("drawn", "all_requested"), [(0.1249, True), (0.125, False)])
def test_one_in_eight_is_asked_of_all_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: float, *, all_requested: bool
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        StoredOffsets().put(store, 5)
        store.get_message("t", 0, 0)
        monkeypatch.setattr(mirror_of(store)._random, "random", lambda: drawn)
        drive(store)
        sides = {each.side for each in figures(store).seconds}
    assert sides == ({"file", "file" + AGAIN, "rocksdb"} if all_requested else {"file"})


def test_a_wrong_unit_behind_the_first_block_of_a_pull_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        StoredOffsets().put(store, 50)
        drive(store)
        wrong_units(monkeypatch, "rocksdb", only(2, another_phy))
        found = store.get_message("t", 0, 0, 2, TagFilter("tag40 || tag45"))
        assert found.queue_offsets == [8, 9]
        drive(store)
        (difference,) = read_mismatches(components_of(store).paths.ab_differences)
    assert difference.wrong == "rocksdb"


@pytest.mark.parametrize("wrong", BOTH)
@pytest.mark.parametrize("read", BOTH)
def test_a_wrong_unit_is_found_and_named_whichever_side_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, wrong: str
) -> None:
    by_hand(monkeypatch)
    stored = StoredOffsets()
    with open_mirrored(tmp_path, read) as store:
        stored.put(store, 50)
        with monkeypatch.context() as patch:
            wrong_units(patch, wrong, another_phy)
            for _ in range(3):
                store.get_message("t", 1, 4, 6)
            drive(store)
        assert outcomes(store)[DIFFERENT] == 3
        (found,) = read_mismatches(components_of(store).paths.ab_differences)
    right = stored.phys["t", 1][6]  # type: ignore[index]
    assert (found.op, found.queue, found.queue_offset) == ("pull", ("t", 1), 6)
    assert found.arguments == {"offset": 4, "count": 6}
    assert found.wrong == wrong
    assert found.answers.keys() == set(BOTH)
    assert f" phy offset {right}," in found.answers[OTHER[wrong]]
    assert f" phy offset {right ^ 1}," in found.answers[wrong]
    assert found.phy_offset in {right, right ^ 1}
    assert found.time > 1.7e9


@pytest.mark.parametrize("read", BOTH)
def test_one_wrong_answer_in_a_thousand_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        StoredOffsets().put(store, 50)
        wrong_units(monkeypatch, OTHER[read], only(700, another_phy))
        for _ in range(1000):
            store.get_message("t", 1, 0, 5)
        drive(store)
        assert outcomes(store) == {SAME: 1000, DIFFERENT: 1}
        (found,) = read_mismatches(components_of(store).paths.ab_differences)
        assert found.wrong == OTHER[read]


@pytest.mark.parametrize("read", BOTH)
def test_a_backend_that_loses_a_unit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        stored = StoredOffsets()
        stored.put(store, 50)
        wrong_units(monkeypatch, OTHER[read], without_last)
        store.get_message("t", 3, 0)
        drive(store)
        (found,) = read_mismatches(components_of(store).paths.ab_differences)
    assert found.answers[OTHER[read]] == "unit 9 is missing"
    assert found.phy_offset == stored.phys["t", 3][9]  # type: ignore[index]
    assert found.wrong == OTHER[read]


def test_a_unit_that_is_lacking_between_two_blocks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        StoredOffsets().put(store, 50)
        wrong_units(
            monkeypatch, "rocksdb", lambda block: without_last(block) if block.count == 3 else None
        )
        store.get_message("t", 2, 1, 3, TagFilter("tag47"))
        drive(store)
        (found,) = read_mismatches(components_of(store).paths.ab_differences)
    assert (found.arguments, found.queue_offset) == ({"offset": 1, "count": 9}, 3)
    assert found.answers["rocksdb"] == "unit 3 is missing"


@pytest.mark.parametrize("read", BOTH)
def test_a_unit_that_is_lacking_once_is_found_if_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        StoredOffsets().put(store, 50)
        drive(store)
        store.get_message("t", 3, 0)
        wrong_units(monkeypatch, OTHER[read], only(1, without_last))
        drive(store)
        assert outcomes(store) == {SAME: 1, DIFFERENT: 1}


@pytest.mark.parametrize("read", BOTH)
def test_a_unit_that_is_lacking_for_good_is_found_whatever_was_written_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        stored = StoredOffsets()
        stored.put(store, 50)
        drive(store)
        wrong_units(monkeypatch, OTHER[read], without_last)
        store.get_message("t", 3, 0)
        stored.put(store, 5)
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
        StoredOffsets().put(store, 50)
        drive(store)
        monkeypatch.setattr(QUEUES_OF["rocksdb"], method, lambda *_: 7)
        read_all(store)
        drive(store)
        found = [
            each
            for each in read_mismatches(components_of(store).paths.ab_differences)
            if each.op == op
        ]
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
        StoredOffsets().put(store, 50)
        drive(store)
        with monkeypatch.context() as patch:
            refuse(patch, failing, "read_units")
            refuse(patch, failing, "offset_by_time")
            for call in (
                lambda: store.get_message("t", 1, 0),
                lambda: store.offset_by_time("t", 1, 0),
            ):
                if failing == "file":  # the one that is read
                    with pytest.raises(ConsumeQueueError):
                        call()
                else:
                    call()
            drive(store)
        assert outcomes(store)[DIFFERENT] == 2
        reported = read_mismatches(components_of(store).paths.ab_differences)
        assert store.put_message(Message("t", b"x", 1)).ok
    assert {each.answers[failing] for each in reported} == {"cannot be read: ConsumeQueueError"}
