"""Opening a store: it is loaded, recovered and served; each step sets its own components.

If a step fails, what was opened is closed again, the last component first.

Source: RocketMQ ``DefaultMessageStore.load``, ``recover``, ``start``.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from store.config import StoreConfig
from store.errors import ConsumeQueueError, CorruptionError, StoreError
from store.index.index_service import IndexService
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
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import QueueStoreContext
from store.queue.units import QueueKey
from store.record.message import SCHEDULE_TOPIC, Message
from store.record.scan import ScanRules
from store.service.dispatching.dispatch import Dispatcher
from store.service.dispatching.dispatcher_list import DispatcherList
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
from store.service.opening.components import StoreComponents
from store.service.opening.installed_hooks import with_installed
from store.service.opening.left_out import open_index, refuse_queues_without_log
from store.service.opening.options import OpenOptions
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
from store.service.writing.put_hooks import HookedPuts
from store.service.writing.putter import Putter
from store.service.writing.replicas import ReplicaWait

if TYPE_CHECKING:
    from store.service.mirroring.mirror import Mirror
    from store.service.scheduling.schedule_message_service import ScheduleMessageService

_LOG = StoreLogger(__name__)


def open_store(
    undo: ExitStack, root: Path, config: StoreConfig, commit_log: Path | None, options: OpenOptions
) -> StoreComponents:
    """Open the store in ``root``, see ``MessageStore.open``.

    ``undo`` closes what was opened: the caller leaves it with whatever is raised until the store is
    the caller's own, and drops it then.
    """
    options = with_installed(root, options)
    layout, config = resolve_layout(
        root, config, commit_log, read_only=options.read_only, fed=options.replicas is not None
    )
    lock = None
    if options.read_only:
        names = choose_backends(layout, config, options.backend, read_only=True)
    else:
        lock, layout, names = _lock_and_prepare(undo, layout, config, options)
    marking = AbortMarker(layout.paths)
    undo.push(marking.undo)
    parts = _load(undo, marking, layout, config, names, lock)
    _recover(undo, marking, parts, options)
    _serve(parts, options)
    if not options.read_only:
        replacement.finish(layout.paths)
        opened(layout.paths)
        register_existing(layout.paths)
        parts.lines.keep()
    _start(undo, parts, options)
    return parts


def _lock_and_prepare(
    undo: ExitStack, layout: StoreLayout, config: StoreConfig, options: OpenOptions
) -> tuple[StoreLock, StoreLayout, list[str]]:
    """Lock the store, and move away what is to be rebuilt."""
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
            parts = open_store(undo, root, config, None, OpenOptions(read_only=True))
            return parts.report
    except StoreError:  # the opening tells it
        return None


def _finished_queues(root: Path, config: StoreConfig) -> list[tuple[QueueKey, int]]:
    """Return where queues go on of which the log has no record any more."""
    try:
        with ExitStack() as undo:
            parts = open_store(undo, root, config, None, OpenOptions(read_only=True))
            spans = list(parts.queues.spans())
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
) -> StoreComponents:
    """Load what is on disk; the index follows once the queues are recovered."""
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
    report.written_since = written_since(context, lines.backend_state, kept)
    return StoreComponents(
        layout, config, lock, state, checkpoint, last_exit_ok, report, log, lines, deleted, queues
    )


def _queues(
    context: QueueStoreContext, names: Sequence[str], lines: LaggingBackends, deleted: DeletedTopics
) -> ConsumeQueueStore:
    """Make the queues of backends ``names``: several, or one that was not always kept, combined."""
    kinds = [backend(name) for name in names]
    if len(kinds) == 1 and names[0] not in {
        *lines.backend_state.lagging,
        *lines.backend_state.covers,
    }:
        return kinds[0](context)
    roles = choose_roles(names, context.config)
    return CombinedConsumeQueueStore(context, kinds, roles, lines, deleted.has_record)


def _recover(
    undo: ExitStack, marking: AbortMarker, parts: StoreComponents, options: OpenOptions
) -> None:
    """Recover log, queues and index; read-only only find out where they end."""
    config, paths, log, queues = parts.config, parts.paths, parts.log, parts.queues
    report, deleted, state = parts.report, parts.deleted, parts.state
    if not parts.read_only and parts.last_exit_ok:
        marking.mark()
    parts.index = index = _open_index(parts)
    if index is not None:
        undo.callback(marking.closing, partial(index.close, flush=False))
    deleted.load()
    queues.recover()
    recovery = Recovery(paths, config, log, queues, index, parts.checkpoint, report, deleted)
    units = RecordUnits(
        config, deleted, queues.queue_type, check_topic=queues.check_topic,
        lmq_needs_multi_dispatch=queues.lmq_needs_multi_dispatch,
    )  # fmt: skip
    keys = RecordKeys(wanted=index is not None, tags=config.message_index_tags)
    parts.pending = pending = Pending(queues, units, keys, state)
    parts.commit = commit = GroupCommit(log, config.sync_flush_timeout)
    state.locks.add(*commit.locks, *queues.locks(), KEPT_LOCK)
    given = options.dispatchers
    dispatchers = DispatcherList(given, log, units) if given else None
    before_units = _before_units(config, log, commit)
    parts.dispatcher = dispatcher = Dispatcher(
        pending, queues, index, config.dispatch_slice, state, before_units, dispatchers
    )
    rules = ScanRules(config.check_crc_on_recover)
    parts.rebuild = QueueRebuild(paths, log, queues, units, pending, dispatcher, rules, state.fail)
    if parts.read_only:
        report.unfinished_rebuild = paths.rebuilding.exists()
        report.queues_damaged = queues.damaged_queues()
        recovery.find_end()
    else:
        marking.changing()
        _replay(parts, recovery, units, keys, options)
        marking.mark()
    marking.stay()
    if (last := recovery.last) is not None:
        dispatcher.note_last(last.phy_offset, last.size, last.store_timestamp)
    parts.others = OtherIndexes(paths.root)
    state.locks.add_outer(parts.others.lock)


def _open_index(parts: StoreComponents) -> IndexService | None:
    """Open the index, and report one that cannot be used."""
    index, fault = open_index(
        parts.paths, parts.config, parts.last_exit_ok, parts.checkpoint, read_only=parts.read_only
    )
    if parts.read_only:
        parts.report.index_left_out = fault
    else:
        parts.report.index_dropped = str(fault or "")
    return index


def _replay(
    parts: StoreComponents, recovery: Recovery, units: RecordUnits, keys: RecordKeys,
    options: OpenOptions,
) -> None:  # fmt: skip
    """Dispatch what queues and index lack, and make good queues that are damaged."""
    log, queues, rebuild, report = parts.log, parts.queues, parts.rebuild, parts.report
    rebuild.drop_half_built()
    dispatchers = parts.dispatcher.dispatchers
    replay = Replay(parts.dispatcher.store, units, keys, dispatchers)
    recovery.run(replay, options.cut_at, options.pass_over, options.progress)
    names = [part.name for part in queues.parts()]
    parts.lines.log_was_cut(report.end_phy_offset, names)
    if dispatchers is not None:
        dispatchers.catch_up(report.end_phy_offset)
    rebuild.resume()
    rules = ScanRules(parts.config.check_crc_on_recover)
    mended = QueueMend(log, queues, units, rebuild, rules).run(
        ExpiredQueues(parts.paths.expired_queues).ends
    )
    report.queues_mended, report.queues_damaged = mended.mended, mended.left


def _before_units(config: StoreConfig, log: CommitLog, commit: GroupCommit) -> Callable[[], object]:
    """Return what has to be done with the log before units of it become visible."""
    if config.syncs_each_put:
        return commit.flush
    return log.commit if config.is_transient else noop


def _serve(parts: StoreComponents, options: OpenOptions) -> None:
    """Make the services over a recovered store; no thread runs yet."""
    config, paths, log, queues = parts.config, parts.paths, parts.log, parts.queues
    state, index, commit = parts.state, parts.index, parts.commit
    pending, dispatcher = parts.pending, parts.dispatcher
    parts.flush_all = FullFlush(dispatcher, queues, index, parts.checkpoint, commit)
    parts.flush = FlushService(config, log, commit, dispatcher, parts.flush_all, state.fail)
    parts.puller = Puller(config, log, queues)
    parts.mirror = _mirror(parts)
    quota = LightQuota(queues, pending.offsets, config.max_lmq_consume_queue_num)
    append = Appender(log, pending, state, quota)
    parts.replicas = ReplicaWait.of(config, log, options.replicas)
    state.locks.add(*(() if parts.replicas is None else parts.replicas.locks))
    answers = AckWaiter(config, commit, parts.flush, parts.replicas, state.fail)
    parts.ahead = None if parts.read_only else LogPrefault.of(log, config)
    look_ahead = noop if parts.ahead is None else parts.ahead.wake_if_due
    parts.putter = Putter(config, log, queues, dispatcher, append, answers, look_ahead)
    parts.puts = parts.putter
    if hooks := options.put_hooks:
        parts.puts = HookedPuts(parts.putter, hooks, parts.putter.meter)
    parts.clean = CleanService(
        log, queues, index, pending, dispatcher, commit, parts.deleted,
        ExpiredQueues(paths.expired_queues), quota, state,
    )  # fmt: skip
    levels = DiskLevels(config, options.surroundings, parts.layout.log_folders, paths.consume_queue)
    parts.expiry = FileExpiry(
        config, log, levels, options.surroundings, parts.clean.delete_expired_files,
        state.set_disk_full, state.fail,
    )  # fmt: skip
    parts.schedule = _schedule(parts, options)
    parts.metrics = StoreMetrics(
        paths, log, queues, dispatcher, commit, parts.putter, parts.puller, state, parts.mirror,
        parts.schedule,
    )  # fmt: skip
    parts.stops = () if parts.read_only else tuple(_stops(parts, options))


def _stops(parts: StoreComponents, options: OpenOptions) -> Iterator[Callable[[], None]]:
    """Yield what ends the threads, in the order in which they start."""
    if parts.replicas is not None:
        yield parts.replicas.stop
    if parts.ahead is not None:
        yield parts.ahead.stop
    yield parts.dispatcher.reput.stop
    yield parts.flush.stop  # the flush thread may start the other one
    if options.housekeeping:
        yield parts.expiry.stop
    if parts.mirror is not None:
        yield parts.mirror.stop
    yield parts.dispatcher.arrivals.stop
    if parts.schedule is not None:
        yield parts.schedule.stop


def _mirror(parts: StoreComponents) -> "Mirror | None":
    """Make the mirror where two backends are kept and reads of one are to be asked of both."""
    queues = parts.queues
    if parts.read_only or not isinstance(queues, CombinedConsumeQueueStore):
        return None
    from store.service.mirroring.mirror import Mirror  # noqa: PLC0415 - few stores have one

    return Mirror.of(parts.config, parts.paths, parts.log, queues, parts.puller)


def _schedule(parts: StoreComponents, options: OpenOptions) -> "ScheduleMessageService | None":
    """Make the service of delay levels, where it is wanted."""
    config, state, putter, commit = parts.config, parts.state, parts.putter, parts.commit
    if parts.read_only or not (config.enable_schedule_message_service and options.housekeeping):
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
            commit.flush()

    made = ScheduleMessageService(
        parts.pending.delays, parts.log, parts.queues, DelayOffsets(parts.paths.delay_offset), put,
        read_guard_of(state, parts.dispatcher), flush_log, options.surroundings,
        config.flush_delay_offset_interval,
    )  # fmt: skip
    putter.schedule.on_scheduled = made.notify
    parts.clean.in_use = frozenset({SCHEDULE_TOPIC})
    return made


def _start(undo: ExitStack, parts: StoreComponents, options: OpenOptions) -> None:
    """Start the threads; each is to be stopped from before it runs."""
    if parts.read_only:
        return
    undo.callback(parts.stop)
    if parts.ahead is not None:
        parts.ahead.start()
    if MODE == "always":
        parts.dispatcher.reput.start_if_wanted()
    if parts.dispatcher.dispatchers is not None:
        parts.dispatcher.arrivals.keep_active()
    parts.flush.start()
    if parts.replicas is not None:
        parts.replicas.start()
    if options.housekeeping:
        parts.expiry.start()
    if parts.mirror is not None:
        parts.mirror.start()
    if parts.schedule is not None:
        parts.schedule.start()
