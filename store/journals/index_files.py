"""A note of the index files at a clean stop, with which the loss of one is detected.

An index that lost a file looks like one that never had it, and a query by key would return no
message. The note is valid after a clean stop, and only until another program has opened the store:
it is bound to the file ``lock``.
"""

from collections.abc import Iterable, Sequence

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, StoreError, os_errors
from cqstore.store.files import remove_file
from cqstore.store.journals.journal import Entry
from cqstore.store.journals.note import read_note, write_note
from cqstore.store.journals.store_lock import lock_identity
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_LOG = StoreLogger(__name__)


def note_index_files(paths: StorePaths, names: Iterable[str]) -> None:
    """Record the names of the index files at a clean stop. If that fails, there is no note."""
    tie = lock_identity(paths)
    if tie is None:
        return
    try:
        write_note(paths.index_files, {"files": sorted(names), "lock": list(tie)})
    except StoreError as exc:
        _LOG.warning("missing index files will not be detected at the next open: %s", exc)


def noted_index_files(paths: StorePaths) -> Sequence[str]:
    """Return the names recorded at the last clean stop; empty if unknown.

    Raises:
        StoreIOError: the note cannot be read.
    """
    try:
        entry = read_note(paths.index_files, _is_entry, "the note of the index files is damaged")
    except CorruptionError as exc:
        _LOG.warning("cannot check whether index files are missing: %s", exc)
        return ()
    if entry is None or entry["lock"] != list(lock_identity(paths) or ()):
        return ()
    names: list[str] = entry["files"]
    return names


def forget_index_files(paths: StorePaths) -> None:
    """Remove the note, durably, before an index file is created or deleted.

    Raises:
        StoreIOError: the note cannot be removed.
    """
    if exists(paths.index_files):
        with os_errors("remove the note of the index files", paths.index_files):
            remove_file(paths.index_files)


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is the note of index files."""
    return set(entry) == {"files", "lock"} and all(
        isinstance(entry[name], list) and all(isinstance(each, kind) for each in entry[name])
        for name, kind in (("files", str), ("lock", int))
    )
