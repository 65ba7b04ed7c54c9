"""The session: how it is set up, whose it is, and what is said where Spark is missing."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cqstore.spark import spark_session as session
from cqstore.spark.spark_session import master_with_retries, spark_session
from cqstore.store.concurrency.processes import IMPORT_ROOT
from cqstore.store.errors import StoreConfigError, StoreError


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_failed_local_task_is_tried_again(given: str, used: str) -> None:
    assert master_with_retries(given) == used


def test_workers_run_this_interpreter_and_this_checkout(spark: SparkSession) -> None:
    (row,) = spark.range(1).mapInArrow(_who, "python string, package string").collect()
    assert Path(row.python).parent == Path(sys.executable).parent  # of several names of it there
    assert row.package == session.__file__


def test_a_session_that_was_there_is_given_and_goes_on(spark: SparkSession) -> None:
    with spark_session("another", "local[1]") as given:
        assert given is spark
    assert spark.range(3).count() == 3


def test_times_are_utc_and_filters_are_pushed_down(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_without_spark_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> ModuleSpec | None:
        return None if name == "pyspark" else find_spec(name)

    monkeypatch.setattr("cqstore.spark.spark_session.find_spec", without)
    with (
        pytest.raises(StoreConfigError, match=r": pip install 'cqstore\[spark\]'$"),
        spark_session("x"),
    ):
        pass


@pytest.mark.parametrize("master", ["", "local[]", "local[x]", "local-cluster[2]", "spark:"])
def test_what_is_no_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(StoreConfigError, match=r"invalid Spark master .*: expected local\[N\]"):
        spark_session("x", master).__enter__()


def test_importing_the_module_imports_no_spark() -> None:
    code = (
        "import sys, cqstore.spark.spark_session\n"
        "print([n for n in sys.modules if n.startswith('pysp')])"
    )
    path = os.pathsep.join([str(IMPORT_ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def _who(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict(
            {"python": [sys.executable], "package": [session.__file__]}
        )


class Failing:
    """A builder of sessions that fails in its own way."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: self

    def getOrCreate(self) -> NoReturn:  # noqa: N802 - pyspark's name
        raise ArithmeticError("not of Spark")


def test_what_is_not_sparks_fault_is_not_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    kind: Any = SimpleNamespace(builder=Failing())
    with pytest.raises(ArithmeticError, match="not of Spark"):
        session._start(kind, "app", "local[1]", {})


# ---- what Spark's processes are given


VARIABLES = [
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_LOCAL_IP",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "SPARK_HOME",
]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is set."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_spark_is_given_what_nobody_has_set(bare: pytest.MonkeyPatch) -> None:
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    root = {"PYTHONPATH": str(IMPORT_ROOT), "PYTHONSAFEPATH": "1"}
    here = {"SPARK_LOCAL_IP": "127.0.0.1"}
    for master in ("local", "local[2]", "local[*]"):
        assert session._wanted_environment(master) == python | root | here
    for master in ("spark://h:1", "yarn", "k8s://h", "locally"):
        assert session._wanted_environment(master) == python | root
    bare.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    bare.setenv("PYSPARK_PYTHON", "")
    bare.setenv("PYTHONPATH", os.pathsep.join(["", "/a", str(IMPORT_ROOT), "/a", "/b", ""]))
    paths = os.pathsep.join([str(IMPORT_ROOT), "/a", "/b"])
    assert session._wanted_environment("local") == {
        "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1",
    }  # fmt: skip
    bare.setattr(session, "IMPORT_ROOT", Path(sysconfig.get_path("purelib")).resolve())
    assert session._wanted_environment("yarn")["PYTHONPATH"] == f"/a:{root['PYTHONPATH']}:/b"
    bare.setenv("PYTHONPATH", "/a")
    assert "PYTHONPATH" not in session._wanted_environment("yarn"), "installed: it is found"


