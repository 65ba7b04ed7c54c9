"""Lines of our own small journals: a CRC-32C, a space, JSON, a newline.

The JSON is an object, one entry, or a list of such. A line that was appended and synced is whole,
and it is synced before the next one is written. So what a crash leaves of a line that was promised
to nobody has no valid line behind it, whichever of its pages reached the disk: that alone is a torn
end. Everything else that is no line is damage.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from crcmod.predefined import mkCrcFun

from store.errors import CorruptionError, IllegalMessageError, os_errors
from store.files import make_folder, open_regular, reading, replacing, sync_folder

_crc32c = mkCrcFun("crc-32c")
_CRC_DIGITS = 8
_LONG_MAX = (1 << 63) - 1
_LIST_BYTES = 1 << 16
"""Length of a line from which a list of entries is continued in the next one."""
_MOST_LINE = 1 << 24
_MOST_BYTES = 1 << 30
_LINE_START = re.compile(rb"(?=[0-9a-f]{8} [{\[])")
_MOST_STARTS = 100
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
        if size > _MOST_BYTES:
            raise CorruptionError(
                "the journal is too long", path=path,
                expected=f"at most {_MOST_BYTES} bytes", got=f"{size} bytes",
            )  # fmt: skip
        while line := file.readline(_MOST_LINE):
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
    """Return whether a valid line lies in or behind ``damaged``, whose newline may be lost too."""
    behind, left = damaged[1:], b""
    while behind or damaged:
        window, damaged = left + behind, b""
        starts = [found.start() for found in _LINE_START.finditer(window)]
        if len(starts) > _MOST_STARTS:  # no crash leaves that: do not try each of them
            return True
        if any(_parse(window[start:]) is not None for start in starts):
            return True
        whole = window.endswith(b"\n")  # else the line may go on in the next piece
        left = b"" if whole else window[starts[0] if starts else -_CRC_DIGITS - 1 :][-_MOST_LINE:]
        behind = file.readline(_MOST_LINE)
    return False


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
        file.writelines(_line(_json(entry)) for entry in entries)


def _write(file: BinaryIO, entries: Iterable[Entry]) -> None:
    """Write entries, several in one line if they are short; each line but the last is synced."""
    texts = [_json(entry) for entry in entries]
    while texts:
        size, count = len(texts[0]), 1
        while count < len(texts) and (size := size + len(texts[count])) <= _LIST_BYTES:
            count += 1
        file.write(_line(texts[0] if count == 1 else b"[%s]" % b", ".join(texts[:count])))
        texts = texts[count:]
        if texts:
            file.flush()
            os.fsync(file.fileno())


def _json(entry: Entry) -> bytes:
    return json.dumps(entry, ensure_ascii=True).encode()


def _line(text: bytes) -> bytes:
    if len(text) > _MOST_LINE - _CRC_DIGITS - 2:
        raise IllegalMessageError(f"a line of {len(text)} bytes is too long for a journal")
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
