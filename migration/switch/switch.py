"""The switch to the new queues.

The new queues are published in the store as a lagging backend: the state of the store does not
change, so they are not read. If every file of the store is unchanged since the comparison, they are
served at once. Otherwise the store changes its state step by step (``cqstore mode``): the new
backend catches up from the log, both backends are compared again, and then the new one is read. The
old queues stay in place with the phy offset up to which they are complete; a rollback catches them
up from there.
"""

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker
from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.from_log.scan_plan import ScanSpace
from cqstore.migration.markers import read_marker
from cqstore.migration.plan.log_identity import tail_identity
from cqstore.migration.plan.plan import PLAN_AGAIN, Plan, read_plan
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.preflight.preflight_report import PreflightFinding, Severity, finding
from cqstore.migration.switch.chosen_topics import goal_of, open_topics, set_apart
from cqstore.migration.switch.metadata_steps import (
    TablesReport,
    note_tables,
    prepare,
    prepare_locked,
    replaced_folder,
    wait_for_broker,
)
from cqstore.migration.switch.trust import is_as_compared, known_queues
from cqstore.migration.verify import verified
from cqstore.migration.workspace import Workspace, write_file
from cqstore.store.comparing.verified_queues import KnownFile
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError, os_errors
from cqstore.store.files import make_folder, reading, replacing
from cqstore.store.journals.store_lock import StoreLock, lock_stamp
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.progress import OnEvent, noop
from cqstore.store.queue.backends import backend
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import (
    ModeChange,
    StoreMode,
    change_mode,
    current_mode,
    set_mode,
)
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.recovering.claims import vouch_for_queues
from cqstore.store.settings.config import StoreConfig


@dataclass(slots=True, kw_only=True)
class SwitchReport(TablesReport):
    """Result of a switch or a rollback."""

    before: StoreMode
    """State of the store before the call."""
    caught_up_units: int = 0
    """Units dispatched from the log into the lagging backend."""
    deleted_since: list[str] = field(default_factory=list)
    """Topics deleted after the plan was made; they stay deleted."""
    known_queues: int = 0
    """Queues that were not compared again, because their files are unmodified."""
    left_behind: dict[str, int] = field(default_factory=dict)
    """Backend that is no longer written → phy offset up to which it is complete."""
    topics: str | None = None
    """Selection of the topics that were moved; ``None``: all."""
    left_topics: list[str] = field(default_factory=list)
    """BatchCQ topics that stay in files, where a broker with RocksDB does not serve them."""
    returning: list[str] = field(default_factory=list)
    """For a rollback: topics that only the old queues have, see ``DeletedTopicPolicy``."""


@dataclass(frozen=True, slots=True)
class SkippableComparison:
    """Comparisons that a switch, begun in this call, does not have to repeat."""

    whole: bool = False
    """All comparisons: no file has changed since the last one."""
    known: KnownFile | None = None
    stamp: int = 0
    """Stamp of the lock file: no broker was started while it is unchanged."""


@dataclass(slots=True)
class Switched:
    """Content of the state file of a switch, ``switched.json``."""

    at: str
    plan: str
    source: str
    target: str