def test_settings_depend_on_where_the_processes_run(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("SPARK_LOCAL_IP", "127.0.0.9")
    (logs,) = session._placed_settings("yarn").items()
    assert logs[0] == "spark.driver.extraJavaOptions"
    assert logs[1].startswith("-Dlog4j2.configurationFile=file://")
    for master in ("local", "local[2]", "local-cluster[1,1,512]"):
        placed = session._placed_settings(master)
        warehouse = Path(placed.pop("spark.sql.warehouse.dir"))
        assert placed == dict([logs]) | {"spark.driver.host": "127.0.0.9"}
        assert not warehouse.exists(), "Spark makes it, if it has to"
        assert Path.cwd() not in warehouse.parents
    bare.setenv("PYTHONPATH", "/a")
    bare.setenv("PYTHONSAFEPATH", "1")
    placed = session._placed_settings("yarn")
    assert placed["spark.executorEnv.PYTHONPATH"] == "/a"
    assert placed["spark.executorEnv.PYTHONSAFEPATH"] == "1"


def test_a_home_for_workers_is_all_links_but_for_their_own_folder(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("jars", "work", "bin"):
        (tmp_path / "spark" / name).mkdir(parents=True)
    ends: list[tuple[Any, ...]] = []
    bare.setenv("SPARK_HOME", str(tmp_path / "spark"))
    bare.setattr(
        "cqstore.spark.spark_session.atexit.register", lambda *a, **k: ends.append((*a, k))
    )
    home = session._home_of_links()
    links = {path.name: path.resolve() for path in home.iterdir()}
    assert links == {name: (tmp_path / "spark" / name).resolve() for name in ("jars", "bin")}
    ((remove, folder, options),) = ends
    remove(folder, **options)
    remove(folder, **options)
    assert not home.exists()
    assert (tmp_path / "spark" / "jars").is_dir()
    bare.delenv("SPARK_HOME")
    wanted = session._wanted_environment("local-cluster[1,1,512]")
    assert wanted["SPARK_LOCAL_IP"] == "127.0.0.1"
    own = Path(wanted["SPARK_HOME"])
    assert (own / "jars").resolve() == Path(str(pyspark.__file__)).resolve().parent / "jars"
    remove(own)


def test_what_is_set_for_a_block_is_taken_back(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("SPARK_HOME", "before")
    seen: list[tuple[str, ...]] = []

    def use(exc: type[BaseException]) -> None:
        with session._environment({"SPARK_HOME": "x", "SPARK_LOCAL_IP": "y"}):
            seen.append((os.environ["SPARK_HOME"], os.environ["SPARK_LOCAL_IP"]))
            raise exc

    for exc in (KeyError, KeyboardInterrupt):
        with pytest.raises(exc):
            use(exc)
        assert os.environ["SPARK_HOME"] == "before"
        assert "SPARK_LOCAL_IP" not in os.environ
    assert seen == [("x", "y")] * 2


class Refusing(Failing):
    """A builder that notes its settings, and fails as it is told."""

    def __init__(self, exc: Exception) -> None:
        self.exc = exc
        self.said: dict[str, str] = {}

    def config(self, name: str, value: str) -> "Refusing":
        self.said[name] = value
        return self

    def getOrCreate(self) -> NoReturn:  # noqa: N802 - pyspark's name
        raise self.exc


JAVA = "An error occurred while calling None.x.\n\n: java.lang.Odd: no room\n\tat a.B\n"


def test_a_start_that_fails_is_one_sentence(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    theirs = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    cases: list[tuple[Exception, type[StoreError], str]] = [
        (theirs(JAVA), StoreError, "cannot start Spark on 'local': java.lang.Odd: no room"),
        (theirs(""), StoreError, "cannot start Spark on 'local': no reason given"),
        (PySparkException("no Java"), StoreConfigError, "(it needs Java 17 or later; see"),
    ]
    for exc, kind, said in cases:
        builder = Refusing(exc)
        with pytest.raises(kind) as caught:
            session._start(
                cast("Any", SimpleNamespace(builder=builder)), "app", "local",
                {"spark.ui.enabled": "true", "mine": "1"},
            )  # fmt: skip
        assert type(caught.value) is kind
        assert said in str(caught.value)
        assert caught.value.__cause__ is exc
        assert (builder.said["spark.ui.enabled"], builder.said["mine"]) == ("true", "1")
        assert builder.said["spark.sql.session.timeZone"] == "UTC"
        assert builder.said["spark.driver.host"] == "127.0.0.1"
