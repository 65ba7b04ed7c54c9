"""A backend that fails neither stops the other one nor loses anything: the next open catches up."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.errors import (
    ConsumeQueueError,
    QueueGapError,
    StoreError,
    StoreFailedError,
    StoreIOError,
)
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.crash_images import crash_image
from tests.kit.double_write import OTHER, StoredOffsets, backend_state, open_store, refuse
from tests.kit.faults import EIO, ENOSPC, Faults

Act = Callable[[MessageStore, StoredOffsets], None]


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def assert_whole(root: Path, stored: StoredOffsets, read: str) -> None:
    """Open to write, which catches up, and compare what each backend has."""
    with open_store(root, read) as store:
        assert store.detached_backends() == {}
        assert store.verify().is_clean
        assert [finding for finding in store.check() if finding.damage] == []
    assert backend_state(root).lagging == {}
    stored.check(root)


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("code", [ENOSPC, EIO])
def test_files_that_fail_in_mid_batch_are_caught_up(
    tmp_path: Path, faults: Faults, code: int, *, crashed: bool
) -> None:
    root, stored = tmp_path / "store", StoredOffsets()
    store = open_store(root, "rocksdb")
    stored.put(store, 50)
    store.flush()
    claimed, durable = (
        components_of(store).checkpoint.fields.logics_phy_offset,
        store.max_phy_offset(),
    )
    faults.fail("write", code, "/consumequeue/t/3")  # queues 0 to 2 have been written by then
    stored.put(store, 50)
    assert faults.refused == 1
    assert list(store.detached_backends()) == ["file"]
    assert backend_state(root).lagging == {"file": durable}
    faults.heal()
    stored.put(store, 50)
    store.flush()
    assert components_of(store).checkpoint.fields.logics_phy_offset == claimed, (
        "vouched for files with gaps"
    )
    if crashed:
        root = crash_image(store.root, tmp_path / "crashed")
    store.close()
    assert backend_state(root).lagging == {"file": durable}
    assert_whole(root, stored, "rocksdb")


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("name", ["file", "rocksdb"])
@pytest.mark.parametrize(
    ("method", "act"),
    [
        ("put_batch", lambda store, stored: stored.put(store, 20)),
        ("flush", lambda store, _: store.flush()),
        ("clean_expired", lambda store, _: store.delete_expired_files(16384)),
    ],
    ids=["put", "flush", "clean"],
)
def test_a_part_that_fails_is_detached_and_caught_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    method: str,
    act: Act,
    *,
    crashed: bool,
) -> None:
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    store = open_store(root, read)
    stored.put(store, 150)
    store.flush()
    stored.put(store, 10)
    with monkeypatch.context() as patched:
        refuse(patched, name, method)
        act(store, stored)
        assert list(store.detached_backends()) == [name]
        stored.put(store, 20)
        assert backend_state(root).lagging[name] <= stored.phys[QueueKey("t", 0)][30]
        if crashed:
            root = crash_image(store.root, tmp_path / "crashed")
        store.close()
    assert_whole(root, stored, read)


def test_what_a_part_never_synced_is_not_trusted_after_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut behind the clean stop takes pages that the files' failed flush did not write."""
    root, stored = tmp_path / "store", StoredOffsets()
    with open_store(root, "rocksdb") as store:
        stored.put(store, 50)
        store.flush()
        stored.put(store, 50)
        with monkeypatch.context() as patched:
            refuse(patched, "file", "flush")
            store.flush()
    assert not (root / "abort").exists()
    path = root / "consumequeue" / "t" / "1" / f"{200:020d}"
    data = bytearray(path.read_bytes())
    assert any(data[40:80])
    data[40:80] = bytes(40)  # units 12 and 13, with others behind them
    path.write_bytes(data)
    assert_whole(root, stored, "rocksdb")


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_a_part_that_fails_when_it_is_closed_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    store = open_store(root, read)
    stored.put(store, 30)
    with monkeypatch.context() as patched:
        closing = components_of(store).queues.backends()[1].close
        refuse(patched, name, "close")
        store.close()
        patched.undo()
        closing()
    assert list(backend_state(root).lagging) == [name]
    assert_whole(root, stored, read)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_only_the_part_that_is_read_makes_a_close_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The other one's failure has been told when it was detached."""
    for refused in (name, OTHER[name]):
        store = open_store(tmp_path / refused, name)
        StoredOffsets().put(store, 5)
        by_name = {each.name: each for each in components_of(store).queues.backends()}
        with monkeypatch.context() as patched:
            if refused != name:
                refuse(patched, refused, "put_batch")
                assert store.put_message(Message("t", b"")).ok
                assert store.max_offset("t", 0) == 2
                assert list(store.detached_backends()) == [refused]
            closing = type(by_name[refused]).close
            if refused == name:
                refuse(patched, refused, "close")
                with pytest.raises(StoreError):
                    store.close()
            else:
                patched.setattr(type(by_name[refused]), "close", lambda _: 1 / 0)
                store.close()
        closing(by_name[refused])
        assert list(backend_state(tmp_path / refused).lagging) == [refused] * (refused != name)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
