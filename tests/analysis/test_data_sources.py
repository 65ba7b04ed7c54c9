"""The data sources as Spark calls them, and Spark's errors as ours: without a session."""

import pickle
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    InputPartition,
    StringContains,
)
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from cqstore.analysis.columns import ARROW
from cqstore.analysis.failures import spark_failures, store_error
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.spark_sources import CommitLogSource, QueueSource, register
from cqstore.store.errors import (
    CorruptionError,
    DiskFullError,
    RefusedStoreError,
    StoreConfigError,
    StoreError,
    StoreIOError,
)
from tests.migration.made_log import Made, make_log, make_store

HOUR = 3_600_000
SCHEMA = StructType([
    StructField("size", IntegerType()), StructField("topic", StringType()),
    StructField("phy_offset", LongType()),
])  # fmt: skip
KINDS = {"log": CommitLogSource, "cq": QueueSource}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stores") / "store"
    make_store(root, [Made("ab"[at % 2], at % 3, (1 + at) * HOUR) for at in range(24)])
    return root


def rows(reader: Any) -> list[dict[str, Any]]:
    """Plan, hand the tasks over as Spark does, and read."""
    return [
        row
        for part in reader.partitions()
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(part)))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_has_its_columns_and_reads_those_that_were_chosen(root: Path, kind: str) -> None:
    source = KINDS[kind](options={"path": str(root)})
    names = [one.split()[0] for one in source.schema().split(", ")]
    assert names[:5] == ["topic", "queue_id", "queue_offset", "phy_offset", "size"]
    assert {one.split()[1] for one in source.schema().split(", ")} <= ARROW.keys()
    found = rows(source.reader(SCHEMA))
    assert [list(row) for row in found] == [["size", "topic", "phy_offset"]] * 24
    ordered = sorted(found, key=lambda row: int(row["phy_offset"]))
    assert [row["topic"] for row in ordered] == ["ab"[at % 2] for at in range(24)]


FIRST = "topic string, queue_id int, queue_offset bigint, phy_offset bigint, size int"
TIMES = "store_timestamp bigint, store_time timestamp"
LOG = (
    f"{FIRST}, {TIMES}, born_timestamp bigint, born_time timestamp, tags string, keys string,"
    " uniq_key string, flag int, sys_flag int, born_host string, store_host string,"
    " reconsume_times int, prepared_transaction_offset bigint, body_crc int, body_length int,"
    " properties map<string,string>"
)
UNITS = f"{FIRST}, tags_code bigint, batch_num int"
"""What queries rely on: names and types, in this order."""


@pytest.mark.parametrize(
    ("kind", "option", "schema"),
    [("log", "crc", LOG), ("log", "body", f"{LOG}, body binary"), ("cq", "crc", UNITS),
     ("cq", "store_timestamp", f"{UNITS}, {TIMES}")],
)  # fmt: skip
def test_the_schemas_stay_as_they_are(root: Path, kind: str, option: str, schema: str) -> None:
    assert KINDS[kind](options={"path": str(root), option: "true"}).schema() == schema


@pytest.mark.parametrize("kind", KINDS)
def test_filters_are_taken_where_that_is_asked_for_and_understood(root: Path, kind: str) -> None:
    source = KINDS[kind](options={"path": str(root), "pushdown": "true"})
    reader = source.reader(SCHEMA)
    left: list[Filter] = [
        StringContains(("topic",), "a"), EqualTo(("topic", "deeper"), "b"), EqualTo((), "b"),
    ]  # fmt: skip
    requested: list[Filter] = [left[0], EqualTo(("topic",), "b"), *left[1:],
                           GreaterThan(("queue_id",), 0)]  # fmt: skip
    assert list(reader.pushFilters(requested)) == left
    found = rows(reader)
    assert sorted(row["phy_offset"] for row in found) == sorted(
        row["phy_offset"]
        for at, row in enumerate(sorted(rows(plain(source)), key=lambda one: one["phy_offset"]))
        if at % 2 and at % 3
    )
    without = KINDS[kind](options={"path": str(root)}).reader(SCHEMA)
    assert list(without.pushFilters(requested)) == requested


def refuse(*_: object, **__: object) -> None:
    raise OSError(5, "no more")


def plain(source: Any) -> Any:
    return source.reader(SCHEMA)


@pytest.mark.parametrize("kind", KINDS)
def test_no_tasks_are_no_rows(root: Path, kind: str) -> None:
    reader = KINDS[kind](options={"path": str(root)}).reader(SCHEMA)
    assert list(reader.read(InputPartition(None))) == []


def test_what_makes_no_sense_is_said_at_once(root: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedStoreError, match="no store here"):
        CommitLogSource(options={"path": str(tmp_path)}).schema()
    with pytest.raises(
        StoreConfigError, match="wrong type of column 'size': expected int, found string"
    ):
        QueueSource(options={"path": str(root)}).reader(
            StructType([StructField("size", StringType())])
        )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.analysis.options.CommitLog", refuse)
        with pytest.raises(StoreIOError, match="open the commit log") as caught:
            SourceOptions(path=root).open_log()
    assert caught.value.path == root
    with pytest.raises(StoreConfigError, match="no column 'weight'; columns: topic, queue_id"):
        QueueSource(options={"path": str(root)}).reader(
            StructType([StructField("weight", IntegerType())])
        )


