"""The index that we write for a golden store's log is, byte for byte, the one RocketMQ wrote.

RocketMQ 5.5.1, not 5.3.3, also indexes a record under ``T#`` and its whole TAGS, behind its keys.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.index.geometry import find_geometry
from cqstore.store.index.index_service import IndexService, open_index_file
from tests.kit.golden import load_dump
from tests.kit.index_records import index_record

Golden = Callable[[str], Path]
ROLLBACK = 0xC
UNCUT = [
    "basic-default",
    "basic-defaultRocksDB",
    "basic533-combine",
    "crash-default",
    "ext-default",
    "wide-combine",
]
"""Stores whose log still has every record that was ever indexed; the first has three files."""


@pytest.mark.parametrize("name", UNCUT)
def test_a_rebuilt_index_has_rocketmqs_bytes(golden: Golden, tmp_path: Path, name: str) -> None:
    theirs = sorted((golden(name) / "index").iterdir())
    index = IndexService(tmp_path / "ours", 500, 2000, read_only=False)
    index.load(last_exit_ok=True, index_timestamp=0)
    for message in load_dump(name)["messages"]:
        if message["sysFlag"] & ROLLBACK != ROLLBACK:
            get = message["properties"].get
            index_record(
                index, message["topic"], get("UNIQ_KEY"), get("KEYS"), message["phy"],
                message["storeTimestamp"], get("TAGS") if "533" not in name else None,
            )  # fmt: skip
    index.close()
    ours = sorted((tmp_path / "ours").iterdir())
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


@pytest.mark.parametrize("name", ["basic-default", "basic533-default", "hole-defaultRocksDB"])
def test_slots_and_entries_of_rocketmqs_files_are_found(golden: Golden, name: str) -> None:
    paths = sorted((golden(name) / "index").iterdir())
    assert find_geometry(paths, None, None) == (500, 2000)
    for path in paths:
        file = open_index_file(path)
        rows = list(file.rows())
        assert [row.number for row in rows] == list(range(1, file.count + 1))
        assert rows[-1].phy_offset == file.end_phy_offset
        file.close()
