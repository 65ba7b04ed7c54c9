"""Times that a search has read are used by the next ones: each answer is that of a look at all."""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.java_numbers import LONG_MAX, LONG_MIN
from cqstore.store.queue.time_search import BoundaryType, search_offset
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.shim.clock import CLOCK

NOON = 1_795_521_600_000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=20 * 50,
    max_message_size=500, message_index_enable=False,
)  # fmt: skip
TOPICS = ("t", "u")


def expected(times: list[int], first: int, timestamp: int, boundary: BoundaryType) -> int:
    """Return the answer for the units from ``first`` on, which have these times, in order."""
    if boundary is BoundaryType.UPPER:
        return max(first + bisect_right(times, timestamp) - 1, first)
    return first + bisect_left(times, timestamp)


def near(times: list[int], draw: random.Random) -> list[int]:
    some = draw.choices(times, k=12) if times else [NOON]
    return [at + by for at in some for by in (-1, 0, 1)]


class Watched:
    """A store whose clock is set by hand, and the times of the units that its queues have."""

    def __init__(self, store: MessageStore) -> None:
        self.store, self._now = store, NOON
        self.times: dict[str, list[int]] = {topic: [] for topic in TOPICS}

    def put(self, count: int, draw: random.Random) -> None:
        for _ in range(count):
            self._now += draw.choice((0, 0, 1, 5000))
            CLOCK.stopped = self._now * 1_000_000
            topic = draw.choice(TOPICS)
            assert self.store.put_message(Message(topic, b"x")).ok
            self.times[topic].append(self._now)

    def files(self, topic: str) -> FileConsumeQueue:
        queues = components_of(self.store).queues
        assert isinstance(queues, FileConsumeQueueStore)
        found = queues._table.find(topic, 0)
        assert isinstance(found, FileConsumeQueue)
        return found

    def check(self, draw: random.Random) -> None:
        for topic, times in self.times.items():
            first = self.store.min_offset(topic, 0)
            assert self.store.max_offset(topic, 0) == len(times)
            for timestamp in near(times[first:], draw):
                for boundary in BoundaryType:
                    found = self.store.offset_by_time(topic, 0, timestamp, boundary)
                    wanted = expected(times[first:], first, timestamp, boundary)
                    assert found == wanted, (topic, timestamp, boundary)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(CLOCK, "stopped", NOON * 1_000_000)
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as store:
        yield Watched(store)


@pytest.mark.parametrize("seed", range(4))
def test_searches_beside_changes_answer_as_a_look_at_all(watched: Watched, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(8):
        watched.put(draw.choice((1, 2, 30, 130)), draw)
        watched.check(draw)
        if draw.random() < 0.3:
            log = components_of(watched.store).log.files
            log.delete_before(log.min_offset() + 8192)
        if draw.random() < 0.2:
            watched.store.delete_topics([topic := draw.choice(TOPICS)])
            watched.times[topic].clear()
        watched.check(draw)
    for topic, times in watched.times.items():
        if not times:
            continue
        files = watched.files(topic)
        for _ in range(min(3, (files.max_offset - files.first_offset) // 10)):
            files.truncate(files.max_offset - draw.choice((1, 9)))
            del times[files.max_offset :]
            watched.check(draw)


def test_times_are_read_once(watched: Watched) -> None:
    """A second search for a time reads no records but those next to the answer."""
    draw = random.Random(1)
    watched.put(600, draw)
    times, ask = watched.times["t"], watched.store.offset_by_time
    end = len(times)
    assert ask("t", 0, times[-1] + 1) == end
    files = watched.files("t")
    later = [at + 10**9 for at in times]
    for number, (phy, _, _) in enumerate(files.read_block(0, len(times)).rows()):
        path = components_of(watched.store).paths.commit_log / f"{phy // 8192 * 8192:020d}"
        with path.open("r+b") as file:
            file.seek(phy % 8192 + 56)
            file.write(later[number].to_bytes(8, "big"))
    assert ask("t", 0, times[-1] + 1) > end - 16
    files.generation += 1
    assert ask("t", 0, times[-1] + 1) == 0
    assert ask("t", 0, later[-1] + 1) == end


@pytest.mark.parametrize("seed", range(20))
def test_the_rule_finds_what_a_look_at_all_finds(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.choice((0, 1, 7, 8, 9, 100, 4087, 4088, 5000, 40_000))
    first = draw.choice((0, 1, 7, 8, 1 << 40))
    times, at = [], draw.choice((LONG_MIN, -5, NOON))
    for _ in range(count):
        at += draw.choice((0, 0, 1, 9))
        times.append(at)
    for timestamp in (*near(times, draw), LONG_MIN, LONG_MAX, LONG_MIN - 1, LONG_MAX + 1):
        for boundary in BoundaryType:
            asked: list[int] = []

            def timestamp_at(offset: int) -> int:
                asked.append(offset)  # noqa: B023 - it is called at once
                return times[offset - first]

            found = search_offset(first, first + count, timestamp, boundary, timestamp_at)
            assert found == expected(times, first, timestamp, boundary)
            assert len(asked) <= count.bit_length() + 2
