"""What an interrupted call has left in frames goes with the test that left it."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _let_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect it where the test bears with files and generators that were left open."""
    yield
    if request.node.get_closest_marker("filterwarnings") is not None:
        gc.collect()
