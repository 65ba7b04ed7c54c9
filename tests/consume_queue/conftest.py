"""Every test of the RocksDB backend runs with each engine."""

from collections.abc import Iterator

import pytest

from store.config import RocksDBEngine
from tests.kit.engines import ENGINES, using


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[RocksDBEngine]:
    """Have the engine of this run open all stores."""
    wanted: RocksDBEngine = request.param
    with using(wanted):
        yield wanted
