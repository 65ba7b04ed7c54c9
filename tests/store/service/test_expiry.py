"""Log files that go, and what follows them: units, minima, next offsets, index entries."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import ReadOnlyStoreError, StoreError
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.consume_queue import ConsumeQueue, FastUnits, PulledUnits
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.maintenance.clean_service import expired_offsets
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.recovering.recovery import Recovery
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES
from tests.kit.queue_of import QUEUES_OF

FILE = 65536
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE, mapped_file_size_consume_queue=2000, max_index_num=50,
    max_hash_slot_num=50, enable_lmq=True, enable_multi_dispatch=True,
    rocksdb_memory_bytes=16 << 20,
)  # fmt: skip
STORES = [
    *[(name, RocksDBEngine.AUTO) for name in backend_names() if name != "rocksdb"],
    *[("rocksdb", engine) for engine in ENGINES],
]


@pytest.fixture(params=STORES, ids=lambda param: f"{param[0]}-{param[1].value}")
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["Opened"]:
    backend, engine = request.param
    each = Opened(tmp_path / "store", backend, engine)
    yield each
    each.store.close()


class Opened:
    """A store of several log files, opened as often as a test likes."""

    def __init__(self, root: Path, backend: str, engine: RocksDBEngine) -> None:
        self.root, self.backend = root, backend
        self.config = CONFIG.model_copy(update={"rocksdb_engine": engine})
        self.store = MessageStore.open(root, self.config, backend=backend)

    def reopen(self) -> None:
        self.store.close()
        self.store = MessageStore.open(self.root, self.config, backend=self.backend)

    def fill(self) -> None:
        """``early`` and a light queue only in the first file, ``busy`` everywhere."""
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
        for _ in range(5):
            assert self.store.put_message(Message("early", b"x" * 100, 3, light)).ok
        while self.store.max_phy_offset() < 4 * FILE:
            assert self.store.put_message(Message("busy", b"x" * 1000, 0, {"KEYS": "k"})).ok

    def expected_minimum(self) -> int:
        low = self.store.min_phy_offset()
        records = components_of(self.store).log.scan(low)
        return next(record.queue_offset for record in records if record.topic == "busy")


def test_units_follow_the_log_and_queues_keep_their_next_offset(opened: Opened) -> None:
    opened.fill()
    store = opened.store
    assert store.delete_expired_files(FILE - 1).log_files == 0
    report = store.delete_expired_files(2 * FILE + 5)
    assert (report.log_files, report.log_bytes, report.min_phy_offset) == (2, 2 * FILE, 2 * FILE)
    assert report.index_files > 0
    high = store.max_offset("busy", 0)
    for _ in range(2):
        store = opened.store
        low = opened.expected_minimum()
        assert (store.min_offset("busy", 0), store.max_offset("busy", 0)) == (low, high)
        assert store.get_message("busy", 0, 0, 10).status is GetMessageStatus.OFFSET_TOO_SMALL
        assert store.get_message("busy", 0, low, 10).queue_offsets[0] == low
        for topic, queue_id in (("early", 3), ("%LMQ%a", 0)):
            assert store.min_offset(topic, queue_id) == store.max_offset(topic, queue_id) == 5
        assert [finding for finding in store.check() if finding.damage] == []
        opened.reopen()
    assert opened.store.put_message(Message("early", b"x", 3)).queue_offset == 5


def test_the_last_file_never_goes(opened: Opened) -> None:
    opened.fill()
    report = opened.store.delete_expired_files(1 << 60)
    assert report.min_phy_offset == 4 * FILE
    assert opened.store.put_message(Message("busy", b"x")).ok
    assert opened.store.get_message("busy", 0, opened.expected_minimum(), 5).queue_offsets


def test_a_pull_that_holds_views_outlives_its_file(opened: Opened) -> None:
    opened.fill()
    result = opened.store.get_message("early", 3, 0, 5)
    opened.store.delete_expired_files(FILE)
    assert [bytes(message.stored_body) for message in result.messages()] == [b"x" * 100] * 5


@pytest.mark.parametrize("is_fast", [True, False])
def test_a_pull_that_an_expiry_overtakes_goes_on_at_the_new_minimum(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, *, is_fast: bool
) -> None:
    opened.fill()
    store = opened.store
    kind = QUEUES_OF[opened.backend]
    reads: Any = (
        kind
        if components_of(store).queues.fast_reads is None
        else type(components_of(store).queues.fast_reads)
    )
    ends, block, plain, read = kind.ends, kind.read_units, reads.fast_units, list[int]()

    def overtaken(self: ConsumeQueue, offset: int, count: int) -> PulledUnits:
        before = ends(self)
        store.delete_expired_files(2 * FILE)
        found = block(self, offset, count)
        read.append(found.count)
        return PulledUnits(*before, found)

    def overtaken_in_the_core(*requested: object) -> FastUnits | None:
        if not is_fast:
            return None
        reported: FastUnits | None = plain(*requested)
        store.delete_expired_files(2 * FILE)
        return reported

    monkeypatch.setattr(kind, "pull", overtaken)
    monkeypatch.setattr(reads, "fast_units", overtaken_in_the_core)
    result = store.get_message("busy", 0, 5, 10)
    low = opened.expected_minimum()
    units_are_gone = not any(read)
    assert units_are_gone or opened.backend == "rocksdb"  # which may drop them later
    if units_are_gone or is_fast:  # the core lets Python look anew
        assert result.status is GetMessageStatus.OFFSET_TOO_SMALL
        assert (result.next_begin_offset, result.min_offset) == (low, low)
        assert result.max_offset == store.max_offset("busy", 0)
    else:
        assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert 5 < result.next_begin_offset <= low
    assert not result.records


def test_files_that_others_deleted_are_followed_too(opened: Opened) -> None:
    opened.fill()
    high = opened.store.max_offset("busy", 0)
    opened.store.close()
    for path in sorted((opened.root / "commitlog").iterdir())[:2]:
        path.unlink()
    opened.reopen()
    store = opened.store
    assert (store.min_offset("early", 3), store.max_offset("early", 3)) == (5, 5)
    assert (store.min_offset("busy", 0), store.max_offset("busy", 0)) == (
        opened.expected_minimum(), high,
    )  # fmt: skip
    components_of(store).queues.clean_expired(store.min_phy_offset())
    assert store.min_offset("early", 3) == store.max_offset("early", 3) == 5


def test_named_topics_stay_and_others_go_only_when_told(opened: Opened) -> None:
    opened.fill()
    store = opened.store
    store.put_message(Message("SCHEDULE_TOPIC_XXXX", b"x", 3))
    assert store.clean_unused_topics({"busy"}) == ["early"]
    assert store.max_offset("early", 3) == 5
    assert store.clean_unused_topics({"busy"}, dry_run=False) == ["early"]
    left = {"busy", "SCHEDULE_TOPIC_XXXX", "%LMQ%a"}
    assert {topic for topic, _ in store.queue_keys()} == set(store.topics()) == left
    opened.reopen()
    assert set(opened.store.topics()) == left


def test_a_listing_can_be_taken_up_behind_any_queue(opened: Opened) -> None:
    store = opened.store
    for topic in ("b", "a", "aa", "c"):
        for queue_id in (10, 2, 0):
            store.put_message(Message(topic, b"x", queue_id))
    every = list(store.queue_keys())
    assert len(every) == 12
    for at, key in enumerate(every):
        assert list(store.queue_keys(after=key)) == every[at + 1 :]
    assert sorted(store.topics("a")) == ["a", "aa"]
    assert list(store.queue_keys("a", QueueKey("a", 2))) == [("a", 10)]
    assert list(store.queue_keys("a", QueueKey("zz", 0))) == []


def test_a_read_only_store_deletes_nothing(opened: Opened) -> None:
    opened.fill()
    opened.store.close()
    copy = opened.root.with_name("copy")
    shutil.copytree(opened.root, copy)
    with MessageStore.open(copy, opened.config, read_only=True) as store:
        for call in (
            lambda: store.delete_expired_files(1 << 60),
            lambda: store.delete_topic("busy"),
            lambda: store.clean_unused_topics([], dry_run=False),
        ):
            with pytest.raises(ReadOnlyStoreError):
                call()


def without_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "abort").touch()


def test_a_wholly_expired_queue_keeps_its_next_offset_where_a_rebuild_was_cut_short(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a kill when the new queues were on disk and their next offsets were not restored."""
    opened.fill()
    opened.store.delete_expired_files(3 * FILE)
    opened.store.close()
    without_queues(opened.root)

    def killed(recovery: Recovery, _: object) -> None:
        recovery._queues.flush()
        raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Recovery, "_restore", killed)
        with pytest.raises(StoreError, match="killed"):
            MessageStore.open(opened.root, opened.config, backend=opened.backend)
    opened.store = MessageStore.open(opened.root, opened.config, backend=opened.backend)
    assert opened.store.max_offset("early", 3) == opened.store.max_offset("%LMQ%a", 0) == 5
    assert opened.store.put_message(Message("early", b"x", 3)).queue_offset == 5


