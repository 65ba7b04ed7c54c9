"""Lines of cqstore's small journals: a CRC-32C, a space, JSON, a newline.

The JSON is an object (one entry) or a list of objects. A line that was appended and synced is
complete, and it is synced before the next one is written. So no valid line follows the remains of
an unacknowledged line after a crash, whichever of its pages reached the disk: only such remains are
a torn end. Any other invalid line is damage.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from crcmod.predefined import mkCrcFun

from cqstore.store.errors import CorruptionError, IllegalMessageError, os_errors
from cqstore.store.files import make_folder, open_regular, reading, replacing, sync_folder
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.path_kind import exists

_crc32c = mkCrcFun("crc-32c")
_CRC_DIGITS = 8
_LIST_BYTES = 1 << 16
"""Length of a line at which a list of entries continues in the next line."""
_MAX_LINE = 1 << 24
MAX_BYTES = 1 << 30
_LINE_START = re.compile(rb"(?=[0-9a-f]{8} [{\[])")
_MAX_STARTS = 100
Entry = dict[str, Any]


def is_offset(value: object) -> bool:
    """Return whether a value of an entry is an offset: a number that fits Java's ``long``."""
    return type(value) is int and 0 <= value <= LONG_MAX


def read_lines(path: Path, is_entry: Callable[[Entry], bool]) -> Iterator[Entry | None]:
    """Yield the entries of a journal, and ``None`` at its end if that is torn.

    Raises:
        CorruptionError: a line before the end is damaged, or rejected by ``is_entry``.
        StoreIOError: the journal cannot be read.
    """
    return (entry for entry, _ in _walk(path, is_entry))


