"""Opening a store: load, recover and serve; each step sets its own components.

If a step fails, the components are closed again, the last one first.

Source: RocketMQ ``DefaultMessageStore.load``, ``recover``, ``start``.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cqstore.store.broker_files.topic_positions import TopicPositions
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    ConsumeQueueError,
    CorruptionError,
    StoreError,
    os_errors,
    vanished_file,
)
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal_manifest import KEPT_LOCK, register_existing
from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.file_places import FilePlaces
from cqstore.store.path_kind import exists
from cqstore.store.progress import noop
from cqstore.store.queue.backends import backend
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.dispatcher_list import DispatcherList
from cqstore.store.service.dispatching.pending import Pending
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.dispatching.replay import Replay
from cqstore.store.service.dispatching.reput import MODE
from cqstore.store.service.layout.file_notes import of_checkpoint, of_foreign_files
from cqstore.store.service.layout.left_behind import written_since
from cqstore.store.service.layout.log_paths import make_log_folders
from cqstore.store.service.layout.noted_log_paths import note_log_paths
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import (
    StoreLayout,
    choose_backends,
    choose_roles,
    present_backends,
)
from cqstore.store.service.maintenance.clean_service import CleanService
from cqstore.store.service.maintenance.disk_levels import DiskLevels
from cqstore.store.service.maintenance.file_expiry import FileExpiry
from cqstore.store.service.metrics.metrics import StoreMetrics
from cqstore.store.service.opening.abort_marker import AbortMarker
from cqstore.store.service.opening.components import StoreComponents, ThreadService, make_loops
from cqstore.store.service.opening.installed_hooks import installed_interceptor, with_installed
from cqstore.store.service.opening.left_out import (
    open_index,
    refuse_lost_units,
    refuse_queues_without_log,
)
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.service.opening.unopened import begin_again, opened
from cqstore.store.service.reading.key_queries import KeyQueries
from cqstore.store.service.reading.other_indexes import OtherIndexes
from cqstore.store.service.reading.puller import Puller
from cqstore.store.service.reading.read_guard import read_guard_of
from cqstore.store.service.recovering import replacement
from cqstore.store.service.recovering.given_up_records import refuse_sound_places
from cqstore.store.service.recovering.queue_mend import QueueMend
from cqstore.store.service.recovering.queue_rebuild import QueueRebuild
from cqstore.store.service.recovering.recovery import Recovery
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing.ack_waiter import AckWaiter
from cqstore.store.service.writing.append import Appender
from cqstore.store.service.writing.batch_topics import BatchTopics
from cqstore.store.service.writing.flush import FlushService, FullFlush
from cqstore.store.service.writing.group_commit import GroupCommit
from cqstore.store.service.writing.light_quota import LightQuota
from cqstore.store.service.writing.log_prefault import LogPrefault
from cqstore.store.service.writing.put_hooks import HookedPuts
from cqstore.store.service.writing.putter import Putter
from cqstore.store.service.writing.replicas import ReplicaWait
from cqstore.store.settings.config import StoreConfig

if TYPE_CHECKING:
    from cqstore.store.service.scheduling.schedule_message_service import ScheduleMessageService

_LOG = StoreLogger(__name__)
_Store = TypeVar("_Store")
_TRIES = 1000
"""Attempts of a read-only opening while a writer removes files."""


def open_served(
    serve: Callable[[StoreComponents], _Store], root: Path | str, config: StoreConfig | None,
    options: OpenOptions, undo: ExitStack | None = None,
) -> _Store:  # fmt: skip
    """Open the store in ``root``; ``serve`` is ``MessageStore``, which a layer above defines.

    For ``MessageStore.open``, the tools of this project and tests: it takes every option. ``undo``
    closes the store, for a caller that may be interrupted before it has the store.

    Raises:
        StoreError: as for ``MessageStore.open``.
    """
    undo, root = undo or ExitStack(), Path(root)
    try:
        with os_errors("open the store", root):  # if no call inside names a path
            components = _open_what_is_there(undo, root, config or StoreConfig(), options)
            store = serve(components)
        _LOG.info("opened %s: %s", root, components.report)
    except BaseException:
        undo.__exit__(*sys.exc_info())
        raise
    return store  # no call in between: an interrupt is undone, or the caller has the store


def _open_what_is_there(
    undo: ExitStack, root: Path, config: StoreConfig, options: OpenOptions
) -> StoreComponents:
    """Open the store; read-only, repeat if a file was removed after it had been listed.

    A concurrent writer expires files, and removes its spare file when it closes. The folders are
    then listed again. Each repetition requires another removal, so damage is reported at once.
    """
    for _ in range(_TRIES if options.read_only else 0):
        try:
            return open_store(undo, root, config, options)
        except (StoreError, FileNotFoundError) as exc:
            if vanished_file(exc) is None:
                raise
            undo.__exit__(*sys.exc_info())
    return open_store(undo, root, config, options)


def open_store(
    undo: ExitStack, root: Path, config: StoreConfig, options: OpenOptions
) -> StoreComponents:
    """Open the store in ``root``, see ``MessageStore.open``.

    ``undo`` closes the opened components: the caller exits it after any exception, until it owns
    the store.
    """
    options = with_installed(root, options)
    layout, config = resolve_layout(
        root, config, read_only=options.read_only, fed=options.replicas is not None
    )
    lock = None
    options = replace(options, housekeeping=options.housekeeping and not layout.log_writer)
    if options.read_only:
        names = choose_backends(layout, config, options.backend, read_only=True)
    else:
        lock, layout, names = _lock_and_prepare(undo, layout, config, options)
    marking = AbortMarker(layout.paths)
    undo.push(marking.undo)
    components = _load(undo, marking, layout, config, names, lock)
    _recover(undo, marking, components, options)
    _serve(components, options)
    if not options.read_only:
        replacement.finish(layout.paths)
        opened(layout.paths)
        note_log_paths(layout.paths, layout.log_folders)
        register_existing(layout.paths)
        components.lines.keep()
    _start(undo, components, options)
    return components


def _lock_and_prepare(
    undo: ExitStack, layout: StoreLayout, config: StoreConfig, options: OpenOptions
) -> tuple[StoreLock, StoreLayout, list[str]]:
    """Lock the store, and move away the parts to be rebuilt."""
    paths = layout.paths
    recovery = options.recovery
    if not replacement.begun(paths) and not recovery.rebuild:
        choose_backends(layout, config, options.backend)  # refuses before the lock file is created
    locks: list[StoreLock] = []
    undo.callback(_release, locks)  # before it is locked: an exception may keep its frame alive
    locks.append(StoreLock(paths))
    if not recovery.rebuild:
        report = partial(_report, paths.root, config)
        refuse_sound_places(layout, config, recovery.cut_at, recovery.pass_over, report)
    if layout.is_new:
        make_log_folders(layout.log_paths)
    begin_again(paths)
    names = replacement.prepare(
        layout, config, options.backend, recovery.rebuild, recovery.cut_at,
        partial(_finished_queues, paths.root, config),
    )  # fmt: skip
    return locks[0], replace(layout, backends=present_backends(paths)), names


def _release(locks: Sequence[StoreLock]) -> None:
    for lock in locks:
        lock.release()


def _report(root: Path, config: StoreConfig) -> RecoveryReport | None:
    """Return the report of opening the store read-only; ``None``: it cannot be opened."""
    try:
        with ExitStack() as undo:
            components = open_store(undo, root, config, OpenOptions(read_only=True))
            return components.report
    except StoreError:  # the opening reports it
        return None


def _finished_queues(root: Path, config: StoreConfig) -> list[tuple[QueueKey, int]]:
    """Return the next offsets of queues that have no record in the log any more."""
    try:
        with ExitStack() as undo:
            components = open_store(undo, root, config, OpenOptions(read_only=True))
            spans = list(components.queues.spans())
    except (CorruptionError, ConsumeQueueError) as exc:
        _LOG.warning("cannot read the old queues; those without records restart at 0: %s", exc)
        return []
    return [(key, high) for key, low, high in spans if low >= high > 0]


def _load(
    undo: ExitStack, marking: AbortMarker, layout: StoreLayout, config: StoreConfig,
    names: Sequence[str], lock: StoreLock | None,
) -> StoreComponents:  # fmt: skip
    """Load the files; the index follows after the recovery of the queues."""
    paths, read_only = layout.paths, lock is None
    state = RunningState(paths.root, read_only=read_only, log_writer=layout.log_writer)
    checkpoint = StoreCheckpoint(paths.checkpoint)
    last_exit_ok = not exists(paths.abort)
    log = CommitLog(layout.log_folders, config, read_only=read_only or bool(layout.log_writer))
    undo.callback(log.close)
    log.load()
    context = QueueStoreContext(paths, config, log, checkpoint, last_exit_ok, read_only)
    if log.min_phy_offset() < 0:
        refuse_queues_without_log(context, layout.backends)
    lines = LaggingBackends(paths, read_only=read_only)
    queues = _queues(context, names, lines, deleted := DeletedTopics(paths.deleted_topics))
    undo.callback(marking.closing, queues.close)
    queues.load()
    report = RecoveryReport(last_exit_ok, read_only)
    report.notes = [
        *of_checkpoint(checkpoint.path, checkpoint.fault),
        *of_foreign_files(paths.root, layout.foreign),
    ]
    for note in report.notes:
        _LOG.warning("%s", note)
    report.written_since = written_since(
        context, lines.backend_state, [each.name for each in queues.backends()]
    )
    return StoreComponents(
        layout, config, lock, state, checkpoint, last_exit_ok, report, log, lines, deleted, queues
    )


def _queues(
    context: QueueStoreContext, names: Sequence[str], lines: LaggingBackends, deleted: DeletedTopics
) -> ConsumeQueueStore:
    """Create the queues of backends ``names``: combined if several, or one not always kept."""
    kinds = [backend(name) for name in names]
    if len(kinds) == 1 and names[0] not in {
        *lines.backend_state.lagging,
        *lines.backend_state.covers,
    }:
        return kinds[0](context)
    roles = choose_roles(names, context.config, lines.backend_state.choice)
    return CombinedConsumeQueueStore(context, kinds, roles, lines, deleted.has_record)


def _recover(
    undo: ExitStack, marking: AbortMarker, components: StoreComponents, options: OpenOptions
) -> None:
    """Recover log, queues and index; read-only, only find their ends."""
    config, paths = components.config, components.paths
    log, queues = components.log, components.queues
    report, deleted, state = components.report, components.deleted, components.state
    if not components.read_only and components.last_exit_ok:
        marking.mark()
    components.index = index = _open_index(components)
    if index is not None:
        undo.callback(marking.closing, partial(index.close, flush=False))
    deleted.load()
    queues.recover()
    recovery = Recovery(paths, config, log, queues, index, components.checkpoint, report, deleted)
    units = RecordUnits(
        config, deleted, queues.queue_type, check_topic=queues.check_topic,
        lmq_needs_multi_dispatch=queues.lmq_needs_multi_dispatch,
        takes_batches=queues.takes_batches,
    )  # fmt: skip
    keys = RecordKeys(wanted=index is not None, tags=config.message_index_tags)
    components.pending = pending = Pending(queues, units, keys, state)
    components.commit = commit = GroupCommit(log, config.sync_flush_timeout)
    state.locks.add(*commit.locks, *queues.locks(), KEPT_LOCK)
    given = options.hooks.dispatchers
    dispatchers = DispatcherList(given, log, units) if given else None
    before_units = _before_units(config, log, commit)
    components.dispatcher = dispatcher = Dispatcher(
        pending, queues, index, config.dispatch_slice, state, before_units, dispatchers
    )
    rules = ScanRules(config.check_crc_on_recover)
    components.rebuild = QueueRebuild(
        paths, log, queues, units, pending, dispatcher, rules, state.fail
    )
    if components.read_only:
        report.unfinished_rebuild = exists(paths.rebuilding)
        report.queues_damaged = queues.damaged_queues()
        recovery.find_end()
        if options.refuse_lost_units:
            refuse_lost_units(components.layout, queues, report)
    else:
        marking.changing()
        _replay(components, recovery, units, keys, options)
        marking.mark()
    marking.stay()
    if (last := recovery.last) is not None:
        dispatcher.note_last(last.phy_offset, last.size, last.store_timestamp)
    components.others = OtherIndexes(paths.root)
    state.locks.add_outer(components.others.lock)


def _open_index(components: StoreComponents) -> IndexService | None:
    """Open the index, and report an unusable one."""
    index, fault = open_index(
        components.paths, components.config, components.last_exit_ok, components.checkpoint,
        read_only=components.read_only,
    )  # fmt: skip
    if components.read_only:
        components.report.index_left_out = fault
    else:
        components.report.index_dropped = str(fault or "")
    return index


def _replay(
    components: StoreComponents, recovery: Recovery, units: RecordUnits, keys: RecordKeys,
    options: OpenOptions,
) -> None:  # fmt: skip
    """Dispatch records that queues or index lack, and mend damaged queues."""
    log, queues, rebuild = components.log, components.queues, components.rebuild
    report = components.report
    rebuild.drop_half_built()
    dispatchers = components.dispatcher.dispatchers
    replay = Replay(components.dispatcher.store, units, keys, dispatchers)
    wanted = options.recovery
    recovery.keep_log(components.layout.log_writer)
    recovery.run(replay, wanted.cut_at, wanted.pass_over, options.progress)
    names = [each.name for each in queues.backends()]
    components.lines.log_was_cut(report.end_phy_offset, names)
    if dispatchers is not None:
        dispatchers.catch_up(report.end_phy_offset)
    rebuild.resume()
    rules = ScanRules(components.config.check_crc_on_recover)
    mended = QueueMend(log, queues, units, rebuild, rules).run(
        ExpiredQueues(components.paths.expired_queues).ends
    )
    report.queues_mended, report.queues_damaged = mended.mended, mended.left


def _before_units(config: StoreConfig, log: CommitLog, commit: GroupCommit) -> Callable[[], object]:
    """Return the function to call on the log before its units become visible."""
    if config.syncs_each_put:
        return commit.flush
    return log.commit if config.is_transient else noop


def _serve(components: StoreComponents, options: OpenOptions) -> None:
    """Create the services of a recovered store; no thread runs yet."""
    config, paths = components.config, components.paths
    log, queues = components.log, components.queues
    state, index, commit = components.state, components.index, components.commit
    pending, dispatcher = components.pending, components.dispatcher
    components.flush_all = FullFlush(dispatcher, queues, index, components.checkpoint, commit)
    components.flush = FlushService(
        config, log, commit, dispatcher, components.flush_all, state.fail
    )
    components.puller = Puller(config, log, queues)
    components.queries = KeyQueries(
        config, log, index, components.others, queues.context.read_fallbacks,
        read_only=components.read_only, left_out=components.report.index_left_out,
    )  # fmt: skip
    quota = LightQuota(queues, pending.offsets, config.max_lmq_consume_queue_num)
    append = Appender(log, pending, state, quota)
    components.replicas = ReplicaWait.of(config, log, options.replicas)
    state.locks.add(*(() if components.replicas is None else components.replicas.locks))
    waiter = AckWaiter(config, commit, components.flush, components.replicas, state.fail)
    components.ahead = None if components.keeps_log else LogPrefault.of(log, config)
    look_ahead = noop if components.ahead is None else components.ahead.wake_if_due
    components.batch_topics = topics = BatchTopics(paths, queues, dispatcher, state.check_writable)
    components.putter = Putter(config, log, queues, dispatcher, append, waiter, look_ahead, topics)
    components.puts = components.putter
    if hooks := options.hooks.put_hooks:
        components.puts = HookedPuts(components.putter, hooks, components.putter.meter)
    components.clean = CleanService(
        log, queues, index, pending, dispatcher, commit, components.deleted,
        ExpiredQueues(paths.expired_queues), quota, state, TopicPositions(paths.config),
    )  # fmt: skip
    places = components.layout.log_paths
    levels = DiskLevels(config, options.environment, places.measured, paths.consume_queue)
    log.files.places = FilePlaces(places.targets, levels.full_log_folders)
    components.expiry = FileExpiry(
        config, log, levels, options.environment, components.clean.delete_expired_files,
        state.set_disk_full, state.fail,
    )  # fmt: skip
    components.schedule = _schedule(components, options)
    components.loops = None if components.read_only else make_loops()
    components.interceptor = intercepting = installed_interceptor(components)
    components.metrics = StoreMetrics(
        components.layout, log, queues, dispatcher, commit, components.putter, components.puller,
        state, None if intercepting is None else intercepting.snapshot, components.schedule,
    )  # fmt: skip
    if not components.read_only:
        components.services += _services(components, options)


def _services(components: StoreComponents, options: OpenOptions) -> Iterator[ThreadService]:
    """Yield the services with threads, in the order in which they start."""
    if components.replicas is not None:
        yield components.replicas
    if components.ahead is not None:
        yield components.ahead
    yield from (components.dispatcher.reput, components.flush)  # the latter may start the former
    if options.housekeeping:
        yield components.expiry
    if components.interceptor is not None:
        yield components.interceptor
    yield components.dispatcher.arrivals
    if components.schedule is not None:
        yield components.schedule


def _schedule(components: StoreComponents, options: OpenOptions) -> "ScheduleMessageService | None":
    """Create the service of delay levels, if it is enabled."""
    config, state = components.config, components.state
    putter, commit = components.putter, components.commit
    is_wanted = config.enable_schedule_message_service and options.housekeeping
    if components.read_only or not is_wanted:
        return None
    from cqstore.store.service.scheduling.delay_offsets import DelayOffsets  # noqa: PLC0415 - few stores
    from cqstore.store.service.scheduling.schedule_message_service import (  # noqa: PLC0415
        ScheduleMessageService,
    )

    def put(messages: Sequence[Message]) -> list[PutMessageResult]:
        if state.unwritable:
            return [state.refuse_put()] * len(messages)
        return putter.put_list(messages, wait=False)

    def flush_log() -> None:  # also within a close, so it needs no lock
        state.check_writable()
        with state.failing():
            commit.flush()

    made = ScheduleMessageService(
        components.pending.delays, components.log, components.queues,
        DelayOffsets(components.paths.delay_offset), put,
        read_guard_of(state, components.dispatcher), flush_log, options.environment,
        config.flush_delay_offset_interval,
    )  # fmt: skip
    putter.schedule.on_scheduled = made.notify
    components.clean.in_use = frozenset({SCHEDULE_TOPIC})
    return made


def _start(undo: ExitStack, components: StoreComponents, options: OpenOptions) -> None:
    """Start the threads; each is registered to be stopped before it runs."""
    if components.read_only:
        return
    undo.callback(components.stop)
    if components.ahead is not None:
        components.ahead.start()
    if MODE == "always":
        components.dispatcher.reput.start_if_wanted()
    if components.dispatcher.dispatchers is not None:
        components.dispatcher.arrivals.keep_active()
    components.flush.start()
    if components.replicas is not None:
        components.replicas.start()
    if options.housekeeping:
        components.expiry.start()
    if components.interceptor is not None:
        components.interceptor.start()
    if components.schedule is not None:
        components.schedule.start()
