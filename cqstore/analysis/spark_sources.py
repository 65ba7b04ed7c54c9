"""The Spark data sources ``rocketmq_commitlog`` and ``rocketmq_cq``.

Spark requests schema and tasks in a Python process next to the driver, and rows in processes of the
executors: these objects are pickled, and every process opens the store itself, read-only.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from cqstore.analysis.columns import (
    FIRST_STAMP,
    TableColumn,
    chosen,
    ddl,
    log_columns,
    unit_columns,
)
from cqstore.analysis.filters import INT64_MIN, RowFilter
from cqstore.analysis.log_table import plan_log, read_log
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.queue_table import plan_queues, read_queues

LOG_FORMAT = "rocketmq_commitlog"
QUEUE_FORMAT = "rocketmq_cq"


def register(spark: SparkSession) -> None:
    """Register both data sources with the session, and enable filter pushdown.

    Without that setting Spark rejects every read of a source that accepts filters.
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(CommitLogSource)
    spark.dataSource.register(QueueSource)


class SourceTable(NamedTuple):
    """One of the tables. Small, can be pickled."""

    first_stamp: int
    """The first store time in ms that is not null."""
    columns: Callable[[SourceOptions], Sequence[TableColumn]]
    """Returns all columns that a table with these options has."""
    plan: Callable[[SourceOptions, RowFilter], Sequence[object]]
    """Returns the parts of the table that may contain such rows, one per task."""
    read: Callable[[SourceOptions, Sequence[TableColumn], RowFilter, Any], Iterator[pa.RecordBatch]]
    """Yields the rows of one part, as the given columns."""


class _Source(DataSource):
    """A store as one of the tables."""

    table: SourceTable

    def schema(self) -> str:
        """Return all columns of the table.

        Raises:
            StoreError: there is no store, or an option is invalid.
        """
        options = SourceOptions.parse(self.options)
        options.check_root()
        return ddl(self.table.columns(options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in ``schema``, which the user may have chosen."""
        options = SourceOptions.parse(self.options)
        requested = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        columns = chosen(self.table.columns(options), requested)
        kind = _FilteringReader if options.pushdown else _Reader
        return kind(self.table, options, columns)

    @classmethod
    @abstractmethod
    def name(cls) -> str:
        """Return the name that ``spark.read.format`` takes."""


class CommitLogSource(_Source):
    """``spark.read.format("rocketmq_commitlog").load(root)``: one row per record of the log."""

    table = SourceTable(INT64_MIN, log_columns, plan_log, read_log)

    @classmethod
    def name(cls) -> str:
        """Return the name that ``spark.read.format`` takes."""
        return LOG_FORMAT


class QueueSource(_Source):
    """``spark.read.format("rocketmq_cq").load(root)``: one row per unit of the queues."""

    table = SourceTable(FIRST_STAMP, unit_columns, plan_queues, read_queues)

    @classmethod
    def name(cls) -> str:
        """Return the name that ``spark.read.format`` takes."""
        return QUEUE_FORMAT


class _Reader(DataSourceReader):
    """Reads a table without filters."""

    def __init__(
        self, table: SourceTable, options: SourceOptions, columns: Sequence[TableColumn]
    ) -> None:
        self._table = table
        self._options = options
        self._columns = columns
        self._rows = RowFilter(first_stamp=table.first_stamp)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks as a list: Spark takes nothing else."""
        return [InputPartition(part) for part in self._table.plan(self._options, self._rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; for no tasks Spark passes a partition without a value."""
        if partition.value is None:
            return iter(())
        return self._table.read(self._options, self._columns, self._rows, partition.value)


class _FilteringReader(_Reader):
    """Reads a table and takes filters: planning and reading apply them."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Accept the supported filters; yield the others, which Spark applies."""
        for one in filters:
            column: tuple[str, ...] = getattr(one, "attribute", ())
            taken = None
            if len(column) == 1:
                value = getattr(one, "value", None)
                taken = self._rows.taking(type(one).__name__, column[0], value)
            if taken is None:
                yield one
            else:
                self._rows = taken
