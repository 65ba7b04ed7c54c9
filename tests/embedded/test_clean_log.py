"""An embedded log deletes its idle topics: not those with consumers, nor those of its groups."""

from pathlib import Path

import pytest

from cqstore import CleaningRules, EmbeddedLog, KeptReason, ReadOnlyStoreError, Tail, TopicCleaner
from tests.kit.logs import BACKENDS, opened, stored_offsets, stored_topics
from tests.kit.waiting import until

IDLE = CleaningRules(idle_days=0)
LATER = 3600.0
FOUR = {"read": None, "unread": KeptReason.BACKLOG, "watched": None, "free": None}


def commit(log: EmbeddedLog, topic: str, count: int) -> Tail:
    """Consume and commit some messages; return the open consumer."""
    tail = log.tail(topic, group="g", auto_commit=False)
    for _, message in zip(range(count), tail, strict=False):
        message.commit()
    return tail


def filled(log: EmbeddedLog) -> None:
    for topic in FOUR:
        log.put(topic, b"x")
        log.put(topic, b"y")
    commit(log, "read", 2).close()
    commit(log, "unread", 1).close()


def reasons(cleaner: TopicCleaner) -> dict[str, KeptReason | None]:
    return {each.topic: each.kept for each in cleaner.run().topics}


@pytest.mark.parametrize("backend", BACKENDS)
def test_topics_go_with_rows_and_offsets_but_not_from_their_consumers(
    tmp_path: Path, backend: str
) -> None:
    with opened(tmp_path, backend, queues=1) as log:
        filled(log)
        cleaner = log.clean_topics(IDLE, every=LATER)
        until(lambda: reasons(cleaner) == FOUR)  # once the clock has moved on by a millisecond
        assert set(log.topics()) == {*FOUR}
        cleaner.stop()
        tail = commit(log, "watched", 2)
        cleaner = log.clean_topics(IDLE, every=LATER, dry_run=False)
        assert reasons(cleaner) == FOUR | {"watched": KeptReason.CONSUMERS}
        assert set(log.topics()) == {"unread", "watched"}
        log.put("watched", b"z")
        assert next(iter(tail)).body == b"z"
        tail.close()
        log.put("read", b"new")
        assert log.committed("g", "read") == {}
        with log.tail("read", group="g") as again:
            assert next(iter(again)).body == b"new"
    assert stored_topics(tmp_path).keys() == {"unread", "watched", "read"}
    assert stored_offsets(tmp_path, "unread@g") == {0: 1}


def test_a_commit_that_is_only_in_memory_counts(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        log.put("t", b"x")
        with log.tail("t", group="g", auto_commit=False) as tail:
            message = next(iter(tail))
            cleaner = log.clean_topics(CleaningRules(idle_days=0), every=LATER)
            until(lambda: reasons(cleaner) == {"t": None})  # a group without offsets has no lag
            log.reset_group("other", "t", to="earliest")
            assert reasons(cleaner) == {"t": KeptReason.BACKLOG}
            message.commit()
        log.reset_group("other", "t", to="latest")
        assert stored_offsets(tmp_path, "t@other") == {0: 1}
        assert reasons(cleaner) == {"t": None}


def test_a_read_only_log_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.put("t", b"x")
    with opened(tmp_path, read_only=True) as log, pytest.raises(ReadOnlyStoreError):
        log.clean_topics(IDLE)


def test_a_close_of_the_log_ends_the_service(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.put("t", b"x")
        cleaner = log.clean_topics(IDLE, every=0.001, dry_run=False)
        until(lambda: log.topics() == [])
    assert cleaner.is_stopped
    assert not cleaner.worker._thread.is_alive()
