"""Each process of pytest begins with ``shim.c`` before the C library.

A plugin of pytest. The shim is built once for a run. Processes that pytest-xdist starts have it
from the environment; pytest alone starts over with it, as the dynamic linker asks only once.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")
_OWNER, _FOLDER = "CQSTORE_SHIM_OWNER", "CQSTORE_SHIM"


def is_loaded() -> bool:
    """Return whether this process has it."""
    return hasattr(ctypes.PyDLL(None), "shim_arm")


def build(folder: Path) -> Path:
    """Compile the shim; return where it is."""
    made = folder / "shim.so"
    words: list[str | Path] = [
        "gcc",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        made,
        SOURCE,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(words, check=True, env=environment)
    return made


@pytest.hookimpl(tryfirst=True)  # before anything is made that a new beginning would leave behind
def pytest_configure(config: pytest.Config) -> None:
    """Build it and start over, or have the workers begin with it."""
    if is_loaded():
        return
    folder = tempfile.mkdtemp(prefix="cqstore-shim-")
    others = [word for word in (os.environ.get("LD_PRELOAD"),) if word]
    try:
        preloaded = ":".join([*others, str(build(Path(folder)))])
    except (OSError, subprocess.CalledProcessError) as exc:
        shutil.rmtree(folder)
        raise pytest.UsageError(f"gcc cannot build {SOURCE}: {exc}") from exc
    owner = {_OWNER: str(os.getpid()), _FOLDER: folder, "LD_PRELOAD": preloaded}
    os.environ.update(owner)
    if getattr(config.option, "numprocesses", None):
        return
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Remove what was built."""
    if os.environ.get(_OWNER) == str(os.getpid()):
        shutil.rmtree(os.environ[_FOLDER], ignore_errors=True)
