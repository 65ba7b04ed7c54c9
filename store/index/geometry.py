"""Numbers of slots and entries of an index file, found from the file itself.

Neither number is stored. The file's size allows many pairs. The entries of a used file identify the
right pair, because they are at the positions that only this pair gives.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cqstore.store.errors import (
    CorruptionError,
    TruncatedRecordError,
    UnsupportedFormatError,
    os_errors,
)
from cqstore.store.files import reading
from cqstore.store.index.index_file import IndexFile
from cqstore.store.index.layout import (
    ENTRY_DTYPE,
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    SLOT_DTYPE,
    IndexGeometry,
    slot_position,
)
from cqstore.store.record.layout import Buffer
from cqstore.store.settings.config import StoreConfig

_SCAN_ROWS = 1 << 19
_SAMPLE = 1024
_BLOCK = 1 << 20
GEOMETRY_HINT = "Set maxHashSlotNum and maxIndexNum with --config"
"""What to do if the numbers of slots and entries cannot be found in the index files."""


def default_geometry() -> IndexGeometry:
    """Return the geometry of a store whose configuration does not set it."""
    config = StoreConfig()
    return IndexGeometry(config.max_hash_slot_num, config.max_index_num)


def common_size(paths: list[Path]) -> int:
    """Return the most frequent file size in bytes, without empty files; 0 if there are none.

    If two sizes are equally frequent, the larger one: the other files may be truncated.
    """
    sizes = Counter(size for path in paths if (size := path.stat().st_size))
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def is_blank(path: Path) -> bool:
    """Return whether an index file contains nothing but its header and zeros.

    Raises:
        StoreIOError: the file cannot be read.
    """
    with os_errors("read an index file", path), reading(path) as file:
        file.seek(INDEX_HEADER.size)
        while data := file.read(_BLOCK):
            if data.count(0) != len(data):
                return False
    return True


def find_geometry(
    paths: list[Path], slots: int | None, entries: int | None
) -> IndexGeometry | None:
    """Return the one geometry that fits the files, which all have the same size.

    A given number is used unchanged, and the default geometry if the size allows it. Damaged files
    are ignored if there are others. ``None``: no file contains a key.

    Raises:
        CorruptionError: no geometry fits any file.
        UnsupportedFormatError: several geometries fit, or the files contradict each other.
        StoreIOError: a file cannot be read.
    """
    size = paths[0].stat().st_size
    guess = _from_size(size, slots, entries)
    if guess is not None:
        return guess
    default = default_geometry()
    if default.file_size == size and _fits_any(paths, default) is not False:
        return default
    fitting: set[IndexGeometry] = set()
    used = fits = False
    for path in paths:
        found = _geometries(path, size)
        used |= found is not None
        if found:
            fits = True
            fitting = fitting & found if fitting else found
    if not used:
        return None
    if len(fitting) == 1:
        return fitting.pop()
    if not fits:
        raise _damaged(paths[0], size)
    what = "several numbers fit" if fitting else "no numbers fit"
    raise UnsupportedFormatError(
        f"cannot find the numbers of slots and entries: {what} the index files. {GEOMETRY_HINT}",
        path=paths[0],
    )


def _damaged(path: Path, size: int) -> CorruptionError:
    """Return the error if no file has a valid geometry, with the fault of the first one."""
    with os_errors("read an index file", path), reading(path) as file:
        head = file.read(INDEX_HEADER.size)
    count = INDEX_HEADER.unpack_from(head).index_count if len(head) == INDEX_HEADER.size else 1
    least = slot_position(1) + INDEX_ENTRY.size * count
    if size < least:
        return TruncatedRecordError(
            "the index file is truncated", path=path, position=size,
            expected=f"at least {least} bytes", got=f"{size} bytes",
        )  # fmt: skip
    return CorruptionError(
        "the index file is corrupted: no numbers of slots and entries fit it", path=path
    )


def _from_size(size: int, slots: int | None, entries: int | None) -> IndexGeometry | None:
    """Return the geometry if at least one number is given: the size then gives the other.

    The caller detects a size that does not fit, by comparing it with the files.
    """
    if slots is not None:
        room = size - slot_position(slots)
        return IndexGeometry(slots, room // INDEX_ENTRY.size if entries is None else entries)
    if entries is not None:
        room = size - INDEX_HEADER.size - INDEX_ENTRY.size * entries
        return IndexGeometry(room // INDEX_SLOT.size, entries)
    return None


def _fits_any(paths: list[Path], geometry: IndexGeometry) -> bool | None:
    """Return whether ``geometry`` fits a used file of ``paths``; ``None``: no file is used."""
    verdicts = [_fits(path, geometry) for path in paths]
    return any(verdicts) if any(verdict is not None for verdict in verdicts) else None


def _geometries(path: Path, size: int) -> set[IndexGeometry] | None:
    """Return every geometry that fits the entries of one file; ``None`` if it has no entries."""
    with os_errors("read an index file", path), reading(path) as file:
        header = INDEX_HEADER.unpack_from(file.read(INDEX_HEADER.size).ljust(INDEX_HEADER.size))
        if header.index_count <= 1:
            return None
        found = []
        for start in range(size % INDEX_ENTRY.size, size, _SCAN_ROWS * INDEX_ENTRY.size):
            file.seek(start)
            data = file.read((_SCAN_ROWS + 1) * INDEX_ENTRY.size)
            for row in _first_entries(data, header.begin_phy_offset):
                position = start + row * INDEX_ENTRY.size
                file.seek(position + (header.index_count - 1) * INDEX_ENTRY.size)
                last = file.read(INDEX_ENTRY.size)
                if len(last) < INDEX_ENTRY.size or position <= slot_position(0):
                    continue
                if INDEX_ENTRY.unpack_from(last).phy_offset == header.end_phy_offset:
                    found.append(_from_position(position, size))
    return {geometry for geometry in found if _fits(path, geometry)}


def _first_entries(data: Buffer, begin_phy_offset: int) -> Iterator[int]:
    """Yield the rows of ``data`` that may be the unused entry before a file's first entry."""
    usable = len(data) - len(data) % INDEX_ENTRY.size
    rows = np.frombuffer(data[:usable], ENTRY_DTYPE)
    first = rows[1:]
    likely = np.flatnonzero(
        (first["phy_offset"] == begin_phy_offset)
        & (first["key_hash"] > 0)
        & (first["time_diff"] >= 0)
        & (first["previous_index"] == 0)
    )
    unused = bytes(INDEX_ENTRY.size)
    for row in likely.tolist():
        if rows[row].tobytes() == unused:
            yield row


