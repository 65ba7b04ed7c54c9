"""No garbage is collected in the middle of a put: what that calls may put, or change the message.

Python 3.11 begins a collection where an object is made that its collector knows, later ones between
two lines of Python.
"""

import gc
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult
from tests.kit.compared_puts import CONFIG
from tests.kit.shim.clock import CLOCK

ROOMY = CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 20})
THRESHOLDS = range(1, 13)
FAR = 1 << 15
"""Queues with ids so far apart share one cached slot: each takes the other's, with a new key."""
Put = Callable[[MessageStore, Message], Sequence[PutMessageResult | None] | None]


def one(store: MessageStore, message: Message) -> Sequence[PutMessageResult | None] | None:
    return [components_of(store).putter._fast.one(message)]


def several(store: MessageStore, message: Message) -> Sequence[PutMessageResult | None] | None:
    other = Message("t", b"other", message.queue_id ^ FAR)
    return components_of(store).putter._fast.several([other, message, other, message])


class Meddler:
    """Puts another message, and changes one, where a collection begins."""

    def __init__(self, store: MessageStore, message: Message) -> None:
        self.store = store
        self.message = message
        self.inner: list[PutMessageResult] = []
        for topic in ("t", "inner"):
            for queue in (0, FAR):
                store.put_message(Message(topic, b"other", queue))
        self.change()

    def change(self) -> None:
        self.message.body, self.message.properties = changed(len(self.inner) + 1)

    def __call__(self, phase: str, _: object) -> None:
        if phase == "start":
            self.inner.append(self.store.put_message(Message("inner", b"inner", FAR)))
            self.change()


class BatchMeddler(Meddler):
    """Likewise, where the message is a client batch: each time of another length."""

    def change(self) -> None:
        number = len(self.inner) + 1
        body, properties = changed(number)
        text = "".join(f"{name}\1{value}\2" for name, value in properties.items()).encode()
        head = struct.pack(">iiiii", 20 + len(body) + 2 + len(text), 0, 0, 0, len(body))
        self.message.body = (head + body + struct.pack(">h", len(text)) + text) * (1 + number % 5)


def changed(number: int) -> tuple[bytes, dict[str, str]]:
    """Return the body and the properties of a message that was changed so often."""
    return b"%d" % number * 40, {"TAGS": f"{number}", "KEYS": f"key-{number}", "a": "b" * number}


@contextmanager
def called_often(callback: Callable[[str, dict[str, int]], None], threshold: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(callback)
    gc.set_threshold(threshold)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)


def check_whole(store: MessageStore, results: Sequence[PutMessageResult | None]) -> None:
    """Check that each record has body, properties and place of one message, at times that rise."""
    times: dict[int, int] = {}
    for result in results:
        assert result is not None
        assert result.appended is not None
        found = components_of(store).log.message(result.appended.phy_offset)
        place = (found.queue_offset, (found.phy_offset, found.size, found.store_timestamp))
        assert place == (result.queue_offset, result.appended)
        of_message = changed(len(found.properties.get("a", "")))
        said = (found.stored_body, found.properties)
        assert said in (of_message, (b"other", {}), (b"inner", {}))
        times[found.phy_offset] = found.store_timestamp
    in_order = [times[phy_offset] for phy_offset in sorted(times)]
    assert in_order == sorted(in_order)
    assert [finding for finding in store.check() if finding.damage] == []


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """A store where no two moments are the same."""
    monkeypatch.setattr(CLOCK, "stopped", 1_700_000_000_000_000_000)
    monkeypatch.setattr(CLOCK, "step", 1_000_000)
    with MessageStore.open(tmp_path, ROOMY, housekeeping=False) as opened:
        yield opened


@pytest.mark.parametrize("put", [one, several])
def test_a_collection_comes_before_a_put_or_behind_it(store: MessageStore, put: Put) -> None:
    message = Message("t", b"")
    meddler, results = Meddler(store, message), list[PutMessageResult | None]()
    for threshold in THRESHOLDS:
        for queue in (0, FAR, FAR, 0):
            message.queue_id = queue
            store.max_offset("t", 0)  # the next batch knows no queue
            with called_often(meddler, threshold):
                done = put(store, message)
            assert done is not None
            results += done
    assert meddler.inner
    check_whole(store, [*results, *meddler.inner])


def test_a_collection_comes_before_a_message_is_encoded_or_when_all_is_held(
    store: MessageStore,
) -> None:
    message = Message("t", b"")
    meddler, results = Meddler(store, message), list[PutMessageResult]()
    putter = components_of(store).putter
    for threshold in THRESHOLDS:
        for queue in (0, FAR, FAR, 0):
            message.queue_id = queue
            records = putter._fast.encoded()
            learnt = putter._rules.learnt(message)
            with called_often(meddler, threshold):
                assert records.add(message, learnt)
            results += putter._append.encoded(records, whole=False)
    assert meddler.inner
    check_whole(store, [*results, *meddler.inner])


def test_a_client_batch_that_is_changed_before_its_put_is_left_alone(store: MessageStore) -> None:
    message = Message("t", b"")
    meddler, taken = BatchMeddler(store, message), list[bool]()
    for threshold in THRESHOLDS:
        with called_often(meddler, threshold):
            done = components_of(store).putter._fast.batch(message)
        check_whole(store, [*(done or ()), *meddler.inner])
        taken.append(done is not None)
    assert True in taken
    assert sys.version_info >= (3, 12) or False in taken


def test_results_and_keys_are_as_python_makes_them(store: MessageStore) -> None:
    """They are made blank, and filled: also what an interpreter keeps beside a tuple's items."""
    messages = [Message("t", b"", queue) for queue in range(3)]
    store.put_messages(messages)
    store.max_offset("t", 0)
    done = components_of(store).putter._fast.several(messages)
    assert done is not None
    assert gc.is_tracked(done)
    for result in done:
        assert hash(result) == hash(tuple(result))
        assert hash(result.appended) == hash(tuple(result.appended or ()))
        assert gc.is_tracked(result)
    queues = components_of(store).pending.units.queues
    assert [hash(key) for key in queues] == [hash(("t", queue)) for queue in range(3)]
    assert {type(key) for key in queues} == {QueueKey}
