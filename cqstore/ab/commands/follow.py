"""``cqstore ab follow``: what each backend costs as a follower of a running broker."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cqstore.ab.commands.report import Matters, Page, check_place, end_with, save_and_report
from cqstore.ab.commands.run import EXIT_STOPPED, ResultFile, Sides, progress_bar
from cqstore.ab.extras import need_extras
from cqstore.ab.judging.banner import matching
from cqstore.ab.live.follow_costs import WHAT
from cqstore.ab.live.followed_broker import FollowedBroker, FollowPlan
from cqstore.ab.sides.side import default_sides, parse_sides
from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.cli.duration import seconds_of
from cqstore.cli.options import ConfigFile, Format, note, read_config
from cqstore.cli.output import OutputFormat
from cqstore.cli.path_marks import OutputPath
from cqstore.replication.address import address
from cqstore.replication.endpoint import find_host
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.last_file import check_master
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow_options import Master

_MIN_ROUNDS = 9
_RESULT = Path("result.json")
Work = Annotated[
    Path,
    typer.Argument(
        metavar="WORK", help="New folder for the sides' stores, on the disk to measure; removed."
    ),
    OutputPath(locked=False),
]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="Duration, such as 6h or 1d.")]
Rounds = Annotated[
    int,
    typer.Option(
        metavar="N", min=_MIN_ROUNDS, max=10_000,
        help="Number of rounds into which the time is divided.",
    ),
]  # fmt: skip
NoRepeat = Annotated[
    bool,
    typer.Option(
        "--no-repeat",
        help="Do not repeat the first side: one connection less, and no noise floor.",
    ),
]


def follow_command(
    master: Master, target: Work, *, duration: For = "1d", side: Sides = None, rounds: Rounds = 24,
    no_repeat: NoRepeat = False, result: ResultFile = _RESULT, matters: Matters = None,
    html: Page = None, config: ConfigFile = None, kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Follow the running master at HOST:PORT with each backend, and compare what they cost.

    PORT is haListenPort (10912 in RocketMQ). Each side replicates the log to a store of its own.
    The costs are CPU time, memory, bytes written and lag, under the same stream; the report names
    the backend for this broker. Nothing expires meanwhile, so WORK grows by the log for each side.
    Ctrl-C ends the run with the rounds so far. Exit code 1 if the queues differ at the end.

    Examples:
        cqstore ab follow broker-a:10912 /data/ab --for 1d
        cqstore ab follow broker-a:10912 /data/ab --for 6h --no-repeat --matters memory,lag
    """
    place = address(master)
    seconds = seconds_of(duration, "--for")
    html = html or result.with_suffix(".html")
    check_place(result, "result", "--result")
    check_place(html, "HTML report", "--html", result)
    names = matching(matters or (), [*WHAT])
    need_extras()
    base = read_config(config, target, is_new=True).without_schedule()
    specs = parse_sides(side or default_sides(None), base)
    sides = [spec for spec in specs if not (no_repeat and spec.twin_of)]
    ScratchFolder(target).check()
    find_host(*place)
    asyncio.run(check_master(MasterPort(*place), Timing().housekeeping))
    plan = FollowPlan(
        *place, sides, target, seconds, rounds, names, command=["cqstore", *sys.argv[1:]]
    )
    with _stopping() as is_stopped, progress_bar() as on_stage:
        found = FollowedBroker(plan).measure(on_stage, is_stopped)
    judgement = save_and_report(found, result, html, kind)
    for limit in found.not_measured:
        note(limit)
    end_with(judgement)


@contextmanager
def _stopping() -> Iterator[Callable[[], bool]]:
    """Yield whether SIGINT or SIGTERM arrived; a second one gives up, and nothing is left."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        _ = frame
        if received:
            raise KeyboardInterrupt
        received.append(number)
        note("stopping; the sides are compared now. Repeat to give up")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    except KeyboardInterrupt:
        note("stopped; temporary files were removed")
        raise typer.Exit(EXIT_STOPPED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
