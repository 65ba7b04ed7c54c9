"""Backups of stores at rest and of damaged ones; refusals; backups that are cut short anywhere."""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore.store.errors import (
    CorruptionError,
    DiskFullError,
    RefusedStoreError,
    StoreError,
    StoreIOError,
    StoreStateError,
)
from cqstore.store.log.foreign_log_tail import ForeignLogTail
from cqstore.store.record.message import Message
from cqstore.store.service.layout.store_layout import with_log_folder
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline import backup_log, backup_tree, store_copy
from cqstore.store.service.offline.backup import back_up
from cqstore.store.service.offline.backup_manifest import (
    Problem,
    compare,
    manifest_path,
    read_manifest,
)
from cqstore.store.service.offline.store_copy import blocks_below
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.acknowledged import Acknowledged
from tests.kit.call_order import CallOrder
from tests.kit.faults import EIO, ENOSPC, Faults
from tests.kit.forks import forked
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.tree import unchanged
from tests.kit.verbs import call

CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=400, max_hash_slot_num=20,
    max_index_num=100,
)  # fmt: skip
PLAIN = StoreConfig()
TAKEN = "the path of the backup already exists"
SHARE = 48
"""Every so many places are tried in the normal run."""


def contents(root: Path) -> dict[str, bytes]:
    """Return the bytes of all files, without what a backup has of its own, or no copy has."""
    left_out = {"lock", "cqstore/backup.json", "cqstore/synced"}
    return {
        name: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and path.name != "LOCK"
        and (name := str(path.relative_to(root))) not in left_out
    }


def filled(root: Path, count: int = 60, backend: str = "file") -> Acknowledged:
    known = Acknowledged()
    with MessageStore.open(root, CONFIG, backend=backend, housekeeping=False) as store:
        for _ in range(count):
            known.put(store)
    return known


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    "name", ["special-default", "ext-default", "wide-defaultRocksDB", "basic-combine"]
)
def test_a_store_that_nobody_has_open_is_copied_byte_for_byte(
    golden: Callable[[str], Path], tmp_path: Path, name: str, *, link: bool
) -> None:
    root = golden(name)
    with unchanged(root):
        order = CallOrder(tmp_path)
        with order.watching():
            manifest = back_up(root, tmp_path / "to", PLAIN, link=link)
        assert order.made[-2:] == [("rename", "to"), ("sync", ".")]
    mine, its = contents(tmp_path / "to"), contents(root)
    unlike = {each for each in mine.keys() | its.keys() if mine.get(each) != its.get(each)}
    assert all(Path(each).name.startswith("LOG") for each in unlike), unlike
    ends = ForeignLogTail([root / "commitlog"]).refresh()
    assert ends is not None
    assert (manifest.min_phy_offset, manifest.max_phy_offset) == ends[2:4]
    assert not manifest.was_open
    assert manifest == read_manifest(manifest_path(tmp_path / "to"))
    assert list(compare(tmp_path / "to", manifest)) == []
    assert not (tmp_path / "to.partial").exists()


def test_links_are_of_closed_files_alone(tmp_path: Path) -> None:
    filled(tmp_path / "s", 120)
    back_up(tmp_path / "s", tmp_path / "to", CONFIG, link=True)
    log = sorted((tmp_path / "s" / "commitlog").iterdir())
    ends = ForeignLogTail([log[0].parent]).refresh()
    assert ends is not None
    closed = [int(path.name) + 8192 <= ends.max_phy_offset for path in log]
    assert closed.count(True) >= 2
    same = [(tmp_path / "to" / "commitlog" / path.name).samefile(path) for path in log]
    assert same == closed


