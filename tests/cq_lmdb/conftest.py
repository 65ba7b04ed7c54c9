"""The backend is installed for each of these tests, as its own project installs it."""

from pathlib import Path

import pytest

from tests.kit.installing import install_lmdb


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the LMDB backend."""
    install_lmdb(tmp_path / "installed", monkeypatch)