def switch(
    root: Path,
    config: StoreConfig | None = None,
    *,
    to: StoreMode | None = None,
    workspace: Workspace | None = None,
    without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False,
    on_event: OnEvent = noop,
) -> SwitchReport:
    """Publish the verified queues, catch them up from the log, and change to state ``to``.

    By default, ``to`` is the state that keeps only the new backend. ``workspace`` may belong to a
    copy of this store. If interrupted, the same call continues. The broker's tables are converted
    to the form that the next broker reads; ``without`` names data that may be left out. With
    ``accept_older_tables``, tables in RocksDB are not converted to JSON files.

    Raises:
        RefusedStoreError: the new queues are not verified, the store is another one or needs
            recovery, its tables cannot be converted, or the new queues differ after catching up;
            the old queues are then served as before.
        StoreLockedError: the store is open.
    """
    root = root.absolute()
    own = Workspace.of(root)
    space = Workspace.of_switch(root, workspace)
    with space.held():
        plan = read_plan(space)
        config = (config or StoreConfig()).to_move_queues()
        layout, config = resolve_layout(root, config, read_only=True)
        before = current_mode(layout, config)
        goal = goal_of(plan, to, root)
        report = report_of(plan, before)
        wait_for_broker(layout.paths, own, on_event)
        broker = NextBroker(goal.backends, config, without, accept_older_tables)
        _refuse_obstacles(space, own, plan, layout, before, broker)
        skippable = _publish(space, own, plan, layout, broker, report, goal, on_event)
        note_tables(layout.paths, own)
        if skippable.whole:
            report.caught_up_units = _open_as_compared(layout, config, plan, on_event)
        forget: Callable[[MessageStore], object] = partial(_note_deleted, report, plan)
        if plan.source == LOG:
            report.caught_up_units = _accept_queues_from_log(root, config, plan, on_event)
            forget = noop
        walk(root, config, goal, report, on_event, forget, skippable)
        set_apart(root, config, plan, forget, on_event)
        own.note("switched", plan=plan.digest, state=str(goal))
    return report


def report_of(plan: Plan, before: StoreMode) -> SwitchReport:
    """Return the report of a step from state ``before`` that has done nothing yet."""
    return SwitchReport(before=before, state=before, topics=plan.topics, left_topics=plan.left)


def _note_deleted(report: SwitchReport, plan: Plan, store: MessageStore) -> None:
    report.deleted_since += _forget_deleted(store, plan)


def _publish(
    space: Workspace, own: Workspace, plan: Plan, layout: StoreLayout, broker: NextBroker,
    report: SwitchReport, goal: StoreMode, on_event: OnEvent,
) -> SkippableComparison:  # fmt: skip
    """Publish tables and new queues in the store; return the comparisons that can be skipped.

    The new queues become the only backend at once if ``goal`` is that state and the store has not
    changed since the comparison. If an interrupted call has published them, only the tables are.
    """
    paths, before, config = layout.paths, report.before, broker.config
    if exists(own.switched):
        report.add(prepare(paths, broker, own))
        return SkippableComparison()
    on_event("publishing")
    target = bulk_backend(plan.target)
    with StoreLock(paths):
        alone = goal == plan.target and is_as_compared(space, plan, layout, config)
        known = None if alone else known_queues(space, plan, layout, config)
        report.add(prepare_locked(paths, broker, own))
        if plan.replaces:
            before = StoreMode(plan.source)
            if not _is_publishing(plan, layout):
                # Set first: queues must not be served while their files are moved away one by one.
                set_mode(paths, before, {plan.target: 0})
                target.withdraw(paths, replaced_folder(paths))
        had_choice = layout.backend_state.choice  # of an earlier move that was finished
        choice = plan.choice if plan.choice or had_choice else None
        # If the queues are known, the opening that catches up need not compare all of them.
        alike = known is not None and choice is None
        set_mode(paths, before, {plan.target: plan.complete_to}, choice, alike=alike)
        target.publish(space.made, paths, config)
        if own != space:  # workspace of a copy: a rollback reads these files
            for path in (space.slices, space.report, space.plan):
                _copy(path, own.root / path.name)
        note = Switched(_now(), plan.digest, plan.source, plan.target)
        write_file(own.switched, json.dumps(asdict(note)) + "\n")
        if alone:  # last: after this, nothing is left to continue
            _advance_checkpoint(layout, config, plan)
            set_mode(paths, goal, {plan.source: plan.complete_to})
        skippable = SkippableComparison(alone, known, lock_stamp(paths))
    own.note("published", plan=plan.digest)
    for folder in (space.made.root, space.segments, ScanSpace(space).root):
        shutil.rmtree(folder, ignore_errors=True)
    return skippable


