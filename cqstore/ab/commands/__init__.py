"""``cqstore ab``: compare backends on a store's own data, offline and live."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Compare backends on the data of a store: first the answers, then the speed.",
    no_args_is_help=True,
)

add_verb(
    app, "run", "cqstore.ab.commands.run:run_command",
    "Compare backends on copies of the store in DIR: same log, same operations.",
)  # fmt: skip
add_verb(
    app, "report", "cqstore.ab.commands.report:report_command",
    "Print the report of a result.",
)  # fmt: skip
add_verb(
    app, "compare", "cqstore.ab.commands.compare:compare_command",
    "Compare two results: what changed for each side between two days or machines.",
)  # fmt: skip
add_verb(
    app, "live", "cqstore.ab.commands.live:live_command",
    "Report the reads that were repeated on the other backend (abShare). Changes nothing.",
)  # fmt: skip
add_verb(
    app, "policy", "cqstore.ab.commands.policy:policy_command",
    "Count what each class of topics wrote in the last hour, from the log. Changes nothing.",
)  # fmt: skip
