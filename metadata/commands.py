"""``cqstore meta``: the metadata of a broker, in whatever form it is kept."""

import typer

from store.cli.verbs import add_verb

app = typer.Typer()

add_verb(
    app, "meta", "metadata.command:meta",
    "Show topics, groups and consumer offsets of a broker, JSON or RocksDB. Changes nothing.",
)  # fmt: skip
