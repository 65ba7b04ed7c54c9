"""``cqstore ab run``."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from cqstore.ab.commands.rate import rate_of
from cqstore.ab.commands.report import Matters, Page, check_place, end_with, save_and_report
from cqstore.ab.results.result import Cache
from cqstore.ab.run.comparison import Run, RunOptions
from cqstore.ab.run.rounds import Effort
from cqstore.ab.run.run_plan import RunPlan
from cqstore.ab.trace.derived import DEFAULT_MIX
from cqstore.ab.workloads import parse_mix, workloads
from cqstore.cli.options import ConfigFile, Dir, Format, check_is_there, note, read_config
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
        help="Backend to compare, optionally with settings. Give it at least twice; the first is"
        " the baseline. Default: every backend.",
    ),
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="Workload to run (wildcards allowed). May be repeated. Default: trace if --trace is"
        f" given, else all others. Workloads: {', '.join(workloads())}.",
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Trace file to run: one operation as JSON per line."),
]
Rate = Annotated[
    str | None,
    typer.Option(
        metavar="N|real|xN",
        help="Open loop: start N operations per second, or replay the times of the trace (real), or"
        " replay them N times as fast (x2).",
    ),
]
Mix = Annotated[
    str | None,
    typer.Option(
        metavar="KIND=PARTS,…",
        help="Kinds of operations in the mixed workload, with their shares. Default:"
        f" {', '.join(f'{kind}={parts}' for kind, parts in DEFAULT_MIX.items())}.",
    ),
]
Readers = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=64,
        help="Number of reader threads (mixed workload and open loop).",
    ),
]
Rounds = Annotated[
    int, typer.Option(metavar="N", min=3, max=1000, help="Maximum number of rounds per workload.")
]
TurnSeconds = Annotated[
    float,
    typer.Option(
        metavar="S",
        min=0.001,
        max=600,
        help="Approximate time per side and round, in seconds.",
    ),
]
OneProcess = Annotated[
    bool,
    typer.Option(
        "--one-process",
        help="Keep one process per side instead of new ones in each round. This saves time if a"
        " store opens slowly, but equal sides can then differ by several per cent.",
    ),
]
PageCache = Annotated[
    Cache, typer.Option(help="Keep the page cache warm, or drop it before each turn.")
]
Project = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Also estimate the resources that N queues need."),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Random seed for the order of sides and for derived traces."
    ),
]
Work = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Folder for the copies of the store, on the disk to measure. Default: DIR.ab.",
    ),
    OutputPath(locked=False),
]
ResultFile = Annotated[
    Path, typer.Option(metavar="FILE", help="Write the result as JSON to FILE."), OutputPath()
]
_RESULT = Path("result.json")


def run_command(
    root: Dir, side: Sides = None, workload: Workloads = None, trace: TraceFile = None,
    rate: Rate = None, mix: Mix = None, readers: Readers = 3,
    rounds: Rounds = 12, turn_seconds: TurnSeconds = 0.08, cache: PageCache = Cache.WARM,
    project: Project = None, seed: Seed = 1, work: Work = None, result: ResultFile = _RESULT,
    matters: Matters = None, html: Page = None, config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE, *, one_process: OneProcess = False,
) -> None:  # fmt: skip
    """Compare backends on copies of the store in DIR: same log, same operations.

    The store must have been closed cleanly; it is not changed. The extra "ab" must be installed.
    First the run prints about how long it takes and how much disk space it needs. The HTML report
    is written next to the result, or to the path of --html.

    Exit code 1 if an answer differs, or if no answer was compared.

    Examples:
        cqstore ab run DIR --side files --side rocksdb
        cqstore ab run DIR --trace trace.jsonl --rate real
    """
    check_is_there(root)
    given = rate_of(rate)
    if given.speed is not None and trace is None:
        raise StoreConfigError(f"--rate {rate} replays the times of a trace: give --trace FILE")
    html = html or result.with_suffix(".html")
    check_place(result, "result", "--result")
    check_place(html, "HTML report", "--html", result)
    options = RunOptions(
        root, read_config(config, root), sides=side or (), workloads=workload or (), trace=trace,
        rate=given.rate, speed=given.speed, cache=cache,
        effort=Effort(rounds, turn_seconds, new_processes=not one_process),
        seed=seed, work=work, matters=matters or (), project=project, mix=parse_mix(mix),
        readers=readers, command=["cqstore", *sys.argv[1:]],
    )  # fmt: skip
    with interruptible():
        run = Run(options)
        _announce(run.prepare())
        with progress_bar() as on_stage:
            found = run.measure(on_stage)
    end_with(save_and_report(found, result, html, kind))


def _announce(plan: RunPlan) -> None:
    """Print the plan and its estimated duration."""
    for name, reason in plan.left_out.items():
        note(f"workload {name} is skipped: {reason}")
    minutes, seconds = divmod(round(plan.seconds), _MINUTE)
    note(
        f"{len(plan.sides)} sides ({'; '.join(plan.sides)}), {len(plan.workloads)} workloads,"
        f" {plan.rounds} rounds: about {minutes} min {seconds} s, and up to"
        f" {plan.room_bytes / 1e9:.1f} GB of temporary disk space"
    )


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], object]]:
    """Show the current workload and the overall progress."""
    with progress("preparing", _PARTS, PARTS) as tick:

        def on_stage(text: str, share: float) -> None:
            tick.set_label(text)
            tick(round(share * _PARTS))

        yield on_stage


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGTERM in the block like Ctrl-C: temporary files are removed."""
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
        note("stopped; temporary files were removed")
        raise typer.Exit(code) from None
    finally:
        signal.signal(signal.SIGTERM, before)
