"""Where a file queue ends, against a plain walk over its rows; read a few units at a time."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.cq_file.recovery import QueueEnd, find_end
from tests.kit.file_queues import FILE_SIZE, PRE_BLANK, SIZE, UNIT, Disk, Row

ZERO = (0, 0, 0)
PER_FILE = 10
FAR = 1 << 40


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqstore.cq_file.recovery._FIRST_UNITS", 2)
    monkeypatch.setattr("cqstore.cq_file.recovery._SCAN_UNITS", 3)


def units(count: int, first: int = 0) -> list[Row]:
    """Return the units of a log that has nothing else, from position 0 on; half have tags."""
    return [(SIZE * at, SIZE, 7 * (at % 2)) for at in range(first, first + count)]


def walk(table: list[Row], safe: int, limit: int, base: int = 0) -> QueueEnd:
    """Return the end as the rules have it.

    A queue goes on while each row is a unit that leads behind the one before, in the log; before
    the first there may be pre-blanks. What was on disk, below ``safe``, stays.
    The row after the end may be the unit of a record that the log does not have.
    """
    last, end = -1, 0
    for row in table:
        is_next = row != PRE_BLANK and row[1] > 0 and last < row[0] < limit
        if not is_next and (row != PRE_BLANK or last >= 0):
            break
        last, end = row[0] if is_next else last, end + 1
    strict = end
    for at, row in enumerate(table):
        if at >= end and row != PRE_BLANK and row[1] > 0 and last < row[0] < min(safe, limit):
            last, end = row[0], at + 1
    first = next((at for at, row in enumerate(table[:end]) if row != PRE_BLANK), end)
    end_phy = sum(table[end - 1][:2]) if last >= 0 else -1
    dirty = any(any(row) for row in table[end:])
    behind = table[end] if end < len(table) else (0, 0, 0)
    lost = sum(behind[:2]) if behind[1] > 0 and behind[0] >= limit else -1
    return QueueEnd(base + first, base + end, last, end_phy, dirty, end > strict, lost)


def lay(root: Path, table: list[Row], base: int = 0, ahead: int = 0) -> Iterator[QueueFiles]:
    """Write ``table`` as files, and ``ahead`` more of zeros; yield them once."""
    disk, start = Disk(root), base * 20
    pieces = [table[at : at + PER_FILE] for at in range(0, len(table), PER_FILE)]
    for at, piece in enumerate([*pieces, *[[]] * ahead]):
        disk.write(start + at * FILE_SIZE, piece)
    cache = DescriptorCache(8, read_only=True)
    starts = [start + at * FILE_SIZE for at in range(len(pieces) + ahead)]
    parent = str(disk.folder().parent.parent)
    yield QueueFiles(FileAccess(parent, FILE_SIZE, cache, UnsyncedFiles()), "T", 0, starts)
    cache.close()


def tails(count: int, blanks: int) -> list[list[Row]]:
    """Return what a crash may leave behind ``count`` units."""
    following, phy = units(4, count), SIZE * count
    return [
        [],
        [ZERO, *following],
        [ZERO, *following[:1]],
        [ZERO, ZERO, ZERO, *following[1:]],
        [(phy, 0, 7), *following[1:]],
        [(-phy - 1, SIZE, 7), *following[1:]],
        [PRE_BLANK, *following[: 0 if blanks else 4]],
        [*following[:1], (phy, SIZE, 7), *following[1:]],
        [*following[2:], *following[:2]],
        [*units(3), *following[1:]],
        [(phy, 0x7FFFFFFF, 0), (0, 0x7FFFFFFF, 7), *following[1:]],
        [(FAR, SIZE, 7), *following],
    ]


@pytest.mark.parametrize("count", [0, 1, 3, 8, 10])
@pytest.mark.parametrize(("blanks", "base"), [(0, 0), (2, 0), (0, 10), (1, 20)])
def test_after_a_crash_the_end_is_the_one_of_a_walk(
    tmp_path: Path, count: int, blanks: int, base: int
) -> None:
    for number, tail in enumerate(tails(count, blanks)):
        table = [PRE_BLANK] * blanks + units(count) + tail
        for files in lay(tmp_path / str(number), table, base if table else 0):
            for safe, limit in product((0, SIZE * (count + 2), FAR), (SIZE * (count + 3), FAR)):
                found = find_end(
                    files, last_exit_ok=False, safe_phy_offset=safe, max_phy_offset=limit
                )
                expected = walk(table, safe, limit, base if table else 0)
                assert found == expected, (table, safe, limit)


@pytest.mark.parametrize("last_exit_ok", [False, True])
@pytest.mark.parametrize(
    ("base", "blanks", "ahead"), [(0, 0, 0), (0, 3, 1), (10, 0, 2), (10, 10, 4), (20, 9, 0)]
)
def test_wherever_a_queue_begins_and_however_far_its_files_reach_its_end_is_found(
    tmp_path: Path, base: int, blanks: int, ahead: int, *, last_exit_ok: bool
) -> None:
    for count in (0, 1, 2, 3, 7, 10, 12, 17, 29, 30):
        table = [PRE_BLANK] * blanks + units(count)
        for files in lay(tmp_path / str(count), table, base, ahead if table else 0):
            found = find_end(
                files, last_exit_ok=last_exit_ok, safe_phy_offset=FAR, max_phy_offset=FAR
            )
            assert found == walk(table, 0, FAR, base if table else 0), count


@pytest.mark.parametrize("last_exit_ok", [False, True])
def test_a_unit_that_leads_to_the_logs_end_is_damaged_and_costs_no_other(
    tmp_path: Path, *, last_exit_ok: bool
) -> None:
    for damaged in range(16):
        table = units(16)
        table[damaged] = (limit := SIZE * 20, SIZE, 7)
        for files in lay(tmp_path / str(damaged), table):
            found = find_end(
                files, last_exit_ok=last_exit_ok, safe_phy_offset=limit, max_phy_offset=limit
            )
            seen = damaged < 15 and (damaged >= PER_FILE or not last_exit_ok)  # else not looked at
            assert found == walk(table, limit, limit)._replace(has_hole=seen), damaged


def test_stale_units_are_none_however_many_in_order_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.cq_file.recovery._NEIGHBOURS", 2)
    for count in range(1, 10):
        table = units(count, 50) + units(10 - count, 20)
        for files in lay(tmp_path / str(count), table):
            found = find_end(files, last_exit_ok=True, safe_phy_offset=FAR, max_phy_offset=FAR)
            assert found == walk(table, FAR, FAR), count


@pytest.mark.parametrize("per_file", [7, 15, 31])
def test_the_end_is_found_in_steps_that_lead_exactly_to_the_end_of_a_file(
    tmp_path: Path, per_file: int
) -> None:
    cache = DescriptorCache(8, read_only=True)
    access = FileAccess(str(tmp_path), per_file * UNIT.size, cache, UnsyncedFiles())
    for count in range(per_file + 1):
        data = b"".join(UNIT.pack(*unit) for unit in units(count))
        folder = tmp_path / "T" / str(count)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(data.ljust(per_file * UNIT.size, b"\0"))
        files = QueueFiles(access, "T", count, [0])
        found = find_end(files, last_exit_ok=True, safe_phy_offset=FAR, max_phy_offset=FAR)
        assert found == walk(units(count), 0, FAR)
    cache.close()


def test_a_crash_can_have_spoilt_the_last_three_files_and_none_before(tmp_path: Path) -> None:
    for hole, end in ((9, 34), (19, 19), (29, 29), (33, 33)):
        table = units(34) + [ZERO] * 2
        table[hole] = ZERO
        for files in lay(tmp_path / str(hole), table):
            found = find_end(files, last_exit_ok=False, safe_phy_offset=0, max_phy_offset=FAR)
            assert found.max_offset == end
