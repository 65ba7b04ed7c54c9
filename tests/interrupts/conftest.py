"""What an interrupted call has left goes with the test that left it."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.descriptors import leave_descriptors_of


@pytest.fixture(autouse=True)
def _let_go(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Collect it where the test bears with files and generators that were left open.

    The number of a file may be lost between two calls of the system's.
    """
    yield
    if request.node.get_closest_marker("filterwarnings") is not None:
        gc.collect()
    leave_descriptors_of(tmp_path)
