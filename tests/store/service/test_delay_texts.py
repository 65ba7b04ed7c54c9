"""Delay levels of any text: every put and every dispatch reads what RocketMQ has answered."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.migration.verify.deep import RecordCheck
from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult
from tests.kit.java_texts import LEVELS
from tests.kit.plain_record import PlainRecord
from tests.kit.quiet_config import quiet_config
from tests.migration.from_log.test_log_scan import RULES, in_batches

SECONDS: list[int] = [1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]
"""RocketMQ's levels, unless ``messageDelayLevel`` is set."""
SIZE = 1 << 20
CONFIG = quiet_config(mapped_file_size_commit_log=SIZE)
NO_SERVICE, NO_DELAY = "does not deliver delayed messages", "a client batch cannot be delayed"
INVALID, EMPTY, NO_TEXT = "invalid delay level", "must not be empty", "is not valid Unicode"


def opened(root: Path, **changes: Any) -> MessageStore:
    return MessageStore.open(root, CONFIG.model_copy(update=changes), housekeeping=False)


def each_way(store: MessageStore, topic: str, text: str) -> Iterator[PutMessageResult]:
    """Put a message with the level alone, into a future, and in a list."""
    message = Message(topic, b"x", 0, {"TAGS": "a", "DELAY": text})
    yield store.put_message(message)
    yield store.put_message_future(message).result()
    yield from store.put_messages([message, message])


def unwritable(text: str) -> str:
    """Return why no record can hold a text as a property, "" if one can."""
    if not text:
        return EMPTY
    return NO_TEXT if any("\ud800" <= each <= "\udfff" for each in text) else ""


def check(results: Iterator[PutMessageResult], reason: str, text: str) -> None:
    """Check that all were put, or that all were refused for the reason."""
    for result in results:
        assert reason in result.reason, text[:20]
        assert result.ok == (not reason), text[:20]


@pytest.mark.parametrize("is_later", [False, True])
def test_a_store_without_the_service_refuses_levels(tmp_path: Path, *, is_later: bool) -> None:
    """With ``allowDelayWithoutService`` it stores all."""
    with opened(tmp_path, allow_delay_without_service=is_later) as store:
        for text, level in LEVELS:
            is_refused = (level is None or level > 0) and not is_later
            check(each_way(store, "t", text), NO_SERVICE if is_refused else unwritable(text), text)
            if not unwritable(text):
                inner = Message("t", encode_client_batch([Message("t", b"", 0, {"DELAY": text})]))
                check(iter(store.put_client_batch(inner)), NO_SERVICE if is_refused else "", text)


def queue_of(level: int) -> tuple[str, int]:
    """Return the queue of a message with this level, put to queue 0 of ``t``."""
    return (SCHEDULE_TOPIC, min(level, len(SECONDS)) - 1) if level > 0 else ("t", 0)


def test_a_store_with_the_service_delays_by_the_level(tmp_path: Path) -> None:
    puts = 0
    with opened(tmp_path, enable_schedule_message_service=True) as store:
        for text, level in LEVELS:
            queue = queue_of(level or 0)
            before = store.max_offset(*queue)
            check(each_way(store, "t", text), INVALID if level is None else "", text)
            assert store.max_offset(*queue) == before + 4 * (level is not None), text[:20]
            puts += 4 * (level is not None)
        assert sum(store.max_offset(*queue) for queue in store.queue_keys()) == puts


def test_a_client_batch_has_no_level(tmp_path: Path) -> None:
    """RocketMQ ``CommitLog.asyncPutMessages``; what the batch itself has is not stored."""
    with opened(tmp_path, allow_delay_without_service=True) as store:
        body = encode_client_batch([Message("t", b"x")])
        for text, level in LEVELS:
            results = iter(store.put_client_batch(Message("t", body, 0, {"DELAY": text})))
            reason = INVALID if level is None else NO_DELAY if level > 0 else ""
            check(results, reason, text)


def code_of(level: int | None, store_timestamp: int) -> int:
    """Return the tags code of the unit of a message with the tag ``a`` in the schedule."""
    if level is None or level <= 0:
        return java_hash("a")
    return store_timestamp + 1000 * SECONDS[min(level, len(SECONDS)) - 1]


def units(store: MessageStore) -> list[tuple[int, int]]:
    """Return phy offset and tags code of each unit in the schedule's queue 0."""
    assert store.max_offset(SCHEDULE_TOPIC, 0) > 0  # dispatches what waits
    queue = components_of(store).queues.queue(SCHEDULE_TOPIC, 0)
    return [(unit.phy_offset, unit.tags_code or 0) for unit in queue.iterate(0)]


def test_a_put_into_the_schedule_has_its_due_time(tmp_path: Path) -> None:
    """Also in a client batch."""
    with opened(tmp_path) as store:
        wanted: list[tuple[int, int]] = []
        for text, level in LEVELS:
            inner = [Message(SCHEDULE_TOPIC, b"", 0, {"TAGS": "a", "DELAY": text})]
            reason = INVALID if level is None else unwritable(text)
            results = [*each_way(store, SCHEDULE_TOPIC, text)]
            if text and not unwritable(text):
                batch = Message(SCHEDULE_TOPIC, encode_client_batch(inner))
                results += store.put_client_batch(batch)
            check(iter(results), reason, text)
            wanted += [
                (place.phy_offset, code_of(level, place.store_timestamp))
                for place in (result.appended for result in results)
                if place is not None
            ]
        assert len(wanted) > 5 * 150
        assert units(store) == wanted
        assert [finding for finding in store.check() if finding.damage] == []


def test_a_dispatch_reads_the_level_of_any_record(tmp_path: Path) -> None:
    """Bytes made by hand, also of texts that no put accepts; RocketMQ stops at those."""
    log, data, wanted = tmp_path / "commitlog", b"", list[tuple[int, int]]()
    for number, (text, level) in enumerate(LEVELS):
        properties = b"TAGS\x01a\x02DELAY\x01" + text.encode("utf-8", "surrogatepass") + b"\x02"
        record = PlainRecord(
            SCHEDULE_TOPIC.encode(), b"x", properties, 0, queue_offset=number, phy_offset=len(data)
        )
        wanted.append((len(data), code_of(level, record.store_timestamp)))
        data += record.encode()
    log.mkdir()
    (log / f"{0:020d}").write_bytes(data.ljust(SIZE, b"\0"))
    deep = RecordCheck(LogHeads([log]), CONFIG)
    for number, (at, code) in enumerate(wanted):
        (size,) = struct.unpack_from(">i", data, at)
        found = QueueFindings(QueueKey(SCHEDULE_TOPIC, 0))
        assert deep.problem(found, number, at, size, code) is None, LEVELS[number]
    rows, _ = in_batches(log, SIZE, RULES[0], whole_only=True)
    assert [(row[3], row[5]) for row in rows] == wanted
    with opened(tmp_path) as store:
        assert units(store) == wanted
