"""Streams of a scan: selection, memory, what is abandoned, a writer beside it, forks, requests."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cqstore
from cqstore import Message, MessageStore
from cqstore.analysis import message_columns, message_scan
from cqstore.analysis.scan_request import scan_request
from cqstore.cli.message_files.message_fields import COLUMNS
from tests.kit.descriptors import descriptors_of
from tests.kit.pages import ROOT
from tests.kit.quiet_config import quiet_config
from tests.kit.scanned import Row, rows_of
from tests.kit.tree import tree_digest
from tests.migration.made_log import Made, make_store
from tests.store.service.test_read_topic import Counting

CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000,
    rocksdb_memory_bytes=16 << 20,


)  # fmt: skip
BACKENDS = ["file", "rocksdb"]
COUNT, QUEUES = 300, 3
backends = pytest.mark.parametrize("backend", BACKENDS)
long_with_rocksdb = pytest.mark.parametrize(
    "backend", ["file", pytest.param("rocksdb", marks=pytest.mark.long)]
)


def body(number: int) -> bytes:
    return b"body %d" % number


def message(number: int) -> Message:
    return Message("t" if number % 3 else "u", body(number), number % QUEUES)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A closed store of each backend."""
    made = {}
    for backend in BACKENDS:
        made[backend] = tmp_path_factory.mktemp("made") / backend
        with MessageStore.open(made[backend], CONFIG, backend=backend) as store:
            for first in range(0, COUNT, 30):
                found = store.put_messages([message(at) for at in range(first, first + 30)])
                assert all(each.ok for each in found)
    return made


