"""``cqstore sql``: its answers against plain Python, what it prints, and its one sentence."""

import csv
import io
import json
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner, Result

from cqstore.analysis.commands import sql_app
from cqstore.analysis.examples import EXAMPLES
from cqstore.analysis.options import SourceOptions
from cqstore.analysis.sql_query import tables
from cqstore.store.errors import StoreConfigError
from tests.analysis.oracle import log_rows, time_of
from tests.kit.golden import load_dump
from tests.migration.made_log import Made, make_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]
HOUR, DAY = 3_600_000, 86_400_000
START = 1_700_000_000_000 // DAY * DAY
MADE = [
    *(Made("busy", number % 3 and 1, START + number * 7 * 60_000) for number in range(40)),
    *(Made("old", 0, START + 5 * HOUR, b"o" * (1 << size), size % 3) for size in range(3, 9)),
    *(Made("busy", 2, START + 8 * DAY + number, b"late") for number in range(5)),
    Made("quiet", 0, START + 8 * DAY + HOUR, b"", 1),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("asked")
    make_store(root, sorted(MADE, key=lambda made: made.stored_at), 4096)
    return root


def run(*words: object) -> Result:
    return CliRunner().invoke(sql_app, [*map(str, words)])


def ask(*words: object) -> list[dict[str, Any]]:
    done = run(*words, "--output", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    return list(json.loads(done.stdout))


def shown(ms: int) -> str:
    return str(time_of(ms).replace(tzinfo=None))


def test_messages_per_hour(store: Path) -> None:
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for made in MADE:
        expected[made.topic, made.stored_at // HOUR * HOUR] += 1
    found = ask(store, "--example", "messages-per-hour")
    assert [(row["topic"], row["hour"], row["records"]) for row in found] == [
        (topic, shown(hour), count) for (topic, hour), count in sorted(expected.items())
    ]


def test_dead_topics(store: Path) -> None:
    assert ask(store, "--example", "dead-topics") == [
        {"topic": "old", "last_message": shown(START + 5 * HOUR), "records": 6}
    ]


def test_queue_skew(store: Path) -> None:
    queues: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for made in MADE:
        queues[made.topic][made.queue_id] += 1
    expected: list[dict[str, Any]] = [
        {"topic": topic, "queues": len(counts), "messages": sum(counts.values()),
         "largest": max(counts.values()),
         "skew": round(max(counts.values()) * len(counts) / sum(counts.values()), 2)}
        for topic, counts in queues.items()
    ]  # fmt: skip
    expected.sort(key=lambda row: (-row["skew"], -row["messages"], row["topic"]))
    assert ask(store, "--example", "queue-skew") == expected


def test_queue_skew_counts_the_messages_of_batches(golden_folder: Path) -> None:
    queues = load_dump("special-default")["queues"]
    batch = [queue for queue in queues if queue["type"] == "BatchCQ" and queue["units"]]
    held: dict[str, int] = defaultdict(int)
    for queue in batch:
        held[queue["topic"]] += queue["max"] - queue["min"]
    assert sum(held.values()) > sum(len(queue["units"]) for queue in batch)
    found = ask(golden_folder / "special-default", "--example", "queue-skew")
    assert {row["topic"]: row["messages"] for row in found if row["topic"] in held} == held


def test_sizes_fall_between_powers_of_two(golden_folder: Path) -> None:
    expected: dict[int, list[int]] = defaultdict(list)
    for queue in load_dump("basic-default")["queues"]:
        for unit in queue["units"]:
            expected[1 << (unit[2].bit_length() - 1)].append(unit[2])
    assert ask(golden_folder / "basic-default", "--example", "size-histogram") == [
        {"from_bytes": least, "records": len(sizes), "bytes": sum(sizes)}
        for least, sizes in sorted(expected.items())
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM (SELECT size FROM cq WHERE queue_id = 1 UNION ALL "
        "SELECT size FROM cq WHERE queue_id = 0)",
        "WITH t AS (SELECT queue_id AS q FROM cq) SELECT count(*) AS n FROM (SELECT * FROM t "
        "WHERE q = 1 UNION ALL SELECT * FROM t WHERE q = 0)",
    ],
)
def test_a_table_that_is_read_twice_keeps_its_rows(store: Path, query: str) -> None:
    assert ask(store, query) == [{"n": sum(made.queue_id in {0, 1} for made in MADE)}]


def test_a_table_that_is_read_once_takes_the_filters(spark: SparkSession, store: Path) -> None:
    options = SourceOptions(path=store)
    query = "SELECT size FROM cq WHERE queue_id = 1"
    frame = tables(spark, options, query)["cq"].where("queue_id = 1")
    assert "Filter" not in plan_of(frame)
    twice = tables(spark, options, f"{query} UNION ALL {query}")["cq"].where("queue_id = 1")
    assert "Filter" in plan_of(twice)


def plan_of(frame: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue().replace("RuntimeFilters", "")


def test_the_largest_messages_and_the_retries(store: Path) -> None:
    largest = ask(store, "--example", "largest-messages")
    assert (largest[0]["topic"], len(largest)) == ("old", 20)
    assert [row["size"] for row in largest] == sorted((r["size"] for r in largest), reverse=True)
    assert ask(store, "--example", "retries") == [
        {"topic": "old", "records": 4, "most": 2}, {"topic": "quiet", "records": 1, "most": 1},
    ]  # fmt: skip


def test_every_kind_of_value_is_printed(golden_folder: Path) -> None:
    row = next(one for one in log_rows(load_dump("basic-default")) if one["properties"])
    columns = "phy_offset, store_time, properties, tags, body"
    query = f"SELECT {columns} FROM commitlog WHERE phy_offset = {row['phy_offset']}"
    done = run(golden_folder / "basic-default", query, "--output", "csv")
    (found,) = csv.DictReader(io.StringIO(done.stdout))
    assert json.loads(found["properties"]) == row["properties"]
    assert found["store_time"] == shown(row["store_timestamp"])
    assert found["tags"] == (row["tags"] or "")
    assert len(found["body"].encode()) == row["body_length"]


def test_a_limit_is_said_where_it_cuts(store: Path) -> None:
    query = "SELECT topic FROM commitlog ORDER BY phy_offset"
    cut = run(store, query, "--limit", 2, "--output", "jsonl")
    assert cut.stdout.splitlines() == ['{"topic":"busy"}', '{"topic":"busy","has_more":true}']
    assert "only the first 2 rows" in cut.stderr
    whole = run(store, query, "--limit", len(MADE), "--output", "jsonl")
    assert len(whole.stdout.splitlines()) == len(MADE)
    assert whole.stderr == ""
    assert len(ask(store, query, "--limit", 0)) == len(MADE)


def test_an_answer_without_rows_is_said(store: Path) -> None:
    done = run(store, "SELECT topic FROM cq WHERE topic = 'nosuch'")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "cqstore: the query returned no rows\n"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("selec 1", "Syntax error at or near 'selec'"),
        ("SELECT weight FROM cq", "no column `weight`; commitlog has topic, .*; cq has topic, "),
        ("SELECT topic FROM queues", "`queues` cannot be found"),
        ("SELECT topic, topic FROM cq", "two columns have the name 'topic'"),
        ("SELECT 1/0 FROM cq", "Division by zero"),
    ],
)
def test_a_query_that_makes_no_sense_is_one_sentence(
    store: Path, query: str, sentence: str
) -> None:
    done = run(store, query)
    assert isinstance(done.exception, StoreConfigError)
    with pytest.raises(StoreConfigError, match=sentence):
        raise done.exception
    assert "\n" not in str(done.exception)


def test_examples_are_listed() -> None:
    assert [one["name"] for one in ask("--list-examples")] == [one.name for one in EXAMPLES]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT count(*) FROM cq", {"phy_offset"}),
        ("SELECT sum(SIZE) FROM cq WHERE topic = 'x'", {"size", "topic"}),
        ("SELECT max(store_time) FROM cq", {"store_time"}),
        ("SELECT * FROM cq", {"topic", "queue_id", "queue_offset", "phy_offset", "size",
                              "tags_code", "batch_num"}),
        ("TABLE cq", 7), ("FROM cq", 7), ("FROM cq |> LIMIT 3", 7), ("DESCRIBE cq", 7),
        ("SELECT 1 FROM cq NATURAL JOIN (SELECT 1 AS size)", 7),
        ("SELECT c.*, store_timestamp FROM cq c", 8),
    ],
)  # fmt: skip
def test_a_table_has_the_columns_that_the_query_can_mean(
    spark: SparkSession, store: Path, query: str, names: set[str] | int
) -> None:
    frame = tables(spark, SourceOptions(path=store), query)["cq"]
    assert (len(frame.columns) if isinstance(names, int) else set(frame.columns)) == names
