"""The folder of a migration: its lock, its journal, its plan's lines, and which store it is of."""

import fcntl
import hashlib
import json
import re
from pathlib import Path

import pytest

from cqstore.migration.markers import make_marker, read_versioned
from cqstore.migration.plan.log_identity import log_identity, tail_identity
from cqstore.migration.plan.plan import Plan, Segment, Slice, read_slices
from cqstore.migration.run.segment import SegmentDone
from cqstore.migration.status import status
from cqstore.migration.workspace import Workspace, write_file
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError, StoreLockedError
from cqstore.store.files import sync_folder
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.paths import StorePaths
from cqstore.store.queue.queue_location import queue_context, settings_of_tasks
from cqstore.store.queue.units import MAX_UNITS, QueueKey
from cqstore.store.settings.config import StoreConfig
from tests.kit.descriptors import descriptors_of
from tests.migration.made_log import Made, make_log

# ---- the lock


def test_one_driver_works_at_a_time_and_leaves_no_descriptor(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "a" / "b")
    with pytest.raises(RefusedStoreError, match="no migration found") as refused:
        space.held().__enter__()
    assert refused.value.path == space.root
    assert not (tmp_path / "a").exists()
    with space.held(begin=True):
        space.note("first", units=3)
        for begin in (False, True):
            with pytest.raises(StoreLockedError, match="another migration") as caught:
                space.held(begin=begin).__enter__()
            assert caught.value.path == space.root / "lock"
    assert descriptors_of(tmp_path) == []
    with space.held():
        space.note("second")
    assert [(one["step"], one.get("units")) for one in space.history()] == [
        ("first", 3), ("second", None)
    ]  # fmt: skip
    times = [str(one["at"]) for one in space.history()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time) for time in times)
    reported = status(tmp_path, space)
    assert reported == {
        "stage": "nothing", "workspace": str(space.root), "lastStep": f"second at {times[1]}"
    }  # fmt: skip
    space.note("third")
    assert str(status(tmp_path, space)["lastStep"]).startswith("third at ")


def test_folders_that_were_made_for_nothing_go_again(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "a" / "b")
    with space.held(begin=True):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(KeyboardInterrupt), space.held(begin=True):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with space.held(begin=True):
        (space.root / "kept").touch()
    assert {path.name for path in space.root.iterdir()} == {"lock", "kept"}
    (space.root / "kept").unlink()
    with space.held(begin=True):
        pass
    assert [path.name for path in space.root.iterdir()] == ["lock"], "it was there before"
    other = Workspace(tmp_path / "c" / "d")
    with other.held(begin=True):
        (tmp_path / "c" / "another").touch()
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["another"]


def test_a_lock_of_a_file_that_has_gone_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who removes an empty folder may do so between another one's opening and locking."""
    space, lock = Workspace(tmp_path), fcntl.flock

    def gone(fd: int, how: int) -> None:
        lock(fd, how)
        (tmp_path / "lock").unlink()

    def replaced(fd: int, how: int) -> None:
        gone(fd, how)
        (tmp_path / "lock").touch()

    def gone_once(fd: int, how: int) -> None:
        lock(fd, how)
        if not (tmp_path / "seen").exists():
            (tmp_path / "seen").touch()
            (tmp_path / "lock").unlink()

    def broken(fd: int, how: int) -> None:
        raise OSError(5, "no locks here")

    for step in (gone, replaced):
        with monkeypatch.context() as patched:
            patched.setattr("cqstore.store.journals.output_lock.fcntl.flock", step)
            with pytest.raises(StoreLockedError):
                space.held().__enter__()
        assert descriptors_of(tmp_path) == []
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.store.journals.output_lock.fcntl.flock", gone_once)
        with space.held(), pytest.raises(StoreLockedError):
            space.held().__enter__()
    monkeypatch.setattr("cqstore.store.journals.output_lock.fcntl.flock", broken)
    with pytest.raises(StoreIOError, match="use the workspace of the migration") as caught:
        space.held().__enter__()
    assert caught.value.path == tmp_path
    assert descriptors_of(tmp_path) == []


def test_a_journal_that_is_damaged_is_told_before_anything_is_done(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    space.note("one")
    whole = space.journal.read_text()
    for line in ("[]", "{}", '{"step": "x"}', '{"at": "x"}', '{"step": 1, "at": "x"}'):
        space.journal.write_text(f"{line}\n{whole}")
        with pytest.raises(CorruptionError) as caught, space.held():
            pytest.fail("it is not done")
        assert caught.value.path == space.journal


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_file(tmp_path / "a" / "b" / "file", "text")
    assert (tmp_path / "a" / "b" / "file").read_text() == "text"
    with pytest.raises(StoreIOError, match="write") as caught:
        write_file(tmp_path / "a" / "b", "text")
    assert caught.value.path == tmp_path / "a" / "b"


# ---- markers


def test_a_marker_is_made_when_its_text_and_before_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[Path, list[str]]] = []

    def noted(folder: Path) -> None:
        reported.append((folder, sorted(path.name for path in folder.iterdir())))
        sync_folder(folder)

    monkeypatch.setattr("cqstore.migration.markers.sync_folder", noted)
    marker = tmp_path / "000001.done"
    assert make_marker(marker, "a", SegmentDone("plan", 1, "a"), lambda: None) is None
    assert reported == [(tmp_path, ["000001.done"])]
    assert json.loads(marker.read_bytes())["attempt"] == "a"
    with pytest.raises(StoreIOError, match="mark a task as done") as caught:
        make_marker(tmp_path / "none" / "x", "a", SegmentDone("plan", 1, "a"), lambda: None)
    assert caught.value.path == tmp_path / "none" / "x"
    with pytest.raises(StoreIOError, match="read the plan") as caught:
        read_versioned(tmp_path / "none", Plan, 1, "plan")
    assert caught.value.path == tmp_path / "none"


