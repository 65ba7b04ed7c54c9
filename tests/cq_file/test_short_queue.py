"""The fast read of a short queue: which files it takes, what it returns, and what it leaves alone.

``test_file_end_model`` compares the ends that are found with and without it with a model.
"""

import os
from pathlib import Path

import pytest

from cqstore.cq_file._short_queue import short_queue, short_rows, unit_rows
from tests.kit.file_queues import PRE_BLANK, SIZE, UNIT, Row, rows

FAR = 1 << 40
LONG_MAX = (1 << 63) - 1
SMALL, LARGE = 200, 8_000
"""Bytes of a file that ends in its first page, and of one that does not."""


def packed(units: list[Row]) -> bytes:
    return b"".join(UNIT.pack(*unit) for unit in units)


def write(folder: Path, data: bytes, size: int = SMALL, name: str = "0" * 20) -> str:
    path = folder / name
    path.write_bytes(data)
    os.truncate(path, size)
    return str(path)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("count", [1, 5, 10])
def test_units_and_the_end_of_the_last_record(tmp_path: Path, size: int, count: int) -> None:
    data = packed(rows(3, count))
    found = short_queue(write(tmp_path, data, size), size, FAR)
    assert found == (data, (count + 2) * SIZE, (count + 3) * SIZE)


def test_names_in_any_bytes_and_the_largest_offsets(tmp_path: Path) -> None:
    data = packed([(LONG_MAX - 5, 100, 7)])
    path = write(tmp_path, data, name="a\udcff" + "é")
    assert short_queue(path, SMALL, LONG_MAX) == (data, LONG_MAX - 5, LONG_MAX)
    assert short_queue(path, SMALL, LONG_MAX - 5) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        packed([PRE_BLANK, *rows(1, 2)]),
        packed([(0, 0, 1), *rows(1, 2)]),
        packed([*rows(0, 3), (0, 0, 0), *rows(4, 1)]),
        packed([*rows(5, 1), *rows(4, 1)]),
        packed([*rows(5, 1), *rows(5, 1)]),
        packed([*rows(0, 1), (-1, SIZE, 0)]),
        packed([*rows(0, 1), (SIZE, -SIZE, 0)]),
        packed([*rows(0, 1), (FAR, SIZE, 0)]),
        packed(rows(0, 2)) + b"\0" * 30 + b"x",
    ],
)
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_irregular_content_is_left_to_the_slow_path(tmp_path: Path, data: bytes, size: int) -> None:
    assert short_queue(write(tmp_path, data, size), size, FAR) is None


@pytest.mark.parametrize("at", [4_076, 4_095, 4_096, LARGE - 1])
def test_any_byte_after_the_units_counts(tmp_path: Path, at: int) -> None:
    path = write(tmp_path, packed(rows(0, 3)), LARGE)
    assert short_queue(path, LARGE, FAR) is not None
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    assert short_queue(path, LARGE, FAR) is None


def test_a_queue_that_may_go_on_after_the_page_is_not_short(tmp_path: Path) -> None:
    assert short_queue(write(tmp_path, packed(rows(0, 204)), LARGE), LARGE, FAR) is None
    data = packed(rows(0, 203))
    assert short_queue(write(tmp_path, data, LARGE), LARGE, FAR) == (data, 202 * SIZE, 203 * SIZE)
    whole = packed(rows(0, 204))
    assert short_queue(write(tmp_path, whole, 4_080), 4_080, FAR) == (
        whole, 203 * SIZE, 204 * SIZE,
    )  # fmt: skip


def test_other_files_are_left_to_the_slow_path_and_none_is_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path, packed(rows(0, 3)))
    for size in (SMALL - 20, SMALL + 20, 0, -1, 19):
        assert short_queue(path, size, FAR) is None
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    for other in ("fifo", "loop", "missing", ".", f"{'0' * 20}\0"):
        assert short_queue(f"{tmp_path}/{other}", SMALL, FAR) is None
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(50):
        short_queue(path, SMALL, FAR)
        short_queue(str(tmp_path), SMALL, FAR)
    assert set(Path("/proc/self/fd").iterdir()) == before


def with_no_timestamp(units: list[Row]) -> bytes:
    return b"".join(UNIT.pack(*unit) + b"\xff" * 8 for unit in units)


def test_rows_of_a_short_queue_have_no_timestamps(tmp_path: Path) -> None:
    path = write(tmp_path, packed(rows(3, 5)))
    assert short_rows(path, SMALL, FAR) == with_no_timestamp(rows(3, 5))
    assert short_rows(path, SMALL, 7 * SIZE) is None
    assert short_rows(path, SMALL + 20, FAR) is None
    assert short_rows(f"{path}\0", SMALL, FAR) is None


@pytest.mark.parametrize(
    ("begin", "count", "low", "high", "outside"),
    [
        (0, 5, 0, FAR, 0),
        (1, 3, 0, FAR, 0),
        (0, 5, 3 * SIZE, 8 * SIZE, 0),
        (0, 5, 3 * SIZE + 1, 8 * SIZE - 1, 2),
        (0, 1, 4 * SIZE, FAR, 1),
    ],
)
def test_some_units_and_those_outside_the_log(
    tmp_path: Path, begin: int, count: int, low: int, high: int, outside: int
) -> None:
    path = write(tmp_path, packed(rows(3, 5)))
    expected = with_no_timestamp(rows(3 + begin, count))
    assert unit_rows(path, begin * UNIT.size, count, low, high) == (expected, outside)


@pytest.mark.parametrize(
    "unit", [(0, 0, 0), (-1, SIZE, 0), (SIZE, -1, 0), (SIZE, 0, 7), (0, (1 << 31) - 1, 0)]
)
def test_rows_that_may_be_no_units_are_left_to_the_slow_path(tmp_path: Path, unit: Row) -> None:
    path = write(tmp_path, packed([*rows(0, 2), unit, *rows(3, 1)]))
    assert unit_rows(path, 0, 2, 0, FAR) is not None
    assert unit_rows(path, 0, 3, 0, FAR) is None


def test_units_that_cannot_be_read_are_left_to_the_slow_path(tmp_path: Path) -> None:
    path = write(tmp_path, packed(rows(0, 300)), LARGE)
    assert unit_rows(path, 0, 204, 0, FAR) == (with_no_timestamp(rows(0, 204)), 0)
    for position, count in [(0, 205), (0, 0), (0, -1), (-20, 1), (LARGE - 20, 2), (1 << 62, 1)]:
        assert unit_rows(path, position, count, 0, FAR) is None
    for other in (f"{path}\0", f"{path}x", str(tmp_path)):
        assert unit_rows(other, 0, 1, 0, FAR) is None
