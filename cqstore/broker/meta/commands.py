"""``cqstore meta``: the metadata of a broker, in whatever form it is kept."""

import typer

from cqstore.cli.lazy_verbs import DefaultGroup, add_verb

app = typer.Typer(
    cls=DefaultGroup,
    help="Show, check and convert topics, groups and consumer offsets of a broker.",
    no_args_is_help=True,
)


@app.callback()
def meta() -> None:
    """Show, check and convert topics, groups and consumer offsets of a broker."""


add_verb(
    app, "show", "cqstore.broker.meta.meta_show_command:show",
    "Show topics, groups and consumer offsets of a broker, JSON or RocksDB. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "convert", "cqstore.broker.meta.meta_convert_command:convert_command",
    "Convert topics, groups and offsets of a stopped broker into another form.",
)  # fmt: skip
add_verb(
    app, "repair", "cqstore.broker.meta.meta_repair_command:repair",
    "Repair JSON files of a stopped broker's metadata that it cannot read.",
)  # fmt: skip
add_verb(
    app, "make-topics", "cqstore.broker.meta.meta_repair_command:make_topics",
    "Write a topics.json with a row for each topic that has queues and none.",
)  # fmt: skip
