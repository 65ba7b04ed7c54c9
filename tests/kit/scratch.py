"""Where tests write: in memory where there is room, on the disk where a test is about one.

A plugin of pytest. A sync in memory costs nothing, and most tests wait for little else. A test
that measures what a disk does, or makes files of hundreds of megabytes, is marked ``disk``; so
are all tests of a machine without a free file system in memory. ``--basetemp`` and
``PYTEST_DEBUG_TEMPROOT`` come first, as ever.
"""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
_ROOM = 3 << 30
"""Bytes free there, and free in the machine, without which all goes to the disk."""
_ROOM_OF_ONE = 1 << 30
"""The same, asked before each test: others use the memory too."""
LARGEST = 256 << 20
"""Bytes that one test may hold in memory when it ends; one marked ``disk`` holds none."""
LARGEST_OF_LONG = 1 << 30
"""The same for a test marked ``long``: few run at once, and each keeps many copies of a store."""
_TEMPORARY = Path(tempfile.gettempdir())
IN_MEMORY = pytest.StashKey[bool]()
_PASSED = pytest.StashKey[bool]()


def kinds_of_mounts() -> dict[str, str]:
    """Return the kind of file system by mount point, where the system says so."""
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {words[1]: words[2] for words in map(str.split, lines)}


def free_bytes(folder: Path, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Return what can be written to a file system in memory: its limit and the machine's."""
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        available = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return min(shutil.disk_usage(folder).free, int(available) << 10)
    except (OSError, StopIteration):
        return 0


def in_memory(folder: Path = MEMORY, kinds: dict[str, str] | None = None) -> bool:
    """Tell whether a folder is a file system in memory with room, which we may write to."""
    kinds = kinds_of_mounts() if kinds is None else kinds
    return (
        kinds.get(str(folder)) == "tmpfs"
        and os.access(folder, os.W_OK | os.X_OK)
        and free_bytes(folder) >= _ROOM
    )


def disk() -> Path:
    """Return the temporary folder that pytest was given; another where that is in memory."""
    kinds = kinds_of_mounts()
    folders = [_TEMPORARY, Path("/var/tmp")]
    return next((one for one in folders if not _kind(one, kinds).startswith("tmp")), folders[0])


def _kind(folder: Path, kinds: dict[str, str]) -> str:
    place = folder.resolve()
    return next((kinds[str(p)] for p in (place, *place.parents) if str(p) in kinds), "")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have ``tmp_path`` lead into memory."""
    config.stash[IN_MEMORY] = str(config.option.basetemp or "").startswith(f"{MEMORY}/")
    if config.option.basetemp or "PYTEST_DEBUG_TEMPROOT" in os.environ or not in_memory():
        return  # a worker of pytest-xdist has its basetemp below the first process's
    config.stash[IN_MEMORY] = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
        config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def _temporary_files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Have ``tempfile`` lead into memory: a read-only RocksDB, a process, an example make some."""
    if not request.config.stash[IN_MEMORY]:
        yield
        return
    util.get_temp_dir()  # that of multiprocessing, which goes when the process ends: not in ours
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test has passed so far."""
    report = yield
    item.stash[_PASSED] = item.stash.get(_PASSED, True) and report.passed
    return report


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder of the test's own, in memory or on the disk; kept if the test fails."""
    node = request.node
    moved = request.config.stash[IN_MEMORY]
    if not moved or not (node.get_closest_marker("disk") or free_bytes(MEMORY) < _ROOM_OF_ONE):
        yield tmp_path
        if moved:
            held = bytes_held(tmp_path)
            largest = LARGEST_OF_LONG if node.get_closest_marker("long") else LARGEST
            assert held <= largest, f"holds {held:,} bytes in memory: smaller files, or mark `disk`"
        return
    folder = Path(tempfile.mkdtemp(prefix="cqstore-", dir=disk()))
    yield folder
    if node.stash.get(_PASSED, True):
        shutil.rmtree(folder, ignore_errors=True)


def bytes_held(folder: Path) -> int:
    """Return what the files below a folder hold, as far as they stand still; 0 if little.

    What all hold is one call and comes first.
    """
    if shutil.disk_usage(folder).used <= LARGEST:
        return 0
    held, folders = 0, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    held += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    return held
