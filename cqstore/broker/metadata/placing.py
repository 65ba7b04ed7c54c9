"""Replacement of the current forms of metadata by a new one: a journal of renames, each done once.

First, remains of the same form are moved away, then the new form is moved in, and only then the
other forms are moved away. So ``config`` has a complete form at every instant. If the process is
killed, the next call carries out the rest of the journal. Nothing is removed.

The journal is tied to the file ``lock``, which RocketMQ writes at each start: a broker that has run
since may have changed the form to move away, so the journal is void. It is also void if a file to
move is newer than the journal, for example because a follower wrote it.
"""

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from cqstore.broker.metadata.locations import names_of
from cqstore.broker.metadata.model import Form
from cqstore.broker.metadata.replaced_folder import new_kept_folder
from cqstore.store.broker_files.file_names import CONFIG_FOLDER
from cqstore.store.errors import CorruptionError, RefusedStoreError, os_errors
from cqstore.store.files import make_folder, remove_file, sync_folder
from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.journals.store_lock import lock_identity
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.paths import StorePaths

Move = tuple[str, str]
"""Source and target of a rename, relative to the root."""


def place(paths: StorePaths, form: Form, keep: Collection[Form] = ()) -> Path:
    """Put ``form`` in place and move all others except ``keep`` away; return their new folder.

    The content of ``new_metadata`` replaces that form; if it is empty, the form is unchanged. The
    caller has the store's lock.

    Raises:
        RefusedStoreError: ``config`` is on another file system than ``cqstore``.
        StoreIOError: a rename failed; the next ``finish_placing`` continues.
    """
    away = new_kept_folder(paths)
    moves = _moves(paths, form, away, keep)
    with os_errors("replace the metadata", away):
        make_folder(away)
        if away.stat().st_dev != paths.config.stat().st_dev:
            raise RefusedStoreError(
                f"cannot replace the metadata: {paths.own} is on another file system",
                path=paths.config,
            )
    entry = {"moves": [list(move) for move in moves], "lock": list(lock_identity(paths) or ())}
    write_note(paths.placing_metadata, entry)
    _carry_out(paths, entry)  # without checking times: nothing can have changed since
    return away


def is_placing(paths: StorePaths) -> bool:
    """Return whether a kill interrupted a replacement; ``finish_placing`` completes it."""
    return exists(paths.placing_metadata)


def finish_placing(paths: StorePaths) -> str | None:
    """Carry out the journal, or drop it if it is void; return a sentence that reports which.

    ``None``: there is no journal. The caller has the store's lock.

    Raises:
        CorruptionError: the journal is damaged, or a file of the journal no longer exists.
        StoreIOError: a rename failed.
    """
    damaged = "the journal of an interrupted metadata conversion is damaged"
    entry = read_note(paths.placing_metadata, _is_entry, damaged)
    if entry is None:
        return None
    is_void = entry["lock"] != list(lock_identity(paths) or ()) or _is_older(paths, entry)
    _carry_out(paths, {"moves": []} if is_void else entry)
    if is_void:
        return (
            "an earlier conversion was interrupted, and a broker or a follower has run since: the"
            f" rest of that conversion is dropped. Files that it moved are in {paths.replaced}"
        )
    return "an earlier conversion, which was interrupted, is finished"


def _carry_out(paths: StorePaths, entry: Entry) -> None:
    for old, new in entry["moves"]:
        _move(paths.root / old, paths.root / new)
    with os_errors("finish the replacement of the metadata", paths.placing_metadata):
        clear_new(paths)
        remove_file(paths.placing_metadata)


def _is_older(paths: StorePaths, entry: Entry) -> bool:
    """Return whether a file to move was written after the journal."""
    with os_errors("check the metadata for changes", paths.placing_metadata):
        noted = paths.placing_metadata.stat().st_mtime_ns
        moving = [paths.root / old for old, _ in entry["moves"]]
        there = [path for path in moving if exists(path)]
        below = [each for path in there if is_dir(path) for each in path.iterdir()]
        return any(path.stat().st_mtime_ns > noted for path in (*there, *below))


def clear_new(paths: StorePaths) -> None:
    """Remove metadata that an earlier call has written but not put in place."""
    with os_errors("remove unfinished metadata", paths.new_metadata):
        if exists(paths.new_metadata):
            shutil.rmtree(paths.new_metadata)
            sync_folder(paths.own)


def _moves(paths: StorePaths, form: Form, away: Path, keep: Collection[Form]) -> list[Move]:
    """Return the renames that put a form in place and move the others away, in order."""
    config, new = paths.config, paths.new_metadata / CONFIG_FOLDER
    others = [name for other in Form if other not in {form, *keep} for name in names_of(other)]
    built = [name for name in names_of(form) if exists(new / name)]
    former = _there(config, names_of(form)) if built else []
    moves = [
        *((config / name, away / name) for name in former),
        *((new / name, config / name) for name in built),
        *((config / name, away / name) for name in _there(config, others)),
    ]
    return [tuple(str(path.relative_to(paths.root)) for path in move) for move in moves]  # type: ignore[misc]


def _there(config: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if exists(config / name)]


def _move(old: Path, new: Path) -> None:
    """Rename once: if ``new`` exists, the rename was already done."""
    if exists(new):
        return
    if not exists(old):
        raise CorruptionError(
            f"cannot finish the replacement of the metadata: the file to rename to {new} no longer"
            " exists", path=old,
        )  # fmt: skip
    with os_errors("rename the metadata file", old):
        old.rename(new)
        sync_folder(new.parent)
        sync_folder(old.parent)


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is a valid journal of a replacement."""
    moves, lock = entry.get("moves"), entry.get("lock")
    return (
        isinstance(lock, list)
        and isinstance(moves, list)
        and all(
            isinstance(move, list) and len(move) == 2 and all(map(_is_below_root, move))  # noqa: PLR2004
            for move in moves
        )
    )


def _is_below_root(name: object) -> bool:
    if not isinstance(name, str) or not name:
        return False
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name
