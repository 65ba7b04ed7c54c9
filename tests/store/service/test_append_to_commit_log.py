"""Bytes of another store's log go in as they are; what cannot follow is refused as a whole."""

import errno
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.errors import (
    CorruptionError,
    DiskFullError,
    QueueGapError,
    ReadOnlyStoreError,
    RefusedStoreError,
)
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.record.record_layout import HEAD, body_position
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.faults import Faults
from tests.kit.log_bytes import log_of, pieces
from tests.kit.served import served

Golden = Callable[[str], Path]
CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=400, enable_lmq=True,
    enable_multi_dispatch=True, max_hash_slot_num=50, max_index_num=100,
)  # fmt: skip
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "KEYS": "light"}


def follow(store: MessageStore, start: int, data: bytes, most: int) -> None:
    """Hand ``data`` over as a socket would: what was not taken comes again, with more."""
    rest, end = b"", start
    for piece in pieces(data, most):
        rest += piece
        before, end = end, store.append_to_commit_log(end, rest)
        rest = rest[end - before :]
    assert rest == b""


@pytest.fixture
def leader(tmp_path: Path) -> Path:
    """A store with plain, light, prepared and large messages in several files."""
    root = tmp_path / "leader"
    with MessageStore.open(root, CONFIG) as store:
        for number in range(60):
            properties = {"KEYS": f"k{number}", "TAGS": "a"} if number % 3 else {}
            assert store.put_message(Message("t", b"x" * number * 7, number % 2, properties)).ok
            if number % 7 == 0:
                assert store.put_message(Message("other", b"", 0, LIGHT)).ok
    return root


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize(
    "name", ["basic-default", "special-defaultRocksDB", "propcrc-default", "wide-combine"]
)
def test_a_followed_log_of_rocketmq_gives_what_its_replay_gives(
    golden: Golden, tmp_path: Path, name: str, backend: str
) -> None:
    root = golden(name)
    with MessageStore.open(root, read_only=True) as store:
        start, data = store.min_phy_offset(), log_of(store)
        size = store.config.mapped_file_size_commit_log
        keys = {record.topic for record in components_of(store).log.scan(start)}
    shutil.copytree(root / "commitlog", tmp_path / "replayed" / "commitlog")
    config = StoreConfig(mapped_file_size_commit_log=size)
    with MessageStore.open(tmp_path / "replayed", config, backend=backend) as store:
        assert store.report.dispatched_units > 0
    with MessageStore.open(tmp_path / "followed", config, backend=backend) as store:
        follow(store, start, data, 40_000)
        assert log_of(store) == data
        records = list(components_of(store).log.scan(start))
        assert components_of(store).log.appended_records == len(records)
        assert components_of(store).log.followed_timestamp == records[-1].store_timestamp
        assert components_of(store).log.blank_bytes == len(data) - sum(
            each.size for each in records
        )
    assert keys
    assert served(tmp_path / "followed") == served(tmp_path / "replayed")
    times = struct.unpack_from(">qq", (tmp_path / "followed" / "checkpoint").read_bytes())
    last = records[-1].store_timestamp
    assert times == (last, last if backend == "file" else 0)  # of the log, of the queues
    with MessageStore.open(tmp_path / "followed", config) as store:
        assert not store.report.needed
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("backend", backend_names())
def test_puts_go_on_behind_what_was_followed_in_light_queues_too(
    leader: Path, tmp_path: Path, backend: str
) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        data, there = log_of(store), served(leader)
        ends = {key: store.max_offset(*key) for key in there}
    with MessageStore.open(tmp_path / "own", CONFIG, backend=backend) as store:
        follow(store, 0, data, 900)
        assert store.put_message(Message("t", b"own", 1)).queue_offset == ends[QueueKey("t", 1)]
        assert store.put_message(Message("other", b"own", 0, LIGHT)).ok
        assert store.max_offset("%LMQ%a", 0) == ends[QueueKey("%LMQ%a", 0)] + 1
        assert {key: store.max_offset(*key) for key in there if key.queue_id == 0} == {
            key: end + (key.topic != "t") for key, end in ends.items() if key.queue_id == 0
        }
        (found,) = store.query_message("t", "k59")
        assert found.body == b"x" * 59 * 7
    mine = served(tmp_path / "own")
    assert mine.keys() == there.keys()
    for key, (_, *units) in there.items():
        assert mine[key][1 : len(units) + 1] == units


