"""File queues read whole, as a migration reads them: where a read ends, from hand-made files."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cq_file.bulk_source import FileUnitSource
from store.config import StoreConfig
from store.paths import StorePaths
from store.queue.bulk import UNIT_ROWS
from store.queue.context import QueueStoreContext
from store.queue.units import QueueKey
from tests.kit.file_queues import FILE_SIZE, PRE_BLANK, SIZE, Disk, NoCheckpoint, Row, rows

QUEUE = QueueKey("T", 0)
ZERO = (0, 0, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Return units 3 to 17, a missing file, units 30 to 33, and something behind the end."""
    disk = Disk(tmp_path)
    disk.write(0, [PRE_BLANK] * 3 + rows(103, 7))
    disk.write(FILE_SIZE, [*rows(110, 8), ZERO, ZERO])
    disk.write(3 * FILE_SIZE, [*rows(130, 4), ZERO, *rows(135, 1)])
    return disk


@pytest.fixture
def source(disk: Disk) -> Iterator[FileUnitSource]:
    paths, config = StorePaths(disk.root), StoreConfig(**disk.settings)
    context = QueueStoreContext(
        paths, config, disk.log, NoCheckpoint(), last_exit_ok=True, read_only=True
    )
    source = FileUnitSource(context)
    yield source
    source.close()


@pytest.mark.parametrize(
    ("first", "count", "found"),
    [
        (3, 15, 15), (3, 15 + 1, 15), (3, 60, 15), (9, 2, 2), (10, 1, 1), (17, 3, 1),
        (0, 5, 0), (2, 5, 0), (18, 1, 0), (20, 1, 0), (25, 9, 0),
        (30, 60, 4), (32, 2, 2), (34, 2, 0), (40, 1, 0),
    ],
)  # fmt: skip
def test_a_read_ends_at_the_first_row_that_is_no_unit_or_is_not_there(
    source: FileUnitSource, first: int, count: int, found: int
) -> None:
    target = np.zeros(count, UNIT_ROWS)
    assert source.fill(QUEUE, first, target) == found
    read: list[Row] = [row[:3] for row in target[:found].tolist()]
    assert read == rows(100 + first, found)
    assert set(target["store_timestamp"][:found].tolist()) <= {-1}


def test_runs_step_over_holes_and_what_lies_behind_is_found_up_to_the_logs_end(
    disk: Disk, source: FileUnitSource
) -> None:
    disk.write(3 * FILE_SIZE, [*rows(130, 2), (1 << 50, SIZE, 7), *rows(133, 2)])
    disk.log.max_phy = 200 * SIZE
    assert list(source.queues(None, None)) == [QUEUE]
    runs = [(run.queue_offset, len(run.rows)) for run in source.runs(QUEUE, 6)]
    units = [at for first, count in runs for at in range(first, first + count)]
    assert set(units) >= {*range(3, 18), 30, 31}
    assert sorted(set(units)) == units
    assert max(count for _, count in runs) <= 6