class Journal:
    """A journal that is appended to. One thread at a time.

    A torn end is searched at most once: when the entries are read, or before the first append.
    """

    def __init__(
        self,
        path: Path,
        is_entry: Callable[[Entry], bool],
        keep: Callable[[Path, int], None] = lambda _, __: None,
    ) -> None:
        """Create the object for the journal at ``path``; accesses no file.

        ``keep`` is called with ``path`` and the minimum size of the file, durably: after each
        append, and before and after a shorter file replaces it.
        """
        self.path = path
        self._is_entry = is_entry
        self._keep = keep
        self._ends_well = self._has_name = False
        self._is_synced = False

    def read(self) -> Iterator[Entry]:
        """Yield the entries; a torn end is skipped. Changes nothing.

        Raises:
            CorruptionError, StoreIOError: as for ``read_lines``.
        """
        for entry in read_lines(self.path, self._is_entry):
            if entry is None:
                return
            yield entry
        self._ends_well = True

    def cut_torn_end(self) -> None:
        """Remove lines that a crash left unsynced, before any line is appended.

        Raises:
            CorruptionError, StoreIOError: as for ``read_lines``; or the file cannot be truncated.
        """
        if self._ends_well:
            return
        walk = _walk(self.path, self._is_entry)
        torn = next((start for entry, start in walk if entry is None), None)
        if torn is not None:
            with os_errors("cut the torn end of the journal", self.path):
                fd = open_regular(self.path, os.O_RDWR)
                try:
                    os.ftruncate(fd, torn)
                    os.fsync(fd)
                finally:
                    os.close(fd)
        self._ends_well = True

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries, durably when it returns; a torn end is cut off first.

        Raises:
            CorruptionError: as for ``read_lines``.
            StoreIOError: writing failed; at most a torn line remains.
        """
        self.cut_torn_end()  # with a line after it, it would be damage
        with os_errors("write the journal", self.path):
            self._ends_well = False
            make_folder(self.path.parent)
            fd = open_regular(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(fd, "ab") as file:
                if not self._is_synced and os.fstat(fd).st_size:
                    # An interrupted call may have left a complete line.
                    os.fsync(fd)
                self._is_synced = False
                for line in _lines(entries):
                    file.write(line)
                    file.flush()
                    os.fsync(fd)
                size = os.fstat(fd).st_size
            if not self._has_name:  # its creator may have been killed before this
                sync_folder(self.path.parent)
            self._keep(self.path, size)
        self._ends_well = self._has_name = self._is_synced = True

    def replace(self, entries: Iterable[Entry]) -> None:
        """Replace all entries, see ``rewrite``."""
        lines = list(_lines(entries))
        size = sum(map(len, lines))
        if size < self.size():
            self._keep(self.path, size)
        _write(self.path, lines)
        self._keep(self.path, size)
        self._ends_well = self._has_name = self._is_synced = True

    def size(self) -> int:
        """Return its size in bytes, 0 without a file."""
        with os_errors("read the size of the journal", self.path):
            return self.path.stat().st_size if exists(self.path) else 0


def _walk(path: Path, is_entry: Callable[[Entry], bool]) -> Iterator[tuple[Entry | None, int]]:
    """Yield each entry with the start of its line, up to a torn end, which is yielded as None."""
    if not exists(path):
        return
    position = 0
    with os_errors("read the journal", path), reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise CorruptionError(
                "the journal is too long", path=path,
                expected=f"at most {MAX_BYTES} bytes", got=f"{size} bytes",
            )  # fmt: skip
        while line := file.readline(_MAX_LINE):
            entries = _parse(line)
            if entries is None and not _line_follows(line, file):
                yield None, position
                return
            if entries is None or not all(map(is_entry, entries)):
                raise CorruptionError(
                    "a line of the journal is damaged", path=path, position=position
                )
            for entry in entries:
                yield entry, position
            position += len(line)


def _line_follows(damaged: bytes, file: BinaryIO) -> bool:
    """Return whether a valid line is in or after ``damaged``, whose newline may be lost too."""
    behind, left = damaged[1:], b""
    while behind or damaged:
        window, damaged = left + behind, b""
        starts = [found.start() for found in _LINE_START.finditer(window)]
        if len(starts) > _MAX_STARTS:  # no crash leaves that many: do not check each
            return True
        if any(_parse(window[start:]) is not None for start in starts):
            return True
        whole = window.endswith(b"\n")  # otherwise the next piece may continue the line
        left = b"" if whole else window[starts[0] if starts else -_CRC_DIGITS - 1 :][-_MAX_LINE:]
        behind = file.readline(_MAX_LINE)
    return False


def rewrite(path: Path, entries: Iterable[Entry]) -> None:
    """Replace the whole journal, by rename.

    Raises:
        StoreIOError: writing failed; the journal is unchanged.
    """
    _write(path, _lines(entries))


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the whole journal by ``lines``, see ``rewrite``."""
    with os_errors("write the journal", path), replacing(path) as file:
        file.writelines(lines)


def _lines(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield lines of entries, several in one line if they are short."""
    texts: list[bytes] = []
    size = 0
    for text in map(_json, entries):
        if texts and size + len(text) > _LIST_BYTES:
            yield _line(texts)
            texts, size = [], 0
        texts.append(text)
        size += len(text)
    if texts:
        yield _line(texts)


def _json(entry: Entry) -> bytes:
    return json.dumps(entry, ensure_ascii=True).encode()


def _line(texts: Sequence[bytes]) -> bytes:
    text = texts[0] if len(texts) == 1 else b"[%s]" % b", ".join(texts)
    if len(text) > _MAX_LINE - _CRC_DIGITS - 2:
        raise IllegalMessageError(
            f"cannot write the journal: the line is too long ({len(text)} bytes)"
        )
    return b"%0*x %s\n" % (_CRC_DIGITS, _crc32c(text), text)


def _parse(line: bytes) -> list[Entry] | None:
    """Return the entries of a line, ``None`` if it is damaged."""
    crc, _, text = line[:-1].partition(b" ")
    if not line.endswith(b"\n") or crc != b"%0*x" % (_CRC_DIGITS, _crc32c(text)):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = found if isinstance(found, list) else [found]
    return entries if entries and all(isinstance(each, dict) for each in entries) else None
