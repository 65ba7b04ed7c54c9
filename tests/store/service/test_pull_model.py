"""Pulls against a plain model of RocketMQ's rules: what one returns, where the next begins."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig

PER_FILE = 10
BODIES = [1, 50, 200, 50, 50, 3, 120]
TAGS = ["a", "b", "a", "a", "c"]
IN_MEMORY = {
    "max_transfer_bytes_on_message_in_memory": 700, "max_transfer_count_on_message_in_memory": 6,
    "max_transfer_bytes_on_message_in_disk": 10, "max_transfer_count_on_message_in_disk": 1,
}  # fmt: skip
ON_DISK = {
    "access_message_in_memory_max_ratio": 0,
    "max_transfer_bytes_on_message_in_memory": 10, "max_transfer_count_on_message_in_memory": 1,
    "max_transfer_bytes_on_message_in_disk": 700, "max_transfer_count_on_message_in_disk": 6,
}  # fmt: skip
MAX_BYTES, MAX_COUNT = 700, 6
MIN_BYTES = 100
"""What a caller may ask for at least."""


@dataclass
class Pulled:
    """A store whose one queue has a record of each of ``sizes``, tagged in turn."""

    store: MessageStore
    max_filtered: int
    sizes: list[int] = field(default_factory=list)

    def expected(
        self, offset: int, most: int, max_bytes: int, tag: str | None
    ) -> tuple[GetMessageStatus, list[int], int]:
        """Return status, queue offsets and next offset that RocketMQ's rules give."""
        end = len(self.sizes)
        if offset < 0:
            return GetMessageStatus.OFFSET_TOO_SMALL, [], 0
        if offset >= end:
            one, badly = (
                GetMessageStatus.OFFSET_OVERFLOW_ONE,
                GetMessageStatus.OFFSET_OVERFLOW_BADLY,
            )
            return one if offset == end else badly, [], end
        bound = max(-(-self.max_filtered // 20), most)
        last = min(offset + bound, end, offset - offset % PER_FILE + PER_FILE)
        max_bytes = min(max(max_bytes, MIN_BYTES), MAX_BYTES)
        taken: list[int] = []
        total, following = 0, offset
        for at in range(offset, last):
            full = len(taken) >= min(most, MAX_COUNT) or total + self.sizes[at] > max_bytes
            if taken and full:
                break
            following = at + 1
            if tag is None or tag == TAGS[at % len(TAGS)]:
                taken.append(at)
                total += self.sizes[at]
        status = GetMessageStatus.FOUND if taken else GetMessageStatus.NO_MATCHED_MESSAGE
        return status, taken, following


@pytest.fixture(
    scope="module", params=[(n, c) for n in backend_names() for c in (IN_MEMORY, ON_DISK)]
)
def pulled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pulled]:
    name, changes = request.param
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 65536, "mapped_file_size_consume_queue": PER_FILE * 20,
        "max_filter_message_size": 61, "rocksdb_memory_bytes": 16 << 20,
    }  # fmt: skip
    root = tmp_path_factory.mktemp("pulled")
    with MessageStore.open(root, StoreConfig(**settings, **changes), backend=name) as store:
        made = Pulled(store, 61)
        for number in range(37):
            body = b"x" * BODIES[number % len(BODIES)]
            tags = {"TAGS": TAGS[number % len(TAGS)]}
            result = store.put_message(Message("t", body, 0, tags))
            assert result.ok
            assert result.appended is not None
            made.sizes.append(result.appended.size)
        yield made


@given(
    offset=st.integers(-1, 39),
    most=st.integers(0, 12),
    max_bytes=st.one_of(st.integers(0, 800), st.just(1 << 40)),
    tag=st.sampled_from([None, None, "a", "b", "d"]),
)
def test_a_pull_returns_what_the_rules_say(
    pulled: Pulled, offset: int, most: int, max_bytes: int, tag: str | None
) -> None:
    filtered = TagFilter(tag) if tag is not None else None
    got = pulled.store.get_message("t", 0, offset, most, filtered, max_bytes)
    status, taken, following = pulled.expected(offset, most, max_bytes, tag)
    assert (got.status, got.queue_offsets, got.next_begin_offset) == (status, taken, following)
    assert got.total_bytes == sum(pulled.sizes[at] for at in taken)
    assert [len(record) for record in got.records] == [pulled.sizes[at] for at in taken]
    assert (got.min_offset, got.max_offset) == (0, 37)


@pytest.mark.parametrize("offset", range(0, 37, 5))
def test_bytes_and_counts_are_cut_exactly(pulled: Pulled, offset: int) -> None:
    """At the very sums of sizes, one below and one above."""
    sums = [sum(pulled.sizes[offset:at]) for at in range(offset + 1, offset + 6)]
    for max_bytes in sorted({total + more for total in sums for more in (-1, 0, 1)}):
        for most in (3, 32):
            got = pulled.store.get_message("t", 0, offset, most, None, max_bytes)
            expected = pulled.expected(offset, most, max_bytes, None)
            assert (got.status, got.queue_offsets, got.next_begin_offset) == expected
