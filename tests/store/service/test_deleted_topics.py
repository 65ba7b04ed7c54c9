"""A deleted topic stays deleted: through a reopening, a crash, a rebuild, a torn journal."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from crcmod.predefined import mkCrcFun

from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.files import reading
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, enable_lmq=True, enable_multi_dispatch=True,
    mapped_file_size_consume_queue=2000, max_hash_slot_num=10, max_index_num=50,
)  # fmt: skip
TOPICS = ["gone", "gon", "gone2", "%LMQ%gone", "stays"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def put(store: MessageStore, topic: str, count: int = 3) -> list[int]:
    light = {"INNER_MULTI_DISPATCH": "%LMQ%gone"} if topic == "stays" else {}
    results = [store.put_message(Message(topic, b"x", 0, light)) for _ in range(count)]
    assert all(result.ok for result in results), results
    return [result.queue_offset for result in results]


def counts(store: MessageStore) -> dict[str, int]:
    return {topic: store.max_offset(topic, 0) for topic in TOPICS if store.max_offset(topic, 0)}


def as_after_a_crash(root: Path) -> None:
    (root / "abort").touch()


def without_queues(root: Path) -> None:
    """All queues are to be made again from the log."""
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "abort").touch()


def nothing(root: Path) -> None:
    """A clean stop."""


@pytest.mark.parametrize("happens", [nothing, as_after_a_crash, without_queues])
def test_it_stays_deleted_and_what_is_put_later_stays(
    root: Path, backend: str, happens: Callable[[Path], None]
) -> None:
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        for topic in TOPICS:
            if not topic.startswith("%"):
                put(store, topic)
        store.delete_topic("gone")
        store.delete_topic("%LMQ%gone")
        put(store, "gone2")
    happens(root)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        assert counts(store) == {"gon": 3, "gone2": 6, "stays": 3}
        assert store.report.restarts == []
        assert put(store, "gone", 2) == [0, 1]
        assert put(store, "stays", 2) == [3, 4]
    happens(root)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        expected = {"gon": 3, "gone2": 6, "stays": 5, "gone": 2, "%LMQ%gone": 2}
        assert counts(store) == expected
        assert [finding for finding in store.check() if finding.damage] == []


def test_a_deletion_that_was_interrupted_is_done_again(root: Path, backend: str) -> None:
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        put(store, "gone")
        put(store, "stays")
        end = store.max_phy_offset()
        components_of(store).deleted.begin(["gone"], end)
    as_after_a_crash(root)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        assert counts(store) == {"stays": 3, "%LMQ%gone": 3}
        assert put(store, "gone") == [0, 1, 2]
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        assert store.max_offset("gone", 0) == 3


def test_records_behind_a_log_that_lost_its_end_are_not_taken_for_deleted(
    root: Path, backend: str
) -> None:
    """The log lost what was said to be deleted; new records come to lie at the same places."""
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        put(store, "stays", 1)
        end = store.max_phy_offset()
    DeletedTopics(root / "cqstore" / "deleted-topics").begin(["gone"], end + 10_000)
    as_after_a_crash(root)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        put(store, "gone")
    without_queues(root)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        assert store.max_offset("gone", 0) == 3


def line(text: bytes) -> bytes:
    return b"%08x %s\n" % (mkCrcFun("crc-32c")(text), text)


def test_the_bytes_of_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "own" / "journal"
    journal = DeletedTopics(path)
    journal.begin(["主题", "b"], 77)
    journal.finish(["主题", "b"])
    subject = b'"\\u4e3b\\u9898"'
    assert path.read_bytes() == (
        line(b'[{"deleting": %s, "below": 77}, {"deleting": "b", "below": 77}]' % subject)
        + line(b'[{"deleted": %s, "below": 77}, {"deleted": "b", "below": 77}]' % subject)
    )


def test_the_journal_stays_small_however_often_topics_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = DeletedTopics(path)
    names = [f"topic {number}" for number in range(300)]
    sizes = []
    for below in range(1, 100):
        journal.begin(names, below)
        journal.finish(names)
        journal.compact(below // 2)
        sizes.append(path.stat().st_size)
    assert max(sizes) < 100_000 < 99 * sizes[0]
    again = DeletedTopics(path)
    again.load()
    assert all(again.has_record(name, 98) and not again.has_record(name, 99) for name in names)
    assert again.unfinished() == []


def test_a_compaction_keeps_what_is_unfinished_and_drops_what_the_log_no_longer_has(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    journal = DeletedTopics(path)
    expired = [f"expired {number}" for number in range(3000)]
    for topics, below in ((expired, 10), (["kept"], 20)):
        journal.begin(topics, below)
        journal.finish(topics)
    journal.begin(["begun"], 30)
    journal.compact(10)
    assert path.stat().st_size < 200
    again = DeletedTopics(path)
    again.load()
    assert (len(again), again.unfinished()) == (2, ["begun"])
    assert again.has_record("kept", 19)
    journal.finish(["begun"])
    again = DeletedTopics(path)
    again.load()
    assert (len(again), again.unfinished()) == (2, [])


def test_the_journal_is_read_once_however_many_lines_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    first = DeletedTopics(path)
    first.begin(["a"], 1)
    journal = DeletedTopics(path)
    journal.load()
    assert journal.unfinished() == ["a"]

    def read(opened: Path) -> AbstractContextManager[BinaryIO]:
        assert opened != path, "it was read again"
        return reading(opened)

    monkeypatch.setattr("cqstore.store.journals.journal.reading", read)
    for number in range(3):
        journal.begin([str(number)], number)
        journal.finish([str(number)])
    journal.cut_torn_end()


@pytest.mark.parametrize("cut", range(1, 50, 7))
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal"
    journal = DeletedTopics(path)
    journal.begin(["a"], 100)
    journal.finish(["a"])
    whole = path.read_bytes()
    path.write_bytes(whole + line(b'{"deleting": "bbbbbbbbbbbbbbb", "below": 200}')[:-cut])
    again = DeletedTopics(path)
    again.load()
    assert again.has_record("a", 99)
    assert not again.has_record("a", 100)
    assert again.unfinished() == []
    again.cut_torn_end()
    assert path.read_bytes() == whole


def test_lines_go_with_the_log_and_only_then(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = DeletedTopics(path)
    for topic, below in (("a", 100), ("b", 200), ("a", 300)):
        journal.begin([topic], below)
        journal.finish([topic])
    journal.fit(200, 1000)
    again = DeletedTopics(path)
    again.load()
    assert (again.has_record("a", 299), again.has_record("b", 199)) == (True, False)


def test_damage_before_the_last_line_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = line(b'{"deleted": "a", "below": 1}')
    for damaged in (b"x" * 20 + b"\n", line(b'{"deleted": 1, "below": 1}'), line(b"[]")):
        path.write_bytes(first + damaged + first)
        with pytest.raises(CorruptionError) as caught:
            DeletedTopics(path).load()
        assert caught.value.position == len(first)


def test_a_read_only_open_leaves_a_torn_journal_alone(root: Path, backend: str) -> None:
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        put(store, "gone")
        store.delete_topic("gone")
    path = root / "cqstore" / "deleted-topics"
    path.write_bytes(path.read_bytes() + b"torn")
    before = path.read_bytes()
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert store.max_offset("gone", 0) == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("step", ["the queues", "their ends"])
def test_an_interrupted_deletion_forgets_where_expired_queues_went_on(
    root: Path, backend: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        put(store, "gone", 4)
        while store.max_phy_offset() < 2 * 65536:
            assert store.put_message(Message("stays", b"x" * 1000)).ok
        store.delete_expired_files(65536)
        assert store.min_offset("gone", 0) == store.max_offset("gone", 0) == 4

        def refuse(topics: Sequence[str]) -> None:
            raise StoreIOError(f"cannot delete {topics}")

        with monkeypatch.context() as patched:
            if step == "the queues":
                patched.setattr(components_of(store).queues, "delete_topics", refuse)
            else:
                patched.setattr(components_of(store).clean._expired, "forget", refuse)
            with pytest.raises(StoreIOError):
                store.delete_topic("gone")
    without_queues(root)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        assert store.max_offset("gone", 0) == 0
        assert put(store, "gone", 1) == [0]


@pytest.mark.parametrize("name", ["ab", b"ab"])
def test_one_name_is_not_taken_for_its_letters(tmp_path: Path, name: Any) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        for topic in ("a", "ab", "c"):
            store.put_message(Message(topic, b"x"))
        with pytest.raises(TypeError, match=r"(topics|retain) is .*: one name"):
            store.delete_topics(name)
        with pytest.raises(TypeError, match=r"(topics|retain) is .*: one name"):
            store.clean_unused_topics(name, dry_run=False)
        assert [store.max_offset(topic, 0) for topic in ("a", "ab", "c")] == [1, 1, 1]
