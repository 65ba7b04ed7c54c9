"""Switch and rollback of a plan that does not move all topics, see ``plan.chosen_topics``.

The store's record (``BackendState.choice``) has the topics of each backend, so that every later
opening keeps the division. Light queues alone: both backends are in use, and the file backend no
longer gets light queues once the new ones were compared. BatchCQ topics that are left: RocksDB is
the only backend, and their files stay where they are.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cqstore.broker.metadata.model import Table
from cqstore.broker.metadata.table_forms import read_newest, table_forms
from cqstore.migration.plan.plan import Plan
from cqstore.migration.preflight.preflight_report import PreflightFinding, Severity, finding
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.backend_state import read_backend_state, set_mode
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from cqstore.store.progress import OnEvent
from cqstore.store.queue.backend_replica import NO_LIGHT
from cqstore.store.queue.backends import backend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import is_queued
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.sentences import some_of
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.both_backends import compare_backends
from cqstore.store.service.offline.mode import StoreMode
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

_NAMED = 5
_READ_OR_WRITE = 4 | 2
"""Bits of ``perm`` of a topic; RocketMQ's default is both."""


def goal_of(plan: Plan, to: StoreMode | None, root: Path) -> StoreMode:
    """Return the state after the switch.

    Raises:
        RefusedStoreError: state ``to`` does not use the new queues, or no broker serves the moved
            and the other topics in it.
    """
    if to is not None and plan.target not in to.backends:
        raise RefusedStoreError(
            f"cannot switch to state {to}: it does not use the new {plan.target} queues",
            path=root,
        )
    if plan.topics is None:
        return to or StoreMode(plan.target)
    goal = StoreMode.of(plan.source, plan.target) if plan.is_light else StoreMode(plan.target)
    if to not in {None, goal}:
        moved = "only the light queues" if plan.is_light else f"all topics but {plan.left}"
        raise RefusedStoreError(
            f"cannot switch to state {to}: the plan moves {moved}, which needs {goal}", path=root
        )
    return goal


def open_topics(paths: StorePaths, plan: Plan) -> Iterator[PreflightFinding]:
    """Yield a finding if clients can still use topics that are left in files.

    A broker with RocksDB would give new batches the offsets of old ones, and set the offsets of
    consumers to 0. The topic table shows whether a topic can be read or written.
    """
    table = read_newest(paths.config, table_forms(paths)).get(Table.TOPICS)
    rows = {} if table is None else table.topics
    open_ones = [
        repr(topic)
        for topic in plan.left
        if topic in rows and _perm(rows[topic].get("perm", _READ_OR_WRITE)) & _READ_OR_WRITE
    ]
    if open_ones:
        yield finding(
            "open-topics", Severity.REFUSE,
            "Clients can still use topics that are left in files:"
            f" {some_of(open_ones[:_NAMED], len(open_ones))}. A broker with RocksDB would start"
            " them again at offset 0. Start the broker as before, close each one (mqadmin"
            " updateTopicPerm -t TOPIC -p 0), stop the broker, and call the switch again. After a"
            " rollback, -p 6 opens them.",
        ).at(paths.config)  # fmt: skip


def _perm(value: object) -> int:
    return value if isinstance(value, int) else _READ_OR_WRITE


def set_apart(
    root: Path,
    config: StoreConfig,
    plan: Plan,
    forget: Callable[[MessageStore], object],
    on_event: OnEvent,
) -> None:
    """Read the light queues from the new backend, after a comparison, if only they are moved.

    A second call does nothing. ``forget`` is called first, with the store open for writing.

    Raises:
        RefusedStoreError: units differ; the light queues are then read from files as before.
        StoreError: the store cannot be opened or read.
    """
    paths = StorePaths(root)
    if not plan.is_light or plan.source in read_backend_state(paths).choice:
        return
    on_event("comparing the light queues")
    with MessageStore.open(root, config, housekeeping=False) as store:
        forget(store)
    with StoreLock(paths):
        with MessageStore.open(root, config, read_only=True) as store:
            found = compare_backends(store, locked=True)
        if lacking := found.missing_units(plan.target):
            raise RefusedStoreError(
                f"{lacking} units of the light queues are missing or different in the"
                f" {plan.target} queues (cqstore mode --verify lists them)",
                path=root,
            )
        choice = {**plan.choice, plan.source: NO_LIGHT}
        set_mode(paths, StoreMode.of(plan.source, plan.target), {}, choice)


def bring_light_back(
    root: Path, config: StoreConfig, plan: Plan, forget: Callable[[MessageStore], object]
) -> None:
    """Catch up the light queues in files from the log, and read them from there.

    The other backend keeps its own, for the comparison of the next step. ``forget`` is called with
    the store, open for writing.

    Raises:
        StoreError: the store cannot be opened.
    """
    paths = StorePaths(root)
    mode = StoreMode.of(plan.source, plan.target)
    with StoreLock(paths):
        if plan.source in read_backend_state(paths).choice:
            set_mode(paths, mode, {plan.source: plan.complete_to}, plan.choice)
    with MessageStore.open(root, config, housekeeping=False) as store:
        forget(store)


def refuse_later_batches(root: Path, config: StoreConfig, plan: Plan) -> None:
    """Refuse a rollback if the topics that were left got messages that their queues cannot take.

    A broker with RocksDB assigns them offsets that older batches have; in files they would replace
    these.

    Raises:
        RefusedStoreError: the log has such records; the message names the first one.
        StoreError: the store cannot be read.
    """
    if not plan.left:
        return
    with MessageStore.open(root, config, read_only=True) as store:
        first = next(_unplaceable(store, plan), None)
    if first is not None:
        topic, queue_id, phy_offset = first
        raise RefusedStoreError(
            f"cannot roll back: topic {topic!r}, which was left in files, got messages after the"
            f" switch that have no place in its queue {queue_id} (the first record is at phy offset"
            f" {phy_offset}): a broker with RocksDB gave them offsets of older messages. Nothing is"
            " changed. Close the topic (mqadmin updateTopicPerm -t TOPIC -p 0) and keep RocksDB"
            " until the log files with these records have expired; then a rollback is possible",
            path=root,
        )


def _unplaceable(store: MessageStore, plan: Plan) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and phy offset of each record that the old queues cannot take."""
    parts = components_of(store)
    context = replace(parts.queues.context, read_only=True)
    since = read_backend_state(parts.paths).lagging.get(plan.source, plan.complete_to)
    old = backend(plan.source)(context).load()
    try:
        old.recover()
        ends: dict[QueueKey, tuple[int, int]] = {}
        left = {*plan.left}
        for record in parts.log.scan_kept(start=since):
            key = QueueKey(record.topic, record.queue_id)
            if key.topic not in left or not is_queued(record.sys_flag):
                continue
            end, newest = ends.setdefault(key, _end(old, key))
            if record.phy_offset <= newest:  # a broker with file queues has put it there
                continue
            found = dispatch_properties(record.properties)
            base, count = found.inner_base, found.inner_num
            if base is None or count is None or int(base) < end:
                yield (*key, record.phy_offset)
            else:
                ends[key] = int(base) + int(count), record.phy_offset
    finally:
        old.close()


def _end(queues: ConsumeQueueStore, key: QueueKey) -> tuple[int, int]:
    """Return the next offset of a queue, and the phy offset of its last unit, -1 without one."""
    queue = queues.queue(*key)
    end = queue.max_offset()
    last = next(queue.iterate(end - 1), None) if end else None
    return end, -1 if last is None else last.phy_offset
