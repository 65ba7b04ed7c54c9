"""The metadata of a broker in each form, as RocketMQ wrote it."""

from pathlib import Path

import pytest

from tests.kit.metadata_forms import unpack_forms


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """A folder of its own for each form, to change."""
    unpack_forms(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each form, to read."""
    folder = tmp_path_factory.mktemp("forms")
    unpack_forms(folder)
    return folder
