"""Determine the layout of a folder, and whether a move is possible. Opens no queue.

Source: spec 1, 7.2, 10, 19.1, 19.4.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from cqstore.cq_rocksdb.folders import separate_folder
from cqstore.migration.preflight.preflight_report import PreflightFinding, Severity, finding
from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.service.layout.store_layout import StoreLayout, detect
from cqstore.store.settings.config import StoreConfig


class FolderKind(StrEnum):
    """Layout of a folder in a preflight report: which queues, in which places."""

    NOT_A_STORE = "not a store"
    FOREIGN = "not readable as a store"
    """A DLedger log, or a database without ``CURRENT``."""
    LOG_ONLY = "log without queues"
    QUEUES_ONLY = "queues without log"
    FILE = "file"
    ROCKSDB_INSIDE = "rocksdb inside consumequeue"
    ROCKSDB_BESIDE = "rocksdb beside consumequeue"
    BOTH_INSIDE = "file and rocksdb inside consumequeue"
    """The default layout of RocketMQ's double write."""
    BOTH_BESIDE = "file and rocksdb beside consumequeue"
    OTHER = "queues of other backends"
    """Backends that RocketMQ does not have."""
    TWO_DATABASES = "two rocksdb databases"


READABLE = frozenset({
    FolderKind.FILE, FolderKind.ROCKSDB_INSIDE, FolderKind.ROCKSDB_BESIDE, FolderKind.BOTH_INSIDE,
    FolderKind.BOTH_BESIDE, FolderKind.OTHER,
})  # fmt: skip
"""Layouts whose queues can be examined."""


class FolderFacts(NamedTuple):
    """Verdict about a folder, with its layout or the error that prevents reading it."""

    verdict: FolderKind
    layout: StoreLayout | None
    fault: StoreError | None = None


def inspect_folder(root: Path, config: StoreConfig) -> FolderFacts:
    """Determine the layout of ``root`` for a move; change nothing, take no lock."""
    if not is_dir(root):
        return FolderFacts(FolderKind.NOT_A_STORE, None)
    paths = StorePaths(root)
    inside = is_file(paths.consume_queue / CURRENT)
    beside = is_file(separate_folder(paths) / CURRENT)
    if inside and beside:
        return FolderFacts(FolderKind.TWO_DATABASES, None)
    try:
        layout = detect(root, config.to_move_queues())
    except (RefusedStoreError, StoreConfigError) as exc:
        return FolderFacts(FolderKind.FOREIGN, None, exc)
    return FolderFacts(_verdict(layout, beside=beside), layout)


def _verdict(layout: StoreLayout, *, beside: bool) -> FolderKind:
    if not layout.backends:
        return FolderKind.LOG_ONLY if layout.has_log else FolderKind.NOT_A_STORE
    if not layout.has_log:
        return FolderKind.QUEUES_ONLY
    held = frozenset(backend(name).store_type() for name in layout.backends)
    return _HELD.get(held, (FolderKind.OTHER, FolderKind.OTHER))[beside]


_FILES, _ROCKSDB = "default", "defaultRocksDB"
_HELD = {
    frozenset({_FILES}): (FolderKind.FILE, FolderKind.FILE),
    frozenset({_ROCKSDB}): (FolderKind.ROCKSDB_INSIDE, FolderKind.ROCKSDB_BESIDE),
    frozenset({_FILES, _ROCKSDB}): (FolderKind.BOTH_INSIDE, FolderKind.BOTH_BESIDE),
}
"""RocketMQ's store types → the layout without, and with a separate database folder."""


def layout_findings(root: Path, found: FolderFacts, to: str) -> Iterator[PreflightFinding]:
    """Yield findings about the layout for a move to ``to``."""
    verdict, paths = found.verdict, StorePaths(root)
    refusal = _REFUSED.get(verdict)
    if refusal is not None:
        sentence = str(found.fault) if found.fault is not None else refusal
        if verdict is FolderKind.QUEUES_ONLY and found.layout is not None:
            sentence = _without_log(found.layout) or sentence
        yield _refuse(_code(verdict), sentence, root)
    if verdict is FolderKind.LOG_ONLY:
        yield finding(
            _code(verdict), Severity.WARN,
            "The store has no queues to move: use cqstore migrate plan --from log"
            f" --to {to} to build them from its commit log.",
        ).at(paths.consume_queue)  # fmt: skip
    for reason in found.layout.refusals if found.layout is not None else ():
        sentence = f"This store can only be opened read-only: {reason}. {_OTHER_WAY}."
        yield _refuse("only-readable", sentence, root)
    if found.layout is not None:
        yield from _foreign_files(found.layout)
    if verdict not in READABLE or found.layout is None:
        return
    if found.layout.is_combined:
        yield finding(
            "already-combined", Severity.WARN,
            "Both backends have queues: those of the target may lack history, because RocketMQ's"
            " double write does not copy older messages. Compare them before they are used.",
        )  # fmt: skip
    elif to in found.layout.backends:
        sentence = (
            f"The store already has {to} queues: choose another backend with --to, or rebuild them"
            f" with cqstore rebuild DIR --backend {to}."
        )
        yield _refuse("nothing-to-move", sentence, root)
    shared = is_file(paths.consume_queue / CURRENT)
    if shared and backend(to).store_type() == _FILES:
        sentence = "The database is in consumequeue/; the new topic folders will be next to it."
        yield finding("shared-folder", Severity.INFO, sentence)


