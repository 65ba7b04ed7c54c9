"""Make a plan: range and checksum of every queue, in segments, in key order."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker
from cqstore.migration.plan.both_sides import compare_backends
from cqstore.migration.plan.chosen_topics import choose_topics
from cqstore.migration.plan.log_identity import log_identity, tail_identity
from cqstore.migration.plan.part_task import PartQueue
from cqstore.migration.plan.parts import PlanParts
from cqstore.migration.plan.plan import Plan, Segment, refuse_second_plan, write_plan
from cqstore.migration.plan.plan_preflight import STEP, PlanPreflight
from cqstore.migration.plan.segment_writer import SEGMENT_UNITS, write_lines
from cqstore.migration.preflight.examine import Examined
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.tasks import NO_SPARK, check_master
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import IllegalMessageError, RefusedStoreError
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.backends import topics_only_as_files
from cqstore.store.queue.bulk import BulkBackend, bulk_backend, key_order, topics_in_key_order
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.queue_location import QueuePlace, settings_of_tasks
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import CQ_UNIT_SIZE, StoreConfig


def make_plan(
    root: Path, config: StoreConfig | None = None, *, target: str = "rocksdb",
    source: str | None = None, workspace: Workspace | None = None,
    segment_units: int = SEGMENT_UNITS, replace: bool = False, topics: Sequence[str] = (),
    leave: Sequence[str] = (), without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False, master: str = NO_SPARK, examined: Examined | None = None,
    accepted: Collection[str] = (), progress: Progress = noop,
) -> Plan:  # fmt: skip
    """Plan to move the queues of the store in ``root`` to backend ``target``; write the plan.

    Reads the store and changes nothing in it. ``source`` selects the backend to move from if
    several have queues. With ``replace``, existing, less complete queues of ``target`` are allowed:
    the switch moves them to ``cqstore/replaced``. ``topics`` selects the topics to move, and
    ``leave`` names BatchCQ topics that stay in files, see ``choose_topics``. ``without`` and
    ``accept_older_tables`` are those of the switch. Tasks read the units, in processes of this
    machine or under ``master`` on Spark. ``progress`` gets the number of units read. Findings of
    the preflight ``examined`` and of the tasks refuse it, except for codes in ``accepted``.

    Raises:
        RefusedStoreError: the store cannot be moved in its present state; the message gives the
            reason.
        StoreConfigError: ``master`` cannot run tasks on this machine.
        CorruptionError: units are missing inside a queue, or cannot be read.
        IllegalMessageError: the target cannot hold a queue.
    """
    root = root.absolute()
    space = workspace or Workspace.of(root)
    to = bulk_backend(target)
    check_master(master)
    with space.held(begin=True), ExitStack() as closing:
        refuse_second_plan(space)
        config = config or StoreConfig()
        preflight = PlanPreflight(examined, accepted, source)
        store = preflight.store
        if store is None:
            preflight.refuse_now(root)
            broker = NextBroker([target], config, without, accept_older_tables)
            store = closing.enter_context(
                _open(root, config, source, broker, chosen=bool(topics or leave))
            )
        planner = _Planner(store, to, space, segment_units, progress, preflight, master)
        plan = write_plan(space, planner.run(replace=replace, topics=topics, leave=leave))
        space.note(
            "planned", digest=plan.digest, queues=plan.queues, units=plan.units,
            master=master, ranIn=planner.ran_in,
        )  # fmt: skip
    return plan


def _open(
    root: Path, config: StoreConfig, source: str | None, broker: NextBroker, *, chosen: bool
) -> MessageStore:
    """Open the store read-only, unless there are obstacles.

    With ``chosen``, ``choose_topics`` decides later which BatchCQ topics may stay in files.

    Raises:
        RefusedStoreError, StoreError: as for ``make_plan``.
    """
    left = topics_only_as_files(StorePaths(root)) if chosen else ()
    found = obstacles(root, config, broker.backends[0], Step.PLAN, broker=broker, left=left)
    refuse(found, STEP, root)
    options = OpenOptions(read_only=True, backend=source, housekeeping=False)
    return open_served(MessageStore, root, config, options)


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
    """Planner of the queues of one store, whose units tasks read."""

    def __init__(
        self,
        store: MessageStore,
        target: BulkBackend,
        space: Workspace,
        segment_units: int,
        progress: Callable[[int], object],
        preflight: PlanPreflight,
        master: str,
    ) -> None:
        self._store = store
        self._target = target
        self._space = space
        self._segment_units = segment_units
        self._progress = progress
        self._preflight = preflight
        self._master = master
        self._queues = components_of(store).queues.backends()[0]
        self._settings = task_settings(store)
        self._count = self._expired = self._empty = self._not_moved = self._units = 0
        self._unfit: IllegalMessageError | None = None
        self.ran_in = ""
        """Where the tasks ran."""

    def run(self, *, replace: bool, topics: Sequence[str], leave: Sequence[str]) -> Plan:
        """Write ``queues.jsonl`` and return the plan.

        Raises:
            RefusedStoreError, StoreError: as for ``make_plan``.
        """
        store, name = self._store, self._target.name
        complete_to = self._queues.dispatch_from_phy_offset()  # before any end is read
        try:
            chosen = choose_topics(store, name, topics, leave)
            replaces = _refuse(store, name, replace=replace, chosen=chosen)
        except RefusedStoreError:
            self._preflight.refuse_now(store.root)  # with all reasons that are known
            raise
        parts = PlanParts(self._space)
        try:
            self._read(parts, chosen)
            segments = write_lines(self._space, parts.lines(), max(self._segment_units, 1))
        finally:
            parts.remove()
        self.ran_in = parts.ran_in
        return self._plan(segments, complete_to, chosen, replaces=replaces)

    def _read(self, parts: PlanParts, chosen: str | None) -> None:
        """Read the units of all queues in tasks, and refuse what cannot be moved.

        Raises:
            RefusedStoreError, StoreError: as for ``make_plan``.
        """
        store, checks = self._store, self._preflight.checks()
        parts.write(self._part_queues(chosen, checked=checks is not None))
        if checks is None and self._unfit is not None:
            raise self._unfit
        folders = tuple(components_of(store).layout.log_folders)
        place = QueuePlace(self._queues.name, store.root, folders, self._settings)
        parts.run(
            place, self._target.name, self._segment_units, checks, self._master, self._progress
        )
        if checks is not None:
            self._preflight.refuse_with(parts, checks, self._target, store.root)
            parts.raise_error()
            if self._unfit is not None:
                raise self._unfit

    def _part_queues(self, chosen: str | None, *, checked: bool) -> Iterator[PartQueue]:
        """Yield the queues to read, in key order; only those to move, unless all are checked."""
        queues = self._queues
        for topic in topics_in_key_order(queues.topics()):
            is_moved = selects(chosen, topic)
            if not is_moved and queues.queue_type(topic) is QueueType.BATCH:
                self._not_moved += sum(1 for _ in queues.queues(topic))
                continue
            for queue in sorted(queues.queues(topic), key=key_order):
                begin, end = queues.queue(*queue).ends()
                span = min(begin, end), end
                if not is_moved:
                    self._not_moved += 1
                elif self._is_fit(queue) and not end:
                    self._empty += 1
                elif end:
                    self._count += 1
                    self._expired += begin >= end
                    self._units += span[1] - span[0]
                if end and (is_moved or checked):
                    yield PartQueue(*queue, *span, is_moved)

    def _is_fit(self, queue: QueueKey) -> bool:
        """Return whether the target can hold a queue; keep the first error."""
        try:
            self._target.check_queue(queue)
        except IllegalMessageError as exc:
            self._unfit = self._unfit or exc
            return False
        return True

    def _plan(
        self, segments: list[Segment], complete_to: int, chosen: str | None, *, replaces: bool
    ) -> Plan:
        """Return the plan, not yet written."""
        store, folders = self._store, components_of(self._store).layout.log_folders
        return Plan(
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            store=str(store.root), identity=log_identity(folders),
            tail=tail_identity(components_of(store).log, complete_to),
            source=self._queues.name, target=self._target.name, settings=self._settings,
            log_folders=[str(folder) for folder in folders],
            min_phy_offset=store.min_phy_offset(),
            max_phy_offset=store.max_phy_offset(),
            complete_to=complete_to, queues=self._count, units=self._units,
            expired=self._expired, empty=self._empty, replaces=replaces, topics=chosen,
            not_moved=self._not_moved, segments=segments,
        )  # fmt: skip


def task_settings(store: MessageStore) -> dict[str, object]:
    """Return the given settings with the actual sizes of the files."""
    queue_file = components_of(store).queues.units_per_file * CQ_UNIT_SIZE
    return settings_of_tasks(store.config, mapped_file_size_consume_queue=queue_file)
