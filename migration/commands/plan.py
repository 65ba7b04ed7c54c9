"""``cqstore migrate plan``."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import ConversionFacts, NextBroker, PlannedConversion
from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import ConfigFile, Dir, Format, java_long, note, opened_by, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.migration.commands.options import Space, workspace_of
from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.plan import Plan, refuse_second_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.plan.segment_writer import SEGMENT_UNITS
from cqstore.migration.preflight.examine import Examined, examined
from cqstore.migration.preflight.limits import MachineLimit
from cqstore.migration.preflight.obstacles import BATCH
from cqstore.migration.tasks import MASTER, NO_SPARK
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import bulk_names
from cqstore.store.queue.topic_choice import ONLY_LIGHT
from cqstore.store.settings.config import StoreConfig

Target = Annotated[
    str,
    typer.Option("--to", metavar="BACKEND", help=f"Target backend: {' or '.join(bulk_names())}."),
]

Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BACKEND",
        help=f"Source: {', '.join(bulk_names())}, or log (the commit log alone)."
        " Default: the backend that the store reads.",
    ),
]

SegmentUnits = Annotated[
    int,
    typer.Option(metavar="N", min=1, callback=java_long, help="Maximum number of units per task."),
]

Accept = Annotated[
    list[MachineLimit] | None,
    typer.Option(
        "--accept",
        metavar="LIMIT",
        help=f"Limit of this machine to exceed: {', '.join(MachineLimit)}. May be repeated.",
    ),
]

Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace existing, less complete queues; switch moves them aside first.",
    ),
]


Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        metavar="TOPICS",
        help="Topics to move, written like doubleWriteTopics. Brokers serve only one such division:"
        f" '{ONLY_LIGHT}' moves all light queues to RocksDB. Default: all topics.",
    ),
]
Leave = Annotated[
    list[str] | None,
    typer.Option(
        "--leave",
        metavar="TOPIC",
        help="BatchCQ topic to leave in its files, where a broker with RocksDB does not serve it."
        " May be repeated.",
    ),
]

PlanMaster = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help=f"URL of the Spark master, or {NO_SPARK} to use all cores without Spark."
        f" Default: {NO_SPARK}; with --from log {MASTER}.",
    ),
]

_NO_CHOICE = "--topics and --leave cannot be used with --from log: they need the old queues"
_NO_REPLACE = (
    "--replace cannot be used with --from log: to rebuild existing queues from the log and keep the"
    " old ones, run cqstore rebuild DIR --backend BACKEND"
)
_LATER = (
    "the plan does not contain messages that arrive from now on. Stop it before migrate switch,"
    " which adds them from the log"
)


class _Given(TypedDict):
    """Arguments of both kinds of plan."""

    target: str
    workspace: Workspace
    segment_units: int
    without: Collection[AcceptedLoss]
    accept_older_tables: bool


def plan(
    root: Dir, to: Target = "rocksdb", source: Source = None,
    segment_units: SegmentUnits = SEGMENT_UNITS, *, topics: Topics = None, leave: Leave = None,
    replace: Replace = False, accept: Accept = None, without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False, master: PlanMaster = None,
    workspace: Space = None, config: ConfigFile = None, kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Check the store as preflight does, and write a plan to move all queues.

    Changes nothing of the store. Everything that forbids the move, also what only the switch would
    find, is refused in one answer. With --from log, tasks scan the commit log, and the queues are
    built from it alone. A broker may have the store open. The plan leaves out messages that arrive
    later: migrate switch, for which the broker must be stopped, adds them from the log.

    With --topics '%LMQ%*', only the light queues are moved, and a broker (RocketMQ 5.5.0 or later)
    reads all other topics from files. With --leave, every topic is moved but the named ones: their
    clients get nothing until migrate rollback, and migrate switch requires that they are closed.

    Examples:
        cqstore migrate plan DIR
        cqstore migrate plan DIR --topics '%LMQ%*'
        cqstore migrate plan DIR --from log --to rocksdb --master none
    """
    space = workspace_of(root, workspace)
    settings = read_config(config, root)
    opener = opened_by(root)
    broker = NextBroker([to], settings, without or (), accept_older_tables)
    chosen = bool(topics or leave)
    if source == LOG and (replace or chosen):
        raise RefusedStoreError(_NO_REPLACE if replace else _NO_CHOICE, path=root)
    refuse_second_plan(space)
    given = _Given(target=to, workspace=space, segment_units=segment_units,
                   without=broker.without, accept_older_tables=accept_older_tables)  # fmt: skip
    if source == LOG:
        conversion = PlannedConversion(StorePaths(root), broker)
        made = _from_log(root, settings, given, master or MASTER)
    else:
        codes = {*(accept or ()), *([BATCH] if chosen else ())}
        with (
            _examining(root, settings, broker) as found,
            progress("planning", unit="units") as tick,
        ):
            made = make_plan(
                root, settings, **given, source=source, replace=replace, topics=topics or (),
                leave=leave or (), master=master or NO_SPARK, examined=found, accepted=codes,
                progress=tick,
            )  # fmt: skip
        conversion = found.conversion
    _print(root, _plan_row(made, opener, conversion.facts(), space), made, opener, kind)


def _from_log(root: Path, settings: StoreConfig, given: _Given, master: str) -> Plan:
    """Return the plan that tasks make from the commit log."""
    with progress("planning", unit="units") as tick:
        return make_log_plan(root, settings, **given, master=master, progress=tick).plan


@contextmanager
def _examining(root: Path, settings: StoreConfig, broker: NextBroker) -> Iterator[Examined]:
    """Run a preflight with a progress bar; the store stays open until the block ends."""
    with ExitStack() as closing:
        with progress("examining", unit="queues") as tick:
            found = closing.enter_context(examined(root, settings, broker, tick.of))
        yield found


def _print(root: Path, row: Row, made: Plan, opener: int, kind: OutputFormat) -> None:
    """Print a plan, and what to do before the switch; process ``opener`` has the store open."""
    output(kind).record(row)
    if made.left:
        note(
            f"not moved, and not served by a broker with RocksDB: {', '.join(made.left)}. Close"
            " them before migrate switch: mqadmin updateTopicPerm -t TOPIC -p 0"
        )
    if opener:
        note(f"{root}: process {opener} has the store open: {_LATER}")


def _plan_row(made: Plan, opener: int, tables: ConversionFacts | None, space: Workspace) -> Row:
    """Return the printed row of a plan; process ``opener`` has the store open."""
    ran = space.history()[-1].get("ranIn")
    return {
        "from": made.source, "to": made.target, "queues": made.queues, "units": made.units,
        "expiredQueues": made.expired, "emptyQueues": made.empty, "segments": len(made.segments),
        "topics": made.topics, "leftTopics": made.left, "queuesNotMoved": made.not_moved,
        "completeTo": made.complete_to, "openedBy": opener or None, "plan": made.digest,
        "ranIn": ran, "tables": tables and tables.shown, "file": str(space.plan),
    }  # fmt: skip
