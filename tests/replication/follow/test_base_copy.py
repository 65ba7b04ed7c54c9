"""A follower begins with the closed files of a copy, and proves that they are the master's."""

import errno
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.replication.errors import DivergedError
from cqstore.replication.follow import base_copy as base
from cqstore.replication.follow.base_copy import closed_files, copy_base
from cqstore.store.errors import CorruptionError, DiskFullError, RefusedStoreError, StoreLockedError
from cqstore.store.files import sync_below
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.options import RecoveryOptions
from tests.kit.call_order import CallOrder
from tests.kit.faults import Faults
from tests.kit.parted import log_in
from tests.kit.served import served
from tests.kit.tree import tree_digest, unchanged
from tests.kit.wire_master import WireMaster
from tests.replication.conftest import CONFIG, Led
from tests.replication.follow.test_follower import follow


def last_file(led: Led) -> int:
    return len(led.log) - len(led.log) % 4096


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize("inner", ["", "commitlog"])
def test_the_closed_files_come_from_the_base_and_the_rest_from_the_master(
    led: Led, tmp_path: Path, backend: str, inner: str
) -> None:
    own, before = tmp_path / "own", tree_digest(led.root)
    assert copy_base(led.root / inner, own) == last_file(led)
    assert tree_digest(led.root) == before
    master = WireMaster(led.log)
    follow(own, master, backend=backend)
    assert master.requests[0] == 1
    assert log_in(own) == led.log
    assert served(own) == served(led.root)


def test_a_base_that_is_not_the_masters_is_told(led: Led, tmp_path: Path) -> None:
    other, own = tmp_path / "other", tmp_path / "own"
    with MessageStore.open(other, CONFIG) as store:
        for _ in range(100):
            assert store.put_message(Message("t", b"other" * 40, 0)).ok
    copy_base(other, own)
    with pytest.raises(DivergedError, match="differs from this log"):
        follow(own, WireMaster(led.log))


def take_torn_base(led: Led, own: Path, begin: int) -> int:
    """Take a base whose file from ``begin`` on was not full when it was copied; return its end."""
    copied = own.with_name("copied")
    shutil.copytree(led.root / "commitlog", copied)
    torn = copied / f"{begin:020d}"
    start = next(at for at in led.starts if at > begin + 1000)
    torn.write_bytes(torn.read_bytes()[: start - begin].ljust(4096, b"\0"))
    copy_base(copied, own)
    return start


def test_a_file_that_was_not_full_when_it_was_copied_is_no_gap(led: Led, tmp_path: Path) -> None:
    """As a copy has it that took the last file before the master was through with it."""
    own = tmp_path / "own"
    start = take_torn_base(led, own, 8192)
    for _ in range(2):  # a second open loses no more
        with pytest.raises(RefusedStoreError, match=f"--cut-at {start}") as caught:
            MessageStore.open(own, CONFIG)
        assert caught.value.phy_offset == start
        assert len([*(own / "commitlog").iterdir()]) == last_file(led) // 4096
    MessageStore.open(
        own, CONFIG, recovery=RecoveryOptions(cut_at=start)
    ).close()  # the rest is the master's to send
    follow(own, WireMaster(led.log))
    assert log_in(own) == led.log


def kill_in_opening(root: Path, backend: str, step: str) -> None:
    """Open the store and be killed where the recovery comes to ``step``: queues are built then."""
    code = (
        "import os, sys; from cqstore import MessageStore;"
        "from tests.replication.conftest import CONFIG;"
        "from cqstore.store.service.recovering.recovery import Recovery;"
        "setattr(Recovery, sys.argv[3], lambda *_: os.kill(os.getpid(), 9));"
        "MessageStore.open(sys.argv[1], CONFIG, backend=sys.argv[2])"
    )
    words = [sys.executable, "-c", code, str(root), backend, step]
    assert subprocess.run(words, check=False, timeout=60).returncode == -signal.SIGKILL
    assert (root / "abort").exists()


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("backend", backend_names())
def test_an_opening_that_is_killed_is_begun_again_and_cuts_nothing_off(
    led: Led, tmp_path: Path, backend: str
) -> None:
    """What it leaves looks like a killed writer's; behind the hole would then be a torn end."""
    own = tmp_path / "own"
    start = take_torn_base(led, own, 4096)
    before = tree_digest(own / "commitlog")
    for _ in range(2):
        kill_in_opening(own, backend, "_refuse_damage")
        with pytest.raises(RefusedStoreError, match=f"--cut-at {start}"):
            MessageStore.open(own, CONFIG, backend=backend)
        assert tree_digest(own / "commitlog") == before
    assert not (own / "cqstore" / "cut").exists()
    MessageStore.open(own, CONFIG, backend=backend, recovery=RecoveryOptions(cut_at=start)).close()
    assert not (own / "cqstore" / "unopened").exists()
    with unchanged(own / "cqstore" / "cut"):
        follow(own, WireMaster(led.log))
        assert log_in(own) == led.log
        assert served(own) == served(led.root)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("backend", backend_names())
