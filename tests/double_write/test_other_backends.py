"""The states are RocketMQ's, of two backends; a third one that somebody installs has none."""

from pathlib import Path

import pytest

from store.config import StoreConfig
from store.errors import RefusedStoreError
from store.paths import StorePaths
from store.service.finding.store_layout import StoreLayout
from store.service.upkeep.mode import StoreMode, current_mode


@pytest.mark.parametrize("found", [["third"], ["file", "third"], ["file", "rocksdb", "third"]])
def test_a_third_backend_is_in_no_state(tmp_path: Path, found: list[str]) -> None:
    """``cqstore mode`` ended in ``StopIteration``."""
    layout = StoreLayout(
        StorePaths(tmp_path), [tmp_path / "commitlog"], has_log=True, backends=found
    )
    with pytest.raises(RefusedStoreError, match=r"no state keeps the queues in .*third"):
        current_mode(layout, StoreConfig())
    layout.backends.remove("third")
    if layout.backends:
        assert current_mode(layout, StoreConfig()) in StoreMode
