"""Embedded logs for tests: small files, and no thread that flushes or dispatches by itself."""

from pathlib import Path
from typing import Any

from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.table_forms import read_newest, table_forms
from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from cqstore.store.paths import StorePaths
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


def stored_offsets(root: Path, key: str = "t@g") -> dict[int, int]:
    """Return the offsets of a row on disk, in the form that was written last."""
    return _stored(root, Table.OFFSETS).offsets.get(key, {})


def stored_topics(root: Path) -> dict[str, dict[str, object]]:
    """Return the rows of topics on disk, in the form that was written last."""
    return _stored(root, Table.TOPICS).topics


def _stored(root: Path, table: Table) -> BrokerMetadata:
    paths = StorePaths(root)
    found = read_newest(paths.config, table_forms(paths)).get(table)
    return found or BrokerMetadata(Form.JSON, paths.config)