def _advance_checkpoint(layout: StoreLayout, config: StoreConfig, plan: Plan) -> None:
    """Record in the checkpoint that the new queues are complete, if it covers their backend.

    After a crash while the store is opened, recovery starts there and not at the start of the log.
    """
    if not backend(plan.target).counts_in_checkpoint:
        return
    log = CommitLog(layout.log_folders, config, read_only=True)
    log.load()
    try:
        checkpoint = StoreCheckpoint(layout.paths.checkpoint)
        vouch_for_queues(checkpoint, log, plan.complete_to, ScanRules(config.check_crc_on_recover))
    finally:
        log.close()


def _open_as_compared(
    layout: StoreLayout, config: StoreConfig, plan: Plan, on_event: OnEvent
) -> int:
    """Open the store with only the new queues; if that fails, keep the old ones as before.

    Returns the number of units that were caught up.
    """
    on_event("opening the store")
    try:
        with MessageStore.open(layout.paths.root, config, housekeeping=False) as store:
            return store.report.dispatched_units
    except StoreError:
        with StoreLock(layout.paths):
            set_mode(layout.paths, StoreMode(plan.source), {plan.target: plan.complete_to})
        raise


def _refuse_obstacles(
    space: Workspace, own: Workspace, plan: Plan, layout: StoreLayout, before: StoreMode,
    broker: NextBroker,
) -> None:  # fmt: skip
    """Refuse a switch before anything is changed, with all reasons in one error.

    Raises:
        RefusedStoreError: the store, its tables or the new queues do not permit a switch.
    """
    root, config = layout.paths.root, broker.config
    is_published = exists(own.switched)
    step = Step.SWITCH_AGAIN if is_published else Step.SWITCH
    found = obstacles(root, config, plan.target, step, broker=broker, left=plan.left)
    if not is_published:
        found += open_topics(layout.paths, plan)
        found += _of_new_queues(space, plan, layout)
        found += _of_other_store(plan, layout, before, config)
    refuse(found, "switch", root)


def _of_new_queues(space: Workspace, plan: Plan, layout: StoreLayout) -> Iterator[PreflightFinding]:
    """Yield a finding if the new queues do not exist, or are not verified."""
    where = space.root
    if not exists(space.made.root):
        sentence = "No new queues found: run cqstore migrate run first."
        yield finding("no-new-queues", Severity.REFUSE, sentence).at(where)
    elif not _is_publishing(plan, layout) and (reason := verified(space, plan)) is not None:
        sentence = f"The new queues are not verified: {reason}."
        yield finding("not-verified", Severity.REFUSE, sentence).at(where)


def _of_other_store(
    plan: Plan, layout: StoreLayout, before: StoreMode, config: StoreConfig
) -> Iterator[PreflightFinding]:
    """Yield a finding if the store has other backends or another log than the plan's."""
    where = layout.paths.root
    alone = before == plan.source
    in_the_way = plan.target in layout.backends and not _is_publishing(plan, layout)
    if not plan.replaces and ((plan.source != LOG and not alone) or in_the_way):
        sentence = (
            f"The backends of the store were changed after the plan to move {plan.source} to"
            f" {plan.target} was made: the state of the store is {before}; {PLAN_AGAIN}."
        )
        yield finding("other-state", Severity.REFUSE, sentence).at(where)
    if not layout.has_log:
        return
    log = CommitLog(layout.log_folders, config, read_only=True)
    log.load()
    try:
        found = tail_identity(log, plan.complete_to)
    finally:
        log.close()
    if plan.tail and not found:
        sentence = (
            f"The log no longer has the records before phy offset {plan.complete_to}, up to which"
            f" the new queues are complete: {PLAN_AGAIN}."
        )
        yield finding("log-expired", Severity.REFUSE, sentence).at(where)
    elif found != plan.tail:
        sentence = (
            f"The plan was made for another store ({plan.store}): the commit logs differ before phy"
            f" offset {plan.complete_to}; give the workspace of this store, or {PLAN_AGAIN}."
        )
        yield finding("other-store", Severity.REFUSE, sentence).at(where)


def _is_publishing(plan: Plan, layout: StoreLayout) -> bool:
    """Return whether an interrupted switch has begun to publish, after all checks.

    Some of the new queues may have been moved already.
    """
    return layout.backend_state.lagging.get(plan.target) == plan.complete_to


