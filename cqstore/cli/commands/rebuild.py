"""``cqstore rebuild``: rebuilds queues or the index from the commit log."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.known_queues import near
from cqstore.cli.options import (
    Backend,
    ConfigFile,
    CutAt,
    Dir,
    Format,
    about_end,
    check_is_store,
    java_int,
    note,
    pointing_to_check,
    read_config,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import Tick, progress
from cqstore.store.errors import CorruptionError, NoSuchQueueError, StoreConfigError, StoreError
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import StoreConfig

Topic = Annotated[
    str | None,
    typer.Option(metavar="T", help="Topic whose queues to rebuild. Default: all topics."),
]
QueueId = Annotated[
    int | None,
    typer.Option(
        metavar="Q",
        min=0,
        callback=java_int,
        help="Queue ID (requires --topic). Default: all queues.",
    ),
]
Index = Annotated[
    bool, typer.Option("--index", help="Rebuild the key index instead of the queues.")
]


def rebuild(
    root: Dir, topic: Topic = None, queue_id: QueueId = None, *, index: Index = False,
    cut_at: CutAt = None, config: ConfigFile = None, backend: Backend = None,
    kind: Format = OutputFormat.TABLE,
) -> None:  # fmt: skip
    """Rebuild consume queues or the key index from the commit log.

    Without --topic, all queues or the index are rebuilt, and the old ones are moved to
    DIR/cqstore/replaced. With --backend, the new queues are created in that backend. With --topic,
    queues are replaced in place.

    Queues without records keep their next offset. Deleted topics stay deleted.

    Examples:
        cqstore rebuild DIR --topic orders --queue-id 3
        cqstore rebuild DIR --index
    """
    settings = read_config(config, root)
    check_is_store(root, settings)
    if topic is None:
        if queue_id is not None:
            raise StoreConfigError("--queue-id requires --topic")
        parts = Rebuild.INDEX if index else Rebuild.QUEUES
    elif index:
        raise StoreConfigError("--index rebuilds the whole index: --topic is not allowed")
    else:
        parts = Rebuild.NOTHING
        _check_has_records(root, settings, topic, queue_id)
    with (
        pointing_to_check(root),
        progress("rebuilding", about_end(root, settings)) as tick,
        open_served(MessageStore, root, settings, OpenOptions(
            backend=None if topic else backend, housekeeping=False, progress=tick,
            recovery=RecoveryOptions(cut_at=cut_at, rebuild=parts),
        )) as store,
    ):  # fmt: skip
        record: dict[str, object] = {
            "backend": "+".join(each.name for each in components_of(store).queues.backends())
        }
        if topic is None:
            record["scannedRecords"] = store.report.scanned_records
            if not index:
                record["units"] = store.report.dispatched_units
        else:
            record |= _rebuild_queues(store, topic, queue_id, tick)
        before = components_of(store).paths.replaced
    output(kind).record(record)
    if topic is None and is_dir(before):
        note(f"the previous files are in {before}; remove them after checking the result")


def _rebuild_queues(
    store: MessageStore, topic: str, queue_id: int | None, tick: Tick
) -> dict[str, object]:
    """Rebuild single queues; return the report.

    Raises:
        NoSuchQueueError: the log has no record of these queues; nothing was changed.
    """
    done = store.rebuild_queues(topic, queue_id, tick)
    if not done.queues:
        raise _without_records(store, topic, queue_id)
    return {"topic": topic, "queues": done.queues, "units": done.units}


def _check_has_records(root: Path, settings: StoreConfig, topic: str, queue_id: int | None) -> None:
    """Refuse missing queues without records, before the store is opened read-write.

    The log is read only if the queues do not exist, because they may have to be created. If the
    store cannot be opened read-only, the later read-write open reports it.

    Raises:
        NoSuchQueueError: the queues do not exist, and the log has no record of them.
        StoreLockedError: another process has the store open.
    """
    refuse_if_open(StorePaths(root))
    try:
        store = MessageStore.open(root, settings, read_only=True, housekeeping=False)
    except StoreError:
        return
    with store, suppress(CorruptionError):
        keys = [key for key in store.queue_keys(topic) if queue_id in {None, key.queue_id}]
        # Records of other topics lead to an LMQ queue.
        if keys or topic.startswith(LMQ_PREFIX) or _has_record(store, topic, queue_id):
            return
        raise _without_records(store, topic, queue_id)


def _has_record(store: MessageStore, topic: str, queue_id: int | None) -> bool:
    with progress("reading the log", store.max_phy_offset()) as tick:
        for record in components_of(store).log.scan_kept(ScanRules(check_crc=False)):
            tick(record.phy_offset)
            if record.topic == topic and queue_id in {None, record.queue_id}:
                return True
    return False


def _without_records(store: MessageStore, topic: str, queue_id: int | None) -> NoSuchQueueError:
    which = f"queue {queue_id} of topic" if queue_id is not None else "topic"
    return NoSuchQueueError(f"{which} {topic!r} has no record in the log{near(store, topic)}")
