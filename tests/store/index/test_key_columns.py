"""Batches of keys against a plain list of them, with letters and sizes of all kinds."""

import gc
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.key_hash import key_hash
from cqstore.store.record.java_hash import java_hash
from tests.kit.oracle import java_hash as hash_oracle

Row = tuple[str, str, int, int]
ANY_LETTER = st.characters(codec=None, categories=None)
"""Surrogates, too."""
TEXTS = st.one_of(
    st.sampled_from(["t", "t#", "#", "a", "a#b", "é", "\ud83d\ude00", "😀", "\udc00", "", "T#a"]),
    st.text(ANY_LETTER, max_size=9),
    st.sampled_from([255, 256, 9_000]).map("x".__mul__),
    st.integers(1, 30).map("aé你😀".__mul__),
)
WORDS = st.lists(TEXTS, max_size=4).map(" ".join)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@cache
def hash_of(topic: str, key: str) -> int:
    hashed = abs(hash_oracle.java_hash(f"{topic}#{key}"))
    return 0 if hashed == 1 << 31 else hashed


class Keys(RuleBasedStateMachine):
    """Two batches, each beside its model: what is added to one, and taken over by the other."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = [IndexBatch(), IndexBatch()]
        self.models: list[list[Row]] = [[], []]
        self.seen: list[tuple[memoryview, bytes]] = []

    @rule(at=st.integers(0, 1), topic=TEXTS, key=TEXTS, phy_offset=NUMBERS, stored=NUMBERS)
    def add(self, at: int, topic: str, key: str, phy_offset: int, stored: int) -> None:
        self.batches[at].add(topic, key, phy_offset, stored)
        self.models[at].append((topic, key, phy_offset, stored))

    @rule(
        at=st.integers(0, 1), topic=TEXTS, uniq_key=st.none() | TEXTS, words=st.none() | WORDS,
        tags=st.none() | TEXTS,
    )  # fmt: skip
    def add_record(
        self, at: int, topic: str, uniq_key: str | None, words: str | None, tags: str | None
    ) -> None:
        self.batches[at].add_record(topic, uniq_key, words, tags, 7, 8)
        keys = [uniq_key or "", *(words or "").split(" "), f"T#{tags}" if tags else ""]
        self.models[at] += [(topic, key, 7, 8) for key in keys if key]

    @rule(at=st.integers(0, 1), data=st.data())
    def extend(self, at: int, data: st.DataObject) -> None:
        other = self.models[1 - at]
        start = data.draw(st.integers(0, len(other)))
        end = data.draw(st.integers(start, len(other)))
        self.batches[at].extend(self.batches[1 - at], start, end)
        self.models[at] += other[start:end]

    @rule(at=st.integers(0, 1))
    def double(self, at: int) -> None:
        if len(self.models[at]) < 50:
            self.batches[at].extend(self.batches[at], 0, len(self.models[at]))
            self.models[at] *= 2

    @rule(at=st.integers(0, 1))
    def look(self, at: int) -> None:
        """A view of a column keeps what it shows."""
        for column in (self.batches[at].entries, self.batches[at].names):
            view = memoryview(column)
            self.seen.append((view, bytes(view)))

    @rule(at=st.integers(0, 1), topic=TEXTS, key=TEXTS)
    def find_any(self, at: int, topic: str, key: str) -> None:
        self.check_found(at, topic, key)

    @rule(at=st.integers(0, 1), data=st.data())
    def find_one(self, at: int, data: st.DataObject) -> None:
        if self.models[at]:
            topic, key, _, _ = data.draw(st.sampled_from(self.models[at]))
            self.check_found(at, topic, key)

    def check_found(self, at: int, topic: str, key: str) -> None:
        rows = [row for row, one in enumerate(self.models[at]) if one[:2] == (topic, key)]
        assert self.batches[at].find(topic, key) == rows[::-1]

    @rule()
    def holds_what_was_added(self) -> None:
        for batch, model in zip(self.batches, self.models, strict=True):
            assert len(batch) == len(model)
            assert [*batch.rows(0, len(model))] == model
            columns = batch.columns()
            assert columns["phy_offset"].tolist() == [row[2] for row in model]
            assert columns["store_timestamp"].tolist() == [row[3] for row in model]
            assert columns["key_hash"].tolist() == [hash_of(*row[:2]) for row in model]
            names = [f"{topic}#{key}".encode("utf-8", "surrogatepass") for topic, key, *_ in model]
            assert columns["name_end"].tolist() == np.cumsum([*map(len, names)]).tolist()
            assert bytes(batch.names) == b"".join(names)
        for view, data in self.seen:
            assert bytes(view) == data

    def teardown(self) -> None:
        self.holds_what_was_added()


TestKeys = Keys.TestCase
TestKeys.settings = settings(max_examples=40, stateful_step_count=25)


@given(topic=TEXTS, key=TEXTS)
def test_a_hash_is_that_of_a_query(topic: str, key: str) -> None:
    batch = IndexBatch()
    batch.add(topic, key, 0, 0)
    assert batch.columns()["key_hash"].tolist() == [key_hash(topic, key)] == [hash_of(topic, key)]


@pytest.mark.parametrize(("topic", "key"), [("t", "BEHMU\\^"), ("a", "x"), ("", "b")])
def test_a_hash_without_its_sign_is_as_java_has_it(topic: str, key: str) -> None:
    """The first one's is the number that has no positive counterpart: it counts as 0."""
    batch = IndexBatch()
    batch.add(topic, key, 0, 0)
    assert batch.columns()["key_hash"].tolist() == [key_hash(topic, key)]
    assert (java_hash(f"{topic}#{key}") == -(1 << 31)) is (topic == "t")


