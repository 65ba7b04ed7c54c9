"""An SQL query on one store: the tables and columns that it needs, and its answer.

Spark reads every column of a Python source for any query, and parsing the properties of every
record is most of the work. So the tables have only the columns that the query can refer to.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from cqstore.analysis.columns import TableColumn, ddl, log_columns, unit_columns
from cqstore.analysis.failures import spark_failures
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.spark_sources import LOG_FORMAT, QUEUE_FORMAT, register
from cqstore.store.errors import StoreConfigError

_WORD = re.compile(r"\w+")
_COUNT_ALL = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)
_SELECT = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_IMPLICIT = frozenset({"table", "natural", "pivot", "unpivot", "describe", "desc"})
"""Words with which a query may use columns that it does not name."""
_CHEAP = "phy_offset"


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a query, up to the limit."""

    table: pa.Table
    more: bool
    """Whether there are more rows than the limit."""


def run_query(spark: SparkSession, options: SourceOptions, query: str, limit: int) -> Answer:
    """Run ``query`` on the store; return at most ``limit`` rows, or all if it is 0.

    The tables ``commitlog`` and ``cq`` are temporary views of the session.

    Raises:
        StoreConfigError: the query is invalid, or two of its columns have the same name.
        CorruptionError: the store is damaged where the query reads.
        StoreError: the store cannot be read, or Spark fails.
    """
    register(spark)
    with spark_failures():
        for name, frame in tables(spark, options, query).items():
            frame.createOrReplaceTempView(name)
        found = _planned(spark, options, query)
        twice = sorted({name for name in found.columns if found.columns.count(name) > 1})
        if twice:
            raise StoreConfigError(f"two columns have the name {twice[0]!r}: rename one with AS")
        answer = (found.limit(limit + 1) if limit else found).toArrow()
    if not limit:
        return Answer(answer, more=False)
    return Answer(answer.slice(0, limit), more=answer.num_rows > limit)


def _planned(spark: SparkSession, options: SourceOptions, query: str) -> DataFrame:
    """Return the planned query; a missing column is reported with the existing ones."""
    try:
        return spark.sql(query)
    except AnalysisException as exc:
        if not (exc.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            raise
        wrong = (exc.getMessageParameters() or {}).get("objectName", "of that name")
        have = (
            f"{name} has {', '.join(column.name for column in every)}"
            for name, (_, _, every) in _kinds(options).items()
        )
        raise StoreConfigError(f"no column {wrong}; {'; '.join(have)}") from exc


def tables(spark: SparkSession, options: SourceOptions, query: str) -> Mapping[str, DataFrame]:
    """Return the tables that ``query`` names, with the columns that it can refer to."""
    words = {word.lower() for word in _WORD.findall(query)}
    found = {}
    for name, (source, usual, every) in _kinds(options).items():
        if name in words:
            columns = meant(query, usual, every)
            named = {column.name for column in columns}
            reader = spark.read.format(source).schema(ddl(columns))
            given = options.as_text(
                body="body" in named,
                store_timestamp=bool(named & {"store_timestamp", "store_time"}),
                pushdown=_read_once(query, name),
            )
            found[name] = reader.options(**given).load(str(options.path))
    return found


def _read_once(query: str, table: str) -> bool:
    """Return whether Spark certainly reads ``table`` once, see ``SourceOptions.pushdown``.

    A table of a WITH clause may be read each time it is used.
    """
    words = [word.lower() for word in _WORD.findall(query)]
    return words.count(table) == 1 and "with" not in words


def _kinds(
    options: SourceOptions,
) -> dict[str, tuple[str, Sequence[TableColumn], Sequence[TableColumn]]]:
    """Return format, default columns and all columns of each table."""
    wide = options.model_copy(update={"body": True, "store_timestamp": True})
    return {
        "commitlog": (LOG_FORMAT, log_columns(options), log_columns(wide)),
        "cq": (QUEUE_FORMAT, unit_columns(options), unit_columns(wide)),
    }


def meant(
    query: str, usual: Sequence[TableColumn], every: Sequence[TableColumn]
) -> Sequence[TableColumn]:
    """Return the columns that ``query`` can refer to: those that it names, else the ``usual`` ones.

    A query that may use columns without naming them (``*``, a natural join, a pivot) also gets the
    usual ones; a query that only counts gets one column.
    """
    words = {word.lower() for word in _WORD.findall(query)}
    rest = _COUNT_ALL.sub("", query)
    implicit = "*" in rest or "|>" in rest or bool(words & _IMPLICIT) or not _SELECT.match(query)
    named = [column for column in every if column.name in words or (implicit and column in usual)]
    return named or [column for column in usual if column.name == _CHEAP]