_OTHER_WAY = "cqstore migrate follow moves a running broker without writing to its store"
_REFUSED = {
    FolderKind.NOT_A_STORE: "No store here: neither commit log nor queues. Give the broker's"
    " storePathRootDir.",
    FolderKind.FOREIGN: "The folder cannot be read as a store.",
    FolderKind.QUEUES_ONLY: "Found queues but no commit log: set storePathCommitLog to its"
    " folder, or move it here.",
    FolderKind.TWO_DATABASES: "There are two RocksDB queue databases, in consumequeue/ and in "
    "consumequeue_rocksdb/, and nothing shows which one is in use: move one away.",
}


def _foreign_files(layout: StoreLayout) -> Iterator[PreflightFinding]:
    """Yield a finding if the log folders contain other files."""
    if layout.foreign:
        yield finding(
            "foreign-files", Severity.REFUSE,
            "The commit log folders contain files that do not belong to the log: readers skip them,"
            " but neither cqstore nor a broker can open the store for writing. Move them away"
            " before the move (cqstore check prints the command).",
            [*map(str, layout.foreign)],
        ).at(layout.foreign[0].parent)  # fmt: skip


def _without_log(layout: StoreLayout) -> str | None:
    """Return the sentence about a storePathCommitLog without a log, or ``None``."""
    if layout.log_folders == [layout.paths.root / "commitlog"]:
        return None
    named = ", ".join(map(str, layout.log_folders))
    own = layout.paths.root / "commitlog"
    advice = f"; {own} has one: remove the key" if any(own.glob("[0-9]" * 20)) else ""
    return f"storePathCommitLog is {named}, but there is no commit log{advice}."


def _code(verdict: FolderKind) -> str:
    return verdict.value.replace(" ", "-")


def _refuse(code: str, sentence: str, where: Path) -> PreflightFinding:
    return finding(code, Severity.REFUSE, sentence).at(where)


def state_findings(
    root: Path, found: FolderFacts, *, running: bool = False
) -> Iterator[PreflightFinding]:
    """Yield findings about a process that has the store open, or about an unclean shutdown.

    ``running``: the store is examined while that process writes to it.
    """
    if not is_dir(root):
        return
    paths = StorePaths(root)
    try:
        holder = locked_by(paths)
    except StoreError as exc:
        holder = 0
        sentence = f"Cannot determine whether a broker has the store open: {exc}."
        yield finding("lock-unknown", Severity.WARN, sentence)
    if holder:
        severity = Severity.WARN if running else Severity.REFUSE
        sentence = _WHILE_RUNNING if running else _IN_USE
        yield finding(IN_USE, severity, sentence, pid=holder).at(paths.lock)
    elif exists(paths.abort):
        way = found.layout.how_to_recover if found.layout is not None else "run cqstore recover"
        sentence = (
            "The store was not closed cleanly and needs recovery (the file abort exists):"
            f" {way} first."
        )
        yield _refuse("needs-recovery", sentence, paths.abort)
    if (running or not holder) and (exists(paths.replacing) or exists(paths.rebuilding)):
        sentence = "A rebuild of queues was interrupted: run cqstore recover to finish it first."
        unfinished = paths.replacing if exists(paths.replacing) else paths.rebuilding
        yield _refuse("unfinished-rebuild", sentence, unfinished)


IN_USE = "in-use"
_IN_USE = (
    "A process has the store open, so the queues were not examined. Stop the process, use a copy,"
    " or pass --running to examine the store while it is in use."
)
_WHILE_RUNNING = (
    "A process has the store open and writes to it: the findings describe one moment, and may"
    " concern topics and offsets that were new at that moment. Not checked: a clean shutdown, data"
    " after the end of the log, and tables that are not written yet. Run preflight again after the"
    " process has stopped, before the switch."
)
