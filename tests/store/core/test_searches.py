"""Searches by time on the fast and on the slow path give one answer, whatever lies there."""

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.named_queue import NamedFileQueue
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.time_search import BoundaryType, search_offset
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.declining import Declines
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of, lose

LOG_FILE = 8192
TOPICS = {"few": 3, "many": 700}


@pytest.fixture(scope="module", params=[150, 100_000])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessageStore]:
    units = request.param
    config = StoreConfig(
        mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=20 * units,
        max_message_size=500, mapped_files_max=2,
    )  # fmt: skip
    root = tmp_path_factory.mktemp("searches") / "store"
    with MessageStore.open(root, config, backend="file") as opened:
        for topic, count in TOPICS.items():
            assert all(put.ok for put in opened.put_messages([Message(topic, b"x")] * count))
        assert opened.max_offset("many", 0) == TOPICS["many"]
        yield opened


def unit_by_unit(queue: ConsumeQueue, timestamp: int, boundary: BoundaryType) -> int:
    return search_offset(*queue.ends(), timestamp, boundary, queue.unit_timestamp)


def by_slow_path(store: MessageStore, topic: str, timestamp: int, boundary: BoundaryType) -> int:
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues._table, "fast", Declines())
        return queues.queue(topic, 0).offset_by_time(timestamp, boundary)


def compare(store: MessageStore, timestamps: list[int]) -> set[int]:
    met = set()
    for topic in [*TOPICS, "none"]:
        queue = components_of(store).queues.queue(topic, 0)
        for timestamp in timestamps:
            for boundary in BoundaryType:
                found = queue.offset_by_time(timestamp, boundary)
                requested = topic, timestamp, boundary
                assert found == unit_by_unit(queue, timestamp, boundary), requested
                assert found == by_slow_path(store, *requested), requested
                assert found == store.offset_by_time(topic, 0, timestamp, boundary), requested
                met.add(found)
    return met


