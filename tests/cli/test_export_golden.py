"""Messages of RocketMQ's golden stores, out and in again: as RocketMQ read them, and equal."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message import LMQ_PREFIX, is_queued
from tests.kit.commands import cqstore, run
from tests.kit.golden import CRASHED, NAMES, Dump, load_dump
from tests.kit.tree import unchanged

Row = dict[str, Any]
QUICK = {"special-combine", "crash-defaultRocksDB", "propcrc-default"}
EACH = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.long, id=name) for name in NAMES
]
NAMED_ALIKE = (
    "phy", "queueId", "queueOffset", "flag", "sysFlag", "bornTimestamp", "bornHost",
    "storeTimestamp", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "properties",
)  # fmt: skip
OF_THE_RECORD = {"__CRC32#", "INNER_MULTI_QUEUE_OFFSET"}
SIZES = "mappedFileSizeCommitLog=262144\nmappedFileSizeConsumeQueue=2000\n"
_INNER_BATCH = 0x80


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(SIZES)
    return path


def rows_of(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def in_queues(name: str, dump: Dump) -> list[Row]:
    """Return what RocketMQ has in queues; of a store that it left halted, in its log."""
    if name in CRASHED:
        return [each for each in dump["messages"] if is_queued(each["sysFlag"])]
    queues = [each for each in dump["queues"] if not each["topic"].startswith(LMQ_PREFIX)]
    by_phy = {each["phy"]: each for each in dump["messages"]}
    low = dump["commitLog"]["minPhy"]
    units = [unit for queue in queues for unit in queue["units"] if unit is not None]
    return [by_phy[unit[1]] for unit in units if unit[1] >= low]


def kept(row: Row) -> Row:
    """Return what an import keeps of a message."""
    properties = {k: v for k, v in row["properties"].items() if k not in OF_THE_RECORD}
    dropped = {"phy", "queueOffset", "storeTimestamp", "msgId"}
    return {k: v for k, v in row.items() if k not in dropped} | {"properties": properties}


def by_queue(rows: list[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["queueId"]), []).append(row)
    return found


@pytest.mark.parametrize("name", EACH)
def test_what_is_exported_is_what_rocketmq_read_and_comes_back_equal(
    name: str, golden_folder: Path, tmp_path: Path, conf: Path
) -> None:
    source, first, again = golden_folder / name, tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    with unchanged(source):
        torn = name == "torn-default"  # a queue has a unit of the record that lost its end
        cqstore("export", source, "--to", first, code=1 if torn else 0)
    rows = rows_of(first)
    expected = in_queues(name, load_dump(name))
    got = {row["phy"]: row for row in rows}
    assert len(got) == len(rows) == len(expected)
    for message in expected:
        row = got[message["phy"]]
        assert row["topic"] == message["topic"]
        for field in NAMED_ALIKE:
            assert row[field] == message[field], (field, message)
    for queue in by_queue(rows).values():
        offsets = [row["queueOffset"] for row in queue]
        assert offsets == sorted(offsets)
    batches = [row for row in rows if row["sysFlag"] & _INNER_BATCH]
    if batches:  # of a body that is none: no put takes it, so it does not come back
        rows = [row for row in rows if row not in batches]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        first.write_text(text, encoding="utf-8")
    cqstore("import", tmp_path / "new", first, "--new", "--config", conf)
    cqstore("export", tmp_path / "new", "--to", again)
    back = rows_of(again)
    assert by_queue([*map(kept, back)]) == by_queue([*map(kept, rows)])
    assert [row["topic"] for row in back] == sorted(row["topic"] for row in rows)
    for queue in by_queue(back).values():
        assert [row["queueOffset"] for row in queue] == [*range(len(queue))]


@pytest.mark.parametrize(
    "form",
    [
        "parquet",
        "store",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("csv", "arrow")),
    ],
)
def test_every_format_takes_the_same_back(
    form: str, golden_folder: Path, tmp_path: Path, conf: Path
) -> None:
    source = golden_folder / "special-combine"
    where = tmp_path / f"out.{form}"
    rows = [json.loads(line) for line in cqstore("export", source).stdout.splitlines()]
    cqstore("export", source, "--to", where, "--format", form)
    root = where
    if form != "store":
        root = tmp_path / "new"
        cqstore("import", root, where, "--new", "--config", conf)
    back = [json.loads(line) for line in cqstore("export", root).stdout.splitlines()]
    cqstore("check", root)
    assert [*map(kept, back)] == [*map(kept, rows)]
    assert {row["sysFlag"] & 0x701 for row in back} == {0, 0x1, 0x101, 0x201, 0x301}
    assert {":" in row["bornHost"] for row in back} == {False, True}


def test_lines_of_get_are_taken_by_put(golden_folder: Path, tmp_path: Path, conf: Path) -> None:
    words = ["--topic", "orders_1", "--begin", "0"]
    given = cqstore("get", golden_folder / "special-default", *words).stdout
    root = tmp_path / "new"
    done = run(["put", root, "--new", "--config", conf], feed=given)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in given.splitlines()]
    back = [json.loads(line) for line in cqstore("get", root, *words).stdout.splitlines()]
    assert len(rows) > 100
    assert by_queue([*map(kept, back)]) == by_queue([*map(kept, rows)])
