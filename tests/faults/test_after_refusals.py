"""What a refusal must not lead to: a false acknowledgement, a broken journal, a locked root."""

import errno
import fcntl
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.store.errors import (
    DiskFullError,
    QueueGapError,
    StoreError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching import replay
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageStatus
from tests.faults.test_refusals import CONFIG, open_store
from tests.kit.acknowledged import Acknowledged
from tests.kit.descriptors import descriptors_of
from tests.kit.faults import EACCES, EIO, EMFILE, ENOSPC, EROFS, Faults

FULL = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
SECONDS = 30
OPENING = [
    ("open", EMFILE), ("open", EACCES), ("stat", EACCES), ("list", EMFILE), ("mkdir", EROFS),
    ("write", EIO), ("fsync", EIO), ("truncate", EIO), ("rename", EROFS), ("unlink", EROFS),
    ("fallocate", ENOSPC),
]  # fmt: skip


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def test_who_waits_for_a_flush_that_fails_is_not_told_that_all_is_well(
    tmp_path: Path, faults: Faults
) -> None:
    """After a failed fdatasync the kernel calls the next one a success."""
    store = open_store(tmp_path, "file")
    assert store.put_message(Message("t", b"x" * 50)).ok
    before = store.max_phy_offset()
    outcomes: list[object] = []

    def put() -> None:
        try:
            outcomes.append(store.put_message(Message("t", b"x" * 50)).status)
        except StoreError as exc:
            outcomes.append(exc)

    faults.fail("fsync", EIO, f"/commitlog/{0:020d}", times=1)
    threads = [threading.Thread(target=put) for _ in range(4)]
    with components_of(store).commit._leading:
        for thread in threads:
            thread.start()
        while store.max_phy_offset() < 5 * before:  # all have the same size
            assert any(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join(SECONDS)
    assert faults.refused == 1
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert sum(type(outcome) is StoreIOError for outcome in outcomes) == 1
    with pytest.raises(StoreFailedError, match="Input/output error") as refused:
        store.put_message(Message("t", b"x"))
    assert type(refused.value.__cause__) is StoreIOError
    store.close()


@pytest.mark.parametrize("backend", backend_names())
def test_no_room_for_the_next_file_is_a_status_until_there_is_room_again(
    tmp_path: Path, faults: Faults, backend: str
) -> None:
    acknowledged = Acknowledged()
    with open_store(tmp_path, backend) as store:
        acknowledged.put(store)
        faults.fail("fallocate", ENOSPC, "/commitlog/")
        while acknowledged.put(store).ok:
            assert acknowledged.requested < 200
        assert acknowledged.put(store).status is FULL
        acknowledged.check(store)
        faults.heal()
        while acknowledged.requested < 300:
            assert acknowledged.put(store).ok
        acknowledged.check(store)
    with open_store(tmp_path, backend) as store:
        assert store.last_exit_ok
        acknowledged.check(store)


@pytest.mark.parametrize("backend", backend_names())
def test_of_a_list_that_meets_a_full_disk_the_first_part_is_stored(
    tmp_path: Path, faults: Faults, backend: str
) -> None:
    with open_store(tmp_path, backend) as store:
        assert store.put_message(Message("t", b"0")).ok
        faults.fail("fallocate", ENOSPC, "/commitlog/")
        first = store.put_messages([Message("t", b"%d" % n * 300) for n in range(1, 200)])
        statuses = [result.status for result in first]
        stored = statuses.index(FULL)
        assert stored > 20
        assert set(statuses[stored:]) == {FULL}
        faults.heal()
        assert store.put_message(Message("t", b"last")).queue_offset == stored + 1
        assert [m.body for m in store.get_message("t", 0, stored).messages()] == [
            b"%d" % stored * 300, b"last",
        ]  # fmt: skip


def test_a_record_longer_than_a_file_keeps_no_other_of_its_list_out(tmp_path: Path) -> None:
    with open_store(tmp_path, "file") as store:
        bodies = [b"first", b"x" * 20_000, b"last"]
        results = store.put_messages([Message("t", body) for body in bodies])
        assert [result.ok for result in results] == [True, False, True]
        found = store.get_message("t", 0, 0).messages()
        assert [message.body for message in found] == [b"first", b"last"]
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("torn", [b"12", b"12345678 {}\n", b"", bytes(30)])
def test_a_torn_line_does_not_become_damage(tmp_path: Path, torn: bytes) -> None:
    expired, deleted = ExpiredQueues(tmp_path / "e"), DeletedTopics(tmp_path / "d")
    expired.add([(QueueKey("a", 0), 1)])
    deleted.begin(["a"], 1)
    for journal in (expired, deleted):
        journal.path.write_bytes(journal.path.read_bytes() + torn)
    expired, deleted = ExpiredQueues(expired.path), DeletedTopics(deleted.path)
    for name in ("b", "c"):
        expired.add([(QueueKey(name, 0), 1)])
        deleted.begin([name], 1)
    assert [topic for topic, _ in expired.ends()] == ["a", "b", "c"]
    again = DeletedTopics(deleted.path)
    again.load()
    assert again.unfinished() == ["a", "b", "c"]


def test_a_journal_that_a_full_disk_tore_goes_on(tmp_path: Path, faults: Faults) -> None:
    journal = ExpiredQueues(tmp_path / "e")
    journal.add([(QueueKey("a", 0), 1)])
    faults.fail("write", ENOSPC, "/e")
    with pytest.raises(DiskFullError):
        journal.add([(QueueKey("b", 0), 1)])
    faults.heal()
    journal.add([(QueueKey("c", 0), 1)])
    assert list(journal.ends()) == [QueueKey("a", 0), QueueKey("c", 0)]


def test_a_tail_is_saved_again_when_cutting_it_failed(tmp_path: Path, faults: Faults) -> None:
    with open_store(tmp_path, "file") as store:
        end = [store.put_message(Message("t", b"x" * 100)).phy_offset for _ in range(3)][-1]
    (path,) = [p for p in (tmp_path / "commitlog").iterdir() if p.name == f"{0:020d}"]
    data = bytearray(path.read_bytes())
    data[end + 120] ^= 1
    path.write_bytes(data)
    (tmp_path / "abort").touch()
    for vouching in ("checkpoint", "cqstore/synced"):
        (tmp_path / vouching).unlink()
    faults.fail("write", EIO, "/commitlog/")
    for _ in range(2):
        with pytest.raises(StoreIOError):
            open_store(tmp_path, "file")
    faults.heal()
    with open_store(tmp_path, "file") as store:
        assert store.max_phy_offset() == end
        assert store.max_offset("t", 0) == 2
        assert len(store.report.saved) == 1


def test_a_queues_fault_is_not_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path, "file") as store:
        put = [store.put_message(Message("t", b"x", number % 2)) for number in range(40)][-1]
    (tmp_path / "abort").touch()
    shutil.rmtree(tmp_path / "consumequeue")
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[put.phy_offset + 20 : put.phy_offset + 28] = (1000).to_bytes(8, "big")  # its queue offset
    path.write_bytes(data)
    monkeypatch.setattr(replay, "REPLAY_UNITS", 1)
    monkeypatch.setattr(replay, "SLICE_PER_QUEUE", 1)
    with pytest.raises(QueueGapError):
        open_store(tmp_path, "file")


@pytest.mark.parametrize(("call", "code"), OPENING)
@pytest.mark.parametrize("backend", backend_names())
def test_opening_raises_only_our_errors_and_frees_the_root(
    tmp_path: Path, faults: Faults, backend: str, call: str, code: int
) -> None:
    acknowledged = Acknowledged()
    with open_store(tmp_path, backend) as store:
        for _ in range(60):
            acknowledged.put(store)
    if code == EIO:
        (tmp_path / "abort").touch()
    after, refused = 0, 1
    while refused:  # one call is refused, each time a later one
        faults.fail(call, code, str(tmp_path), times=1, after=after)
        for read_only in (True, False):
            with suppress(StoreError):
                MessageStore.open(tmp_path, CONFIG, read_only=read_only).close()
        refused = faults.refused
        after += 1 + after // 2
    faults.heal()
    with open_store(tmp_path, backend) as store:
        acknowledged.check(store)


def test_a_lock_that_cannot_be_had_at_all_is_not_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "lockf", no_locks)
        with pytest.raises(StoreIOError, match="No locks available") as caught:
            open_store(tmp_path, "file")
        assert descriptors_of(tmp_path) == []
        assert caught.value.path == tmp_path / "lock"
    open_store(tmp_path, "file").close()


