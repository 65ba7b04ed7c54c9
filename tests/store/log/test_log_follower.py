"""LogFollower: what another process appends, whole, once and in order."""

import os
from pathlib import Path

import pytest

from cqstore.store.errors import RefusedStoreError
from cqstore.store.log.log_follower import LogFollower
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=4096)
BODY_AT = 88
"""Bytes before the body of a record with hosts of IPv4."""


def put(store: MessageStore, *bodies: bytes) -> list[int]:
    return [store.put_message(Message("t", body, 0)).phy_offset for body in bodies]


def follower(root: Path, at: int = 0) -> LogFollower:
    return LogFollower([root / "commitlog"], at)


def bodies(of: LogFollower) -> list[bytes]:
    return [message.body for message in of.poll()]


def log_file(root: Path, at: int) -> Path:
    return root / "commitlog" / f"{at:020d}"


def overwrite(path: Path, position: int, data: bytes) -> bytes:
    """Write ``data`` into a file; return what was there."""
    fd = os.open(path, os.O_RDWR)
    try:
        before = os.pread(fd, len(data), position)
        os.pwrite(fd, data, position)
    finally:
        os.close(fd)
    return before


def test_records_come_once_and_over_the_ends_of_files(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        follows = follower(tmp_path)
        assert bodies(follows) == []
        sent = [bytes([65 + number]) * 500 for number in range(25)]  # seven in a file
        put(store, *sent[:3])
        assert bodies(follows) == sent[:3]
        assert bodies(follows) == []
        put(store, *sent[3:])
        assert bodies(follows) == sent[3:]
        assert follows.phy_offset == store.max_phy_offset() > 3 * 4096
        put(store, b"x")
        assert bodies(follows) == [b"x"]
        assert bodies(follower(tmp_path, follows.phy_offset)) == []
    assert follows.passed_over == []


def test_a_poll_sees_what_comes_while_it_is_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        put(store, b"a")
        polled = follower(tmp_path).poll()
        assert next(polled).body == b"a"
        put(store, b"b", b"c" * 3000, b"d" * 3000)
        assert [each.body for each in polled] == [b"b", b"c" * 3000, b"d" * 3000]


def test_a_place_where_no_record_begins_is_the_begin_of_its_file(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        first, second = put(store, b"a", b"b")
    assert bodies(follower(tmp_path, second)) == [b"b"]
    assert bodies(follower(tmp_path, second + 1)) == [b"a", b"b"]
    assert first == 0


def test_the_last_record_waits_until_it_is_whole(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        _, last = put(store, b"a" * 50, b"b" * 50)
    path = log_file(tmp_path, 0)
    whole = overwrite(path, last + BODY_AT, b"?")
    follows = follower(tmp_path)
    assert bodies(follows) == [b"a" * 50]
    assert bodies(follows) == []
    assert follows.passed_over == []
    overwrite(path, last + BODY_AT, whole)
    assert bodies(follows) == [b"b" * 50]


def test_a_head_that_is_not_there_yet_ends_the_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        _, last = put(store, b"a", b"b")
    head = overwrite(log_file(tmp_path, 0), last, bytes(8))
    follows = follower(tmp_path)
    assert bodies(follows) == [b"a"]
    overwrite(log_file(tmp_path, 0), last, head)
    assert bodies(follows) == [b"b"]


def test_damage_with_a_record_behind_it_is_passed_over_and_named(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        _, damaged, _ = put(store, b"a" * 50, b"b" * 50, b"c" * 50)
    overwrite(log_file(tmp_path, 0), damaged + BODY_AT, b"?")
    follows = follower(tmp_path)
    assert bodies(follows) == [b"a" * 50, b"c" * 50]
    (fault,) = follows.passed_over
    assert fault.phy_offset == damaged
    assert "CRC" in str(fault)


def test_damage_in_the_last_record_of_a_file_is_passed_over(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        damaged, _ = put(store, b"a" * 3000, b"b" * 3000)
    overwrite(log_file(tmp_path, 0), damaged + BODY_AT, b"?")
    follows = follower(tmp_path)
    assert bodies(follows) == [b"b" * 3000]
    assert [fault.phy_offset for fault in follows.passed_over] == [damaged]


def test_a_log_that_was_cut_back_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        _, last = put(store, b"a", b"b")
    follows = follower(tmp_path)
    assert bodies(follows) == [b"a", b"b"]
    overwrite(log_file(tmp_path, 0), last, bytes(8))
    with pytest.raises(RefusedStoreError, match=f"the log was truncated: .*{last}"):
        bodies(follows)


def test_files_that_went_unread_are_counted(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        put(store, b"a")
        follows = follower(tmp_path)
        assert bodies(follows) == [b"a"]
        read_to = follows.phy_offset
        put(store, *[b"b" * 3000] * 3)
    log_file(tmp_path, 0).unlink()
    log_file(tmp_path, 4096).unlink()
    assert bodies(follows) == [b"b" * 3000]
    assert follows.expired == 2 * 4096 - read_to


def test_a_record_longer_than_what_is_read_at_once_comes_whole(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=8 << 20)
    sent = [b"a", b"b" * (5 << 19), b"c" * (3 << 19), b"d"]
    with MessageStore.open(tmp_path, config, backend="file") as store:
        put(store, *sent)
        assert bodies(follower(tmp_path)) == sent


def test_a_log_that_is_moved_away_or_replaced_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        put(store, b"a")
    follows = follower(root)
    assert bodies(follows) == [b"a"]
    root.rename(tmp_path / "away")
    with pytest.raises(RefusedStoreError, match="the commit log was moved or removed"):
        bodies(follows)
    with MessageStore.open(root, CONFIG, backend="file") as store:
        put(store, b"a")
    with pytest.raises(RefusedStoreError, match="the commit log was replaced by another folder"):
        bodies(follows)
    late = LogFollower([tmp_path / "new" / "commitlog"], 0)  # its folder comes with the first put
    assert bodies(late) == []
    with MessageStore.open(tmp_path / "new", CONFIG, backend="file") as store:
        put(store, b"b")
        assert bodies(late) == [b"b"]
