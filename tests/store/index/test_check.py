"""What a check says of an index file: each fault with its entry and its place. Made by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.index.index_check import IndexFinding
from cqstore.store.index.index_service import IndexService, open_index_file
from tests.store.index.test_geometry import (
    ENTRIES,
    ENTRY,
    HEADER,
    SLOT,
    SLOTS,
    Made,
    header,
    second,
)

FIRST = HEADER.size + SLOT.size * SLOTS


def findings(tmp_path: Path, made: Made, end: int | None = None) -> list[IndexFinding]:
    made.write(tmp_path / "20260101000000000")
    index = IndexService(tmp_path, SLOTS, ENTRIES, read_only=True)
    index.load(last_exit_ok=True, index_timestamp=0)
    found = list(index.check(end))
    assert {each.path for each in found} <= {str(tmp_path / "20260101000000000")}
    index.close()
    return found


def of_entry(problem: str, number: int) -> tuple[str, int, int]:
    return f"an entry {problem}", number, FIRST + ENTRY.size * number


BROKEN: list[tuple[Callable[[Made], object], tuple[str, int | None, int]]] = [
    (lambda made: made.change(20, 0, -1), of_entry("has a negative hash", 20)),
    (lambda made: made.change(1, 0, -5), of_entry("has a negative hash", 1)),
    (lambda made: made.change(20, 2, -1), of_entry("has a negative time", 20)),
    (lambda made: made.change(20, 3, 20), of_entry("points to an invalid previous entry", 20)),
    (lambda made: made.change(20, 3, -1), of_entry("points to an invalid previous entry", 20)),
    (lambda made: made.change(20, 1, 1000 + 50 * 19 - 1),
     of_entry("has a smaller phy offset than the previous entry", 20)),
    (lambda made: made.change(20, 1, 1000 + 50 * 21 + 1),
     of_entry("has a smaller phy offset than the previous entry", 21)),
    (lambda made: made.change(second(made), 3, 0),
     of_entry("does not point to the previous entry of its chain", second(Made(SLOTS, 40, 30)))),
    (lambda made: header(made, 5, ENTRIES + 1),
     (f"the header counts {ENTRIES + 1} entries, but the file holds at most {ENTRIES}", None, 36)),
    (lambda made: header(made, 5, -1),
     (f"the header counts -1 entries, but the file holds at most {ENTRIES}", None, 36)),
    (lambda made: header(made, 2, 1051),
     ("the header's begin_phy_offset is 1051, but the entry's is 1050", None, 16)),
    (lambda made: header(made, 3, 2499),
     ("the header's end_phy_offset is 2499, but the entry's is 2500", None, 24)),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "reported"), BROKEN, ids=[reported[0] for _, reported in BROKEN])
def test_each_fault_is_told_with_its_place(
    tmp_path: Path, spoil: Callable[[Made], object], reported: tuple[str, int | None, int]
) -> None:
    made = Made(SLOTS, ENTRIES, 30)
    assert findings(tmp_path, made) == []
    spoil(made)
    found = findings(tmp_path, made)
    problems = [
        (each.problem.partition("; run cqstore rebuild --index")[0], *each[2:4]) for each in found
    ]
    assert reported in problems


def test_many_are_told_by_the_first(tmp_path: Path) -> None:
    made = Made(SLOTS, ENTRIES, 30)
    for number in (9, 10, 17):
        made.change(number, 2, -1)
    (found,) = findings(tmp_path, made)
    assert found.problem == "an entry has a negative time, and 2 more"
    assert found.number == 9


def test_entries_end_before_the_log_does(tmp_path: Path) -> None:
    made = Made(SLOTS, ENTRIES, 30)  # the last at 2500, the one before at 2450
    assert findings(tmp_path, made, 2501) == []
    (found,) = findings(tmp_path, made, 2500)
    assert (found.problem, found.number) == ("an entry points past the end of the log", 30)
    (found,) = findings(tmp_path, made, 2450)
    assert (found.problem, found.number) == (
        "an entry points past the end of the log, and 1 more",
        29,
    )


def test_slots_lead_to_the_newest_entries(tmp_path: Path) -> None:
    made = Made(SLOTS, ENTRIES, 30)
    slot = made.hashes[second(made) - 1] % SLOTS
    newest = made.slot(slot)
    made.set_slot(slot, newest - 1)
    (found,) = findings(tmp_path, made)
    assert found.problem == f"slot {slot} points to {newest - 1} instead of {newest}"
    assert found.position == HEADER.size + SLOT.size * slot
    made.set_slot(slot, newest)
    header(made, 4, 99)
    (found,) = findings(tmp_path, made)
    used = len({key_hash % SLOTS for key_hash in made.hashes})
    assert found.problem == f"the header counts 99 used slots, but {used} are used"
    assert found.position == 32


def test_a_file_begins_where_the_one_before_ends(tmp_path: Path) -> None:
    Made(SLOTS, ENTRIES, 12).write(tmp_path / "20250101000000000")  # ends at 1600
    later = Made(SLOTS, ENTRIES, 12)
    (found,) = findings(tmp_path, later)
    assert found.problem == "the index file begins before the end of the previous one"
    for number in range(1, 13):
        later.change(number, 1, 1550 + 50 * number)
    header(later, 2, 1600)
    header(later, 3, 2150)
    assert findings(tmp_path, later) == [], "a record may be in both"


def test_rows_have_the_times_of_their_records_to_the_second(tmp_path: Path) -> None:
    made = Made(SLOTS, ENTRIES, 30)
    file = open_index_file(made.write(tmp_path / "20260101000000000"), SLOTS, ENTRIES)
    rows = [*file.rows()]
    file.close()
    assert [row.number for row in rows] == [*range(1, 31)]
    assert [row.key_hash for row in rows] == made.hashes
    assert [row.slot for row in rows] == [key_hash % SLOTS for key_hash in made.hashes]
    for row in rows:
        stored = 10_000 if row.number == 1 else 10_000 + 3000 * row.number
        expected = [row.key_hash, row.phy_offset, row.time_diff, row.previous_index]
        assert made.entry(row.number) == expected
        assert row.store_timestamp == stored