@pytest.mark.parametrize("method", ["load", "recover", "truncate_dirty", "allow_expiry"])
def test_a_part_that_cannot_be_opened_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    with open_store(root, read) as store:
        stored.put(store, 30)
    with monkeypatch.context() as patched:
        refuse(patched, name, method)
        with open_store(root, read) as store:
            assert list(store.detached_backends()) == [name]
            stored.put(store, 30)
    assert list(backend_state(root).lagging) == [name]
    assert_whole(root, stored, read)


@pytest.mark.parametrize("read", ["file", "rocksdb"])
def test_the_part_that_is_read_fails_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    root, stored = tmp_path / "store", StoredOffsets()
    store = open_store(root, read)
    stored.put(store, 30)
    with monkeypatch.context() as patched:
        refuse(patched, read, "put_batch")
        store.put_message(Message("u", b"lost to the queues, not to the log"))
        with pytest.raises(ConsumeQueueError):
            store.flush()
        with pytest.raises(StoreFailedError):
            store.put_message(Message("u", b""))
        store.close()
    stored.phys[QueueKey("u", 0)].append(stored.phys[QueueKey("t", 4)][-1] + size_of_last(root))
    assert backend_state(root).lagging == {}
    assert_whole(root, stored, read)


def size_of_last(root: Path) -> int:
    with MessageStore.open(root, read_only=True) as store:
        records = list(components_of(store).log.scan(0))
    return records[-2].size


