"""Columns of int64 in an archive of numpy (``.npz``), written and read block by block.

Whole columns of a million queues take 80 MB, at the moment when an open store has most in memory.
The files are those of ``numpy.savez``.
"""

import math
import zipfile
from collections.abc import Iterable

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

_INT64 = np.dtype(np.int64)
_VERSION = (1, 0)
"""Version of the header that numpy writes for short descriptions."""


class Column:
    """One column of an open archive, read once from its beginning to its end."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        """Read the header of the column ``name``.

        Raises:
            ValueError: it has no integers of 64 bits, row by row, or another version.
            LookupError: there is no such column.
        """
        self._file = archive.open(_member(name))
        if npy.read_magic(self._file) != _VERSION:
            raise ValueError("invalid version of a column")
        self.shape, is_by_column, dtype = npy.read_array_header_1_0(self._file)
        if is_by_column or dtype != _INT64:
            raise ValueError("invalid type of a column")

    def take(self, rows: int) -> NDArray[np.int64]:
        """Return the next ``rows`` rows; memory is taken only for those that exist.

        Raises:
            ValueError: there are fewer.
        """
        shape = (rows, *self.shape[1:])
        data = self._file.read(math.prod(shape) * _INT64.itemsize)
        return np.frombuffer(data, _INT64).reshape(shape)


def write_column(
    archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], blocks: Iterable[object]
) -> None:
    """Write a column of this shape, whose rows ``blocks`` has in lists."""
    with archive.open(_member(name), "w", force_zip64=True) as file:
        head = {"descr": npy.dtype_to_descr(_INT64), "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(file, head)
        for block in blocks:
            file.write(np.array(block, np.int64).tobytes())


def write_array(archive: zipfile.ZipFile, name: str, array: NDArray[np.generic]) -> None:
    """Write a whole array of any type."""
    with archive.open(_member(name), "w", force_zip64=True) as file:
        npy.write_array(file, array, allow_pickle=False)


def _member(name: str) -> str:
    return f"{name}.npy"
