"""A store under threads that do everything at once, and a model of what it has acknowledged.

Every message says in its body where it belongs, so that a reader of one can check whether it is
the right one; the model knows the place of each that was acknowledged.
"""

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count

from cqstore.store.errors import CorruptionError, StoreClosedError
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageStatus, PutMessageResult
from tests.kit.waiting import until

Queue = tuple[str, int]
STEADY = [("steady", 0), ("steady", 1), ("other", 0)]
"""Queues that only grow, and lose what expires."""
REBUILT = [("rebuilt", 0), ("rebuilt", 1)]
"""Queues that are rebuilt now and then: readers see them grow."""
DELETED = [("deleted", 0), ("deleted", 1)]
"""Queues of a topic that is deleted now and then."""
QUEUES = [*STEADY, *REBUILT, *DELETED]
KEPT_FILES = 4
"""Log files that an expiry leaves."""
_SHARED = 40
"""Messages are spread over so many keys that several have."""
_ALL_TAGS = ("A", "B", "C")
_ABSENT = {
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
    GetMessageStatus.NO_MATCHED_MESSAGE,
}


@dataclass(frozen=True, slots=True)
class Kept:
    """One acknowledged message."""

    number: int
    queue: Queue
    offset: int
    phy_offset: int
    stored: int
    """Its store time, ms; a time search may ask for it."""

    @property
    def key(self) -> str:
        return f"k{self.number}"


def body_of(number: int, queue: Queue) -> bytes:
    return f"{number} {queue[0]} {queue[1]} ".encode().ljust(40 + number * 37 % 900, b".")


def message_of(number: int, queue: Queue) -> Message:
    properties = {"KEYS": f"k{number} s{number % _SHARED}", "TAGS": _ALL_TAGS[number % 3]}
    return Message(queue[0], body_of(number, queue), queue[1], properties)


