"""What becomes of index files: rolled, cut, expired, refused, read while they are written."""

import os
import resource
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cqstore.store.errors import (
    CorruptionError,
    ReadOnlyStoreError,
    RetryableDiskFullError,
    StoreClosedError,
    StoreFailedError,
    StoreIOError,
    UnsupportedFormatError,
)
from cqstore.store.index.index_service import IndexService, open_index_file
from tests.kit.call_order import CallOrder
from tests.kit.faults import EIO, Faults
from tests.kit.index_records import index_record
from tests.kit.tree import unchanged

ALL = (0, 1 << 62)
SLOTS, ENTRIES = 10, 5
SIZE = 40 + 4 * SLOTS + 20 * ENTRIES


def opened(
    folder: Path, *, read_only: bool = False, last_exit_ok: bool = True, timestamp: int = 0
) -> IndexService:
    index = IndexService(folder, SLOTS, ENTRIES, read_only=read_only)
    index.load(last_exit_ok=last_exit_ok, index_timestamp=timestamp)
    return index


def put(index: IndexService, records: range) -> None:
    """Index records at 0, 100, 200, …, one key each, a second apart."""
    for number in records:
        index_record(index, "t", None, "k", number * 100, 10_000 + number * 1000)


def written(folder: Path, records: range) -> list[Path]:
    index = opened(folder)
    put(index, records)
    index.close()
    return sorted(folder.iterdir())


def headers(folder: Path) -> list[tuple[int, ...]]:
    return [struct.unpack_from(">qqqqii", path.read_bytes()) for path in sorted(folder.iterdir())]


def test_a_rolled_file_begins_with_the_end_of_the_one_before(tmp_path: Path) -> None:
    written(tmp_path, range(4))
    index = opened(tmp_path)
    index_record(index, "t", None, "k", 400, 20_000)
    index_record(index, "t", None, "k", 500, 22_500)
    assert index.query("t", "k", 2, 19_000, 23_000) == [500, 400]
    index.close()
    first, second = sorted(tmp_path.iterdir())
    assert headers(tmp_path) == [
        (10_000, 13_000, 0, 300, 1, 5),
        (20_000, 22_500, 400, 500, 1, 3),
    ]
    entries = second.read_bytes()[40 + 4 * SLOTS + 20 :]
    # Seven seconds since the end of the file before, then two since the begin of this one.
    assert [struct.unpack_from(">iqii", entries, 20 * at)[2] for at in range(2)] == [7, 2]
    assert second.name > first.name


def test_a_file_never_sorts_before_one_from_the_future(tmp_path: Path) -> None:
    (path,) = written(tmp_path, range(4))
    path.rename(tmp_path / "99991231235959999")
    written(tmp_path, range(5))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "99991231235959999",
        "99991231235960000",
    ]


def test_no_file_is_made_that_would_sort_before_the_last(tmp_path: Path) -> None:
    (path,) = written(tmp_path, range(4))
    path.rename(tmp_path / ("9" * 17))
    index = opened(tmp_path)
    with pytest.raises(UnsupportedFormatError, match="9" * 17):
        put(index, range(4, 5))
    assert index.query("t", "k", 64, *ALL) == [300, 200, 100, 0]
    index.close()
    assert [path.name for path in tmp_path.iterdir()] == ["9" * 17]


def test_after_a_crash_a_file_that_is_not_full_goes_whatever_its_times(tmp_path: Path) -> None:
    first, _ = written(tmp_path, range(6))
    index = opened(tmp_path, last_exit_ok=False, timestamp=1 << 40)
    assert list(tmp_path.iterdir()) == [first]
    assert index.resume_phy_offset() == 300
    assert index.index_timestamp == 13_000
    index.close()


def test_after_a_crash_everything_behind_a_removed_file_goes(tmp_path: Path) -> None:
    index = opened(tmp_path)
    put(index, range(4))
    for number in range(4, 8):  # the clock was set back
        index_record(index, "t", None, "k", number * 100, 5000)
    index.close()
    index = opened(tmp_path, last_exit_ok=False, timestamp=5000)
    assert list(tmp_path.iterdir()) == []
    assert (index.resume_phy_offset(), index.index_timestamp) == (0, 0)
    put(index, range(8))
    assert len(index.query("t", "k", 64, *ALL)) == 8
    index.close()


