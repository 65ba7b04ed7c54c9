"""Rows of a broker's metadata in RocksDB, of any version."""

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.model import BrokerMetadata
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.errors import CorruptionError, StoreError


def read_rows(
    folder: Path, families: Iterable[str], into: BrokerMetadata,
    take: Callable[[str, bytes, bytes], None],
) -> None:  # fmt: skip
    """Call ``take`` with family, key and value of each row of the database in ``folder``.

    What cannot be read, and a row that ``take`` refuses, becomes a fault of ``into``.
    """
    try:
        with RawDatabase(folder) as database:
            if database.fault is not None:
                into.faults.append(database.fault)
            for family in families:
                for key, value in database.items(family):
                    try:
                        take(family, key, value)
                    except (ValueError, struct.error) as exc:
                        fault = CorruptionError(f"invalid row {key!r}: {exc}", path=folder)
                        into.faults.append(fault)
    except StoreError as exc:
        into.faults.append(exc)


def row_json(content: Mapping[Any, object]) -> bytes:
    """Return JSON as 5.5.1 writes it; releases that escape non-ASCII text can read both."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