def test_a_read_only_folder_is_named(tmp_path: Path, faults: Faults) -> None:
    with open_store(tmp_path, "file") as store:
        assert store.put_message(Message("t", b"x")).ok
    faults.fail("open", EROFS, str(tmp_path / "lock"))
    with pytest.raises(StoreIOError, match="Read-only file system") as caught:
        open_store(tmp_path, "file")
    assert caught.value.path == tmp_path / "lock"
    with MessageStore.open(tmp_path, read_only=True) as store:
        assert store.get_message("t", 0, 0).messages()[0].body == b"x"


@pytest.mark.parametrize("backend", backend_names())
def test_a_rebuild_whose_end_cannot_be_noted_takes_no_puts(
    tmp_path: Path, faults: Faults, backend: str
) -> None:
    """Its line is there still: the next opening builds the queues again, and forgets later puts."""
    with open_store(tmp_path, backend) as store:
        assert store.put_message(Message("t", b"x")).ok
        faults.fail("unlink", EIO, "cqstore/rebuilding")
        with pytest.raises(StoreIOError):
            store.rebuild_queues("t")
        assert faults.refused == 1
        faults.heal()
        with pytest.raises(StoreFailedError):
            store.put_message(Message("t", b"x"))
    with open_store(tmp_path, backend) as store:
        assert store.max_offset("t", 0) == 1


def test_a_refusal_that_nothing_else_names_is_the_openings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(EIO, os.strerror(EIO))

    monkeypatch.setattr("cqstore.store.service.opening.open_store.open_store", refuse)
    with pytest.raises(StoreIOError, match="cannot open the store: Input/output error") as caught:
        MessageStore.open(tmp_path)
    assert caught.value.path == tmp_path
