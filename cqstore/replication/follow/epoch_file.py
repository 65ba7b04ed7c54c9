"""``epochFileCheckpoint``: the epochs of a log under a controller, as RocketMQ keeps them.

Lines of text: the number of epochs; the CRC-32 of the lines that follow, without its highest bit
(0: not checked); and a line ``epoch-start`` for each epoch. RocketMQ copies the previous content to
``.bak`` and then writes in place.

Source: RocketMQ ``EpochFileCache``, ``CheckpointFile``.
"""

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

from cqstore.replication.epoch_wire import EpochEntry, refuse_unordered
from cqstore.store.broker_files.file_names import backup_of, replace_keeping
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file

_MAX_BYTES = 1 << 20
_CRC_MASK = 0x7FFFFFFF
_HEAD_LINES = 2
_MAX_DIGITS = 19


def read_epochs(path: Path) -> list[EpochEntry]:
    """Return the epochs in the file, oldest first; none if there is no file.

    Raises:
        CorruptionError: the file is not a valid epoch file.
        StoreIOError: the file cannot be read.
    """
    with os_errors("read the epoch file", path):
        try:
            data = read_file(path, _MAX_BYTES)
        except FileNotFoundError:
            return []
    lines = data.decode("ascii", "replace").splitlines()
    if len(lines) < _HEAD_LINES or not all(map(_is_number, lines[:_HEAD_LINES])):
        raise _damaged(path, "invalid first lines", "a count and a checksum", lines[:_HEAD_LINES])
    entries = [_entry(path, number, line) for number, line in enumerate(lines[_HEAD_LINES:], 3)]
    if len(entries) != int(lines[0]):
        raise _damaged(path, "wrong number of epochs", lines[0], len(entries))
    found = _checksum(_lines(entries))
    if int(lines[1]) not in {0, found}:
        raise _damaged(path, "wrong checksum", lines[1], found)
    refuse_unordered(entries, lambda sentence: CorruptionError(sentence, path=path))
    return entries


def write_epochs(path: Path, entries: Sequence[EpochEntry]) -> None:
    """Replace the content of the file by ``entries``, at least one, durably.

    The previous content is saved to ``.bak`` first.

    Raises:
        StoreIOError: the file cannot be written; the present file is unchanged.
    """
    text = _lines(entries)
    data = f"{len(entries)}\n{_checksum(text)}\n{text}".encode()
    with os_errors("write the epoch file", path):
        try:
            former = read_file(path, _MAX_BYTES)
        except FileNotFoundError:
            former = None
        replace_keeping(path, data, former)


def _lines(entries: Sequence[EpochEntry]) -> str:
    return "".join(f"{entry.epoch}-{entry.start_offset}\n" for entry in entries)


def _checksum(text: str) -> int:
    return crc32(text.encode()) & _CRC_MASK


def _entry(path: Path, number: int, line: str) -> EpochEntry:
    epoch, _, start = line.partition("-")
    if not (_is_number(epoch) and _is_number(start)):
        raise _damaged(path, f"invalid line {number}", "EPOCH-START", repr(line[:80]))
    return EpochEntry(int(epoch), int(start))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _damaged(path: Path, what: str, expected: object, got: object) -> CorruptionError:
    return CorruptionError(
        f"the epoch file is corrupted: {what}. Its previous content may be in"
        f" {backup_of(path).name}", path=path, expected=expected, got=got,
    )  # fmt: skip
