"""A note: a small file of cqstore with one entry, in the format of a journal's line.

A journal is appended to (``Journal``); a note is replaced as a whole, by rename.
"""

from collections.abc import Callable
from pathlib import Path

from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import make_folder
from cqstore.store.journals.journal import Entry, read_lines, rewrite
from cqstore.store.path_kind import exists


def read_note(path: Path, is_entry: Callable[[Entry], bool], damaged: str) -> Entry | None:
    """Return the entry of a note; ``None`` without a file. Changes nothing.

    Another process may create or remove the file meanwhile.

    Raises:
        CorruptionError: ``damaged`` (a sentence): the file does not have exactly one valid entry.
        StoreIOError: the note cannot be read.
    """
    if not exists(path):
        return None
    entries = list(read_lines(path, is_entry))
    if not entries and not exists(path):
        return None
    if len(entries) != 1 or entries[0] is None:
        raise CorruptionError(damaged, path=path)
    return entries[0]


def write_note(path: Path, entry: Entry) -> None:
    """Replace a note, durably when it returns; create its folder if needed.

    Raises:
        StoreIOError: the note cannot be written; the old one is unchanged.
    """
    with os_errors("create the folder of a note", path):
        make_folder(path.parent)
    rewrite(path, [entry])
