"""``cqstore sql``: questions to a store's log and queues, in SQL."""

import typer

app = typer.Typer(help="Ask a store's log and queues in SQL.")
