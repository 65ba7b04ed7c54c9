"""Tables of a store for programs that read Arrow: DuckDB, Polars, pyarrow, without Spark.

``Scan`` has ``__arrow_c_stream__``, the stream of Arrow's PyCapsule interface
(https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html). pyarrow is imported
by a call of ``scan``, and by nothing before it.
"""

from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from typing import Any, Literal

from cqstore.analysis.scan_request import OnScanDamage, ScanRequest, scan_request
from cqstore.cli.message_files.message_arrow import require_arrow, schema
from cqstore.cli.message_files.message_fields import COLUMNS
from cqstore.store.errors import StoreConfigError
from cqstore.store.paths import named_path
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import check_backend
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.store_times import Time
from cqstore.store.settings.config import StoreConfig

_PULLED = {
    "max_transfer_count_on_message_in_memory": 1024, "max_transfer_count_on_message_in_disk": 1024,
    "max_transfer_bytes_on_message_in_memory": 4 << 20,
    "max_transfer_bytes_on_message_in_disk": 4 << 20,
}  # fmt: skip
"""A broker's pulls are small for the sake of other consumers; here are none."""
_Batches = Callable[[MessageStore], Iterator[Any]]


class Scan:
    """Table of one store. It keeps nothing open: each stream opens the store again, read-only.

    It can be read any number of times, by any thread. A forked process needs its own streams; with
    queues in RocksDB only if its parent had not opened any, see decision 19.
    """

    def __init__(
        self, open_store: Callable[[], MessageStore], batches: _Batches, table_schema: Any,
        what: str,
    ) -> None:  # fmt: skip
        """Read what ``batches`` yields; ``what`` is for the repr. See ``cqstore.scan``."""
        from cqstore.analysis.requested_schema import granted  # noqa: PLC0415 - needs the extra

        self._open_store, self._batches, self._granted = open_store, batches, granted
        self._what = what
        self.schema = table_schema
        """The columns, a ``pyarrow.Schema``."""

    def __repr__(self) -> str:
        return f"<Scan of {self._what}, columns {', '.join(self.schema.names)}>"

    def to_batches(self) -> Generator[Any, None, None]:
        """Yield each ``pyarrow.RecordBatch``; the store is open until the last one or ``close``.

        Raises:
            NoSuchQueueError: a given topic does not exist.
            CorruptionError: the store is damaged, and there is no ``on_damage``.
            StoreError: the store cannot be opened or read.
        """
        batches = self._opened()
        next(batches)
        return batches

    def __arrow_c_schema__(self) -> object:
        """Return the schema as Arrow's PyCapsule interface has it."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a stream of all rows; the store is closed when the stream is released.

        The types of ``requested_schema`` are used if they can hold all values of all columns;
        otherwise the table's own types are returned, as the interface allows.

        Raises:
            StoreConfigError: the requested schema has other columns.
            StoreError: the store cannot be opened. Later errors are errors of the stream.
        """
        wanted = self.schema
        if requested_schema is not None:
            wanted = self._granted(self.schema, requested_schema)
        reader = require_arrow().RecordBatchReader.from_batches(self.schema, self.to_batches())
        return (reader if wanted is self.schema else reader.cast(wanted)).__arrow_c_stream__()

    def _opened(self) -> Generator[Any, None, None]:
        """Yield nothing once the store is open, then the batches."""
        with self._open_store() as store:
            yield None
            yield from self._batches(store)


def scan(
    root: Path | str,
    topic: str | Collection[str] | None = None,
    *,
    table: Literal["messages", "units"] = "messages",
    queue_ids: Collection[int] | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    columns: Collection[str] | None = None,
    on_damage: OnScanDamage | None = None,
    config: StoreConfig | None = None,
    backend: str | None = None,
) -> Scan:
    """Return messages or units of the store in ``root`` as a table for Arrow consumers.

    Takes no lock and changes no byte, also while another process writes. ``topic`` is one name or
    several; by default all topics except light queues, and for ``units`` also light queues. Rows
    are those stored between ``begin`` and ``end``, both inclusive. ``columns`` selects and orders
    the columns; by default all. Damage ends the stream with an error, or is reported to
    ``on_damage`` with its topic and skipped. ``config`` and ``backend`` are those of
    ``MessageStore.open``.

    Rows are ordered by topic, queue and queue offset; messages of a topic that are not dispatched
    yet follow at its end. Memory holds one batch, whatever the size of the store.

    Raises:
        StoreConfigError: pyarrow is not installed, or an argument is invalid.
        RefusedStoreError: there is no store in ``root``.
    """
    require_arrow()
    if table not in {"messages", "units"}:
        raise StoreConfigError(f"no table {table!r}; tables: messages, units")
    settings = (config or StoreConfig()).model_copy(update=_PULLED)
    place = named_path(root)
    requested = (columns, topic, queue_ids, begin, end, on_damage)
    made = _messages(*requested) if table == "messages" else _units(*requested)
    check_backend(settings, backend)
    resolve_layout(place, settings, read_only=True)

    def open_store() -> MessageStore:
        return MessageStore.open(
            place, settings, read_only=True, backend=backend, housekeeping=False
        )

    return Scan(open_store, *made, f"the {table} of {str(place)!r}")


def _messages(*requested: Any) -> tuple[_Batches, Any]:
    from cqstore.analysis.message_scan import MessageScan  # noqa: PLC0415 - needs the extra

    request = scan_request(tuple(COLUMNS), *requested)
    return lambda store: MessageScan(store, request).batches(), schema(request.columns)


def _units(*requested: Any) -> tuple[_Batches, Any]:
    """Return what reads the table of units, and its schema."""
    from cqstore.analysis.columns import UNIT_TABLE  # noqa: PLC0415 - needs the extra
    from cqstore.analysis.unit_columns import unit_schema  # noqa: PLC0415
    from cqstore.analysis.unit_scan import UnitScan  # noqa: PLC0415

    by_name = {column.name: column for column in UNIT_TABLE}
    request: ScanRequest = scan_request(tuple(by_name), *requested)
    chosen = [by_name[name] for name in request.columns]
    return lambda store: UnitScan(store, chosen, request).batches(), unit_schema(chosen)
