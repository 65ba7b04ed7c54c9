"""Index files that RocketMQ wrote; ``golden_stores`` compares ours with them byte for byte."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.index.geometry import find_geometry
from cqstore.store.index.index_service import open_index_file

Golden = Callable[[str], Path]


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