def added(batch: IndexBatch, *given: object) -> None:
    batch.add(*given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ask",
    [
        lambda batch: added(batch, None, "k", 1, 2), lambda batch: added(batch, "t", b"k", 1, 2),
        lambda batch: added(batch, "t", "k", None, 2), lambda batch: added(batch, "t", "k", 1, "2"),
        lambda batch: added(batch, "t", "k", 1 << 63, 2), lambda batch: batch.find("t", 1),
        lambda batch: batch.find(None, "k"), lambda batch: batch.extend(None, 0, 1),
        lambda batch: batch.extend(batch, 0, 2), lambda batch: batch.extend(batch, -1, 1),
        lambda batch: batch.extend(batch, 1, 0), lambda batch: batch.phy_offset(1),
        lambda batch: batch.phy_offset(-1), lambda batch: batch.store_timestamp(1),
        lambda batch: batch.name(1), lambda batch: [*batch.rows(0, 2)],
    ],
)  # fmt: skip
def test_what_is_no_key_and_no_row_is_refused_and_changes_nothing(
    ask: Callable[[IndexBatch], object],
) -> None:
    batch = IndexBatch()
    batch.add("t", "k", 1, 2)
    before = bytes(batch.entries), bytes(batch.names)
    with pytest.raises((TypeError, IndexError, OverflowError)):
        ask(batch)
    assert (bytes(batch.entries), bytes(batch.names)) == before
    assert [*batch.rows(0, 1)] == [("t", "k", 1, 2)]


def test_a_row_holds_no_object() -> None:
    """So rows can be read without the interpreter's lock: numbers of the machine's own order."""
    batch = IndexBatch()
    topic, key = "t" * 50, "k" * 50
    before = sys.getrefcount(topic), sys.getrefcount(key)
    batch.add(topic, key, 5, 6)
    assert (sys.getrefcount(topic), sys.getrefcount(key)) == before
    assert struct.unpack("=qqqii", bytes(batch.entries)) == (5, 6, 101, key_hash(topic, key), 50)


@contextmanager
def grows_in_a_collection(batch: IndexBatch, threshold: int) -> Iterator[None]:
    """Have the next collection of garbage, which may run anything, add keys until all move."""

    def add(_: str, __: object) -> None:
        while len(batch) < 100:
            batch.add("other", f"k{len(batch)}", 1, 2)

    thresholds = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(add)
    gc.set_threshold(threshold)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(add)


@pytest.mark.parametrize("threshold", range(1, 9))
def test_a_batch_that_grows_while_it_is_asked_answers_right(threshold: int) -> None:
    """A surrogate makes an exception, and that a collection; a sanitizer sees a lost block."""
    for ask in ("find", "name"):
        batch = IndexBatch()
        batch.add("t\ud800and more", "k\udfffand more", 7, 8)
        with grows_in_a_collection(batch, threshold):
            for _ in range(3):
                if ask == "find":
                    assert batch.find("t\ud800and more", "k\udfffand more") == [0]
                else:
                    assert batch.name(0) == ("t\ud800and more", "k\udfffand more")
