"""Every test of the RocksDB backend runs with each engine that works here."""

from collections.abc import Iterator

import pytest

from store.config import RocksDBEngine
from tests.kit.engines import ENGINES, using


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_rocksdb"):
        metafunc.fixturenames.append("engine")
        metafunc.parametrize("engine", ENGINES, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[RocksDBEngine]:
    """The engine of this run."""
    wanted: RocksDBEngine = request.param
    with using(wanted):
        yield wanted