# ---- options


def test_options_survive_the_way_through_spark(root: Path) -> None:
    options = SourceOptions.parse({
        "path": str(root), "backend": "file", "crc": "true", "partition_units": "7",
        "partition_bytes": "1",
    })  # fmt: skip
    text = options.as_text(pushdown=True)
    assert "path" not in text
    assert all(isinstance(value, str) for value in text.values())
    again = SourceOptions.parse({"path": str(root), **text})
    assert again == options.model_copy(update={"pushdown": True})
    usual = SourceOptions(path=root)
    assert not any((usual.crc, usual.body, usual.store_timestamp, usual.pushdown))
    assert "config" not in usual.as_text()
    with pytest.raises(ValueError, match="frozen"):
        usual.crc = True  # type: ignore[misc]
    assert hash(usual) == hash(SourceOptions(path=root))


def test_a_store_may_be_read_whatever_its_settings_promise_of_writes(
    root: Path, tmp_path: Path
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerRole=SYNC_MASTER\n")
    options = SourceOptions(path=root, config=config)
    options.check_root()
    options.open_store().close()
    log = options.open_log()
    assert log.files.files()[0].file_from_offset == 0
    with pytest.raises(TypeError, match="read-only"):
        log.files.select(0, 1)[0] = 1
    log.close()


def test_a_log_without_a_store_around_it_is_read(tmp_path: Path) -> None:
    offsets = make_log(tmp_path, [Made("t", 0, HOUR) for _ in range(9)])
    log = SourceOptions(path=tmp_path).open_log()
    assert log.max_phy_offset() == 1024 * (1 + offsets[-1] // 1024), "it ends with its last file"
    assert [record.phy_offset for record in islice(log.scan(0), len(offsets))] == offsets
    log.close()


# ---- errors


def raised(module: str, name: str, text: str) -> Exception:
    exc: Exception = type(name, (Exception,), {"__module__": module})(text)
    return exc


CAPTURED = "pyspark.errors.exceptions.captured"


@pytest.mark.parametrize(
    ("exc", "kind", "text"),
    [
        (raised(CAPTURED, "PythonException", "x\nstore.errors.StoreError: first\n  at\n"
                "cqstore.store.errors.CorruptionError: at phy_offset 7\n  at java"),
         CorruptionError, "at phy_offset 7"),
        (raised(CAPTURED, "PythonException", "errors.UnheardOfError: new"), StoreError, "new"),
        (raised(CAPTURED, "PythonException", "errors.OSError: disk"), StoreError, "disk"),
        (raised(CAPTURED, "ParseException", "\n  no such word \nmore"),
         StoreConfigError, "cannot run the query: no such word"),
        (raised(CAPTURED, "PythonException", "\n lost \n"), StoreError, "Spark failed: lost"),
        (raised(CAPTURED, "PythonException", "x\n at /mnt/a b/blockmgr-6d8a052e-4b34-4178-9fe7-"
                "01ae5ab29440/24/temp_shuffle_6, No space left on device\n"),
         DiskFullError, "no space left in Spark's temporary folder: free some space, or set"
         " SPARK_LOCAL_DIRS to another folder (/mnt/a b)"),
        (raised("py4j.protocol", "Py4JJavaError", "java.io.IOException: Disk quota exceeded"),
         DiskFullError, "no space left in Spark's temporary folder: free some space, or set"
         " SPARK_LOCAL_DIRS to another folder (/tmp)"),
        (raised("py4j.protocol", "Py4JNetworkError", ""),
         StoreError, "Spark failed: Py4JNetworkError"),
    ],
)  # fmt: skip
def test_what_spark_raises_becomes_a_sentence(
    exc: Exception, kind: type[StoreError], text: str
) -> None:
    with pytest.raises(StoreError) as caught, spark_failures():
        raise exc
    assert type(caught.value) is kind
    assert str(caught.value) == text
    assert caught.value.__cause__ is exc


@pytest.mark.parametrize(
    "exc", [KeyError("x"), raised("pysparkling", "ParseException", "x"), CorruptionError("ours")]
)
def test_what_is_none_of_sparks_is_left_alone(exc: Exception) -> None:
    assert store_error(exc) is None
    with pytest.raises(type(exc)) as caught, spark_failures():
        raise exc
    assert caught.value is exc


def test_a_session_is_told_of_both_and_lets_filters_through() -> None:
    said: list[Any] = []
    session: Any = SimpleNamespace(
        conf=SimpleNamespace(set=lambda name, value: said.append((name, value))),
        dataSource=SimpleNamespace(register=said.append),
    )
    register(session)
    setting = ("spark.sql.python.filterPushdown.enabled", "true")  # Spark refuses to read without
    assert said == [setting, CommitLogSource, QueueSource]
