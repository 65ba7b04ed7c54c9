"""Opening components of a store that may be unusable, or must not be opened."""

from collections.abc import Collection
from dataclasses import replace

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    CorruptionError,
    QueueGapError,
    RefusedStoreError,
    StoreError,
    UnsupportedFormatError,
)
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.index_files import forget_index_files, noted_index_files
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.recovering import replacement
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)


def open_index(
    paths: StorePaths,
    config: StoreConfig,
    last_exit_ok: bool,  # noqa: FBT001
    checkpoint: StoreCheckpoint,
    *,
    read_only: bool,
) -> tuple[IndexService | None, StoreError | None]:
    """Load the index; ``None`` if it is disabled, or if it cannot be read in a read-only store.

    Read-write, an index that cannot be read is moved away, and the replay rebuilds it: it never
    prevents opening the store. The second value is the reason for moving or ignoring it. The caller
    has marked the store open.

    Raises:
        StoreIOError: as for ``IndexService.load``, or the index cannot be moved.
    """
    if not config.message_index_enable:
        return None, None
    index = _index(paths, config, read_only=read_only)
    try:
        index.load(last_exit_ok, checkpoint.fields.index_msg_timestamp)
        if last_exit_ok:
            index.faults.check_complete(noted_index_files(paths))
    except (CorruptionError, UnsupportedFormatError) as exc:
        if read_only:
            _LOG.warning("the store opens without its index: %s", exc)
            return None, exc
        _LOG.warning("rebuilding the index: %s", exc)
        replacement.begin(paths, [], [], index=True)
        replacement.move(paths)
        index.close(flush=False)
        index = _index(paths, config, read_only=False)
        index.load(False, 0)  # noqa: FBT003 - as after a crash: all of it is missing
        return index, exc
    finally:
        if not read_only:
            forget_index_files(paths)
    return index, None


def _index(paths: StorePaths, config: StoreConfig, *, read_only: bool) -> IndexService:
    """Return the index for the settings, not loaded."""
    given = config.model_fields_set
    return IndexService(
        paths.index,
        config.max_hash_slot_num if "max_hash_slot_num" in given else None,
        config.max_index_num if "max_index_num" in given else None,
        read_only=read_only,
    )


def refuse_lost_units(
    layout: StoreLayout, queues: ConsumeQueueStore, report: RecoveryReport
) -> None:
    """Refuse to read queues that lost units since a clean stop, if they cannot detect it.

    File queues detect it; a RocksDB with a truncated MANIFEST opens in an older state. If a broker
    was started without these queues and put messages that they lack, there is a warning already.

    Raises:
        QueueGapError: the backend that is read lacks records of the log.
    """
    read, lost_from = queues.backends()[0], report.undispatched_from
    if (
        lost_from is None
        or report.written_since
        or read.counts_in_checkpoint
        or read.name not in layout.backends
    ):
        return
    folder = next(filter(is_dir, backend(read.name).folders(layout.paths)), None)
    raise QueueGapError(
        f"the {read.name} queues lack records that were dispatched before the last clean stop. Run"
        " cqstore recover to dispatch them again", path=folder,
        phy_offset=lost_from, expected="a unit for each record of the log",
        got=f"units up to phy offset {max(queues.watermarks().values())}",
    )  # fmt: skip


def refuse_queues_without_log(context: QueueStoreContext, present: Collection[str]) -> None:
    """Refuse a store without a log file if an existing backend has queues; checks read-only.

    Raises:
        RefusedStoreError: a backend has queues.
    """
    for name in present:
        queues = backend(name)(replace(context, read_only=True)).load()
        try:
            found = next(iter(queues.queues()), None)
        finally:
            queues.close()
        if found is not None:
            raise RefusedStoreError(
                f"found queues but no commit log in {context.paths.commit_log}: opening the store"
                " would treat the queues as empty. If the log is in another folder, name that"
                " folder",
                path=context.paths.root,
            )