def test_what_does_not_continue_the_log_is_refused_with_both_ends(
    leader: Path, tmp_path: Path
) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        data = log_of(store)
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        with pytest.raises(RefusedStoreError, match=r"at phy offset 100: the log ends at 0"):
            store.append_to_commit_log(100, data)  # an empty log begins with a file
        assert store.max_phy_offset() == 0
        end = store.append_to_commit_log(0, data[:1000])
        assert 0 < end < 1000
        for other in (end - 1, end + 1, 0, 4096):
            with pytest.raises(
                RefusedStoreError, match=rf"at phy offset {other}: the log ends at {end}"
            ):
                store.append_to_commit_log(other, data[other:])
        assert store.append_to_commit_log(end, data[end:]) == len(data)


@pytest.mark.parametrize("at", ["size", "magic", "place", "body", "blank"])
def test_no_byte_of_what_holds_a_bad_record_goes_in(leader: Path, tmp_path: Path, at: str) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        whole = log_of(store)
        records = list(components_of(store).log.scan(0))
    sixth = records[6]
    (last,) = [r for r in records if r.phy_offset < 4096 <= r.phy_offset + r.size + 400][-1:]
    blank = last.phy_offset + last.size
    places = {"size": 1, "magic": 5, "place": 30, "body": body_position(0) + 3}
    place = blank + 1 if at == "blank" else sixth.phy_offset + places[at]
    bad = bytearray(whole)
    bad[place] ^= 0x20
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        end = store.append_to_commit_log(0, whole[: records[2].phy_offset])
        first = tmp_path / "own" / "commitlog" / f"{0:020d}"
        before = first.read_bytes()
        with pytest.raises(CorruptionError) as caught:
            store.append_to_commit_log(end, bytes(bad[end:]))
        assert caught.value.phy_offset == (blank if at == "blank" else sixth.phy_offset)
        assert (store.max_phy_offset(), first.read_bytes()) == (end, before)
        assert store.append_to_commit_log(end, whole[end:]) == len(whole)


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize("opened_anew", [False, True])
@pytest.mark.parametrize("number", [3, 40])
def test_a_record_that_would_leave_a_gap_in_its_queue_does_not_go_in(
    leader: Path, tmp_path: Path, backend: str, number: int, *, opened_anew: bool
) -> None:
    """No checksum covers its queue offset."""
    with MessageStore.open(leader, CONFIG) as store:
        whole = log_of(store)
        records = [record for record in components_of(store).log.scan(0) if record.topic == "t"]
    bad, record = bytearray(whole), records[number]
    bad[record.phy_offset + HEAD.offset("queue_offset") + 7] += 1
    own, end = tmp_path / "own", 0
    if opened_anew:
        with MessageStore.open(own, CONFIG, backend=backend) as store:
            end = store.append_to_commit_log(0, whole[: record.phy_offset])
    with MessageStore.open(own, CONFIG, backend=backend) as store:
        with pytest.raises(QueueGapError) as caught:
            store.append_to_commit_log(end, bytes(bad[end:]))
        assert caught.value.phy_offset == record.phy_offset
        assert f"expected queue offset {record.queue_offset}" in str(caught.value)
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert not store.report.needed
        assert store.append_to_commit_log(end, whole[end:]) == len(whole)
    assert served(tmp_path / "own") == served(leader)


@pytest.mark.parametrize(("backend", "topic"), [("file", b".."), ("file", b"a/b"), ("file", b"\0")])
def test_a_record_whose_name_no_queue_can_have_does_not_go_in(
    tmp_path: Path, backend: str, topic: bytes
) -> None:
    """As a wrong bit makes it on the wire: the CRC is the body's alone."""
    plain = b"p" * len(topic)
    with MessageStore.open(tmp_path / "leader", CONFIG) as store:
        assert store.put_message(Message("t", b"first")).ok
        first = store.max_phy_offset()
        assert store.put_message(Message(plain.decode(), b"second")).ok
        log = log_of(store)
    spoilt = log[:first] + log[first:].replace(plain, topic, 1)
    with MessageStore.open(tmp_path / "own", CONFIG, backend=backend) as store:
        with pytest.raises(CorruptionError, match="cannot dispatch a record") as caught:
            store.append_to_commit_log(0, spoilt)
        assert caught.value.phy_offset == first
        assert store.max_phy_offset() == 0
        assert store.append_to_commit_log(0, log) == len(log)
    assert set(served(tmp_path / "own")) == {QueueKey("t", 0), QueueKey(plain.decode(), 0)}