def test_a_wholly_expired_queue_keeps_its_next_offset_through_a_rebuild(opened: Opened) -> None:
    opened.fill()
    for queue_id in (1, 2):  # 100 units fill a queue file, and 99 do not
        for _ in range(98 + queue_id):
            assert opened.store.put_message(Message("ends", b"", queue_id)).ok
    while opened.store.max_phy_offset() < 6 * FILE:
        assert opened.store.put_message(Message("busy", b"x" * 1000)).ok
    opened.store.delete_expired_files(5 * FILE)
    expected = {("early", 3): 5, ("%LMQ%a", 0): 5, ("ends", 1): 99, ("ends", 2): 100}
    for _ in range(2):
        opened.store.close()
        without_queues(opened.root)
        opened.store = MessageStore.open(opened.root, opened.config, backend=opened.backend)
        for _ in range(2):
            store = opened.store
            for key, end in expected.items():
                assert (store.min_offset(*key), store.max_offset(*key)) == (end, end), key
                assert store.get_message(*key, end, 5).queue_offsets == []
            assert [finding for finding in store.check() if finding.damage] == []
            opened.reopen()
    for (topic, queue_id), end in expected.items():
        if not topic.startswith("%"):
            assert opened.store.put_message(Message(topic, b"x", queue_id)).queue_offset == end
    opened.store.delete_topic("ends")
    opened.store.close()
    without_queues(opened.root)
    opened.store = MessageStore.open(opened.root, opened.config, backend=opened.backend)
    assert opened.store.max_offset("ends", 1) == opened.store.max_offset("ends", 2) == 0
    assert (opened.store.min_offset("early", 3), opened.store.max_offset("early", 3)) == (5, 6)


