"""Topics are deleted many at once beside puts: those to other topics do not wait.

The backend's deletion, the slow step, stands still at a gate of the test's.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.store.errors import IllegalMessageError, StoreFailedError, StoreIOError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching.topic_hold import TopicHold
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.log_bytes import log_of
from tests.kit.waiting import until

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, enable_lmq=True, enable_multi_dispatch=True,
    mapped_file_size_consume_queue=2000, max_hash_slot_num=10, max_index_num=50,
    rocksdb_memory_bytes=16 << 20, max_lmq_consume_queue_num=3,
)  # fmt: skip
DOUBLE = {"rocksdb_cq_double_write_enable": True}
LIMIT = 30.0
"""Seconds after which a thread that should have gone on counts as stuck."""
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a"}


@pytest.fixture(params=[*backend_names(), "both"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    double = request.param == "both"
    config = CONFIG.model_copy(update=DOUBLE if double else {})
    backend = None if double else request.param
    with MessageStore.open(tmp_path / "s", config, backend=backend) as opened:
        yield opened


class Gate:
    """Deletions by the backend wait here."""

    def __init__(self, store: MessageStore) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.fault: StoreIOError | None = None
        self._delete = components_of(store).queues.delete_topics

    def delete_topics(self, topics: Sequence[str]) -> None:
        self.entered.set()
        assert self.open.wait(LIMIT)
        if self.fault is not None:
            raise self.fault
        self._delete(topics)


@contextmanager
def deleting(
    store: MessageStore, topics: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Gate, "Future[None]", ThreadPoolExecutor]]:
    """Begin to delete ``topics``, and hold that at the gate until the block opens it or ends."""
    gate = Gate(store)
    monkeypatch.setattr(components_of(store).queues, "delete_topics", gate.delete_topics)
    with ThreadPoolExecutor() as pool:
        try:
            done = pool.submit(store.delete_topics, topics)
            assert gate.entered.wait(LIMIT)
            yield gate, done, pool
        finally:
            gate.open.set()


def put(store: MessageStore, topic: str, count: int = 1, queue_id: int = 0) -> list[int]:
    results = [store.put_message(Message(topic, b"x", queue_id)) for _ in range(count)]
    assert all(result.ok for result in results), results
    return [result.queue_offset for result in results]


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    return [message.body for message in store.get_message(topic, 0, 0).messages()]


def test_a_put_elsewhere_goes_on_while_topics_are_deleted(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("gone", "gone-too", "stays"):
        put(store, topic, 3)
    with deleting(store, ["gone", "gone-too"], monkeypatch) as (gate, done, pool):
        wanted = [*range(3, 200)]
        assert pool.submit(put, store, "stays", len(wanted)).result(LIMIT) == wanted
        assert pool.submit(put, store, "new", 2).result(LIMIT) == [0, 1]
        assert pool.submit(bodies, store, "stays").result(LIMIT)
        pool.submit(store.flush).result(LIMIT)
        assert not done.done()
        gate.open.set()
        done.result(LIMIT)
    ends = {topic: store.max_offset(topic, 0) for topic in ("gone", "gone-too", "stays", "new")}
    assert ends == {"gone": 0, "gone-too": 0, "stays": 200, "new": 2}


def one(store: MessageStore) -> list[int]:
    return put(store, "gone")


def asynchronously(store: MessageStore) -> list[int]:
    return [store.put_message_future(Message("gone", b"new")).result(LIMIT).queue_offset]


def in_a_list(store: MessageStore) -> list[int]:
    results = store.put_messages([Message("stays", b"x"), Message("gone", b"new")])
    return [result.queue_offset for result in results[1:]]


def in_a_client_batch(store: MessageStore) -> list[int]:
    inner = [Message("gone", b"new"), Message("gone", b"new")]
    results = store.put_client_batch(Message("gone", encode_client_batch(inner)))
    return [result.queue_offset for result in results]


def beside_a_light_queue(store: MessageStore) -> list[int]:
    return [store.put_message(Message("gone", b"new", 0, LIGHT)).queue_offset]


def into_its_light_queue(store: MessageStore) -> list[int]:
    result = store.put_message(Message("stays", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%gone"}))
    assert result.ok
    return [store.max_offset("%LMQ%gone", 0) - 1]


@pytest.mark.parametrize(
    "again",
    [one, asynchronously, in_a_list, in_a_client_batch, beside_a_light_queue, into_its_light_queue],
)
def test_a_put_into_a_topic_that_is_being_deleted_begins_its_new_incarnation(
    store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    again: Callable[[MessageStore], list[int]],
) -> None:
    put(store, "gone", 3)
    put(store, "stays", 3)
    into_its_light_queue(store)
    with deleting(store, ["gone", "%LMQ%gone"], monkeypatch) as (gate, done, pool):
        waiting = pool.submit(again, store)
        assert pool.submit(put, store, "stays").result(LIMIT) == [4]
        assert not waiting.done()
        gate.open.set()
        done.result(LIMIT)
        offsets = waiting.result(LIMIT)
    assert offsets == [*range(len(offsets))]
    assert put(store, "gone") == [len(bodies(store, "gone")) - 1]
    assert [finding for finding in store.check() if finding.damage] == []
    root = store.root
    store.close()
    (root / "abort").touch()  # as after a crash: the log is replayed
    before = store.config
    with MessageStore.open(root, before) as again_open:
        assert again_open.report.restarts == []
        assert [finding for finding in again_open.check() if finding.damage] == []
        expected = {"gone": len(offsets) + 1, "%LMQ%gone": 0}
        if again is into_its_light_queue:
            expected = {"gone": 1, "%LMQ%gone": 1}
        assert {topic: again_open.max_offset(topic, 0) for topic in expected} == expected


def test_a_record_of_another_log_waits_for_the_new_life_of_its_topic(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(store, "gone", 3)
    log, waits = log_of(store), threading.Event()
    with MessageStore.open(tmp_path / "leader", CONFIG) as leader:
        leader.append_to_commit_log(0, log)
        leader.delete_topic("gone")
        assert put(leader, "gone") == [0]
        new = log_of(leader)[len(log) :]
    wait = TopicHold.wait

    def noted(hold: TopicHold, seconds: float) -> None:
        waits.set()
        wait(hold, seconds)

    monkeypatch.setattr(TopicHold, "wait", noted)
    with deleting(store, ["gone"], monkeypatch) as (gate, done, pool):
        waiting = pool.submit(store.append_to_commit_log, len(log), new)
        until(lambda: waits.is_set() or waiting.done())
        assert not waiting.done()
        gate.open.set()
        done.result(LIMIT)
        assert waiting.result(LIMIT) == len(log) + len(new)
    assert put(store, "gone") == [1]
    assert len(bodies(store, "gone")) == 2
    assert [finding for finding in store.check() if finding.damage] == []


def test_what_waits_for_its_queue_goes_too(store: MessageStore) -> None:
    put(store, "gone", 5)  # no read yet: the units wait in memory
    put(store, "stays", 5)
    store.delete_topics(["gone"])
    assert (store.max_offset("gone", 0), store.max_offset("stays", 0)) == (0, 5)


def test_a_deletion_that_fails_lets_nobody_wait_and_nobody_put(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "gone", 3)
    with deleting(store, ["gone"], monkeypatch) as (gate, done, pool):
        waiting = pool.submit(put, store, "gone")
        assert pool.submit(put, store, "stays").result(LIMIT) == [0]
        gate.fault = StoreIOError("the disk refused")
        gate.open.set()
        with pytest.raises(StoreIOError, match="the disk refused"):
            done.result(LIMIT)
        with pytest.raises(StoreFailedError):
            waiting.result(LIMIT)
    with pytest.raises(StoreFailedError):
        put(store, "stays")
    root, config = store.root, store.config
    store.close()
    with MessageStore.open(root, config) as again:
        assert (again.max_offset("gone", 0), again.max_offset("stays", 0)) == (0, 1)
        assert put(again, "gone") == [0]


@pytest.mark.parametrize("at", ["drain", "begin", "delete", "finish"])
def test_an_interrupt_ends_all_writing_and_the_next_open_settles_it(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Next offsets are forgotten, or a line is written: only a recovery knows how to go on."""
    put(store, "gone", 3)
    put(store, "stays", 3)
    parts = components_of(store)
    places = {
        "drain": (parts.dispatcher, "drain"), "begin": (parts.deleted, "begin"),
        "delete": (parts.queues, "delete_topics"), "finish": (parts.deleted, "finish"),
    }  # fmt: skip

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*places[at], interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.delete_topics(["gone"])
    for topic in ("gone", "stays"):
        with pytest.raises(StoreFailedError):
            put(store, topic)
    root, config = store.root, store.config
    store.close()
    with MessageStore.open(root, config) as again:
        left = 3 if at in {"drain", "begin"} else 0
        assert (again.max_offset("gone", 0), again.max_offset("stays", 0)) == (left, 3)
        assert put(again, "gone") == [left]
        assert [finding for finding in again.check() if finding.damage] == []


