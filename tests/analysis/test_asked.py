"""What a question in SQL can mean, what is asked of Spark for it, and how its answer is printed."""

import re
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
import typer
from pyspark.errors import AnalysisException
from typer.testing import CliRunner

from cqstore.analysis import sql_query as query
from cqstore.analysis.columns import log_columns, unit_columns
from cqstore.analysis.commands import sql_app
from cqstore.analysis.commands.sql import _question, _shown
from cqstore.analysis.examples import EXAMPLES, example
from cqstore.analysis.options import SourceOptions
from cqstore.store.errors import RefusedStoreError, StoreConfigError
from tests.migration.made_log import Made, make_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USUAL = unit_columns(SourceOptions(path=Path()))
EVERY = unit_columns(SourceOptions(path=Path(), store_timestamp=True))
ALL = [column.name for column in USUAL]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT count(*) FROM cq", ["phy_offset"]), ("select COUNT ( * ) from cq", ["phy_offset"]),
        ("SELECT 1 FROM cq", ["phy_offset"]), ("SELECT Size, topic FROM cq", ["topic", "size"]),
        ("SELECT max(store_time) FROM cq", ["store_time"]), ("SELECT * FROM cq", ALL),
        ("SELECT *, store_timestamp FROM cq", [*ALL, "store_timestamp"]),
        ("  with a as (SELECT size FROM cq) SELECT * FROM a", ALL),
        ("WITH a AS (SELECT size FROM cq) SELECT count(*) FROM a", ["size"]),
        ("FROM cq |> SELECT size", ALL), ("SELECT size FROM cq |> WHERE true", ALL),
        ("TABLE cq", ALL), ("DESCRIBE cq", ALL), ("desc cq", ALL), ("SELECT 1 FROM cq PIVOT", ALL),
        ("SELECT 1 FROM cq natural JOIN a", ALL), ("VALUES (1)", ALL), ("selected size", ALL),
        ("SELECT count(*), count(*) * 2 FROM cq", ALL), ("SELECT table FROM cq", ALL),
    ],
)  # fmt: skip
def test_a_query_can_mean_the_columns_that_it_names_or_may_bring_in(
    text: str, names: list[str]
) -> None:
    assert [column.name for column in query.meant(text, USUAL, EVERY)] == names