def test_a_log_elsewhere_and_links_come_as_one_store(tmp_path: Path) -> None:
    known = filled(tmp_path / "s")
    (tmp_path / "s" / "commitlog").rename(tmp_path / "log")
    (tmp_path / "s" / "index").rename(tmp_path / "index")
    (tmp_path / "s" / "index").symlink_to(tmp_path / "index")
    back_up(tmp_path / "s", tmp_path / "to", with_log_folder(CONFIG, tmp_path / "log"))
    assert not (tmp_path / "to" / "index").is_symlink()
    with MessageStore.open(tmp_path / "to", CONFIG) as store:
        known.check(store)
        assert len(store.query_message("t", "k1")) == 1


def test_what_is_derived_is_copied_before_what_it_is_derived_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "s", 120)
    names = [
        "config/consumerOffset.json", "config/consumerOffset.json.bak", "config/topics.json",
        "config/delayOffset.json", "config/timercheck", "config/other.json", "timerwheel",
        "timerlog/00000000000000000000",
    ]  # fmt: skip
    for name in names:
        (tmp_path / "s" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "s" / name).write_bytes(b"x")
    order: list[str] = []

    def noting(copy: Callable[..., str]) -> Callable[..., str]:
        def copied(source: Path | str, *rest: object, **more: object) -> str:
            order.append(str(Path(source).relative_to(tmp_path / "s")))
            return copy(source, *rest, **more)

        return copied

    for module in (backup_log, backup_tree):
        for name in ("copy_file", "share_file"):
            monkeypatch.setattr(module, name, noting(getattr(module, name)))
    back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    log = sorted(f"commitlog/{path.name}" for path in (tmp_path / "s" / "commitlog").iterdir())
    rows = [
        [log[0]], ["checkpoint", "timerwheel", *names[:2], *names[3:5]],
        ["timerlog/00000000000000000000", *(name for name in order if name[:7] == "consume")],
        [log[-1]], ["config/topics.json"],
    ]  # fmt: skip
    places = [[order.index(name) for name in row] for row in rows]
    for earlier, later in pairwise(places):
        assert max(earlier) < min(later)
    assert len(order) == len(set(order))
    assert "cqstore/synced" not in order  # it would promise more than the copy has


# ---- an open store's log


def test_a_record_that_was_being_written_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Acknowledged()
    with MessageStore.open(tmp_path / "s", CONFIG, housekeeping=False) as store:
        for _ in range(20):
            known.put(store)
        end = store.max_phy_offset()
        copy_file = store_copy.copy_file
        written: list[int] = []

        def beside_a_put(source: str, target: str) -> str:
            copied = copy_file(source, target)
            if int(Path(source).name) <= end < int(Path(source).name) + 8192 and not written:
                at = end - int(Path(source).name)
                written.append(at)
                with Path(target).open("r+b") as file:
                    head = file.read(200)  # size and magic of a record; its body is not that one's
                    file.seek(at)
                    file.write(head)
            return copied

        monkeypatch.setattr(backup_log, "copy_file", beside_a_put)
        manifest = back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    assert written
    assert (manifest.was_open, manifest.damaged_at, manifest.max_phy_offset) == (True, None, end)
    assert (tmp_path / "to" / "abort").exists()
    log = b"".join(p.read_bytes() for p in sorted((tmp_path / "to" / "commitlog").iterdir()))
    assert not any(log[end:])
    with MessageStore.open(tmp_path / "to", CONFIG) as store:
        known.check(store)


