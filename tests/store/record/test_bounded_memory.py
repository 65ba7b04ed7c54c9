"""What is remembered because it repeats: within its bound of bytes, however long the texts are."""

import tracemalloc
from collections.abc import Callable
from itertools import count
from typing import cast

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.keys import (
    LONGEST_PREFIX,
    MAX_TOPIC_BYTES,
    check_topic,
    queue_prefix,
    topic_head,
)
from cqstore.cq_rocksdb.queues.offset_table import OffsetTable
from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.bounded_cache import BoundedCache
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import Host, Message
from cqstore.store.record.properties import dispatch_properties, encode_properties
from cqstore.store.record.scan import TopicCache
from cqstore.store.settings.config import StoreConfig
from tests.kit.core_encoder import CoreEncoder

MiB = 1 << 20
NUMBER = count(1_000_000)


def grown(work: Callable[[str], object], size: int, times: int, wide: str = "x") -> int:
    """Return the bytes that stay after ``work`` with so many texts of ``size`` bytes of UTF-8."""
    width = len(wide.encode())
    tracemalloc.start()
    try:
        for _ in range(times):
            work(f"{next(NUMBER)}".ljust(7) + wide * ((size - 7) // width))
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wide", ["x", "é", "主", "𝄞"])
@pytest.mark.parametrize("size", [900, 30_000])
def test_puts_forget_properties_that_do_not_repeat(size: int, wide: str) -> None:
    """9,000 puts of large ones held 778 MB."""
    encoder = CoreEncoder()

    def put(text: str) -> None:
        encoder.encode(message := Message("t", b"", properties={"a": text}))
        encoder.rules.check(message)

    assert grown(put, size, 2500 if size < 1000 else 400, wide) < 9 * MiB


def test_puts_forget_topics() -> None:
    rules = EncodingRules(StoreConfig(), lambda _: None)
    assert grown(lambda text: rules.learnt(Message(text, b"")), 255, 50_000) < 32 * MiB
    assert len(rules.topics) < 45_000


def test_dispatch_forgets_properties() -> None:
    def dispatch(text: str) -> None:
        dispatch_properties(encode_properties({"a": text}))

    assert grown(dispatch, 240, 6000) < 9 * MiB


@pytest.mark.parametrize("size", [1900, 30_000])
def test_a_scan_forgets_topics(size: int) -> None:
    """The log's memory of them had no bound."""
    topics = TopicCache()
    learn = lambda text: topics.learn_name(text.encode())  # noqa: E731
    assert grown(learn, size, 2500 if size < 2000 else 600) < 17 * MiB
    assert topics.learn_name(b"\xff") is None
    assert topics.learn_name(b"") is None


@pytest.mark.parametrize("size", [3900, 100_000])
def test_keys_forget_topics(size: int) -> None:
    def ask(text: str) -> None:
        topic_head(text)
        try:
            check_topic(text)
        except IllegalMessageError:
            assert len(text) > MAX_TOPIC_BYTES

    assert grown(ask, size, 2500 if size < 4000 else 300) < 33 * MiB


def test_hosts_are_remembered_without_their_zones() -> None:
    def ask(text: str) -> None:
        with pytest.raises(IllegalMessageError):
            Host.of(f"fe80::1%{text}", 1)

    assert grown(ask, 100_000, 200) < MiB


class _NoQueues:
    """A database without an entry."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        _ = family, key
        return None


def test_a_reader_that_makes_up_topics_fills_no_memory() -> None:
    table = OffsetTable(cast("RocksEngine", _NoQueues()), 100_000)
    assert grown(lambda text: table.row(queue_prefix(text, 0)), 100_000, 300) < MiB
    longest = queue_prefix("t" * 281, 0)
    assert len(longest) == LONGEST_PREFIX
    table.row(longest)
    assert len(table._cache) == 1
    assert table._cache.get(longest) is not None


def test_small_entries_take_no_more_than_they_are_counted_for() -> None:
    cache = BoundedCache[tuple[str, str], tuple[bytes, tuple[object, ...]]](4 * MiB)

    def learn(text: str) -> None:
        cache.learn(("TAGS", text), (text.encode(), (0, text, *[None] * 8)), 2 * len(text))

    assert grown(learn, 7, 12_000) < 4 * MiB


def test_what_repeats_is_found_again() -> None:
    cache = BoundedCache[str, int](1 << 20)
    assert cache.learn("a", 1, 1) == 1
    assert cache.get("a") == 1
    assert cache.learn("large", 2, 200) == 2
    assert "large" not in cache
    for number in range(5000):
        cache.learn(str(number), number, 4)
        assert cache[str(number)] == number
    assert "a" not in cache
    assert len(cache) < 1 << 20 >> 8


def test_a_topic_is_found_again() -> None:
    requested: list[str] = []
    rules = EncodingRules(StoreConfig(), requested.append)
    known = [rules.learnt(Message("t", b"")) for _ in range(3)]
    assert requested == ["t"]
    assert known[0] is known[1] is known[2]