@dataclass
class Model:
    """What was acknowledged, and what was asked for without an answer yet."""

    by_phy: dict[int, Kept] = field(default_factory=dict)
    by_queue: dict[Queue, list[Kept]] = field(default_factory=lambda: {q: [] for q in QUEUES})
    requested: set[int] = field(default_factory=set)
    """Numbers of puts that have not been acknowledged: there or not."""
    deleted_from: int = 0
    """The topic's deletion that ended last began when the log ended there."""
    deleted_to: int = 0
    """It ended when the log ended there."""
    deleting_from: int | None = None
    """One that began when the log ended there was cut short by the close: done or not."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: "count[int]" = field(default_factory=count)

    def ask(self, queue: Queue) -> tuple[int, Message]:
        number = next(self.numbers)
        with self.lock:
            self.requested.add(number)
        return number, message_of(number, queue)

    def answer(self, number: int, queue: Queue, result: PutMessageResult) -> None:
        assert result.ok, result
        assert result.appended is not None
        phy_offset, _, stored = result.appended
        kept = Kept(number, queue, result.queue_offset, phy_offset, stored)
        with self.lock:
            assert phy_offset not in self.by_phy
            self.by_phy[phy_offset] = kept
            self.by_queue[queue].append(kept)
            self.requested.discard(number)

    def compare(self, message: StoredMessage, queue: Queue, offset: int) -> int:
        """Compare a message that was found in a queue; return its number."""
        number = int(message.body.split()[0])
        assert (message.topic, message.queue_id) == queue
        assert message.queue_offset == offset
        assert message.body == body_of(number, queue)
        kept = self.by_phy.get(message.phy_offset)
        assert kept is None or (kept.number, kept.queue, kept.offset) == (number, queue, offset)
        return number


MAX_LOG_BYTES = 1 << 28
"""Nothing more is put behind so much, however long the rarest step takes to come: the files of the
log are small, and each of them is open."""


class Threads:
    """Threads over one open store, until ``stop``; a fault of any of them is raised there."""

    def __init__(self, store: MessageStore, seed: int = 0) -> None:
        self.store = store
        self.model = Model()
        self._seed = seed
        self._done = threading.Event()
        self._closing = False
        self.steps: dict[str, int] = {}
        """How often each thing was done."""

    def run(self, seconds: float) -> None:
        """Let them work, then close the store while they go on."""
        works: list[tuple[str, Callable[[random.Random], None]]] = [
            ("put", self.put), ("put list", self.put_list), ("put async", self.put_async),
            ("put", self.put), ("pull", self.pull), ("filtered pull", self.filtered_pull),
            ("query", self.query), ("by offset", self.by_offset), ("by time", self.by_time),
            ("offsets", self.offsets), ("expire", self.expire), ("delete", self.delete_topic),
            ("flush", self.flush), ("rebuild", self.rebuild), ("look", self.look),
        ]  # fmt: skip
        with ThreadPoolExecutor(len(works)) as pool:
            running = [
                pool.submit(self._repeat, name, work, self._seed * 100 + at)
                for at, (name, work) in enumerate(works)
            ]
            try:
                self._done.wait(seconds)  # cut short by the first fault
                until(lambda: self._done.is_set() or all(self.steps.get(name) for name, _ in works))
            finally:
                self._closing = True
                self.store.close()
                self._done.set()
            for each in running:
                each.result()

    def _repeat(self, name: str, work: Callable[[random.Random], None], seed: int) -> None:
        draw = random.Random(seed)
        try:
            while not self._done.is_set() and not (
                name.startswith("put") and self._has_put_enough()
            ):
                work(draw)
                with self.model.lock:
                    self.steps[name] = self.steps.get(name, 0) + 1
        except StoreClosedError:
            assert self._closing
        except BaseException:
            self._done.set()
            raise

    def _has_put_enough(self) -> bool:
        return self.store.max_phy_offset() > MAX_LOG_BYTES

    def _some(self, draw: random.Random, queues: list[Queue]) -> Kept | None:
        kept = self.model.by_queue[draw.choice(queues)]
        if not kept:
            return None
        # The newest and the oldest that are there are where things happen.
        newest, oldest = len(kept) - 1, max(len(kept) - 1500, 0)
        return kept[draw.choice([newest, draw.randint(oldest, newest)])]

    def _expired(self, kept: Kept) -> bool:
        return kept.phy_offset < self.store.min_phy_offset()

    # ---- writing

    def put(self, draw: random.Random) -> None:
        queue = draw.choice(QUEUES)
        number, message = self.model.ask(queue)
        self.model.answer(number, queue, self.store.put_message(message))

    def put_list(self, draw: random.Random) -> None:
        queues = draw.choices(QUEUES, k=draw.choice([2, 10, 60]))
        requested = [self.model.ask(queue) for queue in queues]
        results = self.store.put_messages([message for _, message in requested])
        for queue, (number, _), result in zip(queues, requested, results, strict=True):
            self.model.answer(number, queue, result)

    def put_async(self, draw: random.Random) -> None:
        waiting: list[tuple[int, Queue, Future[PutMessageResult]]] = []
        try:
            for queue in draw.choices(QUEUES, k=20):
                number, message = self.model.ask(queue)
                waiting.append((number, queue, self.store.put_message_future(message)))
        finally:
            for number, queue, future in waiting:
                self.model.answer(number, queue, future.result(60))

    # ---- reading

    def pull(self, draw: random.Random) -> None:
        kept = self._some(draw, STEADY)
        if kept is None:
            return
        result = self.store.get_message(*kept.queue, kept.offset, draw.choice([1, 32]))
        for offset, message in zip(result.queue_offsets, result.messages(), strict=True):
            self.model.compare(message, kept.queue, offset)
        if result.queue_offsets[:1] != [kept.offset]:
            assert self._expired(kept), (kept, result.status, result.queue_offsets[:1])
        assert result.records or result.status in _ABSENT, result.status

    def filtered_pull(self, draw: random.Random) -> None:
        queue, tag = draw.choice(QUEUES), draw.choice(_ALL_TAGS)
        at = self.store.min_offset(*queue)
        for _ in range(20):
            result = self.store.get_message(*queue, at, 32, TagFilter(tag))
            for offset, message in zip(result.queue_offsets, result.messages(), strict=True):
                assert _ALL_TAGS[self.model.compare(message, queue, offset) % 3] == tag
            if result.next_begin_offset == at:
                return
            at = result.next_begin_offset

    def query(self, draw: random.Random) -> None:
        kept = self._some(draw, [*STEADY, *REBUILT])
        if kept is None:
            return
        found = self.store.query_message(kept.queue[0], kept.key)
        if [message.phy_offset for message in found] != [kept.phy_offset]:
            assert not found
            assert self._expired(kept), kept
        shared = f"s{kept.number % _SHARED}"
        found = self.store.query_message(kept.queue[0], shared, 64)
        places = [message.phy_offset for message in found]
        assert places == sorted(set(places))
        for message in found:
            queue = message.topic, message.queue_id
            number = self.model.compare(message, queue, message.queue_offset)
            assert f"s{number % _SHARED}" == shared

    def by_offset(self, draw: random.Random) -> None:
        kept = self._some(draw, QUEUES)
        if kept is None:
            return
        try:
            message = self.store.message_by_offset(kept.phy_offset)
        except CorruptionError:
            assert self._expired(kept), kept
        else:
            self.model.compare(message, kept.queue, kept.offset)

    def by_time(self, draw: random.Random) -> None:
        kept = self._some(draw, STEADY)
        if kept is None:
            return
        lower = self.store.offset_by_time(*kept.queue, kept.stored)
        upper = self.store.offset_by_time(*kept.queue, kept.stored, BoundaryType.UPPER)
        if not self._expired(kept):
            assert lower <= kept.offset <= upper, (lower, kept, upper)

    def offsets(self, draw: random.Random) -> None:
        kept = self._some(draw, STEADY)
        if kept is None:
            return
        store, queue = self.store, kept.queue
        low, high = store.min_offset(*queue), store.max_offset(*queue)
        assert low <= high
        assert high > kept.offset
        assert low <= kept.offset or self._expired(kept)
        assert store.min_offset(*queue) >= low
        assert store.max_offset(*queue) >= high

    # ---- everything else

    def expire(self, draw: random.Random) -> None:
        files = components_of(self.store).log.files.files()
        if len(files) > KEPT_FILES:
            self.store.delete_expired_files(files[-KEPT_FILES].file_from_offset)
        self._done.wait(draw.choice([0.005, 0.05]))

    def delete_topic(self, draw: random.Random) -> None:
        model, log = self.model, components_of(self.store).log
        begin = model.deleting_from = log.max_phy_offset()
        self.store.delete_topic(DELETED[0][0])
        with model.lock:
            model.deleted_from, model.deleted_to = begin, log.max_phy_offset()
            model.deleting_from = None
        self._done.wait(draw.choice([0.02, 0.3]))

    def flush(self, draw: random.Random) -> None:
        self.store.flush()
        self._done.wait(draw.choice([0.005, 0.05]))

    def rebuild(self, draw: random.Random) -> None:
        self.store.rebuild_queues("rebuilt", draw.choice([None, 0, 1]))
        self._done.wait(draw.choice([0.1, 0.5]))

    def look(self, draw: random.Random) -> None:
        """Everything that walks over what others change."""
        store = self.store
        keys = list(store.queue_keys())
        assert len(set(keys)) == len(keys)
        assert {*QUEUES} >= {*keys}
        assert {*store.topics()} <= {topic for topic, _ in QUEUES}
        for key in keys:
            store.estimate_message_count(*key, 0, 1 << 40, TagFilter("A"))
        store.metrics.snapshot()
        components_of(store).queues.describe()
        components_of(store).queues.stats()
        components_of(store).queues.written_bytes()
        components_of(store).queues.total_size_bytes()
        list(store.check())
        self._done.wait(draw.choice([0.01, 0.2]))


def compare_all(store: MessageStore, model: Model, max_queries: int = 1000) -> int:
    """Compare a store at rest with the model; return how many messages were compared."""
    compared = 0
    for queue in QUEUES:
        compared += _compare_queue(store, model, queue)
    low = store.min_phy_offset()
    there = [kept for phy, kept in sorted(model.by_phy.items()) if phy >= low]
    rest = random.Random(0).sample(there, min(len(there), max_queries // 2))
    for kept in {*there[-max_queries // 2 :], *rest}:
        hits = store.query_message(kept.queue[0], kept.key)
        assert [hit.phy_offset for hit in hits] == [kept.phy_offset], ("not in the index", kept)
    assert [finding for finding in store.check() if finding.damage] == []
    return compared


def _compare_queue(store: MessageStore, model: Model, queue: Queue) -> int:
    """Compare one queue: each message once at its offset, the expired gone from the front."""
    least = store.min_phy_offset()
    low, high = store.min_offset(*queue), store.max_offset(*queue)
    found: dict[int, StoredMessage] = {}
    at = low
    while at < high:
        result = store.get_message(*queue, at)
        assert result.queue_offsets[:1] == [at], (queue, at, result.status)
        found.update(zip(result.queue_offsets, result.messages(), strict=True))
        at = result.next_begin_offset
    assert list(found) == list(range(low, high))
    known = 0
    for offset, message in found.items():
        number = model.compare(message, queue, offset)
        assert message.phy_offset in model.by_phy or number in model.requested, (
            queue,
            offset,
            number,
        )
        known += message.phy_offset in model.by_phy
    living = [kept for kept in model.by_queue[queue] if kept.phy_offset >= least]
    if queue in DELETED:
        places = {message.phy_offset for message in found.values()}
        assert all(place >= model.deleted_from for place in places)
        if model.deleting_from is not None and all(at >= model.deleting_from for at in places):
            return known
        living = [kept for kept in living if kept.phy_offset >= model.deleted_to]
        assert {kept.phy_offset for kept in living} <= places
        if low == 0 and high:
            assert min(found) == 0
        return known
    for kept in living:
        assert found[kept.offset].phy_offset == kept.phy_offset, kept
    for kept in model.by_queue[queue]:
        assert (kept.offset >= low) is (kept.phy_offset >= least), (low, least, kept)
    assert known == len(living)
    return known
