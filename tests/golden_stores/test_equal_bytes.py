"""What we write from a golden store's log is, byte for byte, what RocketMQ wrote from it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import AccessType, Options, Rdict

from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import ROCKSDB, load_dump

Golden = Callable[[str], Path]
Pairs = list[tuple[str, str]]
FILES = ["basic-default", "basic533-default", "wide-default", "propcrc-default"]
INDEXED = [
    "basic-default", "basic533-combine", "basic533-default", "crash-default", "ext-default",
    "wide-combine",
]  # fmt: skip
"""Stores whose log still has every record that was ever indexed."""
REBUILT = ["basic-defaultRocksDB", "wide-defaultRocksDB", "separate-defaultRocksDB"]


def raw(folder: Path) -> dict[str, Pairs]:
    """Return all entries of both families, read past our own code."""
    options = {name: Options(raw_mode=True) for name in ("default", "offset")}
    database = Rdict(
        str(folder), options["default"], column_families=options,
        access_type=AccessType.read_only(),
    )  # fmt: skip
    found = {}
    for name in options:
        family = database.get_column_family(name)
        found[name] = [(as_hex(key), as_hex(value)) for key, value in family.items()]
        family.close()
    database.close()
    return found


def as_hex(data: object) -> str:
    assert isinstance(data, bytes)
    return data.hex()


def rebuild(root: Path, backend: str, *, index_tags: bool = True) -> None:
    """Have every queue and index file made again from the log."""
    for name in ("consumequeue", "consumequeue_rocksdb"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    config = StoreConfig(mapped_file_size_consume_queue=2000, message_index_tags=index_tags)
    MessageStore.open(root, config, backend=backend).close()


@pytest.mark.parametrize("name", ROCKSDB)
def test_the_database_is_read_as_rocksdb_reads_it(golden: Golden, name: str) -> None:
    dump = load_dump(name)
    for path, families in dump["rocksdbRaw"].items():
        if path.startswith("consumequeue"):
            assert raw(golden(name) / path) == families


@pytest.mark.parametrize("name", REBUILT)
def test_a_rebuilt_database_has_rocketmqs_keys_and_values(golden: Golden, name: str) -> None:
    root = golden(name)
    rebuild(root, "rocksdb")
    (expected,) = [
        families
        for path, families in load_dump(name)["rocksdbRaw"].items()
        if path.startswith("consumequeue")
    ]
    assert raw(root / "consumequeue") == expected


@pytest.mark.parametrize("name", FILES)
def test_rebuilt_queue_files_have_rocketmqs_bytes(golden: Golden, name: str) -> None:
    root = golden(name)
    queues = root / "consumequeue"
    before = {path.relative_to(queues): path.read_bytes() for path in files_of(queues)}
    rebuild(root, "file")
    after = {path.relative_to(queues): path.read_bytes() for path in files_of(queues)}
    assert after == before


@pytest.mark.parametrize("name", INDEXED)
def test_a_rebuilt_index_has_rocketmqs_bytes(golden: Golden, name: str) -> None:
    root = golden(name)
    before = {path.name: path.read_bytes() for path in files_of(root / "index")}
    rebuild(root, "file", index_tags="533" not in name)
    after = {path.name: path.read_bytes() for path in files_of(root / "index")}
    assert not set(after) & set(before), "made again, under names of their own"
    assert [after[key] for key in sorted(after)] == [before[key] for key in sorted(before)]


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
