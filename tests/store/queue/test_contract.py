"""What the docstrings of ``ConsumeQueueStore`` promise, on every backend."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest

from cqstore.store.comparing.open_sides import compare_open
from cqstore.store.errors import QueueGapError, StoreClosedError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import BlockStop, QueueKey, UnitBatch
from cqstore.store.service.dispatching.queue_offsets import QueueOffsets
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES
from tests.kit.installing import install_lmdb
from tests.kit.queue_drive import COMBINED, QueueDrive
from tests.kit.tree import unchanged

LMDB = "lmdb"
"""A backend that only an entry point makes known."""
BACKENDS = [
    *[(name, RocksDBEngine.AUTO) for name in backend_names() if name != "rocksdb"],
    *[("rocksdb", engine) for engine in ENGINES],
    *[(COMBINED + name, RocksDBEngine.AUTO) for name in backend_names()],
    (LMDB, RocksDBEngine.AUTO),
    (COMBINED + LMDB, RocksDBEngine.AUTO),
]


@pytest.fixture(params=BACKENDS, ids=lambda param: f"{param[0]}-{param[1].value}")
def drive(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[QueueDrive]:
    """A drive over an empty store; at the end its files must be sound."""
    name, engine = request.param
    if name.endswith(LMDB):
        install_lmdb(tmp_path / "installed", monkeypatch)
    driven = QueueDrive(name, tmp_path / "store", engine=engine)
    yield driven
    store = driven.store
    try:
        assert list(store.check_files()) == []
    except StoreClosedError:
        return
    if isinstance(store, CombinedConsumeQueueStore):
        assert store.detached == {}
        assert compare_open(store).is_clean
    driven.store.close()


def test_an_unknown_queue_is_empty(drive: QueueDrive) -> None:
    assert drive.offsets("nothing", 3) == (0, 0)
    block = drive.read("nothing", 3, 0, 10)
    assert (block.count, block.stop) == (0, BlockStop.END)
    assert drive.store.queue("nothing", 3).unit_timestamp(0) == -1
    assert drive.store.queue("nothing", 3).offset_by_time(5, BoundaryType.LOWER) == 0
    assert list(drive.store.queues()) == []


def test_spans_are_minimum_and_maximum_of_every_queue(drive: QueueDrive) -> None:
    drive.put("expired", 0, 0, 5)
    drive.put("half", 1, 0, 12)
    drive.put("late", 0, 7, 3)
    drive.put("other", 2, 0, 1)
    drive.store.restore_end("made", 0, 4)
    for records in (0, 5, 12, 18):
        drive.expire(records)
        spans = list(drive.store.spans())
        assert [span.queue for span in spans] == list(drive.store.queues())
        assert drive.store.queues_estimate() == len(spans)
        units = [(key, at) for key, low, high in reversed(spans) for at in range(low, high)]
        times = [drive.store.queue(*key).unit_timestamp(at) for key, at in units]
        assert list(drive.store.unit_timestamps(units)) == times
        for key, low, high in spans:
            queue = drive.store.queue(*key)
            for at, most in ((low, 99), (low, 2), (low + 1, 99), (high, 3)):
                block = queue.read_units_below(high, at, most)
                expected = queue.read_units(at, min(most, high - at))
                assert (block.data, block.queue_offset) == (expected.data, expected.queue_offset)
        assert {span.queue: span[1:] for span in spans} == {
            key: drive.offsets(*key) for key in drive.store.queues()
        }
        assert [span.queue for span in drive.store.spans("half")] == [("half", 1)]
        rest = [span.queue for span in drive.store.spans(after=spans[1].queue)]
        assert rest == [span.queue for span in spans[2:]]
        requested = [*spans[::-1], QueueSpan(QueueKey("nowhere", 9), 0, 0), spans[0]]
        assert list(drive.store.spans_of([span.queue for span in requested])) == requested
        drive.store.clean_expired(records * 100)


def test_units_come_back_in_order_and_across_files(drive: QueueDrive) -> None:
    drive.put("topic", 2, 0, 25)
    block = drive.read("topic", 2, 3, 15)
    assert block.stop is BlockStop.LIMIT
    assert [unit.queue_offset for unit in block.units()] == list(range(3, 18))
    assert list(block.rows()) == [(offset * 100, 100, offset * 7) for offset in range(3, 18)]
    assert drive.read("topic", 2, 20, 100).stop is BlockStop.END
    assert drive.offsets("topic", 2) == (0, 25)


@pytest.mark.parametrize(("offset", "count"), [(-1, 0), (0, 5), (24, 1), (25, 0), (26, 0)])
def test_offsets_outside_give_empty_blocks(drive: QueueDrive, offset: int, count: int) -> None:
    drive.put("topic", 0, 0, 25)
    assert drive.read("topic", 0, offset, 5).count == count


def test_topics_that_begin_alike_are_kept_apart(drive: QueueDrive) -> None:
    topics = ["a", "aa", "ab", "b", "max", "min", "主题", "a" * 127]
    for place, topic in enumerate(topics):
        drive.put(topic, place, 0, place + 1)
    drive.put("a", 2147483647, 0, 3)
    found = {key: drive.store.queue(*key).max_offset() for key in drive.store.queues()}
    expected = {QueueKey(topic, place): place + 1 for place, topic in enumerate(topics)}
    assert found == expected | {QueueKey("a", 2147483647): 3}
    assert set(drive.store.queues("a")) == {QueueKey("a", 0), QueueKey("a", 2147483647)}


def test_a_batch_that_comes_twice_changes_nothing(drive: QueueDrive) -> None:
    batch = drive.batch("topic", 0, 0, 12)
    assert drive.store.put_batch(batch) == []
    before = drive.phys("topic")
    assert drive.store.put_batch(batch) == []
    assert drive.phys("topic") == before
    assert drive.offsets("topic") == (0, 12)


def test_a_batch_that_overlaps_adds_what_is_new(drive: QueueDrive) -> None:
    batch = drive.batch("topic", 0, 0, 12)
    half = UnitBatch()
    for number in range(6):
        half.add(("topic", 0), number, number * 100, 100, number * 7, 1000 + 10 * number)
    drive.store.put_batch(half)
    drive.store.put_batch(batch)
    assert drive.phys("topic") == [number * 100 for number in range(12)]


def test_a_queue_may_begin_anywhere(drive: QueueDrive) -> None:
    drive.put("late", 0, 108, 5)
    assert drive.offsets("late") == (108, 113)
    assert drive.phys("late", 0, 108) == [0, 100, 200, 300, 400]
    drive.reopen()
    assert drive.offsets("late") == (108, 113)
    block = drive.read("late", 0, 106, 10)
    assert (block.count, block.stop, block.hole) == (0, BlockStop.HOLE, range(106, 108))
    drive.put("late", 0, 113, 2)
    assert drive.phys("late", 0, 110) == [200, 300, 400, 500, 600]


def test_a_gap_is_an_error_and_nothing_is_stored(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 3)
    with pytest.raises(QueueGapError, match=r"queue 0 of topic 'topic'.*\b3\b.*\b5\b") as caught:
        drive.put("topic", 0, 5, 1)
    assert caught.value.phy_offset == 300
    assert (caught.value.expected, caught.value.got) == ("queue offset 3", "queue offset 5")
    assert drive.offsets("topic") == (0, 3)
    drive.put("topic", 0, 3)
    assert drive.phys("topic") == [0, 100, 200, 400]


def test_behind_expired_units_a_gap_is_a_new_beginning(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 3)
    drive.expire(3)
    drive.put("topic", 0, 7, 2)
    assert drive.offsets("topic") == (7, 9)
    drive.reopen()
    assert drive.offsets("topic") == (7, 9)
    assert drive.phys("topic", 0, 7) == [300, 400]


def test_a_topic_written_again_begins_a_new_incarnation(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 10)
    restarts = drive.put("topic", 0, 0, 2)
    assert [(r.queue, r.dropped, r.phy_offset) for r in restarts] == [
        (QueueKey("topic", 0), range(10), 1000)
    ]
    assert drive.offsets("topic") == (0, 2)
    assert drive.phys("topic") == [1000, 1100]
    drive.put("topic", 0, 2, 9)
    drive.reopen()
    assert drive.phys("topic") == [1000 + 100 * number for number in range(11)]


def test_both_incarnations_in_one_batch_leave_the_second(drive: QueueDrive) -> None:
    both = drive.batch("topic", 0, 0, 10)
    both.extend(drive.batch("topic", 0, 0, 2))
    drive.store.put_batch(both)
    assert drive.offsets("topic") == (0, 2)
    assert drive.phys("topic") == [1000, 1100]


def test_a_new_incarnation_begins_with_the_first_record_that_is_new(drive: QueueDrive) -> None:
    whole, again = drive.batch("topic", 0, 0, 5), UnitBatch()
    again.add(("topic", 0), 0, 0, 100, 0, 1000)
    again.extend(drive.batch("topic", 0, 1, 2))
    drive.store.put_batch(whole)
    restarts = drive.store.put_batch(again)
    assert [(r.dropped, r.phy_offset) for r in restarts] == [(range(1, 5), 500)]
    assert drive.phys("topic") == [0, 500, 600]


def test_a_unit_whose_record_is_before_the_last_one_is_not_stored(drive: QueueDrive) -> None:
    drive.put("known", 0, 0, 3)
    drive.batch("none", 0, 0)
    for topic, offset in (("known", 3), ("new", 0)):
        batch = drive.batch(topic, 0, offset)
        batch.add((topic, 0), offset + 1, 300, 100, 0, 1030)
        drive.store.put_batch(batch)
        assert drive.offsets(topic) == (0, offset + 1)


def test_replaying_an_older_incarnation_changes_nothing(drive: QueueDrive) -> None:
    older, newer = drive.batch("topic", 0, 0, 10), drive.batch("topic", 0, 0, 2)
    drive.store.put_batch(older)
    drive.store.put_batch(newer)
    drive.store.put_batch(older)
    drive.store.put_batch(newer)
    assert drive.phys("topic") == [1000, 1100]
    assert drive.offsets("topic") == (0, 2)


def test_the_minimum_follows_the_log_without_a_write(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 35)
    drive.store.flush()
    drive.reopen(read_only=True)
    with unchanged(drive.root):
        for gone in (0, 1, 17, 34):
            drive.expire(gone)
            assert drive.offsets("topic") == (gone, 35)


def test_a_wholly_expired_queue_keeps_its_next_offset(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 35)
    drive.put("other", 0, 0, 1)
    drive.expire(35)
    drive.store.clean_expired(drive.log.low)
    assert drive.offsets("topic") == (35, 35)
    drive.reopen()
    assert drive.offsets("topic") == (35, 35)
    drive.put("topic", 0, 35, 1)
    assert drive.offsets("topic") == (35, 36)


@pytest.mark.parametrize("end", [1, 9, 10, 11, 30])
def test_a_queue_that_is_known_only_by_its_next_offset_goes_on_there(
    drive: QueueDrive, end: int
) -> None:
    drive.store.restore_end("topic", 3, end)
    drive.put("other", 0, 0, 1)
    drive.store.flush()
    for _ in range(2):
        assert drive.offsets("topic", 3) == (end, end)
        assert drive.read("topic", 3, end, 5).count == 0
        assert QueueKey("topic", 3) in drive.store.queues()
        assert list(drive.store.check_files()) == []
        drive.reopen()
    drive.put("topic", 3, end, 15)
    drive.reopen()
    assert drive.offsets("topic", 3) == (end, end + 15)
    assert len(drive.phys("topic", 3, end)) == 15


def test_cleaning_takes_expired_units_and_no_others(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 35)
    drive.expire(22)
    drive.store.clean_expired(drive.log.low)
    assert drive.offsets("topic") == (22, 35)
    assert drive.phys("topic", 0, 22) == [100 * number for number in range(22, 35)]
    drive.reopen()
    assert drive.offsets("topic") == (22, 35)
    assert drive.phys("topic", 0, 22) == [100 * number for number in range(22, 35)]


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 24, 25])
def test_truncation_drops_what_lies_behind(drive: QueueDrive, kept: int) -> None:
    drive.put("topic", 0, 0, 25)
    assert drive.store.truncate_dirty(kept * 100) == (1 if kept < 25 else 0)
    assert drive.phys("topic") == [100 * number for number in range(kept)]
    assert drive.store.queue("topic", 0).max_offset() == kept
    assert drive.store.next_offset("topic", 0) == kept
    drive.reopen()
    assert drive.store.queue("topic", 0).max_offset() == kept
    drive.log.stamps = drive.log.stamps[:kept]
    drive.put("topic", 0, kept, 3)
    assert drive.phys("topic") == [100 * number for number in range(kept + 3)]


def test_deleting_a_topic_takes_exactly_that_topic(drive: QueueDrive) -> None:
    for topic in ("gone", "gone2", "gon"):
        for queue_id in (0, 1, 65536):
            drive.put(topic, queue_id, 0, 3)
    drive.store.delete_topics(["gone"])
    drive.store.delete_topics(["never was"])
    left = {key.topic for key in drive.store.queues()}
    assert left == {"gone2", "gon"}
    assert drive.offsets("gone", 1) == (0, 0)
    drive.reopen()
    assert {key.topic for key in drive.store.queues()} == left
    drive.put("gone", 1, 0, 2)
    assert drive.offsets("gone", 1) == (0, 2)
    assert drive.read("gone", 1, 0, 9).count == 2


def test_everything_is_there_after_a_reopening(drive: QueueDrive) -> None:
    for queue_id in range(5):
        drive.put("topic", queue_id, 0, 11 * queue_id + 1)
    expected = {key: drive.phys(*key) for key in drive.store.queues()}
    end = drive.log.max_phy_offset()
    drive.reopen()
    assert {key: drive.phys(*key) for key in drive.store.queues()} == expected
    assert drive.store.dispatch_from_phy_offset() == end


@pytest.mark.parametrize("boundary", list(BoundaryType))
def test_searches_by_time_answer_within_the_queue(
    drive: QueueDrive, boundary: BoundaryType
) -> None:
    for offset, stamp in enumerate([100, 100, 200, 200, 200, 300, 400]):
        drive.put("topic", 0, offset, 1, stamp)
    drive.expire(1)
    lower = {0: 1, 100: 1, 101: 2, 200: 2, 250: 5, 400: 6, 401: 7, 10**15: 7}
    upper = {0: 1, 100: 1, 101: 1, 200: 4, 250: 4, 400: 6, 401: 6, 10**15: 6}
    expected = lower if boundary is BoundaryType.LOWER else upper
    for stamp, offset in expected.items():
        assert drive.store.queue("topic", 0).offset_by_time(stamp, boundary) == offset, stamp


def test_an_estimate_is_cut_to_the_queue_and_exact_when_small(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 35)
    drive.expire(5)
    store = drive.store
    assert store.queue("topic", 0).estimate_message_count(-100, 1000, lambda _: True) == 30
    even = store.queue("topic", 0).estimate_message_count(0, 35, lambda code: (code or 0) % 14 == 0)
    assert even == len([number for number in range(5, 35) if number % 2 == 0])
    assert store.queue("topic", 0).estimate_message_count(0, 3, lambda _: True) == 0


def test_offsets_are_assigned_behind_the_queue(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 4)
    offsets, queue = QueueOffsets(drive.store), ("topic", 0)
    assert offsets.assign(queue) == 4
    offsets.advance(queue, 3)
    assert offsets.assign(queue) == 7
    offsets.advance(queue)
    assert offsets.assign(queue) == 8
    assert (offsets.assign(("topic", 1)), offsets.assign(("other", 0)), len(offsets)) == (0, 0, 3)
    assert drive.store.queue("topic", 0).max_offset() == 4
    kept = offsets.queues_of({"topic"})
    assert sorted(kept) == [("topic", 0), ("topic", 1)]
    offsets.forget(kept)
    assert (len(offsets), offsets.assign(queue)) == (1, 4)
    offsets.advance(queue)
    offsets.forget_all()
    assert (len(offsets), offsets.assign(queue)) == (0, 4)


def test_of_too_many_offsets_a_share_is_forgotten(drive: QueueDrive) -> None:
    offsets, most = QueueOffsets(drive.store), 128
    for number in range(3 * most):
        assert offsets.assign(("topic", number)) == 0
    in_order = [*offsets.next]
    offsets.forget_beyond(most)
    assert len(offsets) == most - 2
    gone = 2 * most + 2
    oldest = gone // 5
    assert [*offsets.next] == in_order[oldest : oldest + most - 2]
    offsets.forget_beyond(most - 1)
    offsets.forget_beyond(most)
    assert len(offsets) == most - 2


def test_an_empty_batch_is_no_error(drive: QueueDrive) -> None:
    batch = UnitBatch()
    batch.end_phy_offset = drive.log.append(1000) + 100  # a record that no queue holds
    assert drive.store.put_batch(batch) == []
    assert list(drive.store.queues()) == []


def walk(queue: ConsumeQueue) -> None:
    list(queue.iterate(0))


def test_a_closed_store_answers_nothing(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 4)
    kept, unknown = drive.store.queue("topic", 0), drive.store.queue("unknown", 1)
    assert kept.ends() == (0, 4)
    drive.store.close()
    drive.store.close()
    calls: list[Callable[[], object]] = [
        partial(drive.store.queue, "topic", 0),
        lambda: drive.store.put_batch(drive.batch("topic", 0, 4)),
        drive.store.flush,
    ]
    for queue in (kept, unknown):
        calls += [
            queue.max_offset,
            queue.min_offset,
            queue.ends,
            partial(queue.pull, 0, 1),
            partial(queue.read_units, 0, 1),
            partial(queue.unit_timestamp, 0),
            partial(queue.offset_by_time, 0, BoundaryType.LOWER),
            partial(queue.estimate_message_count, 0, 4, lambda _: True),
            partial(walk, queue),
        ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


# ---- queues that are kept


def reported(queue: ConsumeQueue) -> list[object]:
    """Ask a queue everything."""
    low, high = queue.ends()
    pulled = queue.pull(low, 100)
    assert pulled[:2] == (low, high)
    assert pulled.block is not None
    rows = list(pulled.block.rows())
    assert rows == list(queue.read_units(low, 100).rows())
    assert rows == [unit[1:4] for unit in queue.iterate(low)]
    return [
        low, high, rows, queue.max_offset(), queue.min_offset(),
        [queue.unit_timestamp(offset) for offset in range(-1, 15)],
        [queue.offset_by_time(stamp, each) for stamp in range(990, 1400, 10)
         for each in BoundaryType],
        queue.estimate_message_count(0, 100, lambda _: True),
        [queue.resolve_tags_code(code) for code in (0, 7, -1)],
    ]  # fmt: skip


def test_a_queue_may_be_kept_from_before_its_first_unit(drive: QueueDrive) -> None:
    kept = drive.store.queue("topic", 3)
    assert (kept.topic, kept.queue_id, kept.key) == ("topic", 3, QueueKey("topic", 3))
    empty = reported(kept)
    assert empty == reported(drive.store.queue("another", 0))
    assert empty[:3] == [0, 0, []]
    drive.put("topic", 3, 0, 12)
    assert reported(kept)[:3] == [0, 12, [(number * 100, 100, number * 7) for number in range(12)]]
    drive.expire(5)
    assert reported(kept)[:2] == [5, 12]
    assert reported(kept) == reported(drive.store.queue("topic", 3))
    drive.put("topic", 3, 12, 1)
    assert reported(kept)[:2] == [5, 13]
    drive.store.clean_expired(drive.log.low)
    assert reported(kept) == reported(drive.store.queue("topic", 3))


@pytest.mark.parametrize("how", ["topic", "queue", "restart"])
def test_a_kept_queue_never_shows_an_earlier_incarnation(drive: QueueDrive, how: str) -> None:
    drive.put("topic", 0, 0, 12)
    drive.expire(5)
    kept = drive.store.queue("topic", 0)
    assert reported(kept)[:2] == [5, 12]
    reading = kept.iterate(5)
    next(reading)
    if how == "topic":
        drive.store.delete_topics(["topic"])
    elif how == "queue":
        drive.store.delete_queue("topic", 0)
    if how != "restart":
        assert reported(kept) == reported(drive.store.queue("topic", 7))
    drive.put("topic", 0, 0, 3)
    assert reported(kept)[:3] == [
        0,
        3,
        [(1200 + number * 100, 100, number * 7) for number in range(3)],
    ]
    assert reported(kept) == reported(drive.store.queue("topic", 0))
    assert len(list(reading)) <= 6, "what it had read already"


def test_a_pull_tells_the_ends_and_what_lies_between(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 25)
    drive.expire(4)
    queue = drive.store.queue("topic", 0)
    for offset in (-1, 0, 3, 25, 26, 1 << 40):
        low, high, block = queue.pull(offset, 5)
        assert (low, high) == (4, 25)
        assert block is not None
        assert (block.count, block.queue_offset, block.stop) == (0, offset, BlockStop.END)
    for offset, count in product((4, 9, 10, 24), (0, 1, 5, 100)):
        low, high, block = queue.pull(offset, count)
        assert (low, high) == (4, 25)
        assert block is not None
        assert (block.queue_offset, block.count) == (offset, min(count, 25 - offset))
        assert block == queue.read_units(offset, count)


@pytest.mark.slow
def test_threads_share_a_queue_that_is_deleted_and_put_again(drive: QueueDrive) -> None:
    kept, ended, wrong = drive.store.queue("topic", 0), threading.Event(), list[object]()
    seen = [threading.Event() for _ in range(2)]

    def pull(first: threading.Event) -> None:
        while not ended.is_set():
            low, high, block = kept.pull(0, 32)
            assert block is not None
            phys = [row[0] for row in block.rows()]
            codes = [row[2] for row in block.rows()]
            steps = {behind - before for before, behind in pairwise(phys)}
            alike = steps <= {100} and codes == [7 * at for at in range(len(codes))]
            if not (alike and 0 <= low <= high <= 24 and len(phys) <= high):
                wrong.append((low, high, block))
                return
            first.set()

    with ThreadPoolExecutor(len(seen)) as pool:
        pulls = [pool.submit(pull, first) for first in seen]
        try:
            for round_ in range(4):
                for first in range(0, 24, 6):
                    drive.put("topic", 0, first, 6)
                if round_ == 0:
                    assert all(first.wait(60) for first in seen)
                drive.store.delete_topics(["topic"])
        finally:
            ended.set()
        for each in pulls:
            each.result()
    assert wrong == []
    assert kept.ends() == (0, 0)
