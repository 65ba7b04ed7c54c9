"""``cqstore sql``: ask a store in SQL. ``cqstore archive``: logs into an archive."""

import typer

from cqstore.cli.lazy_verbs import add_verb

sql_app = typer.Typer()
archive_app = typer.Typer()

add_verb(
    sql_app, "sql", "cqstore.analysis.commands.sql:sql",
    "Ask a store in SQL (Spark's): table commitlog has its records, cq the units of its queues.",
)  # fmt: skip
add_verb(
    archive_app, "archive", "cqstore.analysis.commands.archive:archive",
    "Add to an archive, by topic and day, what is new in logs. Changes nothing in DIR.",
)  # fmt: skip
