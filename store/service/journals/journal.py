"""Lines of our own small journals: a CRC-32C, a space, a JSON object, a newline.

A line that was appended and synced is whole. The torn end that a crash leaves was never promised to
anybody: a last line that is not whole, or, where a page of several lines is missing, zeros.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from crcmod.predefined import mkCrcFun

from store.errors import CorruptionError, os_errors
from store.files import make_folder, open_regular, reading, replacing, sync_folder

_crc32c = mkCrcFun("crc-32c")
_CRC_DIGITS = 8
_LONG_MAX = (1 << 63) - 1
Entry = dict[str, Any]


def is_offset(value: object) -> bool:
    """Return whether a value of an entry is an offset: a number that Java's ``long`` holds."""
    return type(value) is int and 0 <= value <= _LONG_MAX


def read_lines(path: Path, is_entry: Callable[[Entry], bool]) -> Iterator[Entry | None]:
    """Yield the entries of a journal, and ``None`` at its end if that is torn.

    Raises:
        CorruptionError: a line before that is damaged, or none that ``is_entry`` knows.
        StoreIOError: it cannot be read.
    """
    return (entry for entry, _ in _walk(path, is_entry))


def cut_torn_end(path: Path, is_entry: Callable[[Entry], bool]) -> None:
    """Cut off what a crash left of lines that were never synced, before any is appended.

    Raises:
        CorruptionError, StoreIOError: as for ``read_lines``; or it cannot be cut.
    """
    torn = next((start for entry, start in _walk(path, is_entry) if entry is None), None)
    if torn is not None:
        with os_errors("cut the torn end of the journal", path):
            fd = open_regular(path, os.O_RDWR)
            try:
                os.ftruncate(fd, torn)
                os.fsync(fd)
            finally:
                os.close(fd)


def _walk(path: Path, is_entry: Callable[[Entry], bool]) -> Iterator[tuple[Entry | None, int]]:
    """Yield each entry and where its line starts, up to a torn end, which is yielded as None."""
    if not path.exists():
        return
    position = 0
    with os_errors("read the journal", path), reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        for line in file:
            entry = _parse(line)
            if entry is not None and not is_entry(entry):
                entry = None
            if entry is None and position + len(line) < size and b"\0" not in line:
                raise CorruptionError(
                    "a line of the journal is damaged", path=path, position=position
                )
            yield entry, position
            if entry is None:
                return
            position += len(line)


def append_lines(path: Path, entries: Iterable[Entry], is_entry: Callable[[Entry], bool]) -> None:
    """Append entries, durably when it returns; a torn end is cut off first.

    Raises:
        CorruptionError: as for ``read_lines``.
        StoreIOError: the disk refused; what is there of them is a torn line at most.
    """
    with os_errors("write the journal", path):
        created = not path.exists()
        make_folder(path.parent)
        cut_torn_end(path, is_entry)  # with a line behind it, it would be damage
        fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(fd, "ab") as file:
            _write(file, entries)
            file.flush()
            os.fsync(fd)
        if created:
            sync_folder(path.parent)


def rewrite(path: Path, entries: Iterable[Entry]) -> None:
    """Replace the whole journal, by rename.

    Raises:
        StoreIOError: the disk refused; the journal is as it was.
    """
    with os_errors("write the journal", path), replacing(path) as file:
        _write(file, entries)


def _write(file: BinaryIO, entries: Iterable[Entry]) -> None:
    for entry in entries:
        text = json.dumps(entry, ensure_ascii=True).encode()
        file.write(b"%0*x %s\n" % (_CRC_DIGITS, _crc32c(text), text))


def _parse(line: bytes) -> Entry | None:
    """Return the entry of a line, ``None`` if it is damaged."""
    crc, _, text = line[:-1].partition(b" ")
    if not line.endswith(b"\n") or crc != b"%0*x" % (_CRC_DIGITS, _crc32c(text)):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