# ---- the lines of a plan


def lines_of(path: Path, text: str, before: str = "") -> Segment:
    path.write_text(before + text)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return Segment(
        number=3, slices=1, units=0, first="", last="", position=len(before), size_bytes=len(text),
        digest=digest,
    )  # fmt: skip


def test_a_slice_is_a_line_that_any_program_can_read(tmp_path: Path) -> None:
    slices = [
        Slice(QueueKey("t", 1), 0, 5, 5, 7), Slice(QueueKey("\udcff\xe9", -1), 3, 3, None, 0),
        Slice(QueueKey("t", 0), MAX_UNITS, MAX_UNITS, MAX_UNITS, 1),
    ]  # fmt: skip
    text = "".join(each.line() for each in slices)
    first = '["t",1,0,5,5,7]\n["\\udcff\\u00e9",-1,3,3,null,0]\n["t",0,'
    assert text.startswith(first)
    assert list(read_slices(tmp_path / "q", lines_of(tmp_path / "q", text, "zzz\n"))) == slices
    for begin, end in ((-1, 5), (5, 4), (0, MAX_UNITS + 1)):
        line = f'["t",1,{begin},{end},null,0]\n'
        with pytest.raises(CorruptionError, match="invalid range of units in the plan") as caught:
            list(read_slices(tmp_path / "q", lines_of(tmp_path / "q", line)))
        assert (caught.value.path, caught.value.got) == (tmp_path / "q", line.strip())
    segment = lines_of(tmp_path / "q", text)
    (tmp_path / "q").unlink()
    with pytest.raises(StoreIOError, match="read the plan's queues") as missing:
        list(read_slices(tmp_path / "q", segment))
    assert missing.value.path == tmp_path / "q"


# ---- which store it is, and what tasks open it with


def test_a_store_is_known_by_its_first_bytes_and_the_last_ones_moved(tmp_path: Path) -> None:
    """The digests are kept in plans: another release has to find the same."""
    offsets = make_log(tmp_path, [Made("t", 0, 1000 + at) for at in range(200)], 16384)
    folder = tmp_path / "commitlog"
    files = sorted(folder.iterdir())
    data = b"".join(path.read_bytes() for path in files)

    def digest(given: bytes) -> str:
        return hashlib.blake2b(given, digest_size=16).hexdigest()

    assert log_identity([folder]) == digest(b"0" * 20 + data[:4096])
    log = CommitLog([folder], StoreConfig(mapped_file_size_commit_log=16384), read_only=True)
    log.load()
    for end in (offsets[1], 1, 4095, 4096, 4097, 9000, 16383, 16384, 16385, offsets[-1]):
        start = max((end - 1) // 16384 * 16384, end - 4096)
        assert tail_identity(log, end) == digest(b"%d" % end + data[start:end]), end
    assert [tail_identity(log, end) for end in (0, -1, 1 << 40)] == ["", "", ""]
    log.close()
    files[0].unlink()
    files[0].symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreIOError, match="read the commit log") as caught:
        log_identity([folder])
    assert caught.value.path == files[0]
    for gone in (folder / "none", tmp_path / "none"):
        with pytest.raises(StoreIOError, match="list the commit log") as caught:
            log_identity([folder, gone])
        assert caught.value.path == gone


@pytest.mark.parametrize("memory", [8 << 20, 1 << 40])
def test_tasks_are_given_what_was_set_and_no_more(tmp_path: Path, memory: int) -> None:
    config = StoreConfig(rocksdb_memory_bytes=memory, file_reserved_time=9)
    given = settings_of_tasks(config, mapped_file_size_consume_queue=400)
    again = StoreConfig.from_mapping(given)
    assert again.model_fields_set == {
        "rocksdb_memory_bytes", "file_reserved_time", "mapped_file_size_commit_log",
        "mapped_file_size_consume_queue",
    }  # fmt: skip
    assert again.rocksdb_memory_bytes <= memory
    assert (again.rocksdb_memory_bytes == memory) == (memory == 8 << 20)
    assert (again.file_reserved_time, again.mapped_file_size_consume_queue) == (9, 400)
    (tmp_path / "commitlog").mkdir()
    for clean in (True, False):
        context = queue_context(StorePaths(tmp_path), [tmp_path / "commitlog"], again)
        assert (context.read_only, context.last_exit_ok) == (True, clean)
        StorePaths(tmp_path).abort.touch()