def test_a_damaged_record_is_named_and_all_behind_it_stays(tmp_path: Path) -> None:
    known = Acknowledged()
    with MessageStore.open(tmp_path / "s", CONFIG, housekeeping=False) as store:
        last = [known.put(store) for _ in range(20)][-1]
        damaged = known.bodies[0, 8][0]
        path = tmp_path / "s" / "commitlog" / f"{damaged // 8192 * 8192:020d}"
        assert damaged // 8192 == last.phy_offset // 8192
        with path.open("r+b") as file:
            file.seek(damaged % 8192 + 200)
            file.write(b"?")
        manifest = back_up(tmp_path / "s", tmp_path / "to", CONFIG)
        assert manifest.damaged_at == damaged
        assert (tmp_path / "to" / "commitlog" / path.name).read_bytes() == path.read_bytes()
        conf = tmp_path / "broker.conf"
        conf.write_text("mappedFileSizeCommitLog=8192\n")
        done = call("backup", tmp_path / "s", tmp_path / "to again", "--config", conf)
        assert done.exit_code == 1
        assert (
            f"cqstore: the log is damaged at phy offset {damaged} (cqstore check)\n" in done.stderr
        )
        assert (tmp_path / "to again" / "commitlog" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("spoilt", [4, 200], ids=["head", "body"])
def test_a_damaged_record_of_a_closed_log_is_named(tmp_path: Path, spoilt: int) -> None:
    known = Acknowledged()
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        last = [known.put(store) for _ in range(20)][-1]
    path = tmp_path / "s" / "commitlog" / f"{last.phy_offset // 8192 * 8192:020d}"
    damaged = next(place for place, _ in known.bodies.values() if place > int(path.name))
    assert damaged < last.phy_offset
    whole = back_up(tmp_path / "s", tmp_path / "whole", CONFIG)
    assert (whole.damaged_at, whole.was_open) == (None, False)
    with path.open("r+b") as file:
        file.seek(damaged % 8192 + spoilt)
        file.write(b"\xff" * 4)
    before = contents(tmp_path / "s")
    assert back_up(tmp_path / "s", tmp_path / "to", CONFIG).damaged_at == damaged
    assert contents(tmp_path / "to") == contents(tmp_path / "s") == before


def test_a_torn_record_at_the_end_is_damage_after_a_clean_close_alone(tmp_path: Path) -> None:
    known = Acknowledged()
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        last = [known.put(store) for _ in range(20)][-1]
        end = store.max_phy_offset()
    path = tmp_path / "s" / "commitlog" / f"{end // 8192 * 8192:020d}"
    with path.open("r+b") as file:
        file.seek(last.phy_offset % 8192)
        head = file.read(100)
        file.seek(end % 8192)
        file.write(head)
    assert back_up(tmp_path / "s", tmp_path / "closed", CONFIG).damaged_at == end
    (tmp_path / "s" / "abort").touch()
    assert back_up(tmp_path / "s", tmp_path / "crashed", CONFIG).damaged_at is None


# ---- refusals


def take(place: str) -> Callable[[Path], None]:
    return lambda folder: (folder / place).mkdir(parents=True)


def take_with_a_file(place: str) -> Callable[[Path], object]:
    def prepare(folder: Path) -> None:
        (folder / place).mkdir()
        (folder / place / "mine").touch()

    return prepare


def unfinished(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "s" / "cqstore" / name).write_bytes(b"")


REFUSALS: dict[str, tuple[str, Callable[[Path], object], type[StoreError], str]] = {
    "taken": ("to", take("to"), RefusedStoreError, TAKEN),
    "a link": ("to", lambda at: (at / "to").symlink_to("x"), RefusedStoreError, TAKEN),
    "inside": ("s/to", lambda _: None, RefusedStoreError, "would be inside the store itself"),
    "no backup": ("to", take_with_a_file("to.partial"), RefusedStoreError, "not an unfinished"),
    "no store": ("to", lambda at: shutil.rmtree(at / "s"), RefusedStoreError, "no store"),
    "rebuilding": ("to", unfinished("rebuilding"), StoreStateError, "not finished"),
    "replacing": ("to", unfinished("replacing"), StoreStateError, "not finished"),
    "cutting": ("to", unfinished("cutting"), StoreStateError, "not finished"),
    "fifo": ("to", lambda at: os.mkfifo(at / "s" / "x"), CorruptionError, "s/x"),
    "dead link": (
        "to", lambda at: (at / "s" / "x").symlink_to("y"), StoreError, "target .* does not exist"
    ),
    "loop": (
        "to", lambda at: (at / "s" / "x").symlink_to(at / "s"), StoreError, "that contains it"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_backed_up_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, name: str
) -> None:
    target, prepare, error, words = REFUSALS[name]
    filled(tmp_path / "s", 3)
    (tmp_path / "s" / "cqstore").mkdir(exist_ok=True)
    prepare(tmp_path)
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=words):
        back_up(tmp_path / "s", tmp_path / target, CONFIG)
    assert sorted(tmp_path.rglob("*")) == there


def test_two_backups_to_one_place_do_not_meet(tmp_path: Path) -> None:
    filled(tmp_path / "s", 3)
    begun = tmp_path / "to.partial" / "cqstore" / "backup-begun"
    begun.parent.mkdir(parents=True)
    with begun.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RefusedStoreError, match="another backup"):
            back_up(tmp_path / "s", tmp_path / "to", CONFIG)
        assert begun.exists()
    back_up(tmp_path / "s", tmp_path / "to", CONFIG)  # the other one was killed