class _Reader:
    """Notes how a table is read."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def note(*words: Any, **more: Any) -> Any:
            self.said[name] = more or words[0]
            return self.said if name == "load" else self

        return note


class _Spark:
    @property
    def read(self) -> _Reader:
        return _Reader()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("SELECT size FROM cq", {"cq": (False, "size int", True)}),
        ("SELECT store_time FROM CQ", {"cq": (True, "store_time timestamp", True)}),
        ("SELECT store_timestamp FROM cq", {"cq": (True, "store_timestamp bigint", True)}),
        ("SELECT a.size FROM cq a JOIN cq b", {"cq": (False, "size int", False)}),
        ("WITH t AS (SELECT size FROM cq) SELECT 1 FROM t", {"cq": (False, "size int", False)}),
        ("SELECT body FROM commitlog", {"commitlog": (False, "body binary", True)}),
        ("SELECT flag FROM commitlog JOIN (SELECT size FROM cq)", {
            "commitlog": (False, "size int, flag int", True), "cq": (False, "size int", True)}),
        ("SELECT 1 FROM cqs", {}),
    ],
)  # fmt: skip
def test_tables_are_read_with_what_the_query_needs(
    text: str, read: dict[str, tuple[bool, str, bool]]
) -> None:
    options = SourceOptions(path=Path("root"), crc=True)
    found = cast("dict[str, Any]", query.tables(cast("SparkSession", _Spark()), options, text))
    assert set(found) == set(read)
    for name, (timed, columns, once) in read.items():
        said = found[name]
        assert said["format"] == {"cq": "rocketmq_cq", "commitlog": "rocketmq_commitlog"}[name]
        assert (said["schema"], said["load"]) == (columns, "root")
        given = SourceOptions.parse({"path": "root", **said["options"]})
        assert (given.store_timestamp, given.pushdown, given.crc) == (timed, once, True)
        assert given.body is (columns == "body binary")


class _Frame:
    """An answer of ``count`` rows."""

    def __init__(self, columns: list[str], count: int) -> None:
        self.columns = columns
        self.count = count

    def limit(self, most: int) -> "_Frame":
        return _Frame(self.columns, min(self.count, most))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.table({name: list(range(self.count)) for name in self.columns})


def requested(monkeypatch: pytest.MonkeyPatch, frame: object, limit: int) -> query.Answer:
    def sql(_: str) -> object:
        if isinstance(frame, Exception):
            raise frame
        return frame

    class Requested(_Spark):
        def __init__(self) -> None:
            self.sql = sql

    monkeypatch.setattr(query, "register", lambda _: None)
    spark = cast("SparkSession", Requested())
    return query.run_query(spark, SourceOptions(path=Path("root")), "SELECT 1", limit)


@pytest.mark.parametrize(
    ("count", "limit", "shown", "more"),
    [(5, 0, 5, False), (5, 4, 4, True), (5, 5, 5, False), (5, 6, 5, False), (0, 1, 0, False)],
)
def test_an_answer_is_cut_at_its_limit_and_says_so(
    monkeypatch: pytest.MonkeyPatch, count: int, limit: int, shown: int, *, more: bool
) -> None:
    answer = requested(monkeypatch, _Frame(["a", "b"], count), limit)
    assert (answer.table.num_rows, answer.more) == (shown, more)
    assert answer.table.column("a").to_pylist() == list(range(shown))


def test_two_columns_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreConfigError, match="two columns have the name 'a': rename one with AS"):
        requested(monkeypatch, _Frame(["b", "c", "b", "a", "a"], 1), 0)


def test_a_column_that_is_not_there_is_told_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [column.name for column in log_columns(SourceOptions(path=Path(), body=True))]
    for condition, objects, said in [
        ("UNRESOLVED_COLUMN.WITHOUT_SUGGESTION", {"objectName": "`x`"}, "no column `x`; commitlog"),
        ("UNRESOLVED_COLUMN", {}, "no column of that name; commitlog has"),
    ]:
        exc = AnalysisException("odd", condition, objects)
        with pytest.raises(StoreConfigError, match=said) as caught:
            requested(monkeypatch, exc, 0)
        assert f"commitlog has {', '.join(names)}; cq has" in str(caught.value)
    other = AnalysisException("first line\nsecond")
    with pytest.raises(StoreConfigError, match=r"^cannot run the query: first line$"):
        requested(monkeypatch, other, 0)


# ---- the command


def test_one_question_is_asked() -> None:
    assert _question("SELECT 1", None) == "SELECT 1"
    assert _question("", None) == ""
    for one in EXAMPLES:
        assert _question(None, one.name) == one.sql
        assert example(one.name) is one
    for words in ((None, None), ("SELECT 1", "retries")):
        with pytest.raises(typer.BadParameter, match="give either a QUERY or --example NAME"):
            _question(*words)
    names = ", ".join(one.name for one in EXAMPLES)
    with pytest.raises(StoreConfigError, match=re.escape(f"no example 'nope'; examples: {names}")):
        _question(None, "nope")


def test_values_are_shown_as_people_read_them() -> None:
    time = datetime(2024, 2, 3, 4, 5, 6, 7000, UTC)
    assert _shown(time) == "2024-02-03 04:05:06.007000"
    assert _shown(time + timedelta(milliseconds=-7)) == "2024-02-03 04:05:06"
    assert [_shown(one) for one in (b"text", b"\xff\x00", "x", 7, None, [1])] == [
        "text", "/wA=", "x", 7, None, [1]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "more", "printed"),
    [(pa.table({}), False, ""), (pa.table({"a": [1, 2], "b": [b"x", None]}), True,
      '{"a":1,"b":"x"}\n{"a":2,"b":null,"has_more":true}\n')],
)  # fmt: skip
def test_the_answer_is_printed_and_what_was_left_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: pa.Table, printed: str, *, more: bool
) -> None:
    make_log(tmp_path, [Made("t", 0, 1)], 1024)
    given: list[Any] = []

    def answered(*words: Any) -> query.Answer:
        given.extend(words)
        return query.Answer(table, more=more)

    def session(*words: str) -> AbstractContextManager[str]:
        given.extend(words)
        return nullcontext("spark")

    monkeypatch.setattr("cqstore.analysis.commands.sql.spark_session", session)
    monkeypatch.setattr(query, "run_query", answered)
    words = [str(tmp_path), "SELECT 1", "--limit", "2", "--output", "jsonl", "--crc"]
    done = CliRunner().invoke(sql_app, words, catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, printed)
    said = "cqstore: only the first 2 rows are shown: there are more (--limit)\n" if more else ""
    assert done.stderr == said
    options = SourceOptions(path=tmp_path, crc=True)
    assert given == ["cqstore sql", "local[*]", "spark", options, "SELECT 1", 2]
    with pytest.raises(RefusedStoreError, match="no store here"):
        CliRunner().invoke(sql_app, [str(tmp_path / "none"), "SELECT 1"], catch_exceptions=False)
    assert "missing DIR: give the root of the store" in CliRunner().invoke(sql_app, []).output
