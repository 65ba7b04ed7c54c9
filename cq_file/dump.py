"""Rows of a single file of the backend, for ``cqstore dump FILE``."""

from collections.abc import Iterator
from pathlib import Path

from cqstore.cq_file.layout import (
    BATCH_UNIT,
    EXT_UNIT_HEAD,
    FILE_UNIT,
    PRE_BLANK_UNIT,
    parse_file_name,
)
from cqstore.store.errors import os_errors
from cqstore.store.files import read_file, reading
from cqstore.store.java_numbers import INT_MAX
from cqstore.store.record.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2

Row = dict[str, object]
_MAX_BYTES = INT_MAX
"""Maximum size of a queue file, a Java ``int``."""


def rows_of_file(path: Path) -> Iterator[Row] | None:
    """Return the rows of ``path``; ``None`` if path and content are not a queue file's."""
    start = parse_file_name(path.name)
    parents = [parent.name for parent in path.absolute().parents]
    kind = parents[2] if len(parents) > 2 else ""  # noqa: PLR2004 - KIND/TOPIC/QUEUEID/FILE
    if start is None:
        return None
    with os_errors("read a queue file", path):
        if kind not in _KINDS:  # it may be a commit log file: check its head before reading it
            with reading(path) as file:
                if not _is_unit(file.read(FILE_UNIT.size)) or path.stat().st_size % FILE_UNIT.size:
                    return None
            kind = "consumequeue"
        data = read_file(path, _MAX_BYTES)
    return _KINDS[kind](data, start)


def _is_unit(data: bytes) -> bool:
    """Distinguish the first bytes of a queue file, outside its folders, from a commit log file."""
    if len(data) < FILE_UNIT.size:
        return False
    if int.from_bytes(data[4:8], "big", signed=True) in {MAGIC_V1, MAGIC_V2, MAGIC_BLANK}:
        return False
    first = FILE_UNIT.unpack_from(data)
    return first.phy_offset >= 0 and first.size > 0


def _units(data: bytes, start: int) -> Iterator[Row]:
    """Yield the units of a queue file, whose first byte has the logic offset ``start``."""
    first = start // FILE_UNIT.size
    whole = len(data) - len(data) % FILE_UNIT.size
    for index, unit in enumerate(FILE_UNIT.iter_unpack(data[:whole])):
        if unit == PRE_BLANK_UNIT:
            yield {"queueOffset": first + index, "preBlank": True}
        elif any(unit):
            yield {"queueOffset": first + index, **unit._asdict()}


def _batch_units(data: bytes, start: int) -> Iterator[Row]:
    whole = len(data) - len(data) % BATCH_UNIT.size
    for index, unit in enumerate(BATCH_UNIT.iter_unpack(data[:whole])):
        if any(unit):
            yield {"logicOffset": start + index * BATCH_UNIT.size, **unit._asdict()}


def _ext_units(data: bytes, start: int) -> Iterator[Row]:
    """Yield the extension units of a file, whose first byte has the logic offset ``start``."""
    at = 0
    while at + EXT_UNIT_HEAD.size <= len(data):
        head = EXT_UNIT_HEAD.unpack_from(data, at)
        if head.size < EXT_UNIT_HEAD.size:
            return
        yield {"logicOffset": start + at, **head._asdict()}
        at += head.size


_KINDS = {
    "consumequeue": _units,
    "batchconsumequeue": _batch_units,
    "consumequeue_ext": _ext_units,
}
