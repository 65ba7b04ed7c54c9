"""BlockUnitSource: read the queues of a scanned log from its blocks, like those of a backend.

A task that needs a queue reads its rows from the block files of all tasks. All tasks can read all
files of the workspace, so no data is sent between tasks.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from cqstore.migration.from_log.blocks import UNITS, map_units
from cqstore.migration.from_log.merge import NAMES, PIECE_ROWS, PIECES, QUEUE_ROWS, QUEUES
from cqstore.migration.from_log.scan_plan import ScanSpace
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import check_regular, read_file
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows, UnitRun, key_order, row_table
from cqstore.store.queue.units import QueueKey

LOG = "log"
"""``Plan.source`` of queues that are built from the commit log."""
_MAX_NAMES = 1 << 30
_Order = tuple[int, bytes, int]


class BlockUnitSource:
    """Source of the queues of a scanned log, see ``UnitSource``."""

    has_timestamps = True

    def __init__(self, workspace: Workspace) -> None:
        """Open the merged index of the scanned blocks.

        Raises:
            StoreIOError: the index cannot be opened.
            CorruptionError: it is not a valid index.
        """
        self._space = ScanSpace(workspace)
        folder = self._space.merged
        with os_errors("read the merged index", folder):
            self._names = read_file(folder / NAMES, _MAX_NAMES)
            for name in (QUEUES, PIECES):
                check_regular(folder / name)
            self._queues = np.load(folder / QUEUES, "r", allow_pickle=False)
            self._pieces = np.load(folder / PIECES, "r", allow_pickle=False)
        if self._queues.dtype != QUEUE_ROWS or self._pieces.dtype != PIECE_ROWS:
            raise CorruptionError("not a valid merged index of a log scan", path=folder)
        self._next = 0
        self._units: dict[int, tuple[str, UnitRows]] = {}  # by task: attempt, rows

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        """Yield the queues of the merged index."""
        numbers = range(len(self._queues))
        first = 0
        if after is not None:
            first = bisect_left(numbers, key_order(after), key=self._order)
            first += first < len(numbers) and self._order(first) == key_order(after)
        for number in numbers[first:]:
            if up_to is not None and self._order(number) > key_order(up_to):
                return
            yield self._key(number)

    def next_offset(self, queue: QueueKey) -> int:
        """Return the end of the queue."""
        number = self._find(queue)
        return 0 if number is None else int(self._queues[number]["next_offset"])

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Copy units, starting at ``queue_offset``, from the blocks; return their number."""
        number = self._find(queue)
        if number is None:
            return 0
        first, last = self._span(number)
        starts = self._pieces["queue_offset"][first:last]
        piece = first + int(np.searchsorted(starts, queue_offset, "right")) - 1
        filled, target = 0, row_table(rows)
        while first <= piece < last and filled < len(rows):
            task, start, row, count = self._pieces[piece].tolist()
            skipped = queue_offset + filled - start
            some = min(count - skipped, len(rows) - filled)
            if some <= 0:
                break
            source = self._rows(task, row + skipped, some)
            target[filled : filled + some] = row_table(source)
            filled += some
            piece += 1
        return filled

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        """Yield runs of at most ``max_units`` units; queues have no holes."""
        number = self._find(queue)
        first, last = (0, 0) if number is None else self._span(number)
        if first == last:
            return
        position, end = int(self._pieces[first]["queue_offset"]), self.next_offset(queue)
        while position < end:
            rows = np.empty(min(max_units, end - position), UNIT_ROWS)
            count = self.fill(queue, position, rows)
            if not count:
                return
            yield UnitRun(position, rows[:count])
            position += count

    def span(self, queue: QueueKey) -> tuple[int, int]:
        """Return first and next queue offset; they are equal if the queue has no units."""
        number = self._find(queue)
        first, last = (0, 0) if number is None else self._span(number)
        end = self.next_offset(queue)
        return (int(self._pieces[first]["queue_offset"]) if first < last else end), end

    def behind(self, queue: QueueKey) -> UnitRun | None:
        """Return ``None``: queues of a log have nothing after their end."""
        _ = queue
        return None

    def is_open_ended(self, queue: QueueKey) -> bool:
        """Return False: the index has the end of each queue."""
        _ = queue
        return False

    def close(self) -> None:
        """Release the maps of the blocks and of the index."""
        self._units.clear()

    # ---- inside

    def _find(self, queue: QueueKey) -> int | None:
        """Return the number of ``queue``; try that of the last call and the next one first."""
        wanted, count = key_order(queue), len(self._queues)
        for number in (self._next, self._next + 1):
            if number < count and self._order(number) == wanted:
                self._next = number
                return number
        number = bisect_left(range(count), wanted, key=self._order)
        if number == count or self._order(number) != wanted:
            return None
        self._next = number
        return number

    def _order(self, number: int) -> _Order:
        name, end, queue_id = self._queues[number].tolist()[:3]
        return end - name, self._names[name:end], queue_id & 0xFFFFFFFF

    def _key(self, number: int) -> QueueKey:
        name, end, queue_id = self._queues[number].tolist()[:3]
        return QueueKey(self._names[name:end].decode("utf-8", "surrogateescape"), queue_id)

    def _span(self, number: int) -> tuple[int, int]:
        _, _, _, first, last, _ = self._queues[number].tolist()
        return first, last

    def _rows(self, task: int, row: int, count: int) -> UnitRows:
        """Return mapped units of the block file of a task.

        Raises:
            CorruptionError: the file is missing or too short.
        """
        if task not in self._units:
            done = self._space.read_done(task)
            if done is None:
                raise CorruptionError("scanned blocks are missing", path=self._space.done(task))
            units = map_units(self._space.attempt(task, done.attempt))
            self._units[task] = done.attempt, units
        attempt, units = self._units[task]
        if row + count > len(units):
            raise CorruptionError(
                "units of a queue are missing at the end of a block file",
                path=self._space.attempt(task, attempt) / UNITS,
                expected=row + count, got=len(units),
            )  # fmt: skip
        return units[row : row + count]
