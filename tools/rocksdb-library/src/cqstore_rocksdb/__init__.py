"""RocksDB's shared library: which version this is, and where it lies."""

from pathlib import Path
from typing import Final

ROCKSDB_VERSION: Final = "9.8.4"
__version__: Final = "9.8.4"
"""RocksDB's version, with a post release behind it where only the wheel changed."""


def library_path() -> Path:
    """Return where the library lies: a file of this package, in its wheel alone."""
    return Path(__file__).parent / f"librocksdb.so.{ROCKSDB_VERSION}"
