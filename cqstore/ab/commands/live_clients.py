"""``cqstore ab live --client-command``: what each backend costs for the operator's own client."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cqstore.ab.commands.report import check_place, end_with, save_and_report
from cqstore.ab.commands.run import interruptible, progress_bar
from cqstore.ab.extras import need_extras
from cqstore.ab.judging.banner import matching
from cqstore.ab.live.client_costs import WHAT
from cqstore.ab.live.client_run import ClientPlan, ClientRun
from cqstore.ab.sides.side import default_sides, parse_sides
from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.cli.options import note
from cqstore.cli.output import OutputFormat
from cqstore.cli.path_marks import OutputPath
from cqstore.serve.client_command import ClientCommand, command_words
from cqstore.serve.commands.opened import settings_to_write
from cqstore.store.paths import beside

_MIN_ROUNDS, _ROUNDS = 6, 9
_RESULT = Path("result.json")
OwnClient = Annotated[
    str | None,
    typer.Option(
        "--client-command",
        metavar="COMMAND",
        help="Your client: it is run in each round for a server of each side. {address} and the"
        " variable NAMESRV_ADDR are the name server's address.",
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=_MIN_ROUNDS, max=1000,
        help=f"Number of rounds: runs of --client-command per side. Default: {_ROUNDS}.",
    ),
]  # fmt: skip
Work = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="New folder for the sides' stores, on the disk to measure; removed. Default: the file"
        " of --result, followed by .ab.",
    ),
    OutputPath(locked=False),
]


def measure_clients(
    client: ClientCommand, side: Sequence[str] | None, rounds: int | None, work: Path | None,
    matters: Sequence[str] | None, result: Path | None, html: Path | None, config: Path | None,
    kind: OutputFormat,
) -> None:  # fmt: skip
    """Run the client for each side, write the result, and print the report.

    Raises:
        StoreError: an option is invalid, a side failed, or a run of the client failed.
        typer.Exit: the loads differed, or a signal ended the runs.
    """
    result = result or _RESULT
    html = html or result.with_suffix(".html")
    check_place(result, "result", "--result")
    check_place(html, "HTML report", "--html", result)
    command_words(client.command)
    names = matching(matters or (), [*WHAT])
    need_extras()
    folder = work or beside(result.absolute(), ".ab")
    base, settings = settings_to_write(config, folder, is_new=True)
    index = {"message_index_enable": base.message_index_enable}
    sides = [
        replace(spec, config=spec.config.model_copy(update=index))
        for spec in parse_sides(side or default_sides(None), base)
    ]
    ScratchFolder(folder).check()
    plan = ClientPlan(
        client, sides, folder, rounds or _ROUNDS, settings, names, ["cqstore", *sys.argv[1:]]
    )
    note(
        f"{len(sides)} sides ({'; '.join(each.name for each in sides)}), {plan.rounds} rounds:"
        f" {len(sides) * plan.rounds} runs of the client"
    )
    with interruptible(), progress_bar() as on_stage:
        found = ClientRun(plan).measure(on_stage)
    judgement = save_and_report(found, result, html, kind)
    for limit in found.not_measured:
        note(limit)
    end_with(judgement)
