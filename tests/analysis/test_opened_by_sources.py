"""How the data sources open a store: beside its writer, by its configuration, changing nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.analysis.options import SourceOptions
from cqstore.store.service.message_store import MessageStore
from tests.kit.golden import load_dump
from tests.kit.tree import unchanged

Golden = Callable[[str], Path]
Way = Callable[[SourceOptions], None]


def look(options: SourceOptions) -> None:
    options.check_root()


def open_store(options: SourceOptions) -> None:
    options.open_store().close()


def open_log(options: SourceOptions) -> None:
    options.open_log().close()


WAYS = [look, open_store, open_log]


@pytest.mark.parametrize("way", WAYS)
def test_a_store_is_read_beside_its_writer(golden: Golden, way: Way) -> None:
    root = golden("torn-default")
    with MessageStore.open(root, housekeeping=False):
        way(SourceOptions(path=root))


@pytest.mark.parametrize("way", WAYS)
def test_a_store_left_by_a_crash_is_not_mended(golden: Golden, way: Way) -> None:
    root = golden("torn-default")
    with unchanged(root):
        way(SourceOptions(path=root))


@pytest.mark.parametrize("reported", ["commitlog", "config"])
def test_a_log_that_lies_elsewhere_is_found(golden: Golden, tmp_path: Path, reported: str) -> None:
    root, elsewhere = golden("basic-default"), tmp_path / "elsewhere"
    (root / "commitlog").rename(elsewhere)
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={elsewhere}\n")
    place = {"commitlog": elsewhere, "config": config}[reported]
    options = SourceOptions.parse({"path": str(root), reported: str(place)})
    options.check_root()
    first = load_dump("basic-default")["messages"][0]
    with options.open_store() as store:
        assert store.message_by_offset(first["phy"]).store_timestamp == first["storeTimestamp"]
    log = options.open_log()
    assert log.min_phy_offset() == first["phy"]
    log.close()