def test_a_backup_that_has_no_room_is_refused_before_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "s")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=8192))
    with pytest.raises(DiskFullError, match="8192 bytes are free"):
        back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize(
    ("kind", "part"),
    [("write", "commitlog/"), ("write", "consumequeue/"), ("write", "backup.json"),
     ("open", "checkpoint"), ("mkdir", "index")],
)  # fmt: skip
def test_a_full_disk_is_told_by_the_place_of_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, part: str
) -> None:
    """The store was named, whose disk has room."""
    filled(tmp_path / "s")
    faults = Faults(monkeypatch)
    faults.fail(kind, ENOSPC, f"/to.partial/{part}" if "." not in part else part)
    with pytest.raises(DiskFullError) as caught:
        back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    assert faults.refused
    assert caught.value.path is not None
    assert caught.value.path.is_relative_to(tmp_path / "to")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_disk_that_cannot_be_read_is_told_by_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "s")
    Faults(monkeypatch).fail("open", EIO, "/s/consumequeue/")
    with pytest.raises(StoreIOError, match="cannot back up the store") as caught:
        back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    assert caught.value.path == tmp_path / "s"


def test_files_that_are_linked_take_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "s", 600)
    closed = sum(path.stat().st_size for path in (tmp_path / "s" / "commitlog").iterdir())
    wanted = blocks_below(tmp_path / "s")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=wanted - closed // 2))
    with pytest.raises(DiskFullError):
        back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    back_up(tmp_path / "s", tmp_path / "to", CONFIG, link=True)


# ---- cut short


def backed_up(root: Path, target: Path, number: int, handler: Callable[[], object]) -> int:
    return run_interrupted(lambda: back_up(root, target, CONFIG), number, handler)


def places_of(root: Path, target: Path) -> int:
    places = run_interrupted(lambda: back_up(root, target, CONFIG))
    shutil.rmtree(target)
    assert places > 100
    return places


def throw() -> None:
    raise Interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files left open
@pytest.mark.parametrize("every", [SHARE, pytest.param(1, marks=pytest.mark.long)])
def test_an_interrupted_backup_is_whole_or_not_there(tmp_path: Path, every: int) -> None:
    root, target = tmp_path / "s", tmp_path / "to"
    filled(root, 30)
    with unchanged(root):
        for number in range(1, places_of(root, target) + 1, every):
            with pytest.raises(Interrupted):
                backed_up(root, target, number, throw)
            if target.exists():
                assert list(compare(target, read_manifest(manifest_path(target)))) == []
                shutil.rmtree(target)
            back_up(root, target, CONFIG)
            shutil.rmtree(target)


@pytest.mark.parametrize(
    ("first", "every"),
    [(1, 2 * SHARE), *(pytest.param(each, 4, marks=pytest.mark.long) for each in range(1, 5))],
)
def test_a_killed_backup_is_whole_or_not_there(tmp_path: Path, first: int, every: int) -> None:
    root, target = tmp_path / "s", tmp_path / "to"
    filled(root, 30)
    for number in range(first, places_of(root, target) + 1, every):
        killed = partial(
            backed_up, root, target, number, lambda: os.kill(os.getpid(), signal.SIGKILL)
        )
        assert forked(killed) == -signal.SIGKILL
        if target.exists():
            assert list(compare(target, read_manifest(manifest_path(target)))) == []
            shutil.rmtree(target)
        back_up(root, target, CONFIG)
        shutil.rmtree(target)


