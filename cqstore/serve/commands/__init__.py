"""``cqstore serve``: serve a store to RocketMQ's clients."""

import typer

from cqstore.cli.lazy_verbs import add_verb

app = typer.Typer()

add_verb(app, "serve", "cqstore.serve.commands.serve:serve", has_progress=False)
