"""Obstacles: everything that forbids a step of a move, found without reading a queue.

One list for all commands of ``cqstore migrate``. A step that does not need a condition names its
code in ``_ALLOWED``; a step that needs more than a preflight does names it in ``_NEEDED``.
``preflight`` adds what only a pass over the queues can find.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import NextBroker, PlannedConversion
from cqstore.migration.preflight.folder_verdict import (
    IN_USE,
    FolderFacts,
    inspect_folder,
    layout_findings,
    state_findings,
)
from cqstore.migration.preflight.metadata_check import conversion_findings
from cqstore.migration.preflight.preflight_report import PreflightFinding, Severity, finding
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.path_kind import files_below, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import only_as_files
from cqstore.store.settings.config import StoreConfig


class Step(StrEnum):
    """Steps of a move that have obstacles."""

    PREFLIGHT = "preflight"
    PLAN = "plan"
    PLAN_FROM_LOG = "plan --from log"
    SWITCH = "switch"
    SWITCH_AGAIN = "switch, continued"
    """A switch that has published the new queues and was interrupted."""
    ROLLBACK = "rollback"
    FOLLOW = "follow"


BATCH, _COMPACTED, _THERE, _RECOVER, _REBUILD, _NO_QUEUES = (
    "batch-queues", "compacted-topics", "nothing-to-move", "needs-recovery", "unfinished-rebuild",
    "log-without-queues",
)  # fmt: skip
_READ_ONLY, _FOREIGN = "only-readable", "foreign-files"
_ALLOWED: dict[Step, frozenset[str]] = {
    Step.PREFLIGHT: frozenset({_COMPACTED, BATCH}),  # its pass over the queues names them
    Step.PLAN: frozenset({_COMPACTED, IN_USE}),
    Step.PLAN_FROM_LOG: frozenset({_COMPACTED, IN_USE, _RECOVER, _REBUILD}),
    Step.SWITCH: frozenset({_COMPACTED, IN_USE, _THERE}),
    Step.SWITCH_AGAIN: frozenset({_COMPACTED, IN_USE, _THERE, _RECOVER, _REBUILD}),
    Step.ROLLBACK: frozenset({_COMPACTED, IN_USE, _THERE, _RECOVER, _REBUILD}),
    Step.FOLLOW: frozenset({IN_USE, _THERE, _RECOVER, _REBUILD, _READ_ONLY, _FOREIGN}),
}
"""Codes that do not forbid a step. An open store is refused by the lock that a step takes."""
_NEEDED = {Step.PLAN: frozenset({_NO_QUEUES})}
"""Codes of warnings that forbid a step."""


def obstacles(
    root: Path,
    config: StoreConfig,
    to: str,
    step: Step,
    *,
    broker: NextBroker | None = None,
    left: Collection[str] = (),
) -> list[PreflightFinding]:
    """Return what forbids a step of the move of the store in ``root``. Changes nothing.

    ``broker``: the next one, and the losses that its operator accepts. Default: one with queues in
    backend ``to``, and these settings. ``left``: BatchCQ topics that stay in files.

    Raises:
        StoreIOError: a folder of the store cannot be read.
    """
    conversion = PlannedConversion(StorePaths(root), broker or NextBroker([to], config))
    with os_errors("examine the store", root):
        found = inspect_folder(root, config)
        every = [
            *findings_of(step, root, found, to, conversion, left),
            *(each for each in state_findings(root, found) if each.code not in _ALLOWED[step]),
        ]
    return [each for each in every if each.severity is Severity.REFUSE]


def findings_of(
    step: Step, root: Path, found: FolderFacts, to: str, conversion: PlannedConversion,
    left: Collection[str] = (),
) -> Iterator[PreflightFinding]:  # fmt: skip
    """Yield the findings about layout and tables; only those that forbid the step refuse."""
    needed = _NEEDED.get(step, frozenset())
    for each in _findings(root, found, to, conversion, left):
        if each.code in needed:
            yield each.model_copy(update={"severity": Severity.REFUSE})
        elif each.code not in _ALLOWED[step]:
            yield each


def _findings(
    root: Path, found: FolderFacts, to: str, conversion: PlannedConversion, left: Collection[str]
) -> Iterator[PreflightFinding]:
    """Yield all findings about layout and tables."""
    paths = StorePaths(root)
    yield from layout_findings(root, found, to)
    if found.layout is None:
        return
    if (refusal := only_as_files(paths, [to], left)) is not None:
        yield finding(BATCH, Severity.REFUSE, f"{refusal.reason}.").at(refusal.path or root)
    yield from _compacted(paths, conversion.broker)
    yield from conversion_findings(paths, conversion)


def _compacted(paths: StorePaths, broker: NextBroker) -> Iterator[PreflightFinding]:
    """Yield a finding if messages of compacted topics, which are not in the log, would be lost."""
    folder = paths.root / AcceptedLoss.COMPACTION
    is_used = is_dir(folder) and any(files_below(folder))
    if is_used and AcceptedLoss.COMPACTION not in broker.without:
        yield finding(
            _COMPACTED, Severity.REFUSE,
            "The store has messages of compacted topics, which are not copied to the new store. To"
            f" continue without them, pass --without {AcceptedLoss.COMPACTION}.",
        ).at(folder)  # fmt: skip


def refuse(found: Sequence[PreflightFinding], what: str, root: Path) -> None:
    """Refuse a step, with all obstacles in one error.

    Raises:
        RefusedStoreError: there are obstacles. ``what`` is the step, such as "plan the move".
    """
    if not found:
        return
    sentences = [each.error() for each in found]
    if len(sentences) == 1:
        raise RefusedStoreError(sentences[0], path=Path(found[0].where or root))
    listed = "; ".join(f"({at}) {each}" for at, each in enumerate(sentences, 1))
    raise RefusedStoreError(f"cannot {what}, for {len(sentences)} reasons: {listed}", path=root)
