"""How answers are told: in words that are the same for what is the same, and for nothing else."""

import json
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from cqstore.ab.measuring import machine_facts as machine
from cqstore.ab.measuring import measures
from cqstore.ab.measuring.measures import MachineTimes
from cqstore.ab.sides.side_worker import SideWorker, encoded
from cqstore.ab.stores.equality import queue_digests, unit_rows, whole_digest
from cqstore.ab.trace.operations import (
    Estimate,
    ListQueues,
    ListTopics,
    MaxOffset,
    MinOffset,
    Operation,
    Pull,
    Put,
    Query,
    TimeSearch,
)
from cqstore.ab.workloads import timing
from cqstore.ab.workloads.timing import run_calls, run_closed, run_open
from cqstore.store.concurrency.task_worker import guarded, unwrap
from cqstore.store.errors import CorruptionError, StoreConfigError
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import BlockStop, QueueKey, UnitBlock
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import (
    DamagedRecord,
    GetMessageResult,
    GetMessageStatus,
    PutMessageResult,
    PutMessageStatus,
)
from tests.ab.made_store import CONFIG, make_varied_store
from tests.kit.queue_of import QueueOf


def test_a_pull_is_told_with_holes_and_damage() -> None:
    pull = Pull(topic="t", offset=3)
    found = GetMessageResult(
        GetMessageStatus.FOUND, 9, 1, 20, [memoryview(b"ab"), memoryview(b"c")], [3, 4], 3
    )
    checksum = f"{zlib.crc32(b'abc'):08x}"
    reported = f"FOUND, next 9, min 1, max 20, messages 3 to 4, 3 bytes, checksum {checksum}"
    assert pull.to_text(found) == (reported, 2)
    found.hole = range(5, 8)
    assert pull.to_text(found) == (f"{reported}, hole 5 to 7", 2)
    found.damaged = [DamagedRecord(6, 77, 8, "odd"), DamagedRecord(7, 78, 8, "odd")]
    assert pull.to_text(found) == (f"{reported}, hole 5 to 7, damaged [6, 7]", 2)
    nothing = GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    assert "messages none, 0 bytes, checksum 00000000" in pull.to_text(nothing)[0]
    assert pull.to_text("odd") == ("odd", 0)


@pytest.mark.parametrize(
    ("offsets", "reported"),
    [
        ([5], "5 to 5"),
        ([5, 6, 7], "5 to 7"),
        ([5, 7], "5, 7"),
        ([5, 6, 8], "5, 6, 8"),
        (list(range(0, 128, 2)), ", ".join(map(str, range(0, 128, 2)))),
        (list(range(0, 130, 2)), ", ".join(map(str, range(0, 128, 2))) + ", 65 in total"),
    ],
)
def test_offsets_are_told_in_short(offsets: list[int], reported: str) -> None:
    found = GetMessageResult(GetMessageStatus.FOUND, 0, 0, 0, [], offsets)
    assert f"messages {reported}, 0 bytes" in Pull(topic="t", offset=0).to_text(found)[0]


def test_lists_are_told_by_number_and_checksum_in_whatever_order() -> None:
    listing, spans = ListTopics(), ListQueues()
    checksum = f"{zlib.crc32(b'ab'):08x}"
    for topics in (["b", "a"], ["a", "b"]):
        assert listing.to_text(topics) == (f"2 topics, checksum {checksum}", 2)
    rows = [QueueSpan(QueueKey("t", at), 1, 5) for at in range(2)]
    reported, count = spans.to_text(rows)
    assert count == 2
    assert reported.startswith("2 queues, checksum ")
    assert spans.to_text(rows[::-1])[0] == reported
    for other in (rows[0]._replace(max_offset=6), rows[0]._replace(queue=QueueKey("u", 0))):
        assert spans.to_text([other, rows[1]])[0] != reported
    assert listing.to_text("odd") == spans.to_text("odd") == ("odd", 0)
    assert Put(topic="t").to_text("odd") == ("odd", 0)
    put = PutMessageResult(PutMessageStatus.FLUSH_DISK_TIMEOUT, queue_offset=4)
    assert Put(topic="t").to_text(put) == ("FLUSH_DISK_TIMEOUT, offset 4", 0)
    assert MinOffset(topic="t").to_text(3) == ("3", 1)


