"""How far the log was synced is written down: what lies before that is no power cut's doing."""

import os
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from unittest import mock

import pytest

from cqstore.store.errors import RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.tree import unchanged

CONFIG = StoreConfig(
    mapped_file_size_commit_log=16384, flush_disk_type=FlushDiskType.SYNC_FLUSH,
    flush_interval_commit_log=1 << 30,
)  # fmt: skip
FIRST_LOG = Path("commitlog", "0" * 20)
SECTOR = 512


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of ten records that counts as crashed, whose checkpoint vouches for nothing."""
    root = tmp_path / "store"
    fill(root, 10)
    crash(root)
    return root


def fill(root: Path, count: int) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(count):
            assert store.put_message(Message("t", b"%d" % (number % 10) * 300)).ok


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def crash(root: Path) -> None:
    (root / "abort").touch()
    (root / "checkpoint").unlink()


def lose_a_sector(root: Path, at: int = SECTOR) -> None:
    with (root / FIRST_LOG).open("r+b") as file:
        file.seek(at)
        file.write(bytes(SECTOR))


def marked(root: Path) -> int:
    return SyncedMark(StorePaths(root)).phy_offset


def test_a_lost_sector_before_the_mark_is_damage(root: Path) -> None:
    assert marked(root) > 10 * 300
    lose_a_sector(root)
    with unchanged(root / "commitlog"):
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            assert store.report.damage is not None
        with pytest.raises(RefusedStoreError, match="a valid record follows at "):
            MessageStore.open(root, CONFIG)


def test_a_lost_end_before_the_mark_is_damage_too(root: Path) -> None:
    with MessageStore.open(root, read_only=True) as store:
        *_, last = (record.phy_offset for record in components_of(store).log.scan(0))
    with (root / FIRST_LOG).open("r+b") as file:
        file.seek(last)
        file.write(bytes(16384 - last))
    with pytest.raises(RefusedStoreError, match="this record was on disk"):
        MessageStore.open(root, CONFIG)


def test_a_lost_sector_behind_the_mark_is_a_power_cut_s(root: Path) -> None:
    SyncedMark(StorePaths(root)).begin(300)
    lose_a_sector(root)
    began = time.time_ns()
    with MessageStore.open(root, CONFIG) as store:
        assert store.max_offset("t", 0) == 1
        (saved,) = store.report.saved
    stamp, _, rest = saved.path.name.split("-")[1].partition(".")  # when, in UTC
    seconds = datetime.strptime(stamp + "Z", "%Y%m%dT%H%M%S%z").timestamp()
    assert began <= int(seconds) * 10**9 + int(rest) <= time.time_ns()


@pytest.mark.parametrize("mark", [None, 0, 20_000])
def test_what_nobody_synced_is_written_again(tmp_path: Path, mark: int | None) -> None:
    """The kernel takes pages whose sync failed for written: a sync alone does not help them."""
    root = tmp_path / "store"
    fill(root, 100)
    crash(root)
    if mark is None:
        (root / "cqstore/synced").unlink()
    else:
        SyncedMark(StorePaths(root)).begin(mark)
    written, real = set[int](), os.pwrite
    before = [path.read_bytes() for path in log_files(root)]

    def pwrite(fd: int, data: bytes, at: int) -> int:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.parent.name == "commitlog":
            written.update(range(int(path.name) + at, int(path.name) + at + len(data)))
        return real(fd, data, at)

    with mock.patch("os.pwrite", pwrite), MessageStore.open(root, CONFIG) as store:
        end = store.max_phy_offset()
        assert 2 * 16384 < end < 3 * 16384
    wanted = set[int]() if mark is None else set(range(mark, end))
    assert {at for at in written if at < end} == wanted
    assert [path.read_bytes() for path in log_files(root)] == before


@pytest.mark.parametrize("flush", FlushDiskType)
def test_the_mark_follows_the_log(tmp_path: Path, flush: FlushDiskType) -> None:
    root = tmp_path / "store"
    config = CONFIG.model_copy(update={"flush_disk_type": flush})
    with MessageStore.open(root, config, backend="file") as store:
        assert marked(root) == 0
        for number in range(1, 60):
            store.put_message(Message("t", b"x" * 1000))
            if number % 20 == 0:
                store.flush()
                assert marked(root) == store.max_phy_offset()
        end = store.max_phy_offset()
        assert marked(root) < end
    assert marked(root) == end


def test_the_flush_thread_writes_it(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"flush_interval_commit_log": 5})
    with MessageStore.open(tmp_path, config, backend="file") as store:
        store.put_message(Message("t", b"x"))
        wanted = store.max_phy_offset()
        assert any(marked(tmp_path) == wanted for _ in looks())


def looks() -> Iterator[int]:
    """Look again and again, for seconds."""
    for number in range(10_000):
        yield number
        os.sched_yield()


# ---- who else has had the store


def test_rocketmq_at_the_store_since_makes_it_unknown(root: Path) -> None:
    lose_a_sector(root)
    (root / "lock").write_bytes(b"lock")  # as RocketMQ does at each start
    assert marked(root) == 0
    with MessageStore.open(root, CONFIG) as store:
        assert store.max_offset("t", 0) == 1
    assert marked(root) > 0


def test_a_copy_does_not_believe_it(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)  # with its times
    assert marked(root) > 0
    assert marked(copy) == 0
    MessageStore.open(copy, CONFIG).close()
    assert marked(copy) == marked(root)


# ---- its own loss and damage


def test_without_it_all_is_as_it_was(root: Path) -> None:
    (root / "cqstore" / "synced").unlink()
    lose_a_sector(root)
    with MessageStore.open(root, CONFIG) as store:
        assert store.max_offset("t", 0) == 1


@pytest.mark.parametrize("content", [b"", bytes(1024), b"?" * 1024, b"?" * 5000])
def test_a_damaged_one_is_none(root: Path, content: bytes) -> None:
    (root / "cqstore" / "synced").write_bytes(content)
    assert marked(root) == 0
    MessageStore.open(root, CONFIG).close()
    assert marked(root) > 0


def test_one_slot_is_enough(root: Path) -> None:
    path = root / "cqstore" / "synced"
    paths, before = StorePaths(root), marked(root)
    mark = SyncedMark(paths)
    mark.begin(before)
    for number in range(1, 4):
        mark.note(before + number)
        data = path.read_bytes()
        for at in (0, 512):
            path.write_bytes(data[:at] + b"?" + data[at + 1 :])
            assert marked(root) in (before + number, before + number - 1)
        path.write_bytes(data)
        assert marked(root) == before + number


# ---- cutting


def test_it_is_lowered_before_the_log_is_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_a_sector(root)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert store.report.damage is not None
        bad = store.report.damage.phy_offset
    assert bad is not None
    cut: list[int] = []
    original = CommitLog.truncate

    def truncate(log: CommitLog, phy_offset: int, *, is_blank: bool) -> None:
        assert not is_blank
        cut.append(marked(root))
        raise KeyboardInterrupt

    monkeypatch.setattr(CommitLog, "truncate", truncate)
    with pytest.raises(KeyboardInterrupt):
        MessageStore.open(root, CONFIG, recovery=RecoveryOptions(cut_at=bad))
    assert cut == [bad]
    monkeypatch.setattr(CommitLog, "truncate", original)
    with MessageStore.open(root, CONFIG) as store:  # what was asked for needs no second word
        assert store.max_phy_offset() == bad
        assert store.put_message(Message("t", b"x")).queue_offset == 1
    (root / "abort").touch()
    with MessageStore.open(root, CONFIG) as store:
        assert store.max_offset("t", 0) == 2
