"""Units of an open store, queue by queue, in batches; a queue is read in pieces."""

from collections.abc import Iterator

import pyarrow as pa

from cqstore.analysis.columns import FIRST_STAMP, TableColumn
from cqstore.analysis.filters import RowFilter, Span
from cqstore.analysis.scan_request import ScanRequest
from cqstore.analysis.unit_columns import UnitTableColumns
from cqstore.cli.known_queues import require_topic
from cqstore.store.queue.bulk import key_order
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class UnitScan:
    """Scan of the units of ``store``."""

    def __init__(
        self, store: MessageStore, columns: list[TableColumn], request: ScanRequest
    ) -> None:
        self._store, self._request = store, request
        self._units = UnitTableColumns(columns, time_filter(request))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all requested units, with queues in RocksDB's key order; a hole has no rows.

        Raises:
            NoSuchQueueError: a given topic does not exist.
            StoreError: the store cannot be read.
        """
        queues = components_of(self._store).queues
        spans = ((key, *queues.queue(*key).ends()) for key in self._keys())
        yield from self._units.batches(self._store, spans)

    def _keys(self) -> list[QueueKey]:
        """Return the queues to read, in key order.

        Raises:
            NoSuchQueueError: a given topic does not exist.
        """
        request = self._request
        for topic in request.topics or ():
            require_topic(self._store, topic)
        keys = {
            key
            for topic in ((None,) if request.topics is None else request.topics)
            for key in self._store.queue_keys(topic)
            if request.takes_queue(key.queue_id)
        }
        return sorted(keys, key=key_order)


def time_filter(request: ScanRequest) -> RowFilter:
    """Return the filter of units by the requested store times."""
    if request.times.is_all:
        return RowFilter()
    first = max(request.times.begin, FIRST_STAMP)
    return RowFilter(numbers={"store_timestamp": Span(first, request.times.end)})