def walk(
    root: Path,
    config: StoreConfig,
    goal: StoreMode,
    report: SwitchReport,
    on_event: OnEvent,
    tidy: Callable[[MessageStore], object],
    skippable: SkippableComparison | None = None,
) -> None:
    """Change the state step by step to ``goal``.

    ``tidy`` is called with the store, open for writing with both backends, before the other backend
    is read. The store is recovered first if a process was killed in a step while it had it open.

    Raises:
        RefusedStoreError: a step has obstacles, or a backend cannot catch up.
        StoreError: as for ``change_mode``.
    """
    recover(root, config, on_event)
    tidied = False
    change: ModeChange | None = None
    while True:
        layout, settings = resolve_layout(root, config, read_only=True)
        now = current_mode(layout, settings)
        report.state = now
        report.left_behind = {
            name: at
            for name, at in layout.backend_state.lagging.items()
            if name not in now.backends
        }
        if now == goal:
            return
        following = now.toward(goal)
        on_event(f"changing the state to {following}")
        if following.backends[0] != now.backends[0] and not tidied:
            with MessageStore.open(root, config, housekeeping=False) as store:
                tidy(store)
        if skippable is not None and skippable.stamp != lock_stamp(layout.paths):
            skippable = None
        tidied = goal.backends[0] not in now.backends
        change = change_mode(
            root, following, config, passing=True, settled=tidy if tidied else noop,
            known=None if skippable is None else skippable.known, after=change,
        )  # fmt: skip
        report.known_queues += change.passed_over
        if change.detached:
            name, reason = next(iter(change.detached.items()))
            raise RefusedStoreError(f"the {name} queues cannot catch up: {reason}", path=root)
        report.caught_up_units += change.recovery.dispatched_units if change.recovery else 0


def _accept_queues_from_log(root: Path, config: StoreConfig, plan: Plan, on_event: OnEvent) -> int:
    """Keep only the queues built from the log, without comparing them with the old ones.

    Opens the store, which catches them up; returns the number of units.
    """
    layout, config = resolve_layout(root, config, read_only=True)
    alone = StoreMode(plan.target)
    if plan.target not in current_mode(layout, config).backends:
        with StoreLock(layout.paths):
            others = {name: 0 for name in layout.backends if name != plan.target}
            set_mode(layout.paths, alone, others)
    on_event("catching up")
    with MessageStore.open(root, config, housekeeping=False) as store:
        return store.report.dispatched_units


def recover(root: Path, config: StoreConfig, on_event: OnEvent) -> None:
    """Open the store for writing if it was not closed cleanly or has a lagging backend."""
    layout, settings = resolve_layout(root, config, read_only=True)
    kept = current_mode(layout, settings).backends
    needed = exists(layout.paths.abort) or any(
        name in kept for name in layout.backend_state.lagging
    )
    if needed:
        on_event("recovering the store")
        with MessageStore.open(root, config, housekeeping=False):
            pass


def _forget_deleted(store: MessageStore, plan: Plan) -> list[str]:
    """Delete queues from the new backend that the old one has lost since the plan was made."""
    by_name = {each.name: each for each in components_of(store).queues.backends()}
    old, new = by_name.get(plan.source), by_name.get(plan.target)
    if old is None or new is None:  # detached: the step is refused with the reason
        return []
    gone = [queue for queue, end in old.queue_ends(new.queues()) if not end]
    for queue in gone:
        new.delete_queue(*queue)
    return sorted({queue.topic for queue in gone})


def _copy(path: Path, target: Path) -> None:
    with os_errors("copy", path):
        make_folder(target.parent)
        with reading(path) as source, replacing(target) as file:
            shutil.copyfileobj(source, file)


def read_switched(space: Workspace) -> Switched:
    """Read the state file of the switch.

    Raises:
        CorruptionError: it cannot be read.
    """
    try:
        return Switched(**read_marker(space.switched))
    except (OSError, CorruptionError, ValueError, TypeError) as exc:
        raise CorruptionError(
            "the state file of the switch is corrupted", path=space.switched
        ) from exc


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