def test_a_whole_base_is_served_after_an_opening_that_was_killed(
    led: Led, tmp_path: Path, backend: str
) -> None:
    own = tmp_path / "own"
    copy_base(led.root, own)
    kill_in_opening(own, backend, "_save_tail")
    follow(own, WireMaster(led.log), backend=backend)
    assert log_in(own) == led.log
    assert served(own) == served(led.root)
    (own / "abort").touch()  # from here on a crash is a crash
    with MessageStore.open(own, CONFIG) as store:
        assert not store.last_exit_ok


@pytest.mark.parametrize("backend", backend_names())
def test_a_damaged_base_is_refused_again_and_again(led: Led, tmp_path: Path, backend: str) -> None:
    """Its queues end where the damage is, after the first refusal, and its last exit is clean."""
    copied, own = tmp_path / "copied", tmp_path / "own"
    shutil.copytree(led.root / "commitlog", copied)
    start = next(at for at in led.starts if at > 8192 + 1000)
    with (copied / f"{8192:020d}").open("r+b") as file:
        file.seek(start - 8192 + 100)
        file.write(b"y")
    copy_base(copied, own)
    before = tree_digest(own / "commitlog")
    for _ in range(3):
        with pytest.raises(RefusedStoreError, match=f"--pass-over {start}"):
            MessageStore.open(own, CONFIG, backend=backend)
        assert tree_digest(own / "commitlog") == before
        assert SyncedMark(StorePaths(own)).phy_offset == start + 1  # a byte of it was on disk
    MessageStore.open(
        own, CONFIG, backend=backend, recovery=RecoveryOptions(pass_over=[start])
    ).close()
    follow(own, WireMaster(led.log[:start] + log_in(own)[start:] + led.log[last_file(led) :]))
    assert len(log_in(own)) == len(led.log)


def test_a_base_goes_into_an_empty_folder(led: Led, tmp_path: Path) -> None:
    for name in ("commitlog", "consumequeue", "cqstore/mode"):
        root = tmp_path / name.replace("/", "-")
        (root / name).mkdir(parents=True)
        with pytest.raises(RefusedStoreError, match="the folder is not empty"):
            copy_base(led.root, root)
        assert [*root.rglob("0*")] == []


def test_what_is_no_row_of_closed_files_is_refused(led: Led, tmp_path: Path) -> None:
    copied, own = tmp_path / "copied", tmp_path / "own"
    shutil.copytree(led.root / "commitlog", copied)
    (copied / "note.txt").write_text("no log file")
    assert [int(path.name) for path in closed_files(copied)] == [*range(0, last_file(led), 4096)]
    (copied / f"{4096:020d}").rename(tmp_path / "away")
    with pytest.raises(CorruptionError, match="is missing before this one") as caught:
        copy_base(copied, own)
    assert caught.value.path == copied / f"{8192:020d}"
    (tmp_path / "away").rename(copied / f"{4096:020d}")
    with (copied / f"{4096:020d}").open("ab") as file:
        file.write(b"x")
    with pytest.raises(CorruptionError, match="differs in size") as caught:
        copy_base(copied, own)
    assert caught.value.path == copied / f"{4096:020d}"
    for path in sorted(copied.glob("0*"))[2:]:
        path.unlink()
    assert [path.name for path in closed_files(copied)] == [f"{0:020d}"]
    (copied / f"{4096:020d}").unlink()
    with pytest.raises(RefusedStoreError, match=r"no closed log file found.* omit --base: "):
        copy_base(copied, own)
    assert not own.exists()


def test_one_at_a_time_takes_a_base(led: Led, tmp_path: Path) -> None:
    own = tmp_path / "own"
    requested = list[int]()

    def meanwhile(phy_offset: int) -> None:
        with pytest.raises(StoreLockedError):
            copy_base(led.root, own)
        requested.append(phy_offset)

    copy_base(led.root, own, meanwhile)
    assert requested == [*range(0, last_file(led), 4096)]
    assert log_in(own) == led.log[: last_file(led)]


def test_the_files_are_durable_before_they_are_a_log(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, own = list[Path](), tmp_path / "own"

    def sync(folders: list[Path]) -> None:
        sync_below(folders)
        assert not (own / "commitlog").exists()
        synced.extend(path for folder in folders for path in folder.iterdir())

    monkeypatch.setattr(base, "sync_below", sync)
    order = CallOrder(own)
    with order.watching():
        copy_base(led.root, own)
    assert order.made[-2:] == [("rename", "commitlog"), ("sync", ".")]
    assert {path.name for path in synced} == {path.name for path in (own / "commitlog").iterdir()}


def test_a_copy_that_is_cut_short_leaves_no_log_and_is_begun_again(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, own = Faults(monkeypatch), tmp_path / "own"
    for call in ("write", "fsync", "rename"):
        faults.fail(call, errno.ENOSPC, "/own/", after=2 if call == "write" else 0)
        with pytest.raises(DiskFullError):
            copy_base(led.root, own)
        assert faults.refused
        assert not (own / "commitlog").exists()
    faults.heal()
    copy_base(led.root, own)
    assert log_in(own) == led.log[: last_file(led)]
