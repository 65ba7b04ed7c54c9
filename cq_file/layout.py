"""Record layouts of the file backend, and the mapping of logic offsets to files and positions.

Owned on disk: ``consumequeue/TOPIC/QUEUEID/N`` (``FileUnit``), ``batchconsumequeue/...``
(``BatchUnit``) and ``consumequeue_ext/...`` (``ExtUnitHead`` and its bit map). A file is named by
the logic offset of its first byte (bytes from the start of the queue), 20 digits; all files of a
kind have one size, which is a whole number of units, so no unit spans two files.
"""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.store.files import is_file_name
from cqstore.store.java_numbers import INT_MAX, INT_MIN
from cqstore.store.paths import StorePaths
from cqstore.store.record.layout import Annotated, Layout, NamedTuple, Wire


class FileUnit(NamedTuple):
    """One unit of a simple queue: the location of a message and the hash of its tag."""

    phy_offset: Annotated[int, Wire("q", "byte position of the record in the commit log")]
    size: Annotated[int, Wire("i", "whole record, bytes")]
    tags_code: Annotated[
        int, Wire("q", "hash of the tag, delivery time in ms, or extension address")
    ]


class BatchUnit(NamedTuple):
    """One unit of a batch queue: a record that contains ``batch_size`` messages."""

    phy_offset: Annotated[int, Wire("q", "byte position of the record in the commit log")]
    size: Annotated[int, Wire("i", "whole record, bytes")]
    tags_code: Annotated[int, Wire("q", "hash of the tag")]
    store_timestamp: Annotated[int, Wire("q", "store time, ms since the epoch")]
    msg_base_offset: Annotated[int, Wire("q", "queue offset of the first message of the record")]
    batch_size: Annotated[int, Wire("h", "messages in the record")]
    compacted_offset: Annotated[int, Wire("i", "unused, -1")]
    reserved: Annotated[int, Wire("i", "0")]


class ExtUnitHead(NamedTuple):
    """The fixed part of an extension unit; ``bit_map_size`` bytes follow."""

    size: Annotated[int, Wire("h", "whole extension unit, bytes; -1: padding at the end of a file")]
    tags_code: Annotated[int, Wire("q", "hash of the tag")]
    store_timestamp: Annotated[int, Wire("q", "store time, ms since the epoch")]
    bit_map_size: Annotated[int, Wire("h", "bytes of the filter bit map after this head")]


FILE_UNIT = Layout(FileUnit)
BATCH_UNIT = Layout(BatchUnit)
EXT_UNIT_HEAD = Layout(ExtUnitHead)

PRE_BLANK_UNIT = FileUnit(0, INT_MAX, 0)
PRE_BLANK = FILE_UNIT.pack(PRE_BLANK_UNIT)
"""Fills a first file up to the queue's first unit. It looks valid but is not a unit."""
NO_UNIT = bytes(FILE_UNIT.size)
"""Content of a file where nothing was written."""

EXT_ADDRESS_BASE = -(1 << 63)
"""The address of byte 0 of the extension files."""

_QUEUE_ID = re.compile(r"0|-?[1-9][0-9]{0,9}", re.ASCII)


def batch_folder(paths: StorePaths) -> Path:
    """Return the folder of the batch queues."""
    return paths.root / "batchconsumequeue"


def ext_folder(paths: StorePaths) -> Path:
    """Return the folder of the extension files."""
    return paths.root / "consumequeue_ext"


def is_unit(phy_offset: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows may be units or pre-blanks; zeros and garbage are not."""
    return (phy_offset >= 0) & (size > 0)


def parse_file_name(name: str) -> int | None:
    """Return the start of a file, or ``None`` if ``name`` is not a valid file name."""
    return int(name) if is_file_name(name) else None


def parse_queue_id(name: str) -> int | None:
    """Return the queue id of a folder, or ``None`` if ``name`` is not one (Java's ``int``)."""
    if not _QUEUE_ID.fullmatch(name):
        return None
    queue_id = int(name)
    return queue_id if INT_MIN <= queue_id <= INT_MAX else None