def test_the_part_that_assigns_offsets_fails_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"combineAssignOffsetCQType": "defaultRocksDB"}
    store = open_store(tmp_path / "store", "file", **changes)
    StoredOffsets().put(store, 5)
    with monkeypatch.context() as patched:
        refuse(patched, "rocksdb", "flush")
        with pytest.raises(ConsumeQueueError):
            store.flush()
        store.close()
    assert backend_state(tmp_path / "store").lagging == {}


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_a_store_that_cannot_note_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults, name: str
) -> None:
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    store = open_store(root, read)
    stored.put(store, 30)
    with monkeypatch.context() as patched:
        refuse(patched, name, "flush")
        faults.fail("write", ENOSPC, "cqstore/mode")
        with pytest.raises(StoreIOError):
            store.flush()
        with pytest.raises(StoreFailedError):
            store.put_message(Message("t", b""))
        faults.heal()
        store.close()
    assert (root / "abort").exists()
    assert_whole(root, stored, read)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_a_crash_in_the_middle_of_catching_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    with open_store(root, read) as store:
        stored.put(store, 30)
        with monkeypatch.context() as patched:
            refuse(patched, name, "put_batch")
            stored.put(store, 100)
    line = backend_state(root).lagging
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.store.service.dispatching.replay.REPLAY_UNITS", 16)
        patched.setattr("cqstore.store.service.dispatching.replay.SLICE_PER_QUEUE", 0)
        refuse(patched, read, "allow_expiry")  # the replay is done, nothing else of it
        with pytest.raises(ConsumeQueueError):
            open_store(root, read)
    assert backend_state(root).lagging in ({}, line)
    assert_whole(root, stored, read)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_what_expired_or_was_deleted_meanwhile_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Queues that the log no longer names keep their next offset, deleted ones do not come back."""
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    with open_store(root, read) as store:
        stored.put(store, 20)
        stored.put(store, 20, "expires")
        stored.put(store, 20, "goes")
        stored.put(store, 5, "begins-again")
        store.flush()
        with monkeypatch.context() as patched:
            refuse(patched, name, "put_batch")
            stored.put(store, 10, "expires")
            stored.put(store, 10, "expires-unseen")
            stored.put(store, 400)
            for topic in ("goes", "begins-again"):
                store.delete_topic(topic)
                for key in [key for key in stored.phys if key.topic == topic]:
                    del stored.phys[key]
            for queue_id in range(2):  # fewer queues than in its first incarnation
                result = store.put_message(Message("begins-again", b"", queue_id))
                stored.phys[QueueKey("begins-again", queue_id)].append(result.phy_offset)
            ends = components_of(store).log.files.files()
            assert store.delete_expired_files(ends[-2].file_from_offset).log_files > 1
            assert list(store.detached_backends()) == [name]
    assert_whole(root, stored, read)


def test_how_a_part_stands_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path / "store", "file")
    StoredOffsets().put(store, 20)
    store.flush()
    whole = store.max_phy_offset()
    refuse(monkeypatch, "rocksdb", "put_batch")
    store.put_message(Message("t", b"", 0))
    store.flush()
    figures = {
        (name, replica): value for name, replica, value in store.metrics.snapshot().queue_stats
    }
    assert figures["queue_backend_detached", "rocksdb"] == 1
    assert figures["queue_backend_detached", "file"] == 0
    assert figures["queue_backend_whole_phy_offset", "rocksdb"] == whole
    assert figures["queue_backend_whole_phy_offset", "file"] > whole
    assert f"complete up to phy offset {whole}" in str(
        components_of(store).queues.describe()["rocksdb detached"]
    )
    store.close()


def test_a_damaged_record_of_the_backends_is_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        StoredOffsets().put(store, 5)
    (root / "cqstore" / "mode").write_bytes(b'00000000 {"state":null}\n')
    with pytest.raises(StoreError, match="record of the backends") as caught:
        open_store(root)
    assert caught.value.path == root / "cqstore" / "mode"


def test_the_first_failure_of_a_part_is_kept(tmp_path: Path) -> None:
    """Writer and flush thread may come to it at once; a gap then is of what it does not get."""
    with open_store(tmp_path / "store", "file") as store:
        StoredOffsets().put(store, 10)
        store.flush()
        queues = components_of(store).queues
        assert isinstance(queues, CombinedConsumeQueueStore)
        (lost,) = [replica for replica in queues._replicas if replica.name == "rocksdb"]
        first = ConsumeQueueError("first")
        queues._detach(lost, "do it", first)
        line = backend_state(tmp_path / "store").lagging
        assert line == {"rocksdb": lost.synced_to}
        assert lost.synced_to > 0
        queues._detach(lost, "do it", QueueGapError("second"))
        assert store.detached_backends() == {"rocksdb": first}
        assert backend_state(tmp_path / "store").lagging == line


def test_a_gap_shows_that_a_part_never_had_what_it_claimed(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", "file") as store:
        StoredOffsets().put(store, 10)
        store.flush()
        queues = components_of(store).queues
        assert isinstance(queues, CombinedConsumeQueueStore)
        (lost,) = [replica for replica in queues._replicas if replica.name == "rocksdb"]
        queues._detach(lost, "do it", QueueGapError("a gap"))
        assert backend_state(tmp_path / "store").lagging == {"rocksdb": 0}


@pytest.mark.parametrize("method", ["delete_queue", "restore_end", "delete_topics", "put_batch"])
def test_whatever_a_part_fails_at_detaches_it_or_fails_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    given: dict[str, tuple[object, ...]] = {
        "delete_queue": ("t", 0), "restore_end": ("new", 0, 5), "delete_topics": (["t"],),
        "put_batch": (UnitBatch(),),
    }  # fmt: skip
    for name, is_needed in (("rocksdb", False), ("file", True)):
        with open_store(tmp_path / name, "file") as store, monkeypatch.context() as patched:
            StoredOffsets().put(store, 10)
            refuse(patched, name, method)
            if is_needed:
                with pytest.raises(ConsumeQueueError, match=method):
                    getattr(components_of(store).queues, method)(*given[method])
            else:
                getattr(components_of(store).queues, method)(*given[method])
                (reported,) = store.detached_backends().items()
                assert (reported[0], method in str(reported[1])) == (name, True)


def test_a_part_is_whole_as_far_as_it_was_flushed_as_a_whole(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        StoredOffsets().put(store, 50)
        queues = components_of(store).queues
        assert isinstance(queues, CombinedConsumeQueueStore)
        replicas = queues._replicas
        before = [replica.synced_to for replica in replicas]
        queues.flush(1)  # what fills a page: none, or some of it
        assert [replica.synced_to for replica in replicas] == before
        queues.flush()
        assert [replica.synced_to for replica in replicas] == [store.max_phy_offset()] * 2
        assert not any("lagging" in replica.describe() for replica in replicas)


def test_of_two_backends_those_in_use_tell_what_they_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = StoredOffsets()
    with open_store(tmp_path / "s", "file") as store:
        stored.put(store, 30)
        store.flush()
        (database,) = (
            each for each in components_of(store).queues.backends() if each.written_bytes()
        )
        assert components_of(store).queues.written_bytes() == database.written_bytes()
        assert components_of(store).queues.written_bytes()["flush"] > 0
        with monkeypatch.context() as patched:
            refuse(patched, "rocksdb", "put_batch")
            stored.put(store, 1)
        assert store.detached_backends()
        assert not components_of(store).queues.written_bytes()