def test_nothing_is_deleted_if_one_name_is_none(store: MessageStore) -> None:
    put(store, "gone", 3)
    with pytest.raises(IllegalMessageError):
        store.delete_topics(["gone", "x" * 300])
    assert store.max_offset("gone", 0) == 3
    assert len(components_of(store).deleted) == 0


def test_thousands_go_in_one_call_and_neighbours_stay(store: MessageStore) -> None:
    topics = [f"t{number}" for number in range(2500)]
    for first in range(0, len(topics), 500):
        store.put_messages([Message(topic, b"x") for topic in topics[first : first + 500]])
    gone = [topic for topic in topics if not topic.endswith("7")]
    store.delete_topics([*gone, "never was", gone[0]])
    left = sorted(topic for topic in topics if topic.endswith("7"))
    assert sorted(store.topics()) == left
    assert all(bodies(store, topic) == [b"x"] for topic in left[::50])
    root, config = store.root, store.config
    store.close()
    (root / "abort").touch()
    with MessageStore.open(root, config) as again:
        assert sorted(again.topics()) == left
        assert [finding for finding in again.check() if finding.damage] == []


def test_light_queues_that_were_deleted_make_room_for_others(store: MessageStore) -> None:
    def light(*names: str) -> bool:
        properties = {"INNER_MULTI_DISPATCH": ",".join(names)}
        return store.put_message(Message("t", b"x", 0, properties)).ok

    assert light("%LMQ%a", "%LMQ%b", "%LMQ%c")
    assert not light("%LMQ%d")
    store.delete_topics(["%LMQ%a", "%LMQ%never", "t"])
    assert light("%LMQ%d")
    assert not light("%LMQ%e")
    store.delete_topics(["%LMQ%b", "%LMQ%c"])
    assert light("%LMQ%b", "%LMQ%e")
    assert not light("%LMQ%c")


def test_light_queues_first_counted_while_some_are_deleted(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def light(name: str) -> bool:
        return store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": name})).ok

    assert all(light(f"%LMQ%{name}") for name in "abc")
    root, config = store.root, store.config
    store.close()
    with MessageStore.open(root, config) as again:
        with deleting(again, ["%LMQ%a"], monkeypatch) as (gate, done, pool):
            counting = (again.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": name})).ok
                        for name in ("%LMQ%d", "%LMQ%e"))  # fmt: skip
            assert pool.submit(list, counting).result(LIMIT) == [True, False]
            gate.open.set()
            done.result(LIMIT)
        put_of = Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%e"})
        assert not again.put_message(put_of).ok