def _from_position(position: int, size: int) -> IndexGeometry:
    """Return the geometry of a file whose entries start at ``position``."""
    slots = (position - slot_position(0)) // INDEX_SLOT.size
    return IndexGeometry(slots, (size - position) // INDEX_ENTRY.size)


def _fits(path: Path, geometry: IndexGeometry) -> bool | None:
    """Return whether entries and slots of one file match; ``None`` if it has no entry.

    A file left by a killed process is accepted: its newest entries may lack their slots, but no
    slot points to an entry of another slot.
    """
    file = IndexFile(path, geometry, read_only=True)
    try:
        header = INDEX_HEADER.unpack_from(file.read(0, INDEX_HEADER.size))
        if header.index_count <= 1:
            return None
        if header.index_count > geometry.entries:
            return False
        return _entries_fit(file, header.begin_phy_offset) and _slots_fit(file)
    except CorruptionError:
        return False
    finally:
        file.close()


def _entries_fit(file: IndexFile, begin_phy_offset: int) -> bool:
    """Return whether the first entries are valid, and each chain stays in one slot."""
    rows = next(iter(file.blocks()))[1][:_SAMPLE]
    hashes, previous = rows["key_hash"].astype(np.int64), rows["previous_index"]
    offsets = rows["phy_offset"]
    index = np.arange(1, len(rows) + 1)
    if offsets[0] != begin_phy_offset or (hashes < 0).any() or (np.diff(offsets) < 0).any():
        return False
    if (previous < 0).any() or (previous >= index).any():
        return False
    linked = np.flatnonzero(previous)
    slots = hashes % file.geometry.slots
    return bool((slots[previous[linked] - 1] == slots[linked]).all())


def _slots_fit(file: IndexFile) -> bool:
    """Return whether the slots of the first entries point to entries of the same slot."""
    slots = file.geometry.slots
    rows = next(iter(file.blocks()))[1][:_SAMPLE]
    sampled = np.unique(rows["key_hash"].astype(np.int64) % slots)
    heads = _rows(file, slot_position(0), SLOT_DTYPE, sampled).astype(np.int64)
    if ((heads < 0) | (heads >= file.geometry.entries)).any():
        return False
    filled = (heads > 0) & (heads <= file.count)
    if not filled.any():
        return False
    entries = _rows(file, file.geometry.entry_position(0), ENTRY_DTYPE, heads[filled])
    return bool((entries["key_hash"].astype(np.int64) % slots == sampled[filled]).all())


def _rows(
    file: IndexFile, start: int, dtype: np.dtype[Any], numbers: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the rows ``numbers`` of the table at ``start``: with one read if they are close.

    Raises:
        TruncatedRecordError: the file ends before the end of a row.
    """
    size, low, high = dtype.itemsize, int(numbers.min()), int(numbers.max())
    if (high - low + 1) * size > _BLOCK:
        rows = (file.read(start + number * size, size) for number in numbers.tolist())
        return np.frombuffer(b"".join(rows), dtype)
    block = np.frombuffer(file.read(start + low * size, (high - low + 1) * size), dtype)
    return block.take(numbers - low)
