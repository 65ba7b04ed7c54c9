"""Scans of the golden stores: what RocketMQ read, what an export has, column by column."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cqstore
from cqstore import StoreConfigError, StoredMessage, TopicMessage
from cqstore.analysis import message_scan, unit_rows
from cqstore.analysis.message_columns import MessageColumns
from cqstore.cli.message_files.message_arrow import schema
from cqstore.cli.message_files.message_fields import COLUMNS
from tests.analysis.oracle import unit_rows as dumped_units
from tests.kit.commands import run
from tests.kit.golden import CLEAN, NAMES, load_dump
from tests.kit.plain_record import PlainRecord
from tests.kit.scanned import DUMPED, by_place, dumped, rows_of
from tests.kit.tree import unchanged

QUICK = {"special-default", "crash-defaultRocksDB", "torn-default"}
EACH = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.long, id=name) for name in NAMES
]
EXPORTED = [
    pytest.param(name, marks=() if name == "special-combine" else pytest.mark.long, id=name)
    for name in ("special-combine", "special-default", "crash-default", "basic-defaultRocksDB")
]
COMBINED = "special-combine"
PLACES = ["topic", "queueId", "queueOffset", "phy"]


@pytest.mark.parametrize("name", EACH)
def test_messages_are_what_rocketmq_read(name: str, golden_folder: Path) -> None:
    with unchanged(golden_folder / name):
        damaged: list[str] = []
        found = cqstore.scan(
            golden_folder / name, columns=DUMPED, on_damage=lambda topic, _: damaged.append(topic)
        )
        assert by_place(rows_of(found)) == dumped(name, load_dump(name))
        assert len(damaged) == (1 if name == "torn-default" else 0)


@pytest.mark.parametrize("name", EXPORTED)
def test_messages_are_those_of_an_export(name: str, golden_folder: Path, tmp_path: Path) -> None:
    done = run(["export", golden_folder / name, "--to", tmp_path / "a.parquet"])
    assert done.returncode == 0, done.stderr
    exported = pq.read_table(tmp_path / "a.parquet")
    found = pa.table(cqstore.scan(golden_folder / name))
    assert found.schema == exported.schema
    assert by_place(rows_of(found)) == by_place(rows_of(exported))


@pytest.mark.parametrize("name", sorted({*CLEAN} & {"special-default", COMBINED, "ext-default"}))
def test_units_are_what_rocketmq_read(name: str, golden_folder: Path) -> None:
    expected = dumped_units(load_dump(name))
    found = cqstore.scan(golden_folder / name, table="units")
    assert pa.table(found).to_pylist() == expected
    few = cqstore.scan(golden_folder / name, table="units", columns=["size", "topic"])
    assert pa.table(few).to_pylist() == [
        {"size": row["size"], "topic": row["topic"]} for row in expected
    ]


@pytest.mark.parametrize("table", ["messages", "units"])
def test_either_half_of_a_combined_store_is_read(table: Any, golden_folder: Path) -> None:
    of_files, of_rocksdb = (
        pa.table(cqstore.scan(golden_folder / COMBINED, table=table, backend=backend))
        for backend in ("file", "rocksdb")
    )
    assert of_files.num_rows > 800
    assert of_files.equals(of_rocksdb)


@pytest.mark.parametrize("backend", [pytest.param("file", marks=pytest.mark.long), "rocksdb"])
def test_each_column_alone_is_that_of_all(backend: str, golden_folder: Path) -> None:
    root = golden_folder / COMBINED
    every = pa.table(cqstore.scan(root, backend=backend))
    for name in COLUMNS:
        alone = pa.table(cqstore.scan(root, backend=backend, columns=[name]))
        assert alone.equals(every.select([name])), name
    turned = [*reversed(PLACES), "storeTimestamp"]
    assert pa.table(cqstore.scan(root, backend=backend, columns=turned)).equals(
        every.select(turned)
    )


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_places_are_read_without_the_records(
    backend: str, golden_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object, **__: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(message_scan, "read_topic", unread)
    found = cqstore.scan(golden_folder / COMBINED, columns=PLACES, backend=backend)
    assert pa.table(found).num_rows > 800
    monkeypatch.setattr(unit_rows, "_stamps", unread)
    assert pa.table(found).num_rows > 800
    timed = cqstore.scan(golden_folder / COMBINED, columns=["storeTimestamp"], backend=backend)
    with pytest.raises(AssertionError, match="a record was read"):
        list(timed.to_batches())


def test_a_light_queue_is_read_where_it_is_named(golden_folder: Path) -> None:
    dump = load_dump("special-default")
    (queue, *_) = [one for one in dump["queues"] if one["topic"].startswith("%LMQ%")]
    for columns in (None, PLACES):
        found = rows_of(
            cqstore.scan(golden_folder / "special-default", queue["topic"], columns=columns)
        )
        assert [row["phy"] for row in found] == [unit[1] for unit in queue["units"]]
        assert not {row["topic"] for row in found} & {queue["topic"]}


def test_rows_have_one_order_whatever_is_asked_of_them(golden_folder: Path) -> None:
    """The records of batch topics are read, and messages that no queue shows come from the log."""
    for name in ("special-default", "crash-defaultRocksDB"):
        every = pa.table(cqstore.scan(golden_folder / name))
        assert pa.table(cqstore.scan(golden_folder / name, columns=PLACES)).equals(
            every.select(PLACES)
        )


def test_a_unit_of_a_record_that_has_expired_has_no_row(golden: Callable[[str], Path]) -> None:
    root = golden("special-default")
    before = [row["phy"] for row in rows_of(cqstore.scan(root, "orders_1", columns=["phy"]))]
    (queue, *_) = sorted((root / "consumequeue" / "orders_1").glob("0/*"))
    data = bytearray(queue.read_bytes())
    *_, at, _ = [
        at for at in range(0, len(data), 20) if int.from_bytes(data[at : at + 8]) in before
    ]
    gone = int.from_bytes(data[at : at + 8])
    data[at : at + 8] = (1).to_bytes(8)
    queue.write_bytes(data)
    for columns in (["phy"], ["phy", "flag"]):
        found = rows_of(cqstore.scan(root, "orders_1", columns=columns))
        assert [row["phy"] for row in found] == [phy for phy in before if phy != gone]


def test_a_record_of_a_batch_queue_is_the_messages_in_it() -> None:
    def inner(flag: int, body: bytes) -> bytes:
        properties = b"n\x01%d\x02" % flag
        size = 20 + len(body) + 2 + len(properties)
        head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
        return head + body + struct.pack(">H", len(properties)) + properties

    batch = PlainRecord(body=inner(5, b"one") + inner(6, b"two"), sys_flag=0x80, queue_offset=40)
    alone = PlainRecord(body=b"three", queue_offset=42)
    wanted = ["queueOffset", "flag", "body", "properties", "sysFlag", "queueId"]
    columns = MessageColumns(wanted)
    for record in (batch, alone):
        stored = StoredMessage(record.encode())
        columns.take(TopicMessage(1, record.queue_offset, stored))
    (made,) = columns.rest()
    assert [tuple(row.values()) for row in made.to_pylist(maps_as_pydicts="strict")] == [
        (40, 5, b"one", {"n": "5"}, 0, 1), (41, 6, b"two", {"n": "6"}, 0, 1),
        (42, 0, b"three", {"TAGS": "A"}, 0, 1),
    ]  # fmt: skip
    assert columns.rest() == []


def test_the_schema_is_known_before_anything_is_read(golden_folder: Path) -> None:
    found = cqstore.scan(golden_folder / COMBINED)
    assert found.schema.equals(schema())
    assert pa.schema(found).equals(schema())
    few = cqstore.scan(golden_folder / COMBINED, columns=("body", "topic"))
    assert few.schema.names == ["body", "topic"]
    units = cqstore.scan(golden_folder / COMBINED, table="units")
    assert units.schema.names[:6] == [
        "topic", "queue_id", "queue_offset", "phy_offset", "size", "tags_code",
    ]  # fmt: skip


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"table": "log"}, "no table 'log'; tables: messages, units"),
    ({"columns": ["colour"]}, "no column 'colour'; columns: topic, queueId"),
    ({"columns": ["phy"], "table": "units"}, "no column 'phy'; columns: topic, queue_id"),
    ({"columns": []}, "columns must have at least one name, and no name twice"),
    ({"columns": ["phy", "phy"]}, "columns must have at least one name, and no name twice"),
    ({"columns": "phy"}, "columns must be a list of names, not 'phy'"),
    ({"topic": [1]}, "topic: invalid name 1"),
    ({"queue_ids": [-1]}, "queue_ids: invalid queue id -1"),
    ({"queue_ids": [True]}, "queue_ids: invalid queue id True"),
    ({"begin": 2, "end": 1}, "begin 2 is later than end 1"),
]


@pytest.mark.parametrize(("requested", "sentence"), WRONG)
def test_what_makes_no_sense_is_refused_at_once(
    requested: dict[str, Any], sentence: str, golden_folder: Path
) -> None:
    with pytest.raises(StoreConfigError, match=sentence):
        cqstore.scan(golden_folder / COMBINED, **requested)


def test_a_folder_that_is_no_store_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(cqstore.RefusedStoreError, match="no store here"):
        cqstore.scan(tmp_path)
    with pytest.raises(cqstore.RefusedStoreError, match="invalid time '2026'"):
        cqstore.scan(tmp_path, begin="2026")  # type: ignore[arg-type]