def test_each_question_is_the_one_that_the_store_answers(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 400)
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        low, high = store.min_offset("hot", 1), store.max_offset("hot", 1)
        times = [
            components_of(store).queues.queue("hot", 1).unit_timestamp(at) for at in (low, high - 1)
        ]
        queue = {"topic": "hot", "queue_id": 1}
        rare = store.estimate_message_count("hot", 1, low, high, TagFilter("rare"))
        requested: list[Operation] = [
            Estimate(**queue, offset=low, to=high),
            Estimate(**queue, offset=low, to=high, tags="rare"),
            TimeSearch(**queue, timestamp=times[1]),
            TimeSearch(**queue, timestamp=times[1], boundary="upper"),
            MinOffset(**queue), MaxOffset(**queue), ListTopics(prefix="topic3"),
            ListQueues(topic="hot"), ListTopics(), ListQueues(),
            Pull(**queue, offset=low, count=3, tags="rare"),
        ]  # fmt: skip
        reported = run_closed(requested, store)
        found = [
            store.offset_by_time("hot", 1, times[1], kind)
            for kind in (BoundaryType.LOWER, BoundaryType.UPPER)
        ]
        assert reported.answers[:6] == [str(each) for each in (high - low, rare, *found, low, high)]
        topics, queues = len(list(store.topics())), len(list(store.queue_keys()))
        some = [len(list(store.topics("topic3"))), len(list(store.queue_spans("hot")))]
        counts = [f"{some[0]} topics", f"{some[1]} queues", f"{topics} topics", f"{queues} queues"]
        assert [text.split(",")[0] for text in reported.answers[6:10]] == counts
        pulled = store.get_message("hot", 1, low, 3, TagFilter("rare"))
        assert reported.items == 6 + sum(some) + topics + queues + len(pulled.records)
        assert reported.answers[10] == requested[10].to_text(pulled)[0]
        put = Put(**queue, size=7, tags="x").bind(store)()
        assert isinstance(put, PutMessageResult)
        message = store.get_message("hot", 1, high, 1).messages()[0]
        assert (message.body, message.properties["TAGS"]) == (bytes(7), "x")
        assert message.head.born_timestamp == 1
        with pytest.raises(StoreConfigError, match="a comparison does not run queries by key"):
            Query(topic="t", key="k").bind(store)


# ---- timing


def test_a_fault_is_an_answer_and_the_next_operation_is_run(tmp_path: Path) -> None:
    error = CorruptionError("odd", path=tmp_path, expected=1)

    def fail() -> NoReturn:
        raise error

    answers: list[object] = []
    service: list[int] = []
    run_calls([lambda: 1, fail, lambda: 2], answers, service)
    assert answers == [1, error, 2]
    assert len(service) == 3
    requested = MinOffset(topic="hot")
    assert timing.answer_text(requested, error) == ("CorruptionError: odd", 0)
    assert timing.answer_text(requested, 4) == ("4", 1)


def test_all_blocks_of_operations_are_run_whatever_is_left_over(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 100)
    count = 2 * timing.BLOCK + 1
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        requested: list[Operation] = [
            MaxOffset(topic="hot", queue_id=at % 3) for at in range(count)
        ]
        ran = run_closed(requested, store)
        expected = [str(store.max_offset("hot", at % 3)) for at in range(count)]
        assert ran.answers == expected
        assert len(ran.service) == ran.items == count
        again = run_open(requested, [0.0] * count, store)
    assert again.answers == expected
    assert len(again.intended) == count
    assert min(again.intended) > 0


def test_an_operation_is_late_by_what_the_one_before_it_took(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 100)
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        requested: list[Operation] = [MinOffset(topic="hot"), MinOffset(topic="hot")]
        ran = run_open(requested, [0.0, 0.01], store)
    assert ran.spent.seconds >= 0.01
    assert all(late >= took > 0 for late, took in zip(ran.intended, ran.service, strict=True))
    assert ran.intended[0] < 1e9


# ---- the worker's way of telling


def test_latencies_are_told_as_a_histogram_and_none_as_nothing() -> None:
    assert encoded([]) == ""
    found = HdrHistogram.decode(encoded([1000, 5000, 5000]))
    assert found.get_total_count() == 3
    assert found.get_value_at_percentile(100) // 10 == 500


def test_an_error_comes_back_as_it_is_and_all_else_ends_the_process() -> None:
    def fail() -> None:
        exc = CorruptionError("odd", path=Path("x"), phy_offset=7)
        raise exc from ValueError(SideWorker)  # which could not be handed over

    outcome = guarded(fail)
    with pytest.raises(CorruptionError, match="odd") as found:
        unwrap(*outcome)
    assert (found.value.path, found.value.phy_offset) == (Path("x"), 7)
    assert guarded(lambda a, b: [a, b], a=1, b=2) == ("ok", [1, 2])
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0)


def test_answers_of_a_block_are_told_with_what_was_asked() -> None:
    worker = SideWorker()
    requested: list[Operation | dict[str, int | str]] = [
        MaxOffset(topic="half \ud800", queue_id=at) for at in range(300)
    ]
    requested += [{"op": "o", "n": at, "topic": "half \ud800"} for at in range(20)]
    worker._done.requests = requested
    worker._done.answers = [f"\udfff {at}" for at in range(320)]
    first, second = worker.answers(0), worker.answers(1)
    assert (len(first), len(second), worker.answers(2)) == (256, 64, [])
    reported = {"op": "maxOffset", "topic": "half \\ud800", "queueId": 5}
    assert first[5] == (reported, "\\udfff 5")
    assert second[-1] == ({"op": "o", "n": 19, "topic": "half \\ud800"}, "\\udfff 319")
    json.dumps([first, second]).encode()


# ---- the machine


