"""Replacement: moves all queues, or the index, away so that opening the store rebuilds them.

Nothing is deleted: the old files are below ``cqstore/replaced`` afterwards. A small journal lists
the files to move until the store has been opened without them, so that an interrupted replacement
continues, with the right backend.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Flag, auto

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError, os_errors
from cqstore.store.files import make_folder, remove_file, sync_folder
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal import Entry, read_lines, rewrite
from cqstore.store.journals.journal_manifest import register, unregister
from cqstore.store.journals.store_lock import mark_open
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend, only_as_files
from cqstore.store.queue.topic_choice import left_topics
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.layout.store_layout import (
    StoreLayout,
    choose_backends,
    is_controlled,
)
from cqstore.store.service.recovering.find_log_end import (
    last_on_disk,
    valid_record_behind,
    was_on_disk,
)
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)


class Rebuild(Flag):
    """Parts of a store that an open rebuilds."""

    NOTHING = 0
    QUEUES = auto()
    """All queues of the requested backend."""
    INDEX = auto()


@dataclass(frozen=True, slots=True)
class Replacement:
    """The journal of queues or an index that are being moved away."""

    folder: str
    """Name of the folder below ``cqstore/replaced`` to which files are moved."""
    backends: list[str]
    """Backends whose queues are moved."""
    index: bool
    opened: list[str] = field(default_factory=list)
    """Backends to open the store with; the first one is read; empty: as usual."""
    moved: bool = False


def prepare(
    layout: StoreLayout,
    config: StoreConfig,
    requested: str | None,
    rebuild: Rebuild,
    cut_at: int | None,
    ends: Callable[[], Iterable[tuple[QueueKey, int]]],
) -> list[str]:
    """Move away the parts to rebuild, now or continued; return the backends to open.

    ``ends`` returns the next offsets of queues without units, which are recorded before the move.
    The caller holds the store's lock and calls ``finish`` when the store has been opened.

    Raises:
        RefusedStoreError: the log is damaged: nothing is moved, because the parts could not be
            rebuilt.
        StoreConfigError: backend ``requested`` does not exist; nothing is moved.
        StoreIOError: a file cannot be moved; the next open continues the move.
    """
    paths = layout.paths
    if requested is not None:
        backend(requested)  # raises if it does not exist, before anything is moved
    pending = begun(paths)
    if not pending and rebuild:
        _check_log(layout, config, cut_at)
        elsewhere = (
            requested and requested not in layout.backends and layout.backend_state.mode is None
        )
        opened = (
            [requested] if requested and elsewhere else choose_backends(layout, config, requested)
        )
        kept = [name for name in layout.backends if elsewhere or name in opened]
        moved = [requested] if requested in layout.backends else kept
        left = left_topics(layout.backend_state.choice)
        if Rebuild.QUEUES not in rebuild:
            opened, moved = choose_backends(layout, config, requested), []
        elif (refusal := only_as_files(paths, opened, left)) is not None:
            raise refusal
        else:
            ExpiredQueues(paths.expired_queues).add(ends())
        if not exists(paths.abort):
            mark_open(paths)  # from here on a crash counts as one
        begin(paths, moved, opened, index=Rebuild.INDEX in rebuild)
        pending = begun(paths)
    move(paths)
    chosen = [each.opened for each in pending if each.opened]
    return chosen[0] if chosen else choose_backends(layout, config, requested)


def _check_log(layout: StoreLayout, config: StoreConfig, cut_at: int | None) -> None:
    """Refuse a log that opening would refuse, before the queues are moved."""
    log = CommitLog(layout.log_folders, config, read_only=True)
    log.load()
    end = log.max_phy_offset()
    try:
        for _ in log.scan(
            max(log.min_phy_offset(), 0), rules=ScanRules(config.check_crc_on_recover)
        ):
            pass
    except CorruptionError as exc:
        end = end if exc.phy_offset is None else exc.phy_offset
    survivor = valid_record_behind(log, end)
    log.close()
    if cut_at not in {None, end}:
        raise StoreConfigError(
            f"the log is not damaged at {cut_at}: it ends at {end}", path=layout.paths.commit_log
        )
    checkpoint = StoreCheckpoint(layout.paths.checkpoint)
    confirmed = last_on_disk(checkpoint, controlled=is_controlled(layout.paths, config))
    known = was_on_disk(end, SyncedMark(layout.paths), confirmed)
    if (survivor is not None or known) and cut_at != end:
        damage = "this record was on disk"
        if survivor is not None:
            damage = f"a valid record follows at {survivor}"
        raise RefusedStoreError(
            f"the log is damaged and {damage}. To rebuild from the records before it and lose the"
            f" rest, use --cut-at {end}; to lose only this record, first run cqstore recover"
            f" --pass-over {end}",
            path=layout.paths.commit_log,
            phy_offset=end,
        )


def begin(
    paths: StorePaths, backends: Collection[str], opened: Collection[str], *, index: bool
) -> None:
    """Record durably what to move; nothing is moved yet.

    Raises:
        StoreIOError: the journal cannot be written.
    """
    stamp, number, before = time.strftime("%Y%m%dT%H%M%S", time.gmtime()), 0, begun(paths)
    taken = {each.folder for each in before}
    while (name := f"{stamp}-{number}") in taken or exists(paths.replaced / name):
        number += 1
    _write(paths, [*before, Replacement(name, list(backends), index, list(opened))])


def begun(paths: StorePaths) -> list[Replacement]:
    """Return the unfinished replacements, with the files still to move.

    Raises:
        CorruptionError: the journal is damaged.
    """
    return [Replacement(**entry) for entry in read_lines(paths.replacing, _is_entry) if entry]


def move(paths: StorePaths) -> None:
    """Move the files still to move.

    Raises:
        StoreIOError: a file cannot be moved; the next open continues the move.
    """
    all_begun = begun(paths)
    for at, each in enumerate(all_begun):
        if each.moved:  # the present files were built since then
            continue
        found = [path for name in each.backends for path in backend(name).own_files(paths)]
        if each.index and is_dir(paths.index):
            found.append(paths.index)
        target = paths.replaced / each.folder
        for path in found:
            place = target / path.relative_to(paths.root)
            with os_errors("move away", path):
                make_folder(place.parent)
                path.rename(place)
        # New names first: a moved file is in one of two folders whenever power fails.
        new = [(target / path.relative_to(paths.root)).parent for path in found]
        for folder in dict.fromkeys([*new, *(path.parent for path in found)]):
            with os_errors("sync the folder of the moved files", folder):
                sync_folder(folder)
        all_begun[at] = replace(each, moved=True)
        _write(paths, all_begun)
        _LOG.warning("%d files and folders were moved to %s", len(found), target)


def _write(paths: StorePaths, replacements: Iterable[Replacement]) -> None:
    with os_errors("create the folder of the journal", paths.own):
        make_folder(paths.own)
    rewrite(paths.replacing, [asdict(each) for each in replacements])
    register(paths.replacing)


def finish(paths: StorePaths) -> None:
    """Record that the store was opened without the moved files.

    Raises:
        StoreIOError: the journal cannot be written.
    """
    if exists(paths.replacing):
        with os_errors("remove the journal of a replacement", paths.replacing):
            unregister(paths.replacing)
            remove_file(paths.replacing)


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is the note of a replacement."""
    if set(entry) != {each.name for each in fields(Replacement)}:
        return False
    lists = (entry["backends"], entry["opened"])
    return (
        isinstance(entry["folder"], str)
        and "/" not in entry["folder"]
        and all(isinstance(entry[flag], bool) for flag in ("index", "moved"))
        and all(isinstance(part, list) and all(isinstance(w, str) for w in part) for part in lists)
    )
