"""``cqstore ab run``."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cqstore.ab.commands.report import Matters, Page, check_place, end_with, report
from cqstore.ab.results.result import Cache
from cqstore.ab.results.result_file import write_result
from cqstore.ab.run.comparison import Run, RunOptions
from cqstore.ab.run.rounds import Effort
from cqstore.ab.run.run_plan import RunPlan
from cqstore.ab.workloads import parse_mix, workloads
from cqstore.cli.options import ConfigFile, Dir, Format, bounded, check_is_there, note, read_config
from cqstore.cli.output import OutputFormat
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import PARTS, progress
from cqstore.store.errors import StoreConfigError

_BY_SIGNAL = 128
"""What is added to its number, as a shell does."""
EXIT_STOPPED = _BY_SIGNAL + signal.SIGINT
_MINUTE = 60
_PARTS = 1_000


Sides = Annotated[
    list[str] | None,
    typer.Option(
        "--side",
        metavar="BACKEND[,SETTING=VALUE…]",
        help="A side; twice or more often, the reference first; default: all backends.",
    ),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help=f"Only these, with * and ?; of {', '.join(workloads())}.",
    ),
]
TraceFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run these operations, a JSON line each.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        metavar="N", min=0.1, callback=bounded, help="Operations a second that are due (open loop)."
    ),
]
Speed = Annotated[
    float | None,
    typer.Option(
        metavar="X", min=0.001, callback=bounded, help="Replay the trace's times, X times as fast."
    ),
]
Mix = Annotated[
    str | None, typer.Option(metavar="KIND=PARTS,…", help="What the mixed workload is made of.")
]
Readers = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=64,
        help="Threads that read: of the mixed workload, of an open loop.",
    ),
]
Rounds = Annotated[
    int, typer.Option(metavar="N", min=3, max=1000, help="Of each workload, at most.")
]
TurnSeconds = Annotated[
    float, typer.Option(metavar="S", min=0.001, max=600, help="About, of a side in a round.")
]
PageCache = Annotated[
    Cache, typer.Option(help="Of the system: kept warm, or dropped before each turn.")
]
Project = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Measure what is needed to judge N queues.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of orders and derived traces.")]
Work = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Folder for the sides' stores, on the disk to measure."),
    OutputPath(locked=False),
]
ResultFile = Annotated[
    Path, typer.Option(metavar="FILE", help="Where the result goes."), OutputPath()
]
_RESULT = Path("result.json")


def run_command(
    root: Dir,
    side: Sides = None,
    workload: Workloads = None,
    trace: TraceFile = None,
    rate: Rate = None,
    speed: Speed = None,
    mix: Mix = None,
    readers: Readers = 3,
    rounds: Rounds = 12,
    turn_seconds: TurnSeconds = 0.08,
    cache: PageCache = Cache.WARM,
    project: Project = None,
    seed: Seed = 1,
    work: Work = None,
    result: ResultFile = _RESULT,
    matters: Matters = None,
    html: Page = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Compare backends on copies of the store in DIR: the same log, the same operations.

    Nothing of DIR is changed. The page goes beside the result, or where --html says. Exit code 1
    if an answer differs, which the report tells, or if none was compared.
    """
    check_is_there(root)
    if speed is not None and (trace is None or rate is not None):
        raise StoreConfigError("--speed replays the times of a --trace, and excludes --rate")
    html = html or result.with_suffix(".html")
    check_place(result, "result", "--result")
    check_place(html, "page", "--html", result)
    options = RunOptions(
        root, read_config(config, root), sides=side or (), workloads=workload or (), trace=trace,
        rate=rate, speed=speed, effort=Effort(rounds, turn_seconds), cache=cache, seed=seed,
        work=work, matters=matters or (), project=project, mix=parse_mix(mix), readers=readers,
        command=["cqstore", *sys.argv[1:]],
    )  # fmt: skip
    with _interruptible():
        run = Run(options)
        _announce(run.prepare())
        with _bar() as say:
            found = run.measure(say)
    write_result(result, found)
    judgement = report(found, html, kind)
    note(f"the result: {result}")
    end_with(judgement)


def _announce(plan: RunPlan) -> None:
    """Say what will be done, and how long that takes."""
    for name, reason in plan.left_out.items():
        note(f"{name} is left out: {reason}")
    minutes, seconds = divmod(round(plan.seconds), _MINUTE)
    note(
        f"{len(plan.sides)} sides ({'; '.join(plan.sides)}), {len(plan.workloads)} workloads,"
        f" {plan.rounds} rounds: about {minutes} min {seconds} s, and up to"
        f" {plan.room_bytes / 1e9:.1f} GB of the disk for a while"
    )


@contextmanager
def _bar() -> Iterator[Callable[[str, float], object]]:
    """Show which workload is measured, and how much of all."""
    with progress("looking", _PARTS, PARTS) as tick:

        def say(text: str, share: float) -> None:
            tick.set_label(text)
            tick(round(share * _PARTS))

        yield say


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have SIGTERM end the block as Ctrl-C does: what was made is removed."""
    code = EXIT_STOPPED

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal code
        _ = frame
        code = _BY_SIGNAL + number
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        note("stopped; nothing is left behind")
        raise typer.Exit(code) from None
    finally:
        signal.signal(signal.SIGTERM, before)