def test_what_the_system_says_is_read_by_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {
        "/proc/self/io": "rchar: 1\nread_bytes: 4096\nwrite_bytes: 12\ncancelled_write_bytes: 3",
        "/proc/self/smaps_rollup": "0-1 rollup\nRss: 99 kB\nPss: 12 kB\nPss_Anon: 3 kB",
        "/proc/self/maps": "a\nb\nc",
        "/proc/stat": "cpu  100 200 300 4000 500 6 7 80 9 10\ncpu0 1 2",
        "/proc/5/stat": "5 (a) b) S 1 2 3 4 5 6 7 8 9 10 100 200 30 4 0 0",
        "/proc/self/mounts": "/dev/a / ext4 rw 0 0\n/dev/b /x\\040y xfs ro,z 0 0\n"
        "/dev/c / btrfs rw 0 0\n/dev/d /xx tmpfs rw 0 0",
        "/proc/cpuinfo": "processor : 0\nmodel name\t: A : B\nmodel name : C",
    }  # fmt: skip
    nothing = measures.lines_of(tmp_path / "nowhere")
    assert nothing == []
    monkeypatch.setattr(measures, "lines_of", lambda path: said.get(str(path), "").splitlines())
    monkeypatch.setattr(machine, "lines_of", lambda path: said.get(str(path), "").splitlines())
    monkeypatch.setattr(measures, "_TICKS", 10)
    monkeypatch.setattr("os.getpid", lambda: 5)
    assert measures.input_output() == (4096, 12)
    assert measures.pss_bytes() == 12 * 1024
    assert measures.maps() == 3
    now = MachineTimes.now([5])
    total = 100 + 200 + 300 + 4000 + 500 + 6 + 7 + 80  # guests are counted in the first already
    assert now.total == pytest.approx(total / 10)
    assert now.busy == pytest.approx((total - 4000 - 500 - 80) / 10)
    assert now.steal == 8.0
    assert now.ours == pytest.approx(2 * 33.4)
    assert machine._mount(Path("/x y/z")) == ("xfs", "ro,z", "/dev/b")
    assert machine._mount(Path("/other")) == ("btrfs", "rw", "/dev/c"), "the last one lies on top"
    assert machine._first("/proc/cpuinfo", "model name") == "A : B"
    assert machine._first("/proc/cpuinfo", "flags") == ""
    said.clear()
    assert measures.input_output() == (0, 0)
    assert measures.pss_bytes() == measures.maps() == 0
    assert MachineTimes.now([7]).total == 0.0
    assert machine._mount(Path("/x")) == ("unknown", "", "unknown")


def test_shares_are_none_where_no_time_has_passed_or_others_have_left() -> None:
    before = MachineTimes(at=10.0, total=100.0, busy=40.0, steal=1.0, ours=5.0)
    after = MachineTimes(at=12.0, total=104.0, busy=40.5, steal=0.5, ours=7.0)
    assert after.since(before) == (0.0, 0.0), "no share is negative"
    steal, others = MachineTimes(12.0, 100.0, 43.0, 1.0, 5.0).since(before)
    assert steal == 0.0
    assert others == pytest.approx(1.5)
    assert np.isclose(MachineTimes(10.0, 104.0, 40.0, 3.0, 5.0).since(before)[0], 0.5)


# ---- queues with holes


class _Holed:
    """A store of one queue, 2 to 8, that lacks some of its units."""

    def __init__(self, *missing: range, last: bool = False) -> None:
        self._missing = missing
        self._last = last
        self._components = SimpleNamespace(queues=self)

    def queue_keys(self) -> list[QueueKey]:
        return [QueueKey("t", 1)]

    def queue(self, topic: str, queue_id: int) -> QueueOf:
        return QueueOf(self, topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 2

    def max_offset(self, topic: str, queue_id: int) -> int:
        return 9

    def read_units(self, topic: str, queue_id: int, first: int, most: int) -> UnitBlock:
        assert first + most <= 9
        hole = next((each for each in self._missing if first in each), None)
        if hole is not None:
            reported = None if self._last and hole.stop == 9 else hole
            return UnitBlock(first, b"", 20, BlockStop.HOLE, reported)
        end = min([each.start for each in self._missing if each.start > first], default=9)
        data = b"".join(struct.pack(">qiq", at * 100, at, -at) for at in range(first, end))
        return UnitBlock(first, data, 20, BlockStop.LIMIT)


def test_missing_units_are_told_one_by_one_and_count_for_the_digest() -> None:
    store: Any = _Holed(range(4, 6), range(8, 9), last=True)
    rows = [f"{at}: phy offset {at * 100}, size {at}, tags code {-at}" for at in range(2, 9)]
    rows[2:4] = ["4: missing", "5: missing"]
    rows[6] = "8: missing"
    assert list(unit_rows(store, QueueKey("t", 1))) == rows
    (digest,) = queue_digests(store)
    assert digest[:5] == ("t", 1, 2, 9, 4)
    others: list[Any] = [_Holed(range(4, 5), range(8, 9)), _Holed(range(8, 9)), _Holed()]
    found = [next(queue_digests(each)) for each in (store, *others)]
    assert [each.units for each in found] == [4, 5, 6, 7]
    assert len({each.digest for each in found}) == 4
    assert whole_digest(store)[1:] == (1, 4)
