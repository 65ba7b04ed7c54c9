"""The Spark session of the migration and the data sources: start, settings, stop.

Spark is imported only when a session is requested: everything else works without it.
"""

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from cqstore.spark.starting import ended_by_interrupt, ended_if_cut_short
from cqstore.store.concurrency.processes import IMPORT_ROOT, TASK_ATTEMPTS
from cqstore.store.errors import StoreConfigError, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = ("pyspark", "pandas", "pyarrow")
_LOCAL = re.compile(r"local(\[(?P<threads>\*|\d+)\])?")
_MASTERS = re.compile(
    r"(local(\[(\*|\d+)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://.+|yarn|k8s://.+)$"
)
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Measured: 10,000 (Spark's own) takes twice as long, 1,000,000 a third longer.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "cqstore.spark.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(
    app_name: str, master: str = "local[*]", *, settings: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Start a session on ``master`` for the block, and stop it afterwards.

    An existing session is used unchanged, whatever ``master`` and ``settings`` are, and keeps
    running. ``local[N]`` becomes ``local[N,4]``: failed tasks are retried. Python workers run this
    interpreter and import this checkout; the environment variables for that are restored
    afterwards. ``settings`` override the defaults. The Java process ends with this process.

    Raises:
        StoreConfigError: Spark or Java is not installed, or ``master`` is invalid.
        StoreError: Spark cannot start on ``master``.
    """
    refuse_without_spark()
    refuse_no_master(master)
    from pyspark.sql import SparkSession  # noqa: PLC0415  # the extra may be missing

    if (running := _running_session(SparkSession)) is not None:
        yield running
        return
    with ExitStack() as undo:
        logging.root.addFilter(_is_not_py4js)
        undo.callback(logging.root.removeFilter, _is_not_py4js)
        undo.enter_context(_environment(_wanted_environment(master)))
        undo.enter_context(_handler_kept())
        session = _start(SparkSession, app_name, master, settings or {})
        with ended_by_interrupt() as java:
            try:
                yield session
            finally:
                if not java.has_come:
                    session.stop()


@contextmanager
def _handler_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the block: pyspark leaves its own handler."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # ``None``: it is none of Python's.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def master_with_retries(master: str) -> str:
    """Return ``master``; a local one without a number of task attempts gets one."""
    match = _LOCAL.fullmatch(master)
    return f"local[{match['threads'] or 1},{TASK_ATTEMPTS}]" if match else master


def refuse_without_spark(instead: str = "") -> None:
    """Refuse if Spark or a Python library that it needs is missing, with the command to install it.

    ``instead``: an alternative without Spark, appended to the message.

    Raises:
        StoreConfigError: a library is missing.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise StoreConfigError(
            f"this needs {', '.join(missing)}: pip install 'cqstore[spark]'{instead}"
        )


def refuse_no_master(master: str) -> None:
    """Refuse an invalid URL of a Spark master.

    Raises:
        StoreConfigError: the URL is invalid.
    """
    if not _MASTERS.match(master):
        raise StoreConfigError(
            f"invalid Spark master {master!r}: expected local[N], local[*],"
            " local-cluster[N,cores,MB], spark://HOST:PORT, yarn or k8s://URL"
        )


def _running_session(kind: "type[SparkSession]") -> "SparkSession | None":
    """Return the running session of this process; ``None`` if there is none."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415

    try:
        session = kind.active()  # of this thread, or the one that all threads share
    except PySparkRuntimeError:
        return None
    # A session that was stopped stays the "active" one of its thread.
    return None if session.sparkContext._jsc is None else session  # noqa: SLF001


def _start(
    kind: "type[SparkSession]", app_name: str, master: str, settings: Mapping[str, str]
) -> "SparkSession":
    """Start Spark's session.

    Raises:
        StoreConfigError: Spark does not start; the message has what it needs.
        StoreError: Spark does not start on ``master``.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415

    builder = kind.builder.appName(app_name).master(master_with_retries(master))
    for name, value in {**_SETTINGS, **_placed_settings(master), **settings}.items():
        builder = builder.config(name, value)
    try:
        with ended_if_cut_short():
            return builder.getOrCreate()
    except PySparkException as exc:
        raise StoreConfigError(
            f"cannot start Spark (it needs Java 17 or later; see JAVA_HOME): {_first_line(exc)}"
        ) from exc
    except Exception as exc:
        if type(exc).__module__.startswith("py4j"):
            raise StoreError(f"cannot start Spark on {master!r}: {_first_line(exc)}") from exc
        raise


def _placed_settings(master: str) -> dict[str, str]:
    """Return the settings that depend on where the driver and the workers run."""
    placed = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    }
    if _is_on_this_machine(master):
        placed["spark.driver.host"] = os.environ["SPARK_LOCAL_IP"]
        placed["spark.sql.warehouse.dir"] = str(_warehouse())
    for name in ("PYTHONPATH", "PYTHONSAFEPATH"):
        if value := os.environ.get(name):
            placed[f"spark.executorEnv.{name}"] = value
    return placed


def _warehouse() -> Path:
    """Return a new folder path for Spark to create, instead of one in the current folder.

    It stays empty, and is removed when this process ends.
    """
    folder = Path(tempfile.gettempdir(), f"cqstore-warehouse-{uuid4().hex}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_on_this_machine(master: str) -> bool:
    return master.startswith(("local[", "local-cluster[")) or master == "local"


def _wanted_environment(master: str) -> dict[str, str]:
    """Return the environment variables that Spark's processes need and that are not set."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if _is_on_this_machine(master):
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    wanted = {name: value for name, value in wanted.items() if name not in os.environ}
    # A worker imports nothing from the folder that it is started in, which is the user's.
    wanted["PYTHONSAFEPATH"] = "1"
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [*filter(None, given)]  # an empty one is the current folder
    if IMPORT_ROOT not in installed:
        paths.insert(0, str(IMPORT_ROOT))
    if paths != given and paths:
        wanted["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    if master.startswith("local-cluster["):
        wanted["SPARK_HOME"] = str(_home_of_links())
    return wanted


def _home_of_links() -> Path:
    """Return a copy of Spark's home made of links: workers of local-cluster write to it.

    It exists until this process ends, because the Java process runs from it.
    """
    spec = find_spec("pyspark")
    own = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    home = Path(tempfile.mkdtemp(prefix="cqstore-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for entry in Path(os.environ.get("SPARK_HOME", own)).iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set ``variables`` for the block: Spark reads them only from the environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Return False for records of py4j, which logs tracebacks of Ctrl-C to the root logger."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _first_line(exc: BaseException) -> str:
    """Return the reason of a Java error, which follows the place of the call."""
    lines = (line.strip().lstrip(": ") for line in str(exc).splitlines())
    return next((line for line in lines if line and "while calling" not in line), "no reason given")
