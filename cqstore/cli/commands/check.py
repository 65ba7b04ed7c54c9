"""``cqstore check``: checks every record, unit and file, and repairs damage on request."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    CutAt,
    Dir,
    Format,
    about_end,
    check_is_there,
    note,
    note_state,
    opened_by,
    read_config,
    refuse_beside,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.store.errors import StoreConfigError
from cqstore.store.journals.store_lock import refuse_if_open
from cqstore.store.paths import StorePaths, beside
from cqstore.store.service.layout.file_notes import refuse_foreign_files
from cqstore.store.service.layout.store_layout import detect, with_log_folder
from cqstore.store.service.maintenance.check import CheckFinding
from cqstore.store.service.offline.backup_manifest import (
    BackupDifference,
    compare,
    find_manifest,
    read_manifest,
)
from cqstore.store.service.offline.obstacles import OpenedPast, open_past
from cqstore.store.service.offline.repair import RepairPlan, carry_out, check_cut, plan_repair
from cqstore.store.service.offline.store_copy import blocks_below, check_copy_target, copy_store
from cqstore.store.settings.config import StoreConfig

Repair = Annotated[
    bool, typer.Option("--repair", help="Repair a copy of the store. Prints the steps first.")
]
CopyTo = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Path of the repaired copy (requires --repair). Default: DIR.repaired."
    ),
    OutputPath(locked=False, is_store=True),
]
InPlace = Annotated[
    bool,
    typer.Option("--in-place", help="Repair the store itself, not a copy (requires --repair)."),
]
Against = Annotated[
    Path | None,
    typer.Option(
        metavar="MANIFEST",
        help="Compare all files with this backup manifest instead of checking the store. A name"
        " without a folder is looked up in DIR first.",
    ),
]


def check(
    root: Dir,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
    *,
    repair: Repair = False,
    copy_to: CopyTo = None,
    in_place: InPlace = False,
    cut_at: CutAt = None,
    against: Against = None,
) -> None:
    """Check the whole store and list all damage by file and offset. Changes nothing.

    The exit code is 1 if anything is damaged or the store needs recovery. While another process has
    the store open, nothing counts as damage, because writes may still be in progress.

    With --repair, the command repairs a copy of the store and checks the copy. The exit code is
    then that of the second check.

    With --against, it only compares the size and digest of each file with the manifest. Use this
    for a backup that has not been opened since it was made.

    Examples:
        cqstore check DIR
        cqstore check DIR --repair --copy-to DIR.fixed
    """
    if against is not None:
        refuse_beside("--against", repair=repair or None, copy_to=copy_to, cut_at=cut_at)
        _compare(root, against, kind)
        return
    target = root if in_place else copy_to or beside(root, ".repaired")
    if repair:
        _check_repair(root, target, commit_log, copy_to, in_place=in_place)
    elif copy_to or in_place or cut_at is not None:
        raise StoreConfigError("--copy-to, --in-place and --cut-at require --repair")
    given = with_log_folder(read_config(config, root), commit_log)
    plan = _run_check(root, given, backend, kind)
    if repair and cut_at is not None and (plan is None or plan.cut_at is None):
        raise StoreConfigError(f"the log is not damaged at {cut_at}: there is nothing to cut")
    if plan is None:
        return
    if not repair:
        raise typer.Exit(1)
    settings = _mend(root, target, config, plan, cut_at, in_place=in_place)
    if _run_check(target, settings, backend, kind) is not None:
        raise typer.Exit(1)


def _mend(
    root: Path, target: Path, config: Path | None, plan: RepairPlan, cut_at: int | None,
    *, in_place: bool,
) -> StoreConfig:  # fmt: skip
    """Print the steps of a repair; apply them to a copy at ``target``, or ``in_place``.

    Return the settings of ``target``: a copy has its log in its own folder.

    Raises:
        typer.Exit: there is nothing to repair.
        RefusedStoreError: the log must be cut at an offset other than ``cut_at``, or the log folder
            has foreign files.
    """
    for step in plan.steps():
        note(step)
    if not plan:
        raise typer.Exit(1)
    check_cut(root, plan, cut_at)
    settings = read_config(config, root)
    layout = detect(root, settings)
    refuse_foreign_files(root, layout.foreign)
    if not in_place:
        folders = [] if layout.log_paths.is_default else layout.log_folders
        with progress("copying", blocks_below(root)) as tick:
            copy_store(root, target, tick, folders)
        note(f"repairing the copy {target}")
        settings = read_config(config, target)
        if folders:
            settings = settings.model_copy(update={"store_path_commit_log": None})
        plan = plan.moved_to(root, target)
    with progress("repairing", about_end(target, settings)) as tick:
        carry_out(target, settings, plan, cut_at, tick)
    return settings


def _compare(root: Path, against: Path, kind: OutputFormat) -> None:
    """Print the files that differ from a manifest.

    Raises:
        typer.Exit: a file differs.
    """
    path = find_manifest(root, against)
    manifest, found = read_manifest(path), list[BackupDifference]()
    check_is_there(root)

    def rows() -> Iterator[Row]:
        for each in compare(root, manifest):
            found.append(each)
            yield {
                "problem": each.problem.value, "path": each.path,
                "expected": each.expected, "got": each.got,
            }  # fmt: skip

    output(kind).rows(rows())
    note(f"{len(manifest.files)} files of the manifest {path} compared; {len(found)} differ")
    if found:
        raise typer.Exit(1)


def _check_repair(
    root: Path, target: Path, commit_log: Path | None, copy_to: Path | None, *, in_place: bool
) -> None:
    """Refuse a repair with contradicting options, of an open store, or to an unusable target.

    Raises:
        StoreConfigError: two options contradict each other.
        StoreLockedError: a process has the store open.
        RefusedStoreError: the copy cannot be created at ``target``.
    """
    if in_place and copy_to:
        raise StoreConfigError("--in-place cannot be combined with --copy-to")
    if commit_log:
        raise StoreConfigError("--repair cannot be combined with --commitlog")
    refuse_if_open(StorePaths(root))
    if not in_place:
        check_copy_target(root, target)


def _run_check(
    root: Path, settings: StoreConfig, backend: str | None, kind: OutputFormat
) -> RepairPlan | None:
    """Check the store and print the findings; return a repair plan, ``None`` if it is sound."""
    opener, damage = opened_by(root), list[CheckFinding]()
    with progress("checking") as tick, open_past(root, settings, backend) as past:
        store = past.store
        tick.measure(store.max_phy_offset())
        if not past.obstacles:  # the store after them is not what is served
            note_state(store, root)
        checking = store.checker(tick)
        obstacles = [
            CheckFinding(
                each.problem, path=str(each.path), phy_offset=each.phy_offset,
                position=each.position, expected=each.expected, found=each.found,
            )
            for each in past.obstacles
        ]  # fmt: skip

        def rows() -> Iterator[Row]:
            for finding in chain(obstacles, checking.run(queues=past.has_queues)):
                if finding.damage:
                    damage.append(finding)
                yield _row(finding, past, is_open=bool(opener))

        output(kind).rows(rows())
        counts = f"{checking.records} records, {checking.units} units checked"
        if opener:
            note(f"{counts}; no finding counts as damage while process {opener} has the store open")
            return None
        note(f"{counts}; {len(damage)} damaged")
        if damage or not store.last_exit_ok or store.report.needed:
            plan = plan_repair(store, damage[len(obstacles) :], past.obstacles)
            plan.beyond = [past.named(problem) for problem in plan.beyond]
            return plan
    return None


def _row(finding: CheckFinding, past: OpenedPast, *, is_open: bool) -> Row:
    """Return a finding as a row; in an open store, a missing unit may still be written."""
    queue = finding.queue
    return {
        "severity": ("open" if is_open else "damage") if finding.damage else "note",
        "problem": past.named(finding.problem),
        "path": past.named(finding.path),
        "position": finding.position,
        "key": finding.key.hex() or None,
        "expected": finding.expected,
        "found": finding.found,
        "phyOffset": finding.phy_offset,
        "topic": queue.topic if queue else None,
        "queueId": queue.queue_id if queue else None,
        "queueOffset": finding.queue_offset,
    }