def test_a_record_whose_keys_straddle_two_files_is_whole_after_a_crash(tmp_path: Path) -> None:
    index = opened(tmp_path)
    put(index, range(3))
    index_record(index, "t", "u", "a b", 300, 20_000)
    index.close()
    assert [header[5] for header in headers(tmp_path)] == [5, 3]
    index = opened(tmp_path, last_exit_ok=False, timestamp=20_000)
    assert index.resume_phy_offset() == 300
    for _ in range(2):
        index_record(index, "t", "u", "a b", 300, 20_000)
    assert [index.query("t", key, 64, *ALL) for key in ("u", "a", "b")] == [[300]] * 3
    index.close()
    assert [header[5] for header in headers(tmp_path)] == [5, 3]


def test_a_clean_stop_needs_no_replay_with_or_without_files(tmp_path: Path) -> None:
    assert opened(tmp_path / "none").resume_phy_offset() is None
    written(tmp_path / "some", range(6))
    index = opened(tmp_path / "some")
    assert index.resume_phy_offset() is None
    assert index.index_timestamp == 13_000  # full and synced, not the unfinished one's
    index.close()


def test_files_that_point_behind_a_cut_log_are_replayed(tmp_path: Path) -> None:
    written(tmp_path, range(10))
    index = opened(tmp_path)
    assert index.truncate_dirty(1000) == 0
    assert index.resume_phy_offset() is None
    assert index.truncate_dirty(500) == 2
    assert index.resume_phy_offset() == 300
    put(index, range(3, 5))
    index_record(index, "t", None, "new", 500, 20_000)
    assert index.query("t", "k", 64, *ALL) == [400, 300, 200, 100, 0]
    assert index.query("t", "new", 64, *ALL) == [500]
    assert list(index.check(600)) == []
    index.close()


def test_reading_a_crashed_index_removes_nothing_and_says_what_to_replay(tmp_path: Path) -> None:
    written(tmp_path, range(10))
    with unchanged(tmp_path):
        index = opened(tmp_path, read_only=True, last_exit_ok=False, timestamp=13_000)
        assert index.resume_phy_offset() == 300
        assert len(index.query("t", "k", 64, *ALL)) == 10
        assert index.truncate_dirty(500) == 2
        with pytest.raises(ReadOnlyStoreError):
            index_record(index, "t", None, "k", 5000, 30_000)
        index.close()


def test_expired_files_go_but_never_the_last(tmp_path: Path) -> None:
    written(tmp_path, range(10))
    index = opened(tmp_path)
    assert index.delete_expired(300) == 0
    order = CallOrder(tmp_path)
    with order.watching():
        assert index.delete_expired(301) == 1
    assert [what for what, _ in order.made] == ["remove", "sync"]
    assert order.made[-1] == ("sync", ".")  # it does not come back when power fails
    assert index.query("t", "k", 64, *ALL) == [900, 800, 700, 600, 500, 400]
    assert index.delete_expired(1 << 40) == 1
    assert len(list(tmp_path.iterdir())) == 1
    index.close()


def test_times_are_both_included_and_end_the_walk(tmp_path: Path) -> None:
    written(tmp_path, range(10))
    index = opened(tmp_path)
    assert index.query("t", "k", 64, 12_000, 15_000) == [500, 400, 300, 200]
    assert index.query("t", "k", 3, 12_000, 15_000) == [500, 400, 300]
    assert index.query("t", "k", 64, 30_000, 40_000) == []
    index.close()


@pytest.mark.parametrize(("size", "read_write"), [(SIZE - 1, False), (SIZE + 20, False), (0, True)])
def test_a_file_of_odd_size_is_refused_or_reported(
    tmp_path: Path, size: int, *, read_write: bool
) -> None:
    written(tmp_path, range(4))
    odd = tmp_path / "99990101000000000"
    odd.write_bytes(bytes(size))
    reader = opened(tmp_path, read_only=True)
    assert [finding.path for finding in reader.check()] == [str(odd)]
    assert len(reader.query("t", "k", 64, *ALL)) == 4
    reader.close()
    if read_write:  # an empty last file is what a crash leaves of a new one
        opened(tmp_path).close()
        assert not odd.exists()
        return
    with pytest.raises(CorruptionError):
        IndexService(tmp_path, SLOTS, ENTRIES, read_only=False).load(
            last_exit_ok=True, index_timestamp=0
        )


def test_other_names_are_left_alone_and_reported(tmp_path: Path) -> None:
    written(tmp_path, range(4))
    for name in ("notes.txt", "1" * 30):
        (tmp_path / name).write_text("x")
    (tmp_path / "index.new").touch()  # what a killed process left: ours
    index = opened(tmp_path)
    assert sorted(Path(finding.path).name for finding in index.check()) == ["1" * 30, "notes.txt"]
    index.close()
    assert len(list(tmp_path.iterdir())) == 4


