"""The file that an export writes: renamed when it is complete, and resumable until then.

Until then, its name is ``NAME.part``. For line formats, ``NAME.part.position`` next to it records
how many bytes are complete and which messages they contain; it is replaced after the bytes are on
disk.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from cqstore.store.errors import CorruptionError, RefusedStoreError, os_errors
from cqstore.store.files import open_regular, read_file, remove_file, replace_file, sync_folder
from cqstore.store.path_kind import exists

_MAX_POSITION_BYTES = 64 << 20
_SECONDS = 2.0
"""Seconds between two writes of the position."""


@dataclass(slots=True)
class ExportPosition:
    """Progress of an export: the messages that its file contains."""

    asked: dict[str, object]
    """The selection that is exported; an export with another selection cannot be resumed."""
    written_bytes: int = 0
    messages: int = 0
    topic: str = ""
    """The topic that was started last; topics before it in name order are complete."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Queue id → next queue offset, for the queues of ``topic``."""

    def to_json(self) -> bytes:
        """Return the content of the position file."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> "ExportPosition":
        """Return the position in the file ``path``.

        Raises:
            CorruptionError: the file is not a valid position file.
            StoreIOError: the file cannot be read.
        """
        with os_errors("read the export position", path):
            data = read_file(path, _MAX_POSITION_BYTES)
        try:
            fields = json.loads(data)
            offsets = {int(key): int(at) for key, at in fields.pop("offsets").items()}
            found = cls(offsets=offsets, **fields)
            numbers = [found.written_bytes, found.messages, *offsets.values()]
            sound = all(type(each) is int and each >= 0 for each in numbers)
            if not sound or not isinstance(found.topic, str) or not isinstance(found.asked, dict):
                raise TypeError  # noqa: TRY301 - handled like a missing field
        except (ValueError, TypeError, AttributeError, KeyError) as exc:
            raise CorruptionError(
                "invalid export position", path=path,
                expected="JSON written by cqstore export", got=f"{data[:60]!r}",
            ) from exc  # fmt: skip
        return found


class PartFile:
    """``NAME.part``, open for writing."""

    def __init__(self, path: Path, file: BinaryIO, position: ExportPosition | None) -> None:
        self._file, self._path = file, path
        self._position = position
        self._noted = time.monotonic()

    @property
    def file(self) -> BinaryIO:
        """Return the file, at its end."""
        return self._file

    def note(self, *, now: bool = False) -> None:
        """Record how far the file is complete, every few seconds or ``now``.

        Raises:
            StoreIOError: the position cannot be written.
        """
        position = self._position
        if position is None or (not now and time.monotonic() - self._noted < _SECONDS):
            return
        with os_errors("write the export", self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            position.written_bytes = self._file.tell()
            replace_file(_position_path(self._path), position.to_json())
        self._noted = time.monotonic()


@contextmanager
def part_file(
    target: Path, position: ExportPosition | None, *, resume: bool
) -> Iterator[tuple[PartFile, ExportPosition | None]]:
    """Yield the file to write and the position to continue from; rename the file on success.

    On failure, an export with a ``position`` keeps its unfinished file next to ``target``, and
    ``resume`` continues it. Without a position the file is removed.

    Raises:
        RefusedStoreError: ``target`` or an unfinished file exists, or the unfinished file to resume
            belongs to another export.
        CorruptionError: the unfinished file is shorter than its position.
        StoreIOError: a file cannot be written.
    """
    refuse_existing(target)
    part = target.with_name(f"{target.name}.part")
    if resume and exists(_position_path(part)):
        position = _to_resume(part, position)
    elif os.path.lexists(part):
        way = "remove it" if resume or position is None else "continue with --resume, or remove it"
        raise RefusedStoreError(f"found an unfinished export: {way}", path=part)
    with os_errors("write the export", target):
        fd = open_regular(part, os.O_RDWR | os.O_CREAT)
        whole = False
        try:
            with os.fdopen(fd, "r+b") as file:
                if position is not None:
                    _cut(part, file, position.written_bytes)
                written = PartFile(part, file, position)
                if position is not None:
                    written.note(now=True)
                yield written, position
                file.flush()
                os.fsync(fd)
            refuse_existing(target)
            part.rename(target)
            whole = True
            sync_folder(target.parent)
            remove_file(_position_path(part))
        finally:
            if not whole and position is None:
                with suppress(OSError):
                    part.unlink()


def refuse_existing(target: Path) -> None:
    """Refuse to overwrite an existing file or folder.

    Raises:
        RefusedStoreError: ``target`` exists.
    """
    if os.path.lexists(target):
        raise RefusedStoreError("the target already exists and is not overwritten", path=target)


def _position_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.position")


def _to_resume(part: Path, position: ExportPosition | None) -> ExportPosition:
    found = ExportPosition.read(_position_path(part))
    if position is None or found.asked != position.asked:
        raise RefusedStoreError(
            f"cannot resume: the export has other options: {json.dumps(found.asked)}", path=part
        )
    return found


def _cut(part: Path, file: BinaryIO, size: int) -> None:
    """Truncate an unfinished export to ``size`` bytes, to continue from there.

    Raises:
        CorruptionError: the file has fewer bytes.
    """
    found = os.fstat(file.fileno()).st_size
    if found < size:
        raise CorruptionError(
            "the unfinished export is shorter than its position", path=part,
            expected=f"at least {size} bytes", got=f"{found} bytes",
        )  # fmt: skip
    file.truncate(size)
    file.seek(size)
