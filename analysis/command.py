"""``cqstore sql``: ask a store in SQL."""

import typer

from store.cli.verbs import add_verb

app = typer.Typer()

add_verb(
    app, "sql", "analysis.sql:sql",
    "Ask a store in SQL (Spark's): table commitlog has its records, cq the units of its queues.",
)  # fmt: skip