def test_pulls_and_searches_pass_by_a_queue_that_is_plain(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [message.store_timestamp for message in store.get_message("few", 0, 0).messages()]
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    assert queues.fast_reads is not None

    def refuse(*_: object) -> ConsumeQueue:
        raise AssertionError

    monkeypatch.setattr(queues, "queue", refuse)
    assert store.get_message("few", 0, 1).queue_offsets == [1, 2]
    assert store.get_message("few", 0, 9).status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
    assert store.offset_by_time("few", 0, times[0], BoundaryType.UPPER) == times.count(times[0]) - 1
    monkeypatch.setattr(queues._table, "fast", Declines())
    for ask in (store.get_message, store.offset_by_time):
        with pytest.raises(AssertionError):
            ask("few", 0, 1)


def test_a_backend_that_gives_out_queues_of_its_own_is_asked_for_them(store: MessageStore) -> None:
    class Others(FileConsumeQueueStore):
        def queue(self, topic: str, queue_id: int) -> NamedFileQueue:
            return super().queue(topic, queue_id)

    assert Others(components_of(store).queues.context).fast_reads is None
    assert FileConsumeQueueStore(components_of(store).queues.context).fast_reads is not None


def files_of(store: MessageStore, topic: str) -> FileConsumeQueue:
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    files = queues._table.find(topic, 0)
    assert isinstance(files, FileConsumeQueue)
    return files


def set_times(store: MessageStore, draw: random.Random, *, sound: bool) -> list[int]:
    """Give the records other store times, rising ones or any; return some to search for."""
    now, times = 1_700_000_000_000, []
    for topic in TOPICS:
        for phy, _, _ in components_of(store).queues.queue(topic, 0).read_units(0, 1 << 20).rows():
            now += draw.choice((0, 0, 1, 7))
            time = now if sound else draw.randrange(-3, 40)
            times.append(time)
            path = components_of(store).paths.commit_log / f"{phy // LOG_FILE * LOG_FILE:020d}"
            with path.open("r+b") as file:
                at = phy % LOG_FILE + 56
                os.pwrite(file.fileno(), time.to_bytes(8, "big", signed=True), at)
        files_of(store, topic).generation += 1  # an open store's records never change, except here
    return [*draw.choices(times, k=60), times[0] - 1, times[-1] + 1, 0, -1, 1 << 62, 1 << 70]


@pytest.mark.slow
@pytest.mark.parametrize("sound", [True, False])
def test_answers_are_alike(store: MessageStore, *, sound: bool) -> None:
    met = compare(store, set_times(store, random.Random(3), sound=sound))
    assert len(met) > 10


@pytest.mark.slow
def test_answers_over_a_log_that_has_lost_records_are_alike(store: MessageStore) -> None:
    timestamps = set_times(store, random.Random(4), sound=True)
    components_of(store).log.files.delete_before(4 * LOG_FILE)
    compare(store, timestamps)


@pytest.mark.parametrize("unit", [
    (0, 0), (-1, 100), (1 << 62, 100), (LOG_FILE - 20, 91), (5, -1), (0, 0x7FFFFFFF), (3, 90),
])  # fmt: skip
def test_units_that_lead_nowhere_are_searched_alike(tmp_path: Path, unit: tuple[int, int]) -> None:
    config = StoreConfig(mapped_file_size_commit_log=LOG_FILE, max_message_size=500)
    with MessageStore.open(tmp_path / "store", config, backend="file") as store:
        for _ in range(60):
            assert store.put_message(Message("t", b"x")).ok
        queue = components_of(store).queues.queue("t", 0)
        last = components_of(store).log.message(0).store_timestamp + 60_000
        assert store.max_offset("t", 0) == 60
        path = components_of(store).paths.consume_queue / "t" / "0" / f"{0:020d}"
        data = unit[0].to_bytes(8, "big", signed=True) + unit[1].to_bytes(4, "big", signed=True)
        with path.open("r+b") as file:
            for at in range(20, 40):
                os.pwrite(file.fileno(), data, 20 * at)
        is_none = unit[0] < 0 or unit[1] <= 0  # as in a hole: the unit behind it counts

        def timestamp_at(at: int) -> int:
            return queue.unit_timestamp(40 if is_none and 20 <= at < 40 else at)

        for timestamp in (0, 1, last - 60_000, last - 30_000, last):
            for boundary in BoundaryType:
                assert queue.offset_by_time(timestamp, boundary) == search_offset(
                    *queue.ends(), timestamp, boundary, timestamp_at
                )


@pytest.mark.parametrize("seed", range(12))
def test_answers_of_rocksdb_are_alike(tmp_path: Path, seed: int) -> None:
    """One call and single reads say the same: over holes, records that are gone, odd values."""
    draw = random.Random(seed)
    queues = RocksDBQueues(tmp_path)
    count, sound = draw.choice((1, 2, 23, 24, 25, 49, 300)), draw.random() < 0.5
    with closing(queues.open()) as store:
        batch, now, times = UnitBatch(), 1_000_000, [0]
        for offset in range(count):
            now += draw.choice((0, 0, 1, 5))
            times.append(now if sound else draw.randrange(-3, 50))
            for topic in ("t", "tt"):
                batch.add((topic, 7), offset, 100 * offset, 100, 1, times[-1])
        batch.end_phy_offset = 100 * count
        store.put_batch(batch)
        queue = store.queue("t", 7)
        for _ in range(draw.choice((0, 0, 1, 4))):
            at = draw.randrange(count)
            lose(store, "t", 7, range(at, min(at + draw.choice((1, 3, 40)), count - 1)))
        queues.log.min_phy = draw.choice((0, 100 * count // 3))
        assert queue.min_offset() >= 0  # found now: a search for it refuses a short value
        key = unit_key(queue_prefix("t", 7), count // 2)
        if draw.random() < 0.5:
            engine_of(store).write(EngineBatch(puts=[(key, b"short")], puts_family=Family.DEFAULT))
        queues.log.max_phy = draw.choice((1 << 40, 100 * (count - 1)))
        for timestamp in (*draw.choices(times, k=40), times[-1] + 1, -1, -2, 1 << 62, 1 << 70):
            for boundary in BoundaryType:
                found = queue.offset_by_time(timestamp, boundary)
                assert found == unit_by_unit(queue, timestamp, boundary), (timestamp, boundary)