# ---- the manifest


def test_every_file_that_differs_is_named(tmp_path: Path) -> None:
    filled(tmp_path / "s", 120)
    manifest = back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    log = sorted((tmp_path / "to" / "commitlog").iterdir())
    queue = tmp_path / "to" / "consumequeue" / "t"
    data = bytearray(log[0].read_bytes())
    data[-1] ^= 1
    log[0].write_bytes(data)
    os.truncate(log[1], 8191)
    shutil.rmtree(queue / "1")
    (tmp_path / "to" / "consumequeue" / "x").write_bytes(b"?")
    (tmp_path / "to" / "lock").touch()
    found = {(str(each.path.relative_to(tmp_path / "to")), each.problem)
             for each in compare(tmp_path / "to", manifest)}  # fmt: skip
    names = [file.path for file in manifest.files if file.path.startswith("consumequeue/t/1/")]
    assert names
    assert found == {
        (f"commitlog/{log[0].name}", Problem.BYTES), (f"commitlog/{log[1].name}", Problem.SIZE),
        ("consumequeue/x", Problem.UNKNOWN), *((name, Problem.MISSING) for name in names),
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 2}', "\xff", '{"files": [{"path": "", "bytes": -1}]}']
)
def test_what_is_no_manifest_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptionError, match="invalid backup manifest") as caught:
        read_manifest(path)
    assert caught.value.path == path


def test_a_restored_backup_goes_on(tmp_path: Path) -> None:
    known = filled(tmp_path / "s")
    back_up(tmp_path / "s", tmp_path / "to", CONFIG)
    shutil.copytree(tmp_path / "to", tmp_path / "restored")
    with MessageStore.open(tmp_path / "restored", CONFIG) as store:
        known.put(store)
        assert store.put_message(Message("new", b"x")).ok
        known.check(store)


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_log_that_expires_while_it_is_copied_is_copied_as_it_is_then(
    tmp_path: Path, backend: str, times: int
) -> None:
    """All files that were there when the copy of the last ones began are gone at its end."""
    root, known = tmp_path / "store", Acknowledged()
    with MessageStore.open(root, CONFIG, backend=backend, housekeeping=False) as store:
        for _ in range(40):
            known.put(store)
        *_, last_file = components_of(store).log.files
        last = last_file.file_from_offset
        expired: list[int] = []

        def progress(place: int, *more: object) -> None:
            if more or place < last or len(expired) == times:
                return
            for _ in range(120):
                known.put(store)
            expired.append(len(store.delete_expired_files(store.max_phy_offset())))

        manifest = back_up(root, tmp_path / "to", CONFIG, progress=progress)
        assert all(expired)
        assert len(expired) == times
        least = store.min_phy_offset()
    assert manifest.min_phy_offset == least > last
    with MessageStore.open(tmp_path / "to", CONFIG, backend=backend, housekeeping=False) as copied:
        known.check(copied)
        assert not [finding for finding in copied.check() if finding.damage]
        known.put(copied)
        known.check(copied)


def test_a_log_that_expires_as_fast_as_it_is_copied_is_said(tmp_path: Path) -> None:
    root, known = tmp_path / "store", Acknowledged()
    with MessageStore.open(root, CONFIG, backend="file", housekeeping=False) as store:
        known.put(store)

        def progress(*_: object) -> None:
            for _number in range(60):
                known.put(store)
            store.delete_expired_files(store.max_phy_offset())

        with pytest.raises(StoreStateError, match="as fast as they are copied"):
            back_up(root, tmp_path / "to", CONFIG, progress=progress)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("to")]
