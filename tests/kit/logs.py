"""Embedded logs for tests: small files, and no thread that flushes or dispatches by itself."""

from pathlib import Path
from typing import Any

from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 20, dispatch_slice=64, rocksdb_memory_bytes=16 << 20,


    max_hash_slot_num=100, max_index_num=4000,
)  # fmt: skip
BACKENDS = ["file", "rocksdb"]


def opened(root: Path, backend: str = "file", **changes: Any) -> EmbeddedLog:
    """Open a log whose thread writes no offsets unless ``commit_seconds`` says so."""
    changes.setdefault("commit_seconds", 3600.0)
    return open_log(root, backend=backend, config=CONFIG, **changes)