def test_files_without_keys_do_not_tell_their_slots(tmp_path: Path) -> None:
    path = tmp_path / "20260101000000000"
    path.write_bytes(bytes(SIZE))
    with pytest.raises(UnsupportedFormatError, match="--config"):
        open_index_file(path)
    with pytest.raises(UnsupportedFormatError, match="--config"):
        IndexService(tmp_path, None, None, read_only=False).load(
            last_exit_ok=True, index_timestamp=0
        )
    reader = IndexService(tmp_path, None, None, read_only=True)
    reader.load(last_exit_ok=True, index_timestamp=0)
    assert reader.query("t", "k", 64, *ALL) == []
    reader.close()


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let no write go beyond ``size`` bytes of a file, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_without_room_is_made_again_and_the_index_answers(tmp_path: Path) -> None:
    index = opened(tmp_path)
    put(index, range(3))
    for _ in range(2):
        with files_end_at(40 + 4 * SLOTS), pytest.raises(RetryableDiskFullError):
            index.flush()
        assert index.query("t", "k", 64, *ALL) == [200, 100, 0]
    index.flush()
    index.close()
    again = opened(tmp_path)
    assert again.query("t", "k", 64, *ALL) == [200, 100, 0]
    again.close()


def test_after_a_failed_write_the_index_takes_no_more_and_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = opened(tmp_path)
    put(index, range(3))
    faults = Faults(monkeypatch)
    faults.fail("write", EIO, str(index.files[-1].path))
    with pytest.raises(StoreIOError):
        index.flush()
    faults.heal()
    with pytest.raises(StoreFailedError):
        index.flush()
    assert index.query("t", "k", 64, *ALL) == [200, 100, 0]
    with pytest.raises(StoreFailedError):
        index.close()
    with pytest.raises(StoreClosedError):
        index.query("t", "k", 64, *ALL)


def test_a_reader_finds_every_key_once_while_keys_come_and_files_go(tmp_path: Path) -> None:
    index = IndexService(tmp_path, 16, 600, read_only=False)
    index.load(last_exit_ok=True, index_timestamp=0)
    faults: list[object] = []
    put_so_far, expired, done = [0], [0], threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                low = put_so_far[0]
                found = index.query("t", "k", 1 << 20, *ALL)
                expected = range(len(found) - 1, -1, -1)
                last = found[0] if found else -1
                if last < low - 1 or found != [last - len(found) + 1 + at for at in expected]:
                    faults.append((low, last, len(found)))
                if found and found[-1] > expired[0]:
                    faults.append(("missing from", found[-1]))
        except Exception as exc:  # noqa: BLE001 - a thread's fault must reach the test
            faults.append(exc)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(6000):
        index_record(index, "t", None, "k", number, 10_000)
        put_so_far[0] = number + 1
        if number % 1500 == 1499:
            index.flush()
            expired[0] = number - 700
            index.delete_expired(number - 1200)
    done.set()
    reader.join()
    index.close()
    assert faults == []


@pytest.mark.parametrize("how", ["put", "flush", "close", "expire"])
def test_a_full_file_that_did_not_reach_the_disk_is_told_by_whatever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    index, faults = opened(tmp_path), Faults(monkeypatch)
    put(index, range(4))
    faults.fail("fsync", EIO, str(index.files[0].path))
    put(index, range(4, 6))  # a thread of its own syncs the first file
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: put(index, range(6, 10)), "flush": index.flush, "close": index.close,
        "expire": lambda: index.delete_expired(1 << 40),
    }  # fmt: skip
    with pytest.raises(
        StoreFailedError, match="an earlier flush of the index file failed"
    ) as raised:
        calls[how]()
    assert raised.value.path == index.files[0].path
    assert index.index_timestamp == 0
    faults.heal()
    with suppress(StoreFailedError):
        index.close()
    index.close()  # once is enough
    with pytest.raises(StoreClosedError):
        index.query("t", "k", 1, *ALL)


@pytest.mark.parametrize("call", ["pread", "fdatasync"])
def test_a_file_that_is_closed_meanwhile_keeps_its_number_until_the_call_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    index, real = opened(tmp_path), getattr(os, call)
    put(index, range(2))
    index.drain()
    file = index.files[0]

    def close_first(number: int, *rest: int) -> object:
        file.close()
        return real(number, *rest)

    monkeypatch.setattr(os, call, close_first)
    if call == "pread":
        assert file.read(0, 8) == file.path.read_bytes()[:8]
    else:
        file.sync()
    monkeypatch.undo()
    index.close(flush=False)
