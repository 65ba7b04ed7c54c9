"""Make a plan: range and checksum of every queue, in segments, in key order."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from cqstore.broker.conversion.conversion import NextBroker
from cqstore.broker.conversion.options import AcceptedLoss
from cqstore.migration.plan.both_sides import compare_backends
from cqstore.migration.plan.chosen_topics import choose_topics
from cqstore.migration.plan.log_identity import log_identity, tail_identity
from cqstore.migration.plan.plan import (
    Plan,
    Slice,
    refuse_second_plan,
    write_plan,
)
from cqstore.migration.plan.segment_writer import SEGMENT_UNITS, SegmentWriter
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.backends import topics_only_as_files
from cqstore.store.queue.bulk import (
    BulkBackend,
    bulk_backend,
    key_order,
)
from cqstore.store.queue.queue_location import queue_context, settings_of_tasks
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import CQ_UNIT_SIZE, StoreConfig


def make_plan(
    root: Path,
    config: StoreConfig | None = None,
    *,
    target: str = "rocksdb",
    source: str | None = None,
    workspace: Workspace | None = None,
    segment_units: int = SEGMENT_UNITS,
    replace: bool = False,
    topics: Sequence[str] = (),
    leave: Sequence[str] = (),
    without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False,
    progress: Progress = noop,
) -> Plan:
    """Plan to move the queues of the store in ``root`` to backend ``target``; write the plan.

    Reads the store and changes nothing in it. ``source`` selects the backend to move from if
    several have queues. With ``replace``, existing, less complete queues of ``target`` are allowed:
    the switch moves them to ``cqstore/replaced``. ``topics`` selects the topics to move, and
    ``leave`` names BatchCQ topics that stay in files, see ``choose_topics``. ``without`` and
    ``accept_older_tables`` are those of the switch. ``progress`` is called with the number of units
    that were read.

    Raises:
        RefusedStoreError: the store cannot be moved in its present state; the message gives the
            reason.
        CorruptionError: units are missing inside a queue, or cannot be read.
        IllegalMessageError: the target cannot hold a queue.
    """
    root = root.absolute()
    space = workspace or Workspace.of(root)
    to = bulk_backend(target)
    with space.held(begin=True):
        refuse_second_plan(space)
        config = config or StoreConfig()
        broker = NextBroker([target], config, without, accept_older_tables)
        left = topics_only_as_files(StorePaths(root)) if topics or leave else ()  # checked below
        found = obstacles(root, config, target, Step.PLAN, broker=broker, left=left)
        refuse(found, "plan the move", root)
        options = OpenOptions(read_only=True, backend=source, housekeeping=False)
        with open_served(MessageStore, root, config, options) as store:
            chosen = choose_topics(store, target, topics, leave)
            replaces = _refuse(store, target, replace=replace, chosen=chosen)
            planner = _Planner(store, to, space, segment_units, progress, chosen)
            plan = write_plan(space, planner.run(replaces=replaces))
        space.note("planned", digest=plan.digest, queues=plan.queues, units=plan.units)
    return plan


def _refuse(store: MessageStore, target: str, *, replace: bool, chosen: str | None) -> bool:
    """Refuse queues that cannot be moved; return whether to replace those of the target."""
    root = store.root
    layout = detect(root, store.config.to_move_queues())
    name = components_of(store).queues.backends()[0].name
    there = target in layout.backends
    if there and (name == target or len(components_of(store).queues.backends()) == 1):
        raise RefusedStoreError(f"the store already has {target} queues", path=root)
    if store.report.is_incomplete and not locked_by(components_of(store).paths):
        raise RefusedStoreError(
            "the queues may be incomplete, because the log or the queues are damaged:"
            f" {layout.how_to_recover} first",
            path=root,
        )
    if there:
        both = compare_backends(store, target)
        if not replace:
            raise RefusedStoreError(both.refusal(), path=root)
        if (reason := both.why_not_replace()) is not None:
            raise RefusedStoreError(f"cannot replace the {target} queues: {reason}", path=root)
        if chosen is not None:
            raise RefusedStoreError(
                "--replace cannot be combined with --topics or --leave", path=root
            )
    return there


class _Planner:
    """Planner of the queues of one store; it reads all of their units."""

    def __init__(
        self,
        store: MessageStore,
        target: BulkBackend,
        space: Workspace,
        segment_units: int,
        progress: Callable[[int], object],
        chosen: str | None,
    ) -> None:
        self._chosen = chosen
        self._store = store
        self._target = target
        self._space = space
        self._segment_units = segment_units
        self._progress = progress
        self._queues = components_of(store).queues.backends()[0]
        self._settings = task_settings(store)
        self._config = StoreConfig.from_mapping(self._settings)
        self._count = self._expired = self._empty = self._not_moved = 0

    def run(self, *, replaces: bool) -> Plan:
        """Write ``queues.jsonl`` and return the plan."""
        store, space = self._store, self._space
        complete_to = self._queues.dispatch_from_phy_offset()  # before any end is read
        context = queue_context(
            components_of(store).paths, components_of(store).layout.log_folders, self._config
        )
        source = bulk_backend(self._queues.name).source(context)
        writer = SegmentWriter(
            source, self._target, self._config, self._segment_units, self._progress,
            store.root,
        )  # fmt: skip
        try:
            segments = writer.write(space, self._slices(writer))
        finally:
            source.close()
        return Plan(
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            store=str(store.root), identity=log_identity(components_of(store).layout.log_folders),
            tail=tail_identity(components_of(store).log, complete_to),
            source=self._queues.name, target=self._target.name, settings=self._settings,
            log_folders=[str(folder) for folder in components_of(store).layout.log_folders],
            min_phy_offset=store.min_phy_offset(),
            max_phy_offset=store.max_phy_offset(),
            complete_to=complete_to, queues=self._count, units=writer.units,
            expired=self._expired, empty=self._empty, replaces=replaces, topics=self._chosen,
            not_moved=self._not_moved, segments=segments,
        )  # fmt: skip

    def _slices(self, writer: SegmentWriter) -> Iterator[Slice]:
        """Yield the slices of all queues, in key order.

        Raises:
            IllegalMessageError: the target cannot hold a queue.
        """
        queues = self._queues
        for queue in sorted(queues.queues(), key=key_order):
            if not selects(self._chosen, queue.topic):
                self._not_moved += 1
                continue
            self._target.check_queue(queue)
            begin, end = queues.queue(*queue).ends()
            if not end:
                self._empty += 1
                continue
            self._count += 1
            self._expired += begin >= end
            yield from writer.cut(queue, min(begin, end), end)


def task_settings(store: MessageStore) -> dict[str, object]:
    """Return the given settings with the actual sizes of the files."""
    queue_file = components_of(store).queues.units_per_file * CQ_UNIT_SIZE
    return settings_of_tasks(store.config, mapped_file_size_consume_queue=queue_file)
