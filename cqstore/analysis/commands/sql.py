"""``cqstore sql``: query a store with SQL.

Spark is imported only if there is a query to run.
"""

import base64
import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cqstore.analysis.examples import EXAMPLES, example
from cqstore.analysis.options import SourceOptions
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.options import Backend, CommitLogFolder, ConfigFile, Rows, meant, note
from cqstore.cli.output import RowFormat, output
from cqstore.spark.spark_session import refuse_without_spark, spark_session
from cqstore.store.errors import StoreConfigError

if TYPE_CHECKING:
    from cqstore.analysis.sql_query import Answer

Root = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="Root of the store (storePathRootDir).", callback=meant),
]
Query = Annotated[
    str | None, typer.Argument(metavar="QUERY", help="SQL query on the tables commitlog and cq.")
]
Limit = Annotated[int, typer.Option(min=0, metavar="N", help="Maximum number of rows; 0 for all.")]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Spark master, such as local[4] or spark://HOST:7077.")
]
ExampleName = Annotated[
    str | None,
    typer.Option("--example", metavar="NAME", help="Run this predefined query instead of QUERY."),
]
ListExamples = Annotated[
    bool, typer.Option("--list-examples", help="List the predefined queries and their SQL.")
]
Crc = Annotated[
    bool, typer.Option("--crc", help="Check the CRC of each message body that is read.")
]


def sql(
    root: Root = None,
    query: Query = None,
    *,
    ready: ExampleName = None,
    list_examples: ListExamples = False,
    limit: Limit = 1000,
    kind: Rows = RowFormat.TABLE,
    master: Master = "local[*]",
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    crc: Crc = False,
) -> None:
    """Query a store with Spark SQL: tables commitlog (records) and cq (queue units).

    Use a copy, or the store of a stopped broker. Changes nothing. Give QUERY or --example.
    Needs the extra 'spark' and Java 17.

    Examples:
        cqstore sql DIR "SELECT topic, count(*) FROM commitlog GROUP BY topic"
        cqstore sql DIR --example queue-skew --output csv
    """
    if list_examples:
        output(kind).rows(dict(one._asdict()) for one in EXAMPLES)
        return
    if root is None:
        raise typer.BadParameter("missing DIR: give the root of the store")
    text = _question(query, ready)
    options = SourceOptions(
        path=root, config=config, backend=backend, commitlog=commit_log, crc=crc
    )
    options.check_root()  # before Java starts
    refuse_without_spark()
    from cqstore.analysis.sql_query import run_query  # noqa: PLC0415 - needs the extra

    logging.getLogger("SQLQueryContextLogger").disabled = True  # says as JSON what we say
    with spark_session("cqstore sql", master) as spark:
        answer = run_query(spark, options, text, limit)
    _print(answer, limit, kind)


def _print(answer: "Answer", limit: int, kind: RowFormat) -> None:
    bounded = BoundedAnswer()
    if answer.more:
        bounded.note_more(limit, "rows", "--limit")
    if answer.table.num_columns:
        rows = (
            {name: _shown(value) for name, value in row.items()}
            for row in answer.table.to_pylist(maps_as_pydicts="lossy")
        )
        output(kind).rows(rows, bounded.has_more)
    if answer.table.num_columns and not answer.table.num_rows:
        note("the query returned no rows")


def _question(query: str | None, ready: str | None) -> str:
    """Return the given query, or the query of the example.

    Raises:
        typer.BadParameter: neither or both are given.
        StoreConfigError: there is no such example.
    """
    if (query is None) == (ready is None):
        raise typer.BadParameter("give either a QUERY or --example NAME (see --list-examples)")
    if query is not None:
        return query
    found = example(ready or "")
    if found is None:
        names = ", ".join(one.name for one in EXAMPLES)
        raise StoreConfigError(f"no example {ready!r}; examples: {names}")
    return found.sql


def _shown(value: object) -> object:
    """Return a value in readable form: times in UTC, bytes as text or Base64."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").removesuffix("+00:00")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value
