"""Fixtures that several subjects share."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.kit.golden import unpack_all

settings.register_profile("ci", derandomize=True, max_examples=50, deadline=None)
settings.register_profile("deep", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell: the programs that tests stop with Ctrl-C would never hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every golden store, unpacked once; never written to."""
    folder = tmp_path_factory.mktemp("golden")
    unpack_all(folder)
    return folder


@pytest.fixture
def golden(golden_folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A fresh copy of the golden store of a name."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(golden_folder / name, tmp_path / name))

    return copy
