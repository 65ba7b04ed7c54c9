"""Topics that are read from another backend than all others."""

from pathlib import Path

import pytest

from cqstore.ab.mirror.mismatches import read_mismatches
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.store.errors import ConsumeQueueError, StoreConfigError
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.message import Message
from cqstore.store.service.opening.components import components_of
from tests.kit.double_write import OTHER, StoredOffsets, config, open_store, refuse
from tests.kit.mirrored import by_hand, drive, open_mirrored, outcomes
from tests.kit.queue_of import QUEUES_OF


@pytest.mark.parametrize("read", list(OTHER))
def test_a_class_of_topics_is_read_from_the_other_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    other = OTHER[read]
    with open_store(tmp_path, read, read_topics=f"hot1={read};hot*={other}") as store:
        for topic in ("t", "hot", "hot1"):
            StoredOffsets().put(store, 10, topic)
        assert {store.max_offset(topic, 0) for topic in ("t", "hot", "hot1")} == {2}
        assert "hot" in str(components_of(store).queues.describe()["topics read apart"])
        with monkeypatch.context() as patch:
            refuse(patch, other, "read_units")
            refuse(patch, other, "fast_units")
            for topic in ("t", "hot1"):
                assert store.get_message(topic, 0, 0).queue_offsets == [0, 1]
            with pytest.raises(ConsumeQueueError):
                store.get_message("hot", 0, 0)
        assert store.get_message("hot", 0, 0).queue_offsets == [0, 1]
        assert store.put_message(Message("hot", b"x")).queue_offset == 2


def reported_by(queue: ConsumeQueue) -> list[object]:
    """Ask a queue everything."""
    block = queue.pull(0, 100).block
    assert block is not None
    return [
        queue.ends(), queue.max_offset(), queue.min_offset(), list(block.rows()),
        list(queue.read_units(0, 100).rows()), list(queue.iterate(0)),
        queue.unit_timestamp(2) > 0, queue.offset_by_time(1 << 50, BoundaryType.LOWER),
        queue.estimate_message_count(0, 100, lambda _: True), queue.resolve_tags_code(7),
    ]  # fmt: skip


def test_what_is_not_whole_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"read_topics": "hot*=rocksdb"}
    with open_store(tmp_path, **settings) as store:
        StoredOffsets().put(store, 10, "hot")
        kept = components_of(store).queues.queue("hot", 0)
        before = reported_by(kept)
        with monkeypatch.context() as patch:
            refuse(patch, "file", "ends")
            assert reported_by(kept) == before
        with monkeypatch.context() as patch:
            refuse(patch, "rocksdb", "put_batch")
            assert store.put_message(Message("hot", b"x")).ok
            assert store.max_offset("hot", 0) == 3
        assert list(store.detached_backends()) == ["rocksdb"]
        assert (
            reported_by(kept)
            == reported_by(components_of(store).queues.backends()[0].queue("hot", 0))
            != before
        )
        assert store.get_message("hot", 0, 0).queue_offsets == [0, 1, 2]
    with open_store(tmp_path, **settings) as store:  # caught up, and read again
        assert components_of(store).queues.backends()[1].queue("hot", 0).max_offset() == 3
        monkeypatch.setattr(QUEUES_OF["rocksdb"], "max_offset", lambda *_: 77)
        assert (store.max_offset("hot", 0), store.max_offset("t", 0)) == (77, 0)


def test_topics_that_the_other_one_does_not_get_are_read_as_all_others(tmp_path: Path) -> None:
    with open_store(
        tmp_path, read_topics="*=rocksdb", rocksdb_cq_selective_double_write_enable=True,
        double_write_topics="both*",
    ) as store:  # fmt: skip
        for topic in ("both", "one"):
            StoredOffsets().put(store, 10, topic)
        assert (store.max_offset("both", 0), store.max_offset("one", 0)) == (2, 2)
        assert components_of(store).queues.backends()[1].queue("one", 0).max_offset() == 0


def test_the_mirror_asks_the_one_that_does_not_serve_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read_topics="hot*=rocksdb") as store:
        StoredOffsets().put(store, 10, "hot")
        drive(store)
        store.get_message("hot", 0, 0)
        drive(store)
        assert outcomes(store) == {ReadOutcome.SAME: 2}
        monkeypatch.setattr(QUEUES_OF["file"], "min_offset", lambda *_: 1)
        store.min_offset("hot", 0)
        drive(store)
        (found,) = read_mismatches(components_of(store).paths.ab_differences)
    assert found.answers == {"rocksdb": "0", "file": "1"}


@pytest.mark.parametrize("text", ["hot", "hot=", "=file", "hot=default", "a=file;b=none"])
def test_classes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StoreConfigError, match="backend"):
        type(config()).from_mapping({"readTopics": text})
