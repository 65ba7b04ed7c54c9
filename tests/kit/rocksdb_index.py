"""A store of RocketMQ's whose index of keys is in RocksDB, and what RocketMQ found in it."""

import json
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "golden" / "rocksdb_index"
COUNT = 120
"""Messages; ``tests/interop/src/main/java/interop/Index.java`` says which keys each has."""
SETTINGS = (
    "mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=500",
    "maxIndexNum=2000", "indexRocksDBEnable=true", "indexFileWriteEnable=false",
)  # fmt: skip


def requested_words(count: int) -> Iterator[tuple[str, str]]:
    """Yield topics and keys to ask for."""
    for topic in ("orders", "at@sign", "other"):
        yield from ((topic, key) for key in ("many", "a@b", "a", "none"))
        for number in range(count):
            names = (f"k{number}", f"AC1000020000{number:04}", f"prüf{number}")
            yield from ((topic, key) for key in names)


def unpack_indexed(folder: Path) -> Path:
    """Make the store below ``folder``; return its root."""
    with tarfile.open(_FOLDER / "indexed.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


def expected_answers() -> list[dict[str, Any]]:
    """Return what RocketMQ found by its index in RocksDB alone: topic, key, phyOffsets sorted."""
    found: list[dict[str, Any]] = json.loads(
        lzma.decompress((_FOLDER / "expected.json.xz").read_bytes())
    )
    return found
