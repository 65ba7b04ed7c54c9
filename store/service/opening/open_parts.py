"""Opening a store: what lies there is loaded, made whole and served, each part made once.

Whatever fails on the way, and wherever, what was opened is closed again, the last part first.

Source: RocketMQ ``DefaultMessageStore.load``, ``recover``, ``start``.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from store.config import StoreConfig
from store.errors import ConsumeQueueError, CorruptionError, StoreError
from store.journals.deleted_topics import DeletedTopics
from store.journals.expired_queues import ExpiredQueues
from store.journals.kept import KEPT_LOCK, register_existing
from store.journals.lagging_backends import LaggingBackends
from store.journals.store_lock import StoreLock
from store.log.checkpoint import StoreCheckpoint
from store.log.commit_log import CommitLog
from store.logger import StoreLogger
from store.progress import noop
from store.queue.backends import backend
from store.queue.combined import CombinedConsumeQueueStore
from store.queue.combined_reads import CombinedReads
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import QueueStoreContext
from store.queue.units import QueueKey
from store.record.message import Message
from store.record.scan import ScanRules
from store.service.dispatching.dispatch import Dispatcher
from store.service.dispatching.pending import Pending
from store.service.dispatching.record_keys import RecordKeys
from store.service.dispatching.record_units import RecordUnits
from store.service.dispatching.replay import Replay
from store.service.dispatching.reput import MODE
from store.service.layout.left_behind import written_since
from store.service.layout.resolve_layout import resolve_layout
from store.service.layout.store_layout import (
    StoreLayout,
    choose_backends,
    choose_roles,
    present_backends,
)
from store.service.maintenance.clean_service import CleanService
from store.service.maintenance.disk_levels import DiskLevels
from store.service.maintenance.file_expiry import FileExpiry
from store.service.metrics.metrics import StoreMetrics
from store.service.opening.abort_marker import AbortMarker
from store.service.opening.left_out import open_index, refuse_queues_without_log
from store.service.opening.options import OpenOptions
from store.service.opening.parts import LoadedStore, RecoveredStore, StoreComponents
from store.service.opening.unopened import begin_again, opened
from store.service.reading.other_indexes import OtherIndexes
from store.service.reading.puller import Puller
from store.service.reading.read_guard import read_guard_of
from store.service.recovering import replacement
from store.service.recovering.given_places import refuse_sound_places
from store.service.recovering.queue_mend import QueueMend
from store.service.recovering.queue_rebuild import QueueRebuild
from store.service.recovering.recovery import Recovery, RecoveryReport
from store.service.results import PutMessageResult
from store.service.runtime.running_state import RunningState
from store.service.writing.ack_waiter import AckWaiter
from store.service.writing.append import Appender
from store.service.writing.flush import FlushService, FullFlush
from store.service.writing.group_commit import GroupCommit
from store.service.writing.light_quota import LightQuota
from store.service.writing.log_prefault import LogPrefault
from store.service.writing.putter import Putter
from store.service.writing.replicas import ReplicaWait

if TYPE_CHECKING:
    from store.service.mirroring.mirror import Mirror
    from store.service.scheduling.schedule_message_service import ScheduleMessageService

_LOG = StoreLogger(__name__)


def open_parts(
    undo: ExitStack, root: Path, config: StoreConfig, commit_log: Path | None, options: OpenOptions
) -> StoreComponents:
    """Open the store in ``root``, see ``MessageStore.open``.

    ``undo`` closes what was opened: the caller leaves it with whatever is raised until the store is
    the caller's own, and drops it then.
    """
    layout, config = resolve_layout(
        root, config, commit_log, read_only=options.read_only, fed=options.replicas is not None
    )
    lock = None
    if options.read_only:
        names = choose_backends(layout, config, options.backend, read_only=True)
    else:
        lock, layout, names = _lock_and_set_aside(undo, layout, config, options)
    marking = AbortMarker(layout.paths)
    undo.push(marking.undo)
    loaded = _load(undo, marking, layout, config, names, lock)
    recovered = _recover(undo, marking, loaded, options)
    parts = _serve(loaded, recovered, options)
    if not options.read_only:
        replacement.finish(layout.paths)
        opened(layout.paths)
        register_existing(layout.paths)
        loaded.lines.keep()
    _start(undo, parts, options)
    return parts


def _lock_and_set_aside(
    undo: ExitStack, layout: StoreLayout, config: StoreConfig, options: OpenOptions
) -> tuple[StoreLock, StoreLayout, list[str]]:
    """Lock the store, and move away what is to be built anew."""
    paths = layout.paths
    if not replacement.begun(paths) and not options.rebuild:
        choose_backends(layout, config, options.backend)  # refuses before the lock file is made
    locks: list[StoreLock] = []
    undo.callback(_release, locks)  # before it is taken: a frame that an exception keeps, keeps it
    locks.append(StoreLock(paths))
    if not options.rebuild:
        refuse_sound_places(
            layout, config, options.cut_at, options.pass_over, partial(_report, paths.root, config)
        )
    begin_again(paths)
    names = replacement.prepare(
        layout, config, options.backend, options.rebuild, options.cut_at,
        partial(_finished_queues, paths.root, config),
    )  # fmt: skip
    return locks[0], replace(layout, backends=present_backends(paths)), names


def _release(locks: Sequence[StoreLock]) -> None:
    for lock in locks:
        lock.release()


def _report(root: Path, config: StoreConfig) -> RecoveryReport | None:
    """Return what opening the store to read says of it; ``None``: it cannot be opened."""
    try:
        with ExitStack() as undo:
            parts = open_parts(undo, root, config, None, OpenOptions(read_only=True))
            return parts.loaded.report
    except StoreError:  # the opening tells it
        return None


def _finished_queues(root: Path, config: StoreConfig) -> list[tuple[QueueKey, int]]:
    """Return where queues go on of which the log has no record any more."""
    try:
        with ExitStack() as undo:
            parts = open_parts(undo, root, config, None, OpenOptions(read_only=True))
            spans = list(parts.loaded.queues.spans())
    except (CorruptionError, ConsumeQueueError) as exc:
        _LOG.warning("queues without records may begin at 0 again, theirs cannot be read: %s", exc)
        return []
    return [(key, high) for key, low, high in spans if low >= high > 0]


def _load(
    undo: ExitStack,
    marking: AbortMarker,
    layout: StoreLayout,
    config: StoreConfig,
    names: Sequence[str],
    lock: StoreLock | None,
) -> LoadedStore:
    """Load what lies there; the index follows when the queues can be trusted."""
    paths, read_only = layout.paths, lock is None
    state = RunningState(paths.root, read_only=read_only)
    checkpoint = StoreCheckpoint(paths.checkpoint)
    last_exit_ok = not paths.abort.exists()
    log = CommitLog(layout.log_folders, config, read_only=read_only)
    undo.callback(log.close)
    log.load()
    context = QueueStoreContext(paths, config, log, checkpoint, last_exit_ok, read_only)
    if log.min_phy_offset() < 0:
        refuse_queues_without_log(context, layout.backends)
    lines = LaggingBackends(paths, read_only=read_only)
    deleted = DeletedTopics(paths.deleted_topics)
    queues = _queues(context, names, lines, deleted)
    undo.callback(marking.closing, queues.close)
    queues.load()
    report = RecoveryReport(last_exit_ok, read_only)
    kept = [part.name for part in queues.parts()]
    report.written_since = written_since(context, lines.standing, kept)
    return LoadedStore(
        layout, config, lock, state, checkpoint, last_exit_ok, report, log, lines, deleted, queues
    )


def _queues(
    context: QueueStoreContext, names: Sequence[str], lines: LaggingBackends, deleted: DeletedTopics
) -> ConsumeQueueStore:
    """Make the queues of backends ``names``: several, or one that was not always kept, combined."""
    kinds = [backend(name) for name in names]
    if len(kinds) == 1 and names[0] not in {*lines.standing.behind, *lines.standing.covers}:
        return kinds[0](context)
    roles = choose_roles(names, context.config)
    return CombinedConsumeQueueStore(context, kinds, roles, lines, deleted.has_record)


def _recover(
    undo: ExitStack, marking: AbortMarker, loaded: LoadedStore, options: OpenOptions
) -> RecoveredStore:
    """Make log, queues and index whole; read-only only find out where they end."""
    config, paths, log, queues = loaded.config, loaded.paths, loaded.log, loaded.queues
    report, deleted, state = loaded.report, loaded.deleted, loaded.state
    if not loaded.read_only and loaded.last_exit_ok:
        marking.mark()
    index, fault = open_index(
        paths, config, loaded.last_exit_ok, loaded.checkpoint, read_only=loaded.read_only
    )
    if loaded.read_only:
        report.index_left_out = fault
    else:
        report.index_dropped = str(fault or "")
    if index is not None:
        undo.callback(marking.closing, partial(index.close, flush=False))
    deleted.load()
    queues.recover()
    recovery = Recovery(paths, config, log, queues, index, loaded.checkpoint, report, deleted)
    units = RecordUnits(
        config, deleted, queues.queue_type, check_topic=queues.check_topic,
        lmq_needs_multi_dispatch=queues.lmq_needs_multi_dispatch,
    )  # fmt: skip
    keys = RecordKeys(wanted=index is not None, tags=config.message_index_tags)
    pending = Pending(queues, units, keys, state)
    commit = GroupCommit(log, config.sync_flush_timeout)
    state.locks.add(*commit.locks, *queues.locks(), KEPT_LOCK)
    dispatcher = Dispatcher(
        pending, queues, index, config.dispatch_slice, state, _before_units(config, log, commit)
    )
    rules = ScanRules(config.check_crc_on_recover)
    rebuild = QueueRebuild(paths, log, queues, units, pending, dispatcher, rules, state.fail)
    if loaded.read_only:
        report.unfinished_rebuild = paths.rebuilding.exists()
        report.queues_damaged = queues.damaged_queues()
        recovery.find_end()
    else:
        marking.changing()
        rebuild.drop_half_built()
        replay = Replay(dispatcher.store, units, keys)
        recovery.run(replay, options.cut_at, options.pass_over, options.progress)
        opened = [part.name for part in queues.parts()]
        loaded.lines.log_was_cut(report.end_phy_offset, opened)
        rebuild.resume()
        mended = QueueMend(log, queues, units, rebuild, rules).run(
            ExpiredQueues(paths.expired_queues).ends
        )
        report.queues_mended, report.queues_damaged = mended.mended, mended.left
        marking.mark()
    marking.stay()
    if (last := recovery.last) is not None:
        dispatcher.note_last(last.phy_offset, last.size, last.store_timestamp)
    others = OtherIndexes(paths.root)
    state.locks.add_outer(others.lock)
    return RecoveredStore(index, others, pending, commit, dispatcher, rebuild)


def _before_units(config: StoreConfig, log: CommitLog, commit: GroupCommit) -> Callable[[], object]:
    """Return what has to be done with the log before units of it become visible."""
    if config.syncs_each_put:
        return commit.flush
    return log.commit if config.is_transient else noop


def _serve(loaded: LoadedStore, recovered: RecoveredStore, options: OpenOptions) -> StoreComponents:
    """Make the services over a store that is whole; nothing runs yet."""
    config, paths, log, queues = loaded.config, loaded.paths, loaded.log, loaded.queues
    state, index, commit = loaded.state, recovered.index, recovered.commit
    pending, dispatcher = recovered.pending, recovered.dispatcher
    flush_all = FullFlush(dispatcher, queues, index, loaded.checkpoint, commit)
    flush = FlushService(config, log, commit, dispatcher, flush_all, state.fail)
    puller = Puller(config, log, queues)
    mirror = _mirror(loaded, puller)
    quota = LightQuota(queues, pending.offsets, config.max_lmq_consume_queue_num)
    append = Appender(log, pending, state, quota)
    replicas = ReplicaWait.of(config, log, options.replicas)
    state.locks.add(*(() if replicas is None else replicas.locks))
    answers = AckWaiter(config, commit, flush, replicas, state.fail)
    ahead = None if loaded.read_only else LogPrefault.of(log, config)
    look_ahead = noop if ahead is None else ahead.wake_if_due
    putter = Putter(config, log, queues, dispatcher, append, answers, look_ahead)
    clean = CleanService(
        log, queues, index, pending, dispatcher, commit, loaded.deleted,
        ExpiredQueues(paths.expired_queues), quota, state,
    )  # fmt: skip
    levels = DiskLevels(
        config, options.surroundings, loaded.layout.log_folders, paths.consume_queue
    )
    expiry = FileExpiry(
        config, log, levels, options.surroundings, clean.delete_expired_files,
        state.set_disk_full, state.fail,
    )  # fmt: skip
    metrics = StoreMetrics(paths, log, queues, dispatcher, commit, putter, puller, state, mirror)
    stops = [] if replicas is None else [replicas.stop]
    stops += [] if ahead is None else [ahead.stop]
    stops += [dispatcher.reput.stop, flush.stop]  # the flush thread may start the other one
    stops += [expiry.stop] if options.housekeeping else []
    stops += [] if mirror is None else [mirror.stop]
    stops += [dispatcher.arrivals.stop]
    schedule = _schedule(loaded, recovered, putter, options)
    stops += [] if schedule is None else [schedule.stop]
    return StoreComponents(
        loaded, recovered, flush, flush_all, puller, putter, mirror, clean, expiry, metrics, ahead,
        replicas, schedule, () if loaded.read_only else tuple(stops),
    )  # fmt: skip


def _mirror(loaded: LoadedStore, puller: Puller) -> "Mirror | None":
    """Make the mirror where two backends are kept and reads of one are to be asked of both."""
    queues = loaded.queues
    if loaded.read_only or not isinstance(queues, CombinedReads):
        return None
    from store.service.mirroring.mirror import Mirror  # noqa: PLC0415 - few stores have one

    return Mirror.of(loaded.config, loaded.paths, loaded.log, queues, puller)


def _schedule(
    loaded: LoadedStore, recovered: RecoveredStore, putter: Putter, options: OpenOptions
) -> "ScheduleMessageService | None":
    """Make the service of delay levels, where it is wanted."""
    config, state = loaded.config, loaded.state
    if loaded.read_only or not (config.enable_schedule_message_service and options.housekeeping):
        return None
    from store.service.scheduling.delay_offsets import DelayOffsets  # noqa: PLC0415 - as a mirror
    from store.service.scheduling.schedule_message_service import (  # noqa: PLC0415
        ScheduleMessageService,
    )

    def put(messages: Sequence[Message]) -> list[PutMessageResult]:
        if state.unwritable:
            return [state.refuse_put()] * len(messages)
        return putter.put_list(messages, wait=False)

    def flush_log() -> None:  # within a close too, so that it asks for no lock
        state.check_writable()
        with state.failing():
            recovered.commit.flush()

    made = ScheduleMessageService(
        recovered.pending.delays, loaded.log, loaded.queues,
        DelayOffsets(loaded.paths.delay_offset), put,
        read_guard_of(state, recovered.dispatcher), flush_log, options.surroundings,
        config.flush_delay_offset_interval,
    )  # fmt: skip
    putter.schedule.on_scheduled = made.notify
    return made


def _start(undo: ExitStack, parts: StoreComponents, options: OpenOptions) -> None:
    """Start the threads; each is to be stopped from before it runs."""
    if parts.loaded.read_only:
        return
    undo.callback(parts.stop)
    if parts.ahead is not None:
        parts.ahead.start()
    if MODE == "always":
        parts.recovered.dispatcher.reput.start_if_wanted()
    parts.flush.start()
    if parts.replicas is not None:
        parts.replicas.start()
    if options.housekeeping:
        parts.expiry.start()
    if parts.mirror is not None:
        parts.mirror.start()
    if parts.schedule is not None:
        parts.schedule.start()
