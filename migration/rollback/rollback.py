"""Roll back a migration at any stage, or finish it.

Before the switch, the workspace is emptied. After the switch, the store changes its state step by
step, so the old queues catch up before they are served; then the new ones are moved away.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker, plan_conversion
from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.from_log.scan_plan import ScanSpace
from cqstore.migration.plan.plan import read_plan
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.rollback.deleted_topic_policy import (
    DeletedTopicPolicy,
    delete_missing_topics,
    refuse_to_guess,
    returning_topics,
)
from cqstore.migration.switch.chosen_topics import (
    bring_light_back,
    goal_of,
    refuse_later_batches,
)
from cqstore.migration.switch.metadata_steps import (
    last_conversion,
    note_tables,
    prepare,
    replaced_folder,
    wait_for_broker,
)
from cqstore.migration.switch.switch import (
    SwitchReport,
    read_switched,
    recover,
    report_of,
    walk,
)
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import sync_folder
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.progress import OnEvent, noop
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, current_mode, set_mode
from cqstore.store.settings.config import StoreConfig


def rollback(
    root: Path,
    config: StoreConfig | None = None,
    *,
    workspace: Workspace | None = None,
    returning: DeletedTopicPolicy | None = None,
    without: Collection[AcceptedLoss] = (),
    accept_older_tables: bool = False,
    dry_run: bool = False,
    on_event: OnEvent = noop,
) -> SwitchReport | None:
    """Undo a migration at any stage; return ``None`` if the store was not switched.

    Before the switch, the workspace is emptied. After the switch, the old queues catch up from the
    log, are compared and served, and the new ones are moved to ``cqstore/replaced``. Topics that
    only the old queues have were deleted by RocketMQ since the switch: ``returning`` selects
    whether to keep or delete them. With ``dry_run``, nothing is changed, and the report shows what
    would be done. The broker's tables are converted to the form that the next broker reads;
    ``without`` names data that may be left out. With ``accept_older_tables``, tables in RocksDB are
    not converted to JSON files. If interrupted, the same call continues.

    Raises:
        RefusedStoreError: there is nothing to undo, the old queues differ after catching up,
            ``returning`` is missing although there are such topics, or the tables cannot be
            converted.
        StoreLockedError: the store is open.
    """
    root = root.absolute()
    space = Workspace.of_switch(root, workspace)
    with space.held():
        config = (config or StoreConfig()).to_move_queues()
        layout, config = resolve_layout(root, config, read_only=True)
        if exists(space.switched):
            before = _mode_before(space, root)
            broker = NextBroker(before.backends, config, without, accept_older_tables)
            return _walk_back(space, layout, broker, returning, on_event, dry_run=dry_run)
        if not exists(space.plan):
            raise RefusedStoreError("no migration to roll back", path=space.root)
        if not dry_run:
            now = current_mode(layout, config)
            _undo_partial_switch(space, layout, now)
            if last_conversion(space):
                broker = NextBroker(now.backends, config, without, accept_older_tables)
                prepare(layout.paths, broker, space)
            _clear(space, "dropped")
        return None


def _mode_before(space: Workspace, root: Path) -> StoreMode:
    """Return the state of the store before the switch; refuse if there are no old queues."""
    if read_plan(space).source == LOG:
        raise RefusedStoreError(
            "cannot roll back: the queues were built from the log, so there are no old queues to"
            " serve again. Run cqstore migrate finish to end the migration",
            path=root,
        )
    return StoreMode(read_switched(space).source)


def _walk_back(
    space: Workspace,
    layout: StoreLayout,
    broker: NextBroker,
    returning: DeletedTopicPolicy | None,
    on_event: OnEvent,
    *,
    dry_run: bool,
) -> SwitchReport:
    """Serve the old queues again, or only report what would be done."""
    root, done, config = layout.paths.root, read_switched(space), broker.config
    plan = read_plan(space)
    before, goal = current_mode(layout, config), StoreMode(done.source)
    report = report_of(plan, before)
    if not dry_run:
        wait_for_broker(layout.paths, space, on_event)
    refuse(obstacles(root, config, done.source, Step.ROLLBACK, broker=broker), "roll back", root)
    if conversion := plan_conversion(layout.paths, broker):
        report.converted_tables = conversion.facts()
    if not dry_run:
        recover(root, config, on_event)
    on_event("looking for deleted topics")
    if done.source not in before.backends:  # else it has caught up
        refuse_later_batches(root, config, plan)
    report.returning = returning_topics(root, config, done.source, plan.topics)
    if dry_run:
        return report
    if returning is None:
        refuse_to_guess(report.returning, done.source, root)

    def forget(store: MessageStore) -> None:
        if returning is DeletedTopicPolicy.DELETE:
            delete_missing_topics(store, done.source, plan.topics)

    report.add(prepare(layout.paths, broker, space))
    note_tables(layout.paths, space)
    if plan.is_light:
        on_event("catching up the light queues")
        bring_light_back(root, config, plan, forget)
    walk(root, config, goal, report, on_event, forget)
    on_event(f"moving the {done.target} queues to cqstore/replaced")
    _withdraw(layout.paths, done.target, goal, ends_choice=True)
    report.left_behind = {}
    _clear(space, "rolled back")
    return report


def finish(
    root: Path, config: StoreConfig | None = None, *, workspace: Workspace | None = None
) -> dict[str, int]:
    """End a migration: move the old queues to ``cqstore/replaced``.

    Returns backend → phy offset up to which it was complete. The migration cannot be rolled back
    afterwards. If interrupted, the same call continues.

    Raises:
        RefusedStoreError: the store was not switched, or it keeps other queues than the new ones.
        StoreLockedError: the store is open.
    """
    root = root.absolute()
    space = Workspace.of_switch(root, workspace)
    with space.held():
        if not exists(space.switched):
            raise RefusedStoreError(
                "no migration to finish: the store was not switched", path=space.root
            )
        done, plan = read_switched(space), read_plan(space)
        layout, config = resolve_layout(root, config or StoreConfig(), read_only=True)
        now, wanted = current_mode(layout, config), goal_of(plan, None, root)
        if now != wanted:
            raise RefusedStoreError(
                f"cannot finish: the state of the store is {now}, expected {wanted}. Change it with"
                f" cqstore mode --to {wanted}",
                path=root,
            )
        if plan.is_light and done.source not in layout.backend_state.choice:
            raise RefusedStoreError(
                "cannot finish: the light queues are still read from files. Run cqstore migrate"
                " switch again",
                path=root,
            )
        left = dict(layout.backend_state.lagging)
        for name in left:
            _withdraw(layout.paths, name, wanted)
        if plan.is_light:
            left = {done.source: plan.complete_to}
            with StoreLock(layout.paths):
                bulk_backend(done.source).withdraw(
                    layout.paths, replaced_folder(layout.paths), LMQ_PREFIX
                )
        _clear(space, "finished")
    return left


def _undo_partial_switch(space: Workspace, layout: StoreLayout, now: StoreMode) -> None:
    """Remove queues that an interrupted switch has published.

    Raises:
        CorruptionError: queues may be published, but the plan cannot be read.
        RefusedStoreError: the new queues are in use, so the switch was not interrupted.
    """
    backend_state = layout.backend_state
    if backend_state.mode is None and not backend_state.lagging:
        return  # nothing was published, whatever the plan contains
    plan = read_plan(space)
    published = [each.get("plan") for each in space.history() if each["step"] == "published"]
    if plan.target in now.backends and plan.digest in published:
        raise RefusedStoreError(
            f"the state file of the switch is missing, and the state of the store is {now}: return"
            f" to {plan.source} with cqstore mode, step by step",
            path=space.switched,
        )
    if plan.target in backend_state.lagging and plan.target not in now.backends:
        _withdraw(layout.paths, plan.target, now, ends_choice=True)


def _withdraw(paths: StorePaths, name: str, state: StoreMode, *, ends_choice: bool = False) -> None:
    """Move the queues of backend ``name`` away; ``ends_choice``: the other one has all topics."""
    with StoreLock(paths):
        bulk_backend(name).withdraw(paths, replaced_folder(paths))
        set_mode(paths, state, {}, {} if ends_choice else None)


def _clear(space: Workspace, step: str) -> None:
    """Empty the workspace, the plan last; the journal and the last comparison stay."""
    with os_errors("empty the workspace", space.root):
        folders = (
            space.planning, space.segments, space.unfinished.root, space.made.root,
            ScanSpace(space).root,
        )  # fmt: skip
        for folder in folders:
            if exists(folder):
                shutil.rmtree(folder)
        kept = space.keep_report()
        for path in (space.known_queues, space.slices, space.switched, space.plan):
            path.unlink(missing_ok=True)
        sync_folder(space.root)
    space.note(step, **({} if kept is None else {"report": str(kept)}))
