"""``cqstore recover``: recovers a store as a read-write open does, and prints a report."""

from collections.abc import Iterator

import typer

from cqstore.cli.options import (
    Backend,
    ConfigFile,
    CutAt,
    Dir,
    Format,
    PassOver,
    about_end,
    check_is_store,
    note,
    pointing_to_check,
    read_config,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import Tick, progress
from cqstore.store.errors import CorruptionError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, RecoveryOptions
from cqstore.store.service.recovering.recovery_report import RecoveryReport


def recover(
    root: Dir,
    cut_at: CutAt = None,
    pass_over: PassOver = None,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Recover the store, close it cleanly, and report what was done.

    Removed bytes are kept below DIR/cqstore/cut. The queues in RocksDB are read completely. A
    second run finds nothing to do.

    The exit code is 0 if the store is sound, and 1 if damage remains; the message then names the
    command that repairs it. It is 2 if recovery is refused, for example because the log is damaged
    and neither --cut-at nor --pass-over is given. In that case the log is unchanged.

    Examples:
        cqstore recover DIR
        cqstore recover DIR --cut-at 1073741824
    """
    settings = read_config(config, root)
    check_is_store(root, settings)
    with (
        pointing_to_check(root),
        progress("recovering", about_end(root, settings)) as tick,
        open_served(
            MessageStore,
            root,
            settings,
            OpenOptions(
                backend=backend,
                housekeeping=False,
                progress=tick,
                recovery=RecoveryOptions(cut_at=cut_at, pass_over=pass_over or ()),
            ),
        ) as store,
    ):
        report, left = store.report, list(_left_damaged(store, tick))
    output(kind).record(_record(report))
    for sentence in left:
        note(sentence)
    if left:
        raise typer.Exit(1)


def _left_damaged(store: MessageStore, tick: Tick) -> Iterator[str]:
    """Yield the damage of an open store that opening did not repair."""
    for each in store.report.queues_damaged:
        key = each.queue
        yield (
            f"queue {key.queue_id} of {key.topic!r} is still damaged: {each.problem} ({each.path});"
            " cqstore check lists all damage"
        )
    for name, exc in store.detached_backends().items():
        yield f"the {name} queues are detached: {exc}"
    tick.set_label("reading the queues")
    tick.measure(None, "rows")
    try:
        components_of(store).queues.read_through(tick)
    except CorruptionError as exc:
        yield str(exc)


def _record(report: RecoveryReport) -> dict[str, object]:
    """Return the report of a recovery as one record."""
    return {
        "lastExit": "clean" if report.last_exit_ok else "not clean",
        "scanFrom": report.start_phy_offset,
        "scannedRecords": report.scanned_records,
        "scannedBytes": report.scanned_bytes,
        "logEnd": report.end_phy_offset,
        "watermarks": report.watermarks,
        "dispatchedUnits": report.dispatched_units,
        "leftBehindWrittenTo": dict(report.written_since),
        "queuesCut": report.queues_cut,
        "droppedBytes": report.dropped_bytes,
        "firstBad": str(report.first_bad) if report.first_bad else None,
        "saved": [str(tail.path) for tail in report.saved],
        "passedOver": [
            {
                "phy": passed.phy_offset,
                "size": passed.size,
                "place": list(passed.place) if passed.place else None,
                "saved": str(passed.saved),
            }
            for passed in report.passed_over
        ],
        "queuesMended": [f"{key.topic}/{key.queue_id}" for key in report.queues_mended],
        "queuesDamaged": [
            f"{each.queue.topic}/{each.queue.queue_id}: {each.problem}"
            for each in report.queues_damaged
        ],
        "indexFilesCut": report.index_files_cut,
        "indexDropped": report.index_dropped or None,
        "restartedQueues": [
            {
                "topic": restart.queue.topic,
                "queueId": restart.queue.queue_id,
                "dropped": [restart.dropped.start, restart.dropped.stop],
                "phy": restart.phy_offset,
            }
            for restart in report.restarts
        ],
    }
