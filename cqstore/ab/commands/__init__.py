"""``cqstore ab``: compare backends on a store's own data, offline and live."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Compare backends on the data of a store: first the answers, then the speed.",
    no_args_is_help=True,
)

add_verb(app, "run", "cqstore.ab.commands.run:run_command")
add_verb(app, "report", "cqstore.ab.commands.report:report_command")
add_verb(app, "compare", "cqstore.ab.commands.compare:compare_command")
add_verb(app, "record", "cqstore.ab.commands.record:record_command")
add_verb(app, "live", "cqstore.ab.commands.live:live_command")
add_verb(app, "follow", "cqstore.ab.commands.follow:follow_command")
add_verb(app, "policy", "cqstore.ab.commands.policy:policy_command")
