"""Fixtures that several subjects share."""

import inspect
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from cqstore.store.settings.installed_backends import backend_names
from tests.kit.golden import copy_store, unpack_all
from tests.kit.once import made_once
from tests.kit.waiting import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's sessions are over before a better compiler and collector would have paid for themselves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# Numpy's threads, which nothing here gives work to, would be started in every child of a test.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# As in `cqstore`: a cut file is an error. What is done without that, other processes are asked.
os.environ.setdefault("CQSTORE_BUS_HANDLER", "1")
pytest_plugins = [
    "tests.kit.frozen",
    "tests.kit.retry",
    "tests.kit.scratch",
    "tests.kit.share",
    "tests.kit.shim.preload",
    "tests.kit.standstill",
]

_LONGEST_IN_A_NAME = 100

# A machine that pauses makes input slow to generate, and a test must hold on it.
settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell: the programs that tests stop with Ctrl-C would never hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(params=backend_names())
def backend(request: pytest.FixtureRequest) -> str:
    """Each installed backend in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every golden store, unpacked once a run; never written to."""
    return made_once(tmp_path_factory, "golden", unpack_all)


@pytest.fixture
def golden(golden_folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A fresh copy of the golden store of a name."""

    def copy(name: str) -> Path:
        copy_store(golden_folder / name, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one session of the whole run, on two threads: it costs many seconds to start."""
    from cqstore.spark.spark_session import spark_session  # noqa: PLC0415

    with spark_session("tests", "local[2]", settings={"spark.sql.shuffle.partitions": "2"}) as one:
        # The session's own would end its Java, and tests raise this signal in their process.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield one


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a long value by its length: a test's name goes through command lines and pipes."""
    if isinstance(val, str | bytes) and len(val) > _LONGEST_IN_A_NAME:
        return f"{argname}-of-{len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give pytest's handlers of log lines new locks: an interrupt may have left one taken.

    A store's other threads log without such a handler then, and ``caplog`` lacks their lines; a
    thread of another library waits for ever.
    """
    plugin = item.config.pluginmanager.get_plugin("logging-plugin")
    if plugin is not None:
        for handler in (plugin.caplog_handler, plugin.report_handler, plugin.log_file_handler):
            handler.createLock()


def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than there are processors: tests wait for children and disks."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what needs the session on one worker of pytest-xdist (``--dist loadgroup``)."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
