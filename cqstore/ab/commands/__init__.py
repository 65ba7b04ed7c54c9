"""``cqstore ab``: compare backends on a store's own data, offline and live."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Compare backends on the data of a store: answers first, then figures.",
    no_args_is_help=True,
)

add_verb(
    app, "run", "cqstore.ab.commands.run:run_command",
    "Compare backends on copies of the store in DIR: the same log, the same operations.",
)  # fmt: skip
add_verb(
    app, "report", "cqstore.ab.commands.report:report_command",
    "Print what follows from a result. Exit code 1 if answers differ, or none was compared.",
)  # fmt: skip
add_verb(
    app, "compare", "cqstore.ab.commands.compare:compare_command",
    "Print what changed for each side from one result to another, of two machines or two days.",
)  # fmt: skip
add_verb(
    app, "live", "cqstore.ab.commands.live:live_command",
    "Report reads of a store that its other backend was asked again (abShare). Changes nothing.",
)  # fmt: skip
add_verb(
    app, "policy", "cqstore.ab.commands.policy:policy_command",
    "Count what classes of topics wrote in the last hour, from the log. Changes nothing.",
)  # fmt: skip
