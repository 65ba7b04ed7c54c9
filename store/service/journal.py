"""Lines of our own small journals: a CRC-32C, a space, a JSON object, a newline.

A line that was appended and synced is whole; a torn last one was never promised to anybody.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from crcmod.predefined import mkCrcFun

from store.errors import CorruptionError, os_errors
from store.log.mapped_file import sync_folder

_crc32c = mkCrcFun("crc-32c")
_CRC_DIGITS = 8
_LONGEST_LINE = 1 << 16
_LONG_MAX = (1 << 63) - 1
Entry = dict[str, Any]


def is_offset(value: object) -> bool:
    """Return whether a value of an entry is an offset: a number that Java's ``long`` holds."""
    return type(value) is int and 0 <= value <= _LONG_MAX


def read_lines(path: Path, is_entry: Callable[[Entry], bool]) -> Iterator[Entry | None]:
    """Yield the entries of a journal, and ``None`` at its end if the last line is torn.

    Raises:
        CorruptionError: a line before the last one is damaged, or none that ``is_entry`` knows.
        StoreIOError: it cannot be read.
    """
    if not path.exists():
        return
    position = 0
    with os_errors("read the journal", path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        for line in file:
            entry = _parse(line)
            if entry is not None and not is_entry(entry):
                entry = None
            if entry is None and position + len(line) < size:
                raise CorruptionError(
                    "a line of the journal is damaged", path=path, position=position
                )
            yield entry
            position += len(line)


def append_lines(path: Path, entries: Iterable[Entry]) -> None:
    """Append entries, durably when it returns; what a torn line left goes first.

    Raises:
        StoreIOError: the disk refused; what is there of them is a torn line at most.
    """
    with os_errors("write the journal", path):
        created = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        if not created:
            _drop_torn_line(path)
        with path.open("ab") as file:
            _write(file, entries)
        if created:
            sync_folder(path.parent)


def _drop_torn_line(path: Path) -> None:
    """Cut off a last line that is not whole: with another one behind it, it would be damage."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _LONGEST_LINE, 0))
        tail = file.read()
        last = tail[tail.rfind(b"\n", 0, len(tail) - 1) + 1 :]
        if tail and _parse(last) is None:
            file.truncate(size - len(last))


def rewrite(path: Path, entries: Iterable[Entry]) -> None:
    """Replace the whole journal, by rename.

    Raises:
        StoreIOError: the disk refused; the journal is as it was.
    """
    unfinished = path.with_suffix(".new")
    with os_errors("write the journal", path):
        with unfinished.open("wb") as file:
            _write(file, entries)
        unfinished.rename(path)
        sync_folder(path.parent)


def _write(file: BinaryIO, entries: Iterable[Entry]) -> None:
    for entry in entries:
        text = json.dumps(entry, ensure_ascii=True).encode()
        file.write(b"%0*x %s\n" % (_CRC_DIGITS, _crc32c(text), text))
    file.flush()
    os.fsync(file.fileno())


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
