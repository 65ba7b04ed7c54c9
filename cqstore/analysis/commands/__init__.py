"""The commands ``cqstore sql`` and ``cqstore archive``."""

import typer

from cqstore.cli.lazy_verbs import add_verb

sql_app = typer.Typer()
archive_app = typer.Typer()

add_verb(
    sql_app, "sql", "cqstore.analysis.commands.sql:sql",
    "Query a store with Spark SQL: tables commitlog (records) and cq (queue units).",
)  # fmt: skip
add_verb(
    archive_app, "archive", "cqstore.analysis.commands.archive:archive",
    "Add new messages to an archive, by topic and day. Changes nothing in DIR.",
)  # fmt: skip
