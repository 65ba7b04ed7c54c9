"""A broker's metadata in each form, as RocketMQ's managers wrote it, and what they read of it."""

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.database_copy import is_database

_FOLDER = Path(__file__).parents[1] / "golden" / "metadata"
SETTINGS = {
    Form.JSON: [],
    Form.V1: ["storeType=defaultRocksDB"],
    Form.SINGLE: ["storeType=defaultRocksDB", "useSingleRocksDBForAllConfigs=true"],
    Form.V2: ["configManagerVersion=v2"],
}
"""What makes a broker keep its metadata so."""
LIGHT = "%LMQ%$parent$x@billing0"
"""Version 2 writes the offset of a light queue and does not read it again."""


def unpack_forms(folder: Path) -> None:
    """Make a store's folder for each form below ``folder``: metadata alone."""
    with tarfile.open(_FOLDER / "forms.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def expected_forms() -> dict[str, dict[str, Any]]:
    """Return form → what RocketMQ's managers had after they had opened a copy."""
    found: dict[str, dict[str, Any]] = json.loads(
        lzma.decompress((_FOLDER / "expected.json.xz").read_bytes())
    )
    return found


def databases(folder: Path) -> list[Path]:
    """Return the RocksDB databases below ``folder``."""
    return sorted(path for path in folder.rglob("*") if path.is_dir() and is_database(path))


def raw_rows(root: Path) -> dict[tuple[str, str, bytes], bytes]:
    """Return folder, family and key → value, of all databases below ``root/config``."""
    rows = {}
    for folder in databases(root / "config"):
        with RawDatabase(folder) as database:
            assert database.fault is None
            for family in database.families:
                for key, value in database.items(family):
                    rows[folder.name, family, key] = value
    return rows


def the_one(root: Path) -> BrokerMetadata:
    """Return the metadata of a store that has one form of it, and no damage."""
    (found,) = read_forms(StorePaths(root))
    assert not found.faults
    return found