def test_queues_that_have_expired_are_noted_with_their_next_offset(tmp_path: Path) -> None:
    """Records in no queue lie among them; of those that live on the log tells."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    store = MessageStore.open(tmp_path / "s", CONFIG, backend="file")
    puts = [
        Message("t", b"x", 0),
        Message("t", b"x", 0, sys_flag=int(SysFlag.TRANSACTION_PREPARED)),
    ]
    puts += [Message("t", b"x", 1), Message("t", b"x", 0), Message("u", b"x", 2, light)]
    assert all(result.ok for result in store.put_messages(puts))
    first = {("t", 0): 2, ("t", 1): 1, ("u", 2): 1, ("%LMQ%a", 0): 1, ("%LMQ%b", 0): 1}
    end = store.max_phy_offset()
    assert expired_offsets(components_of(store).log, end) == first
    assert store.put_message(Message("u", b"", 2)).ok
    while store.max_phy_offset() < FILE:
        assert store.put_message(Message("busy", b"x" * 1000)).ok
    assert store.put_message(Message("t", b"x", 1)).ok
    report = store.delete_expired_files(FILE)
    assert (report.log_files, report.log_bytes, report.min_phy_offset) == (1, FILE, FILE)
    ends = {key: end for key, end in first.items() if key != ("t", 1)} | {("u", 2): 2}
    assert ExpiredQueues(components_of(store).paths.expired_queues).ends() == ends
    store.close()