@long_with_rocksdb
def test_topics_queues_and_times_are_selected(backend: str, roots: dict[str, Path]) -> None:
    root = roots[backend]
    every = rows_of(cqstore.scan(root))
    assert sorted(row["body"] for row in every) == sorted(map(body, range(COUNT)))
    stamps = sorted({row["storeTimestamp"] for row in every})
    middle = stamps[len(stamps) // 2]

    def taken(row: Row, requested: dict[str, Any]) -> bool:
        begin, end = requested.get("begin", 0), requested.get("end", 1 << 62)
        return (
            row["topic"] in requested.get("topic", "tu")
            and row["queueId"] in requested.get("queue_ids", range(QUEUES))
            and begin <= row["storeTimestamp"] <= end
        )

    cases: list[dict[str, Any]] = [
        {"topic": "u"}, {"topic": ["u", "t"]}, {"topic": []}, {"queue_ids": [2]}, {"queue_ids": []},
        {"queue_ids": [1, 9]}, {"begin": middle}, {"end": middle}, {"begin": middle, "end": middle},
        {"begin": stamps[-1] + 1}, {"end": stamps[0] - 1}, {"topic": "t", "begin": middle},
    ]  # fmt: skip
    for requested in cases:
        expected = [row for row in every if taken(row, requested)]
        assert rows_of(cqstore.scan(root, **requested)) == expected, requested
        few = rows_of(cqstore.scan(root, columns=["phy"], **requested))
        assert few == [{"phy": row["phy"]} for row in expected], requested
        units = rows_of(cqstore.scan(root, table="units", columns=["phy_offset"], **requested))
        assert sorted(row["phy_offset"] for row in units) == sorted(row["phy"] for row in expected)
    moment = datetime.fromtimestamp(middle / 1000, UTC)
    assert rows_of(cqstore.scan(root, begin=moment)) == rows_of(cqstore.scan(root, begin=middle))


def counted(root: Path, **requested: Any) -> tuple[int, int]:
    """Return how many rows a scan has and how many records it read for them."""
    given = dict.fromkeys(("columns", "topic", "queue_ids", "begin", "end", "on_damage"))
    request = scan_request(tuple(COLUMNS), **given | requested)
    with MessageStore.open(root, read_only=True, housekeeping=False) as store:
        counting: Any = Counting(store)
        batches = message_scan.MessageScan(counting, request).batches()
        return sum(batch.num_rows for batch in batches), counting.records


@backends
def test_what_is_not_asked_for_is_not_read(backend: str, tmp_path: Path) -> None:
    made = [Made("t", at % QUEUES, 1000 + at) for at in range(60)]
    make_store(tmp_path, [*made, *(Made("u", at, 2000) for at in range(QUEUES))], 4096, backend)
    assert counted(tmp_path) == (63, 63)
    assert counted(tmp_path, topic="u") == (3, 3)
    assert counted(tmp_path, queue_ids=[0]) == (21, 21)
    assert counted(tmp_path, columns=["phy", "queueId"]) == (63, 0)
    assert counted(tmp_path, columns=["phy"], begin=1010, end=1019) == (10, 0)
    assert counted(tmp_path, topic="t", begin=1055) == (5, 5)
    rows, read = counted(tmp_path, begin=1010, end=1019)
    assert rows == 10
    assert read <= 63 - 10, "what lies before the begin is not read"


def test_a_batch_is_made_when_the_one_before_was_taken(
    roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_columns, "BATCH_ROWS", 8)
    monkeypatch.setattr(message_scan, "PULL_MESSAGES", 4)
    made = [0]
    rest = message_columns.MessageColumns.rest

    def counting(self: message_columns.MessageColumns) -> list[pa.RecordBatch]:
        batches = rest(self)
        made[0] += len(batches)
        return batches

    monkeypatch.setattr(message_columns.MessageColumns, "rest", counting)
    reader = pa.RecordBatchReader.from_stream(cqstore.scan(roots["file"]))
    sizes = []
    for taken, batch in enumerate(reader, 1):
        sizes.append(batch.num_rows)
        assert made[0] <= taken + 1
    assert sum(sizes) == COUNT
    assert {*sizes[:-1]} == {8}


def test_large_bodies_make_small_batches(
    roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_columns, "BATCH_BYTES", 1000)
    for columns, most in ((None, 1000), (["flag"], 1000)):
        batches = [*cqstore.scan(roots["file"], columns=columns).to_batches()]
        assert sum(batch.num_rows for batch in batches) == COUNT
        assert max(batch.num_rows for batch in batches) <= most // 90 + 1


@backends
def test_a_stream_that_is_let_go_leaves_nothing_open(
    backend: str, roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_columns, "BATCH_ROWS", 8)
    root = roots[backend]
    before, digest = descriptors_of(root), tree_digest(root)
    found = cqstore.scan(root)
    assert descriptors_of(root) == before, "nothing is open yet"
    reader = pa.RecordBatchReader.from_stream(found)
    assert reader.read_next_batch().num_rows == 8
    assert descriptors_of(root) != before
    del reader
    assert descriptors_of(root) == before
    capsule = found.__arrow_c_stream__()
    assert descriptors_of(root) != before
    del capsule  # never given to anybody
    assert descriptors_of(root) == before
    batches = found.to_batches()
    next(batches)
    assert descriptors_of(root) != before
    del batches
    assert descriptors_of(root) == before
    whole = pa.RecordBatchReader.from_stream(found)
    assert sum(batch.num_rows for batch in whole) == COUNT
    assert descriptors_of(root) == before, "closed with the last row, the reader still there"
    assert tree_digest(root) == digest


@backends
def test_each_stream_begins_anew(backend: str, roots: dict[str, Path]) -> None:
    found = cqstore.scan(roots[backend])
    first, second = (pa.RecordBatchReader.from_stream(found) for _ in range(2))
    one, other = first.read_all(), second.read_all()
    assert one.num_rows == COUNT
    assert one.equals(other)
    assert pa.table(found).equals(one)


@backends
def test_a_writer_goes_on_beside_it(backend: str, tmp_path: Path) -> None:
    found: Any = None
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        for round_ in range(3):
            first = round_ * 30
            store.put_messages([message(at) for at in range(first, first + 30)])
            digest = tree_digest(tmp_path, tmp_path / "commitlog")  # the writer makes files ahead
            found = found or cqstore.scan(tmp_path)
            for columns in (["body"], ["body", "phy"]):
                rows = rows_of(cqstore.scan(tmp_path, columns=columns))
                assert sorted(row["body"] for row in rows) == sorted(map(body, range(first + 30)))
            places = rows_of(cqstore.scan(tmp_path, columns=["phy"]))
            assert len({row["phy"] for row in places}) == len(places) == first + 30
            assert pa.table(found).num_rows == first + 30
            assert tree_digest(tmp_path, tmp_path / "commitlog") == digest
        under_way = pa.RecordBatchReader.from_stream(found)
        store.put_messages([message(at) for at in range(90, 120)])
        assert 90 <= sum(batch.num_rows for batch in under_way) <= 120


def test_what_queues_do_not_show_yet_is_selected_too(tmp_path: Path) -> None:
    lmq = CONFIG.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    with MessageStore.open(tmp_path, lmq, backend="file") as store:
        store.put_message(Message("t", b"shown", 1, dict(light)))
        store.flush()
        for number in range(3):
            store.put_message(Message("t", body(number), number, dict(light) if number else {}))

        def found(*requested: Any, **of: Any) -> list[bytes]:
            return [row["body"] for row in rows_of(cqstore.scan(tmp_path, *requested, **of))]

        assert found() == found("t") == [b"shown", body(0), body(1), body(2)]
        assert found(queue_ids=[1, 2]) == [b"shown", body(1), body(2)]
        assert found("%LMQ%b") == [b"shown", body(1), body(2)]
        stamp = store.message_by_offset(0).store_timestamp
        assert found(end=stamp - 1) == []


FORKED = """
import os, sys
import cqstore
from cqstore.analysis import message_columns

message_columns.BATCH_ROWS = 8
found = cqstore.scan(sys.argv[1])
batches = found.to_batches()
rows = next(batches).num_rows
child = os.fork()
if not child:
    try:
        list(batches)
        os._exit(3)
    except cqstore.StoreStateError:
        pass
    batches.close()
    if sys.argv[2] == "file":
        anew = sum(batch.num_rows for batch in found.to_batches())
    else:
        anew = int(sys.argv[3])
    os._exit(0 if anew == int(sys.argv[3]) else 4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(rows + sum(batch.num_rows for batch in batches))
"""


@pytest.mark.long
@backends
def test_a_fork_has_streams_of_its_own(backend: str, roots: dict[str, Path]) -> None:
    words = [sys.executable, "-c", FORKED, str(roots[backend]), backend, str(COUNT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{COUNT}\n")


def test_types_that_are_requested_are_granted_where_they_can_be(roots: dict[str, Path]) -> None:
    found = cqstore.scan(roots["file"], columns=["topic", "queueId", "body"])
    own = pa.table(found)

    def requests(*types: pa.DataType, names: Iterator[str] | None = None) -> pa.Table:
        fields = zip(names or found.schema.names, types, strict=False)
        wanted = pa.schema([pa.field(name, kind) for name, kind in fields])
        return pa.RecordBatchReader.from_stream(found, schema=wanted).read_all()

    large = requests(pa.large_string(), pa.int64(), pa.large_binary())
    assert [field.type for field in large.schema] == [
        pa.large_string(), pa.int64(), pa.large_binary(),
    ]  # fmt: skip
    assert large.to_pylist() == own.to_pylist()
    for kind in (pa.date32(), pa.float64(), pa.string(), pa.list_(pa.uint8())):
        assert requests(pa.large_string(), pa.int32(), kind).equals(own), "as the interface allows"
    assert requests(pa.string(), pa.int16(), pa.binary()).equals(own)
    for types, names in (
        ([pa.string(), pa.int32()], None),
        ([pa.string(), pa.int32(), pa.binary()], iter(["topic", "queue", "body"])),
    ):
        with pytest.raises(
            cqstore.StoreConfigError, match="wrong columns in the requested schema: expected"
        ):
            requests(*types, names=names)
