"""Files that a writer removes while a reader opens the store, or after it has: they expired."""

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from cqstore import GetMessageStatus, Message, MessageStore, StoreConfig, StoreIOError
from cqstore.store.errors import StoreError
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.service.opening.components import components_of
from tests.kit.quiet_config import quiet_config

FILE_BYTES = 1 << 14
CONFIG = quiet_config(
    mapped_file_size_commit_log=FILE_BYTES, mapped_file_size_consume_queue=20 * 8,
    rocksdb_memory_bytes=16 << 20, max_index_num=40, max_hash_slot_num=10,
)  # fmt: skip
BACKENDS = ["file", "rocksdb"]
MESSAGES = 60


def filled(root: Path, backend: str) -> list[int]:
    """Make a store of several files; return the phy offsets of its messages."""
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        return put(store)


def put(store: MessageStore) -> list[int]:
    return [
        store.put_message(Message("t", b"x" * 1000, 0, {"KEYS": f"k{at}"})).phy_offset
        for at in range(MESSAGES)
    ]


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def removing(doomed: list[Path]) -> Callable[[MappedFileQueue], None]:
    """Return a ``load`` behind which each call removes one more file: it was listed."""
    load = MappedFileQueue.load

    def then_removed(files: MappedFileQueue) -> None:
        load(files)
        if doomed:
            doomed.pop(0).unlink()

    return then_removed


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_that_expire_between_listing_and_opening(tmp_path: Path, backend: str) -> None:
    load, moves, last = MappedFileQueue.load, 2, 0
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as writer:

        def then_expired(files: MappedFileQueue) -> None:
            nonlocal moves, last
            load(files)
            if moves:  # all that was listed has gone when the first file is opened
                moves -= 1
                last = put(writer)[-1]
                writer.delete_expired_files(last)

        put(writer)
        with mock.patch.object(MappedFileQueue, "load", then_expired):
            store = MessageStore.open(tmp_path, CONFIG, read_only=True)
        with store:
            assert moves == 0
            assert store.report.damage is None
            assert store.min_phy_offset() == last // FILE_BYTES * FILE_BYTES
            assert store.max_phy_offset() == writer.max_phy_offset()
            if backend == "file":
                assert store.max_offset("t", 0) == 3 * MESSAGES


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_spare_file_that_its_writer_takes_away(tmp_path: Path, backend: str) -> None:
    filled(tmp_path, backend)
    (tmp_path / "abort").touch()
    spare = tmp_path / "commitlog" / f"{5 * FILE_BYTES:020d}"
    spare.write_bytes(bytes(FILE_BYTES))
    with mock.patch.object(MappedFileQueue, "load", removing([spare])):
        store = MessageStore.open(tmp_path, CONFIG, read_only=True)
    with store:
        assert store.max_offset("t", 0) == MESSAGES
        assert components_of(store).log.files.end_offset() == 5 * FILE_BYTES


def test_a_file_that_is_gone_for_good_is_named(tmp_path: Path) -> None:
    filled(tmp_path, "file")
    link = log_files(tmp_path)[0]
    link.rename(tmp_path / "away")
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreIOError, match="No such file") as raised:
        MessageStore.open(tmp_path, CONFIG, read_only=True)
    assert raised.value.path == link


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_expires_after_the_opening_counts_as_expired(tmp_path: Path, backend: str) -> None:
    places = filled(tmp_path, backend)
    with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
        with MessageStore.open(tmp_path, CONFIG, backend=backend) as writer:
            writer.delete_expired_files(places[-1])
        gone = [at for at, place in enumerate(places) if place < 4 * FILE_BYTES]
        at, statuses, offsets = 0, [], []
        while at < MESSAGES:
            found = store.get_message("t", 0, at)
            statuses.append(found.status)
            offsets += found.queue_offsets
            assert found.next_begin_offset > at
            at = found.next_begin_offset
        assert offsets[-1] == MESSAGES - 1
        assert offsets == list(range(offsets[0], MESSAGES))
        assert offsets[0] <= gone[-1] + 1
        assert statuses[-1] is GetMessageStatus.FOUND
        assert store.query_message("t", "k0", 1) == []
        (last,) = store.query_message("t", f"k{MESSAGES - 1}", 1)
        assert last.phy_offset == places[-1]
        assert [finding for finding in store.check() if finding.damage] == []


def test_a_file_that_is_missing_between_others_has_not_expired(tmp_path: Path) -> None:
    places = filled(tmp_path, "file")
    with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
        log_files(tmp_path)[1].unlink()
        at = next(place for place in places if place >= FILE_BYTES)
        with pytest.raises(StoreIOError, match="No such file"):
            components_of(store).log.message(at)
        assert store.min_phy_offset() == 0


def test_a_store_that_was_moved_away_is_no_expiry(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root, "file")
    with MessageStore.open(root, StoreConfig(), read_only=True) as store:
        shutil.move(root, tmp_path / "moved")
        with pytest.raises(StoreError):
            components_of(store).log.message(0)
