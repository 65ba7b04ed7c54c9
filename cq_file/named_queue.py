"""NamedFileQueue: readers' view of file queues, looked up by topic and queue id without a lock."""

from collections.abc import Iterator

from cqstore.cq_file import _table
from cqstore.cq_file.batch_queue import BatchConsumeQueue
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.ext import ExtFiles, is_ext_address
from cqstore.store.errors import StoreClosedError, UnsupportedFormatError
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits, PulledUnits, no_units
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import UnitLocation
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadKind
from cqstore.store.queue.time_search import BoundaryType, search_offset
from cqstore.store.queue.units import PACKED_PREFIX, CqUnit, UnitBlock

Files = FileConsumeQueue | BatchConsumeQueue
_NEVER = LONG_MAX  # ms
_UPPER = BoundaryType.UPPER  # saves a lookup of the enum's attribute


class QueueTable(_table.SimpleQueues):
    """The queues of one store by name: simple, batch, and extension files.

    Only the writer adds and removes queues; any thread may look them up. A close replaces the
    tables by empty ones, so what was not found is missing only if the store is open after that.
    """

    __slots__ = ("batch", "ext")

    def __init__(self) -> None:
        self.simple = {}
        self.batch: dict[str, dict[int, BatchConsumeQueue]] = {}
        self.ext: dict[tuple[str, int], ExtFiles] = {}
        self.closed = False

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` once the store is closed."""
        if self.closed:
            raise StoreClosedError("the queue store is closed")

    def kinds(
        self,
    ) -> tuple[dict[str, dict[int, FileConsumeQueue]], dict[str, dict[int, BatchConsumeQueue]]]:
        """Return the simple and the batch queues, by topic and queue id.

        Raises:
            StoreClosedError: the store is closed.
        """
        found = self.simple, self.batch
        self.check_open()
        return found

    def find_batch(self, topic: str, queue_id: int) -> BatchConsumeQueue | None:
        """Return the current batch queue of this name, or ``None``."""
        return self.batch.get(topic, {}).get(queue_id) if self.batch else None


class NamedFileQueue(ConsumeQueue):
    """A queue in files. Each call looks up the queue's files once and uses only these.

    The files are not kept between calls: a deletion removes them from the table before it changes
    them.
    """

    __slots__ = ("_table",)

    def __init__(
        self, table: QueueTable, context: QueueStoreContext, topic: str, queue_id: int
    ) -> None:
        self._table, self.context = table, context
        self.topic, self.queue_id = topic, queue_id

    def max_offset(self) -> int:
        """Return the queue offset after the last unit (batch queue: after the last message)."""
        return self._table.max_offset(self.topic, self.queue_id)

    def ends(self) -> tuple[int, int]:
        """Return min and max offset, found from the files."""
        files = self._table.find(self.topic, self.queue_id)
        return files.ends(self.context.log.min_phy_offset()) if files is not None else (0, 0)

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Return ends and units from the files in one call."""
        files = self._table.find(self.topic, self.queue_id)
        if files is None:
            return PulledUnits(0, 0, no_units(queue_offset, PACKED_PREFIX))
        minimum = self.context.log.min_phy_offset()
        if isinstance(files, BatchConsumeQueue):
            return PulledUnits(*files.ends(minimum), None)
        return files.pull(queue_offset, max_count, minimum)

    def fast_units(self, queue_offset: int, max_count: int) -> FastUnits | None:
        """Read the files of a simple queue on the fast path."""
        return self._table.fast_units(self.topic, self.queue_id, queue_offset, max_count)

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Return units from the files, without a copy in between.

        Raises:
            UnsupportedFormatError: a batch queue.
            StoreIOError: a file cannot be read.
        """
        files = self._table.find(self.topic, self.queue_id)
        if files is None:
            return no_units(queue_offset, PACKED_PREFIX)
        if isinstance(files, BatchConsumeQueue):
            raise UnsupportedFormatError(
                f"topic {self.topic!r} has batch queues, which have no blocks: use iterate()"
            )
        return files.read_block(queue_offset, max_count)

    def unit_timestamp(self, queue_offset: int) -> int:
        """Return the store time from the log; for a batch queue, from the unit."""
        files = self._table.find(self.topic, self.queue_id)
        if isinstance(files, BatchConsumeQueue):
            return files.unit_timestamp(queue_offset)
        return self._timestamp(files, queue_offset) if files is not None else -1

    def _timestamp(self, files: FileConsumeQueue, queue_offset: int) -> int:
        unit = files.unit_at(queue_offset)
        return self.context.log.store_timestamp(*unit) if unit is not None else -1

    def _timestamp_from(self, files: FileConsumeQueue, queue_offset: int) -> int:
        """Return the store time of the first unit at or after an offset, for searches across holes.

        A hole counts as having the time of the next unit, so that times increase. After the last
        unit there is no time.
        """
        if (unit := files.unit_at(queue_offset)) is None:
            unit = files.unit_at(files.first_unit(queue_offset))
        return self.context.log.store_timestamp(*unit) if unit is not None else _NEVER

    def offset_by_time(self, timestamp: int, boundary: BoundaryType) -> int:
        """Search by time; for batch queues, by RocketMQ's rule for these."""
        table = self._table
        offset = table.search(self.topic, self.queue_id, timestamp, boundary is _UPPER)
        if offset is not None:
            return offset
        self.context.read_fallbacks.add(ReadKind.SEARCH, FallbackReason.DECLINED)
        files = table.find(self.topic, self.queue_id)
        if files is None:
            return 0
        minimum = self.context.log.min_phy_offset()
        if isinstance(files, BatchConsumeQueue):
            found = files.offset_by_time(timestamp, boundary, minimum)
            low, high = files.ends(minimum)
            return min(max(found, low), high)  # a damaged unit may contain any offset
        return search_offset(
            *files.ends(minimum), timestamp, boundary, lambda at: self._timestamp_from(files, at)
        )

    def unit_location(self, queue_offset: int) -> UnitLocation:
        """Return file and position; the queue's folder if no file contains the unit."""
        files = self._table.find(self.topic, self.queue_id)
        if files is None:
            return UnitLocation()
        logic_offset = files.logic_offset_of(queue_offset)
        start = None if logic_offset is None else files.file_at(logic_offset)
        if logic_offset is None or start is None:
            return UnitLocation(files.folder)
        return UnitLocation(files.path(start), logic_offset - start)

    def resolve_tags_code(self, tags_code: int) -> int | None:
        """Return the tags code of the extension unit at an address, other codes as they are."""
        if not is_ext_address(tags_code):
            return tags_code
        files = self._table.ext.get((self.topic, self.queue_id))
        self._table.check_open()
        head = files.resolve(tags_code) if files is not None else None
        return head.tags_code if head is not None else None

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Yield units with resolved tags codes; for batch queues, with message counts."""
        files = self._table.find(self.topic, self.queue_id)
        if isinstance(files, BatchConsumeQueue):
            return files.iterate(queue_offset)
        return super().iterate(queue_offset)
