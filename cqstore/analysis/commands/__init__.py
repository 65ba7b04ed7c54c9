"""The commands ``cqstore sql`` and ``cqstore archive``."""

import typer

from cqstore.cli.lazy_verbs import add_verb

sql_app = typer.Typer()
archive_app = typer.Typer()

add_verb(sql_app, "sql", "cqstore.analysis.commands.sql:sql")
add_verb(archive_app, "archive", "cqstore.analysis.commands.archive:archive")
