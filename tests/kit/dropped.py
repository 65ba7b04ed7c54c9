"""Stores and logs whose last reference goes without a close."""

import gc
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

ROCKSDB_LOG = Path("cqstore", "rocksdb-log")
"""RocksDB's own log notes the end of the database; it is no part of it."""


def dropped(drop: Callable[[], object]) -> list[str]:
    """Call ``drop``; return the warnings that came of it, after a collection."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        drop()
        gc.collect()
    return [str(each.message) for each in caught if each.category is ResourceWarning]


def state_of(root: Path) -> dict[str, str]:
    """Return a digest of the bytes of each file below ``root``, by path."""
    return {
        str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ROCKSDB_LOG not in path.relative_to(root).parents
    }
