"""``cqstore migrate plan``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.conversion.conversion import NextBroker, plan_conversion
from cqstore.cli.options import ConfigFile, Dir, Format, java_long, note, opened_by, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.migration.commands.options import Master, Space, workspace_of
from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.plan.segment_writer import SEGMENT_UNITS
from cqstore.migration.tasks import MASTER
from cqstore.store.errors import RefusedStoreError, StoreError
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


def plan(
    root: Dir, to: Target = "rocksdb", source: Source = None,
    segment_units: SegmentUnits = SEGMENT_UNITS, *, topics: Topics = None, leave: Leave = None,
    replace: Replace = False, master: Master = MASTER, workspace: Space = None,
    config: ConfigFile = None, kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Write a plan to move all queues. Changes nothing of the store.

    With --from log, tasks scan the commit log, and the queues are built from it alone. A broker may
    have the store open. The plan leaves out messages that arrive later: migrate switch, for which
    the broker must be stopped, adds them from the log.

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
    with progress("planning", unit="units") as tick:
        if source == LOG:
            _refuse_with_log(root, replace=replace, chosen=bool(topics or leave))
            made = make_log_plan(
                root, settings, target=to, master=master, workspace=space,
                segment_units=segment_units, progress=tick,
            ).plan  # fmt: skip
        else:
            made = make_plan(
                root, settings, target=to, source=source, workspace=space,
                segment_units=segment_units, replace=replace, topics=topics or (),
                leave=leave or (), progress=tick,
            )  # fmt: skip
    tables = _tables(root, settings, made.target)
    output(kind).record(_plan_row(made, opener, tables, space.plan))
    for sentence in _notes(root, made, opener):
        note(sentence)


def _refuse_with_log(root: Path, *, replace: bool, chosen: bool) -> None:
    """Refuse options that need existing queues, for --from log.

    Raises:
        RefusedStoreError: one was given.
    """
    if replace:
        raise RefusedStoreError(
            "--replace cannot be used with --from log: to rebuild existing queues from the log"
            " and keep the old ones, run cqstore rebuild DIR --backend BACKEND",
            path=root,
        )
    if chosen:
        raise RefusedStoreError(
            "--topics and --leave cannot be used with --from log: they need the old queues",
            path=root,
        )


def _notes(root: Path, made: Plan, opener: int) -> Iterator[str]:
    """Yield what to do before the switch; process ``opener`` has the store open."""
    if made.left:
        yield (
            f"not moved, and not served by a broker with RocksDB: {', '.join(made.left)}. Close"
            " them before migrate switch: mqadmin updateTopicPerm -t TOPIC -p 0"
        )
    if opener:
        yield (
            f"{root}: process {opener} has the store open: the plan does not contain messages that"
            " arrive from now on. Stop it before migrate switch, which adds them from the log"
        )


def _plan_row(made: Plan, opener: int, tables: object, file: Path) -> Row:
    """Return the printed row of a plan in ``file``; process ``opener`` has the store open."""
    return {
        "from": made.source, "to": made.target, "queues": made.queues, "units": made.units,
        "expiredQueues": made.expired, "emptyQueues": made.empty, "segments": len(made.segments),
        "topics": made.topics, "leftTopics": made.left, "queuesNotMoved": made.not_moved,
        "completeTo": made.complete_to, "openedBy": opener or None, "plan": made.digest,
        "tables": tables, "file": str(file),
    }  # fmt: skip


def _tables(root: Path, settings: StoreConfig, to: str) -> object:
    """Return the tables that a switch will convert, or why it would refuse to."""
    try:
        found = plan_conversion(StorePaths(root), NextBroker([to], settings))
    except StoreError as exc:
        return str(exc)
    return None if found is None else found.facts()