def test_a_part_of_a_record_or_of_a_blank_one_waits(leader: Path, tmp_path: Path) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        whole = log_of(store)
        bounds = {0}
        for record in components_of(store).log.scan(0):
            bounds |= {record.phy_offset, record.phy_offset + record.size}
    bounds |= set(range(0, len(whole), 4096))
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        at = 0
        for end in range(len(whole) + 1):
            at = store.append_to_commit_log(at, whole[at:end])
            assert at == max(bound for bound in bounds if bound <= end)


@pytest.mark.parametrize("backend", backend_names())
def test_a_killed_follower_has_all_that_it_was_told_is_there(
    leader: Path, tmp_path: Path, backend: str
) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        data = log_of(store)
    with MessageStore.open(tmp_path / "own", CONFIG, backend=backend) as store:
        store.append_to_commit_log(0, data[:9000])
        end = store.max_phy_offset()
        assert end > 4096
        crash_image(tmp_path / "own", tmp_path / "killed")
    with MessageStore.open(tmp_path / "killed", CONFIG) as store:
        assert store.max_phy_offset() == end
        assert store.append_to_commit_log(end, data[end:]) == len(data)
    assert served(tmp_path / "killed") == served(leader)


def test_with_sync_flush_what_was_appended_is_on_disk(leader: Path, tmp_path: Path) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        data = log_of(store)
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    with MessageStore.open(tmp_path / "own", config) as store:
        end = store.append_to_commit_log(0, data[:6000])
        assert store.flushed_phy_offset() == end > 4096


def test_a_full_disk_takes_the_files_that_it_has_room_for(
    leader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        data = log_of(store)
        records = [record for record in components_of(store).log.scan(0) if record.topic == "t"]
    faults = Faults(monkeypatch)
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        faults.fail("fallocate", errno.ENOSPC, "/commitlog/")
        with pytest.raises(DiskFullError):
            store.append_to_commit_log(0, data)
        assert store.max_phy_offset() == 0
        faults.heal()
        end = store.append_to_commit_log(0, data[:1000])
        store.flush()  # by now the file behind was made ahead of time
        faults.fail("fallocate", errno.ENOSPC, "/commitlog/")
        end = store.append_to_commit_log(end, data[end:])
        assert end % 4096 == 0
        assert 0 < end < len(data)
        there = Counter(record.queue_id for record in records if record.phy_offset < end)
        assert [store.max_offset("t", queue_id) for queue_id in (0, 1)] == [there[0], there[1]]
        assert components_of(store).log.appended_records == len(
            list(components_of(store).log.scan(0))
        )
        with pytest.raises(DiskFullError):
            store.append_to_commit_log(end, data[end:])
        faults.heal()
        assert store.append_to_commit_log(end, data[end:]) == len(data)
    assert served(tmp_path / "own") == served(leader)


def test_light_queues_that_came_count_for_the_quota(leader: Path, tmp_path: Path) -> None:
    with MessageStore.open(leader, CONFIG) as store:
        data = log_of(store)
    config = CONFIG.model_copy(update={"max_lmq_consume_queue_num": 3})
    one = {"INNER_MULTI_DISPATCH": "%LMQ%c"}
    with MessageStore.open(tmp_path / "own", config) as store:
        store.append_to_commit_log(0, data)
        assert store.put_message(Message("other", b"", 0, one)).ok
        two = {"INNER_MULTI_DISPATCH": "%LMQ%d"}
        refused = store.put_message(Message("other", b"", 0, two))
        assert refused.status is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


def test_a_read_only_store_follows_nobody(leader: Path) -> None:
    with (
        MessageStore.open(leader, CONFIG, read_only=True) as store,
        pytest.raises(ReadOnlyStoreError),
    ):
        store.append_to_commit_log(store.max_phy_offset(), b"")


def test_a_followed_log_gives_the_batch_queues_of_rocketmq(golden: Golden, tmp_path: Path) -> None:
    root = golden("special-default")
    with MessageStore.open(root) as store:  # cuts files that were made ahead
        start, data = store.min_phy_offset(), log_of(store)
        size = store.config.mapped_file_size_commit_log
    config = StoreConfig(mapped_file_size_commit_log=size, mapper_file_size_batch_consume_queue=460)
    with MessageStore.open(tmp_path / "own", config, backend="file") as own:
        follow(own, start, data, 40_000)
        assert [found for found in own.check() if found.damage and found.queue is not None] == []
    theirs, ours = (folder / "batchconsumequeue" for folder in (root, tmp_path / "own"))
    assert len([*theirs.glob("*/*/*")]) == 2
    for path in theirs.glob("*/*/*"):
        assert (ours / path.relative_to(theirs)).read_bytes() == path.read_bytes()
