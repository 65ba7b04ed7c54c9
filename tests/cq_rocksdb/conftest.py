"""Every test of the RocksDB backend runs with each engine."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES, using


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[RocksDBEngine]:
    """Have the engine of this run open all stores."""
    wanted: RocksDBEngine = request.param
    with using(wanted):
        yield wanted


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test's temporary files go; empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
