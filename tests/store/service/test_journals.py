"""Our journals: what is a torn end, what is damage, and what a crash may leave of an append."""

import json
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest
from crcmod.predefined import mkCrcFun

from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, IllegalMessageError, StoreIOError
from cqstore.store.journals import journal as journals
from cqstore.store.journals import note
from cqstore.store.journals.backend_state import BackendState, read_backend_state
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal import Journal, read_lines
from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import MAX_UNITS, QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.descriptors import descriptors_of
from tests.kit.faults import EIO, Faults
from tests.kit.power_cut import SECTOR
from tests.kit.tree import tree_digest

crc32c = mkCrcFun("crc-32c")
CONFIG = StoreConfig(mapped_file_size_commit_log=16_384)
QUEUES = [(QueueKey(f"topic {number}", number), number) for number in range(4)]
LINES: dict[str, list[dict[str, object]]] = {
    "deleted-topics": [{"deleted": "a", "below": 9}, {"deleting": "b", "below": 9}],
    "expired-queues": [{"queue": ["a", 0], "next": 4}, {"gone": "b"}],
    "rebuilding": [{"topic": "a", "queue": None, "ends": []}] * 2,
    "replacing": [
        {"folder": "1", "backends": [], "opened": [], "index": False, "moved": True}
    ] * 2,
    "mode": [{"state": None, "behind": {}, "cut": {}, "covers": {}}] * 2,
}  # fmt: skip


def line(entry: object) -> bytes:
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def written(path: Path) -> ExpiredQueues:
    journal = ExpiredQueues(path)
    for queue in QUEUES:
        journal.add([queue])
    return journal


@pytest.mark.parametrize("new", [b"\0", b"\n", b"?"])
def test_a_byte_before_the_last_line_is_damage_and_nothing_is_cut(
    tmp_path: Path, new: bytes
) -> None:
    path = written(tmp_path / "j").path
    whole = path.read_bytes()
    starts = [0]
    while (behind := whole.find(b"\n", starts[-1]) + 1) < len(whole):
        starts.append(behind)
    for at in range(starts[-1]):
        if whole[at : at + 1] == new:
            continue
        damaged = whole[:at] + new + whole[at + 1 :]
        path.write_bytes(damaged)
        journal = ExpiredQueues(path)
        for call in (journal.ends, journal.cut_torn_end, lambda: journal.add(QUEUES[:1])):  # noqa: B023
            with pytest.raises(CorruptionError, match="journal is damaged") as caught:
                call()
            assert caught.value.path == path
            assert caught.value.position == max(start for start in starts if start <= at)
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("size", [SECTOR, 4096, 100_000])
def test_zeros_before_a_valid_line_are_damage(tmp_path: Path, size: int) -> None:
    path = tmp_path / "j"
    first, last = (line({"queue": ["a", 0], "next": number}) for number in (1, 2))
    path.write_bytes(first + bytes(size) + last)
    with pytest.raises(CorruptionError) as caught:
        ExpiredQueues(path).ends()
    assert caught.value.position == len(first)


@pytest.mark.parametrize("name", LINES)
def test_a_damaged_journal_keeps_the_store_closed(tmp_path: Path, name: str) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.put_message(Message("t", b"x")).ok
    path = StorePaths(tmp_path).own / name
    path.parent.mkdir(exist_ok=True)
    data = b"".join([line(entry) for entry in LINES[name]])
    path.write_bytes(data[:12] + b"\0" + data[13:])
    (tmp_path / "abort").touch()
    before = tree_digest(tmp_path)
    for read_only in (True, False):
        if read_only and name not in {"deleted-topics", "mode"}:  # not read
            continue
        with pytest.raises(CorruptionError, match=name):
            MessageStore.open(tmp_path, CONFIG, read_only=read_only)
        assert path.read_bytes() == data[:12] + b"\0" + data[13:]
        if read_only:
            assert tree_digest(tmp_path) == before


ODD: dict[str, list[dict[str, object]]] = {
    "deleted-topics": [{"below": -1}],
    "expired-queues": [{"queue": ["a"]}, {"queue": ["a", "0"]}, {"queue": [0, 0]}, {"next": -1}],
    "rebuilding": [{"ends": [3]}, {"ends": [[1]]}, {"ends": [["1", 2]]}, {"queue": "0"}],
    "replacing": [],
    "mode": [],
}
"""Changes of the first of ``LINES`` that make it one that was never written."""


@pytest.mark.parametrize("name", LINES)
def test_a_whole_line_of_other_types_is_damage_too(tmp_path: Path, name: str) -> None:
    MessageStore.open(tmp_path, CONFIG).close()
    path = StorePaths(tmp_path).own / name
    first, last = LINES[name]
    changes: list[dict[str, object]] = [{field: 1.5} for field in first]
    for change in ODD[name] + changes:
        (tmp_path / "abort").touch()
        path.write_bytes(line(first | change) + line(last))
        with pytest.raises(CorruptionError, match=name):
            MessageStore.open(tmp_path, CONFIG)
        assert path.read_bytes() == line(first | change) + line(last), change


def test_a_damaged_journal_of_a_migration_is_said(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    for step in ("one", "two"):
        space.note(step)
    data = space.journal.read_bytes()
    space.journal.write_bytes(b"\0" + data[1:])
    for call in (space.history, lambda: space.note("three")):
        with pytest.raises(CorruptionError, match="journal"):
            call()
    assert space.journal.read_bytes() == b"\0" + data[1:]


def crashed(monkeypatch: pytest.MonkeyPatch, path: Path, number: int) -> Iterator[bytes]:
    """Yield what power cuts leave while many queues are added: pages that were written or not."""
    synced = len(path.read_bytes())
    states = []
    real = os.fsync

    def fsync(fd: int) -> None:
        nonlocal synced
        states.append((synced, path.read_bytes()))
        real(fd)
        synced = len(path.read_bytes())

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        ExpiredQueues(path).add((QueueKey(f"new {at}", 0), at) for at in range(number))
    draw = random.Random(number)
    for least, data in states:
        for _ in range(30):
            left = bytearray(data[: draw.randrange(least, len(data) + 1)])
            share = draw.random()
            for at in range(least - least % SECTOR, len(left), SECTOR):
                if draw.random() < share:
                    left[max(at, least) : at + SECTOR] = bytes(
                        len(left[max(at, least) : at + SECTOR])
                    )
            yield bytes(left)
        yield data


@pytest.mark.parametrize("number", [1, 40, 3_000])
def test_whatever_pages_a_power_cut_leaves_of_an_append_it_is_a_torn_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = written(tmp_path / "j").path
    found = set()
    for left in crashed(monkeypatch, path, number):
        path.write_bytes(left)
        journal = ExpiredQueues(path)
        ends = journal.ends()
        assert all(ends.get(queue, end) == end for queue, end in QUEUES)
        found.add(len(ends))
        journal.add([(QueueKey("next", 0), 7)])
        assert ExpiredQueues(path).ends() == ends | {("next", 0): 7}
    assert len(found) > 1
    assert path.stat().st_size < 200_000


def test_an_endless_line_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "j"
    first = line({"queue": ["a", 0], "next": 1})
    with path.open("wb") as file:
        file.write(first)
        file.truncate(64 << 20)
    assert len(ExpiredQueues(path).ends()) == 1
    with path.open("r+b") as file:
        file.truncate(2 << 30)
    with pytest.raises(CorruptionError, match="too long"):
        ExpiredQueues(path).ends()


def test_no_line_is_written_that_is_too_long_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_MAX_LINE", 64)
    stored: list[dict[str, object]] = []
    for size in range(80):
        entry: dict[str, object] = {"a": "x" * size}
        journal = Journal(tmp_path / "j", lambda _: True)
        if len(line(entry)) > 64:
            with pytest.raises(IllegalMessageError, match="too long"):
                journal.append([entry])
        else:
            journal.append([entry])
            stored.append(entry)
        assert [*Journal(tmp_path / "j", lambda _: True).read()] == stored
    assert max(map(len, (tmp_path / "j").read_bytes().splitlines(keepends=True))) == 64


def test_short_entries_share_a_line_as_long_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "_LIST_BYTES", 30)
    entries: list[dict[str, object]] = [{"a": size} for size in (1, 22, 3, 1234, 5)]
    sizes = [len(json.dumps(entry)) for entry in entries]
    assert sizes == [8, 9, 8, 11, 8]  # 8 + 9 + 8 fit, 11 no more
    entries += [{"a": "x" * 40}, {"a": 12345}, {"a": 1}, {"a": 123}]  # 48; 12 + 8 + 10: exactly 30
    Journal(tmp_path / "j", lambda _: True).append(entries)
    assert [*Journal(tmp_path / "j", lambda _: True).read()] == entries
    expected = [entries[:3], entries[3:5], entries[5], entries[6:]]
    assert (tmp_path / "j").read_bytes() == b"".join(map(line, expected))


def test_a_journal_is_read_up_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = written(tmp_path / "j")
    size = journal.path.stat().st_size
    monkeypatch.setattr(journals, "MAX_BYTES", size)
    assert ExpiredQueues(journal.path).ends() == dict(QUEUES)
    monkeypatch.setattr(journals, "MAX_BYTES", size - 1)
    reported = f"{journal.path}.*expected at most {size - 1} bytes, found {size} bytes"
    with pytest.raises(CorruptionError, match=reported):
        ExpiredQueues(journal.path).ends()


LONG = (1 << 63) - 1
FIT: list[dict[str, object]] = [
    {"queue": ["a", -(1 << 31)], "next": 0},
    {"queue": ["a", (1 << 31) - 1], "next": MAX_UNITS},
    {"gone": "a"},
    {"deleting": "a", "below": LONG},
    {"deleted": "a", "below": 0},
]
UNFIT: list[dict[str, object]] = [
    {"queue": ["a", -(1 << 31) - 1], "next": 0},
    {"queue": ["a", 1 << 31], "next": 0},
    {"queue": ["a", 0, 0], "next": 0},
    {"queue": ["a", 0], "next": MAX_UNITS + 1},
    {"queue": ["a", 0], "next": True},
    {"queue": ["a", 0]},
    {"gone": 0},
    {"deleted": "a", "below": LONG + 1},
    {"deleted": "a", "below": -1},
    {"deleting": "a", "below": "0"},
    {"deleted": 0, "below": 0},
    {"below": 0},
]


@pytest.mark.parametrize("fits", [True, False])
def test_entries_hold_what_java_s_numbers_can(tmp_path: Path, *, fits: bool) -> None:
    path = tmp_path / "j"
    for entry in FIT if fits else UNFIT:
        path.write_bytes(line(entry) * 2)
        read = DeletedTopics(path).load if "below" in entry else ExpiredQueues(path).ends
        with nullcontext() if fits else pytest.raises(CorruptionError, match="journal is damaged"):
            read()


def test_a_valid_line_is_found_wherever_it_begins_behind_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in pieces that are hardly longer than a line: it may begin in one, end in the next."""
    monkeypatch.setattr(journals, "_MAX_LINE", 64)
    first, last = (line({"queue": ["a", 0], "next": number}) for number in (1, 2))
    path = tmp_path / "j"
    for gap, filler in product(range(1, 200, 3), (b"\0", b"\n", b"0", b"a {")):
        damage = (filler * gap)[:gap]
        path.write_bytes(first + damage + last)
        with pytest.raises(CorruptionError) as caught:
            ExpiredQueues(path).ends()
        place = caught.value.position or 0
        assert len(first) <= place < len(first) + gap, f"{gap} bytes of {filler!r}"
        path.write_bytes(first + damage + last[:-3])
        assert ExpiredQueues(path).ends() == {QueueKey("a", 0): 1}, f"{gap} bytes of {filler!r}"


@pytest.mark.parametrize("starts", [100, 101])
def test_no_crash_leaves_more_than_a_hundred_starts_of_lines(tmp_path: Path, starts: int) -> None:
    path = tmp_path / "j"
    path.write_bytes(line({"gone": "a"}) + b"?" + b"01234567 {" * starts)
    if starts == 100:
        assert ExpiredQueues(path).ends() == {}
        return
    with pytest.raises(CorruptionError):
        ExpiredQueues(path).ends()


def test_a_torn_end_is_gone_for_good_before_a_line_follows(tmp_path: Path) -> None:
    journal, order = written(tmp_path / "j"), CallOrder(tmp_path)
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + b"0123")
    with order.watching():
        ExpiredQueues(journal.path).cut_torn_end()
    assert descriptors_of(tmp_path) == []
    assert order.made == [("write", "j"), ("sync", "j")]
    assert journal.path.read_bytes() == whole
    again = CallOrder(tmp_path)
    with again.watching():
        ExpiredQueues(journal.path).cut_torn_end()
    assert again.made == []


def test_a_line_is_synced_and_its_file_s_name_before_it_is_told(tmp_path: Path) -> None:
    reported: list[int] = []
    order = CallOrder(tmp_path)
    journal = Journal(
        tmp_path / "own" / "j", lambda _: True, lambda _, __: reported.append(len(order.made))
    )
    with order.watching():
        journal.append([{"a": 1}])
        first = list(order.made)
        journal.append([{"a": 2}])
    assert first[-2:] == [("sync", "own/j"), ("sync", "own")]
    assert reported == [len(first), len(first) + 1], "when the name, then each line is on disk"
    assert order.made[len(first) :] == [("sync", "own/j")]
    sizes: list[int] = []
    other = Journal(journal.path, lambda _: True, lambda _, size: sizes.append(size))
    other.append([{"a": 3}])
    a_line = len(line({"a": 3}))
    assert sizes == [3 * a_line], "who made the file may have been killed before"
    third = Journal(journal.path, lambda _: True, lambda _, size: sizes.append(size))
    third.replace([{"a": 4}])
    assert sizes[1:] == [a_line, a_line], "lowered before, and noted after"
    third.append([{"a": 5}])
    third.replace([{"a": 6}])
    assert sizes[3:] == [2 * a_line, a_line, a_line]
    assert [*third.read()] == [{"a": 6}]
    assert third.size() == len(line({"a": 6}))
    assert Journal(tmp_path / "none", lambda _: True).size() == 0


@pytest.mark.parametrize(
    "data", [b"", b"0123", line({"kept": []}) * 2, line({"kept": []}) + b"0", line({"kept": "a"})]
)
def test_a_damaged_note_of_our_journals_is_said(tmp_path: Path, data: bytes) -> None:
    MessageStore.open(tmp_path, CONFIG).close()
    note = StorePaths(tmp_path).own / "kept"
    note.parent.mkdir(exist_ok=True)
    note.write_bytes(data)
    with pytest.raises(CorruptionError) as caught:
        MessageStore.open(tmp_path, CONFIG)
    assert caught.value.path == note
    assert note.read_bytes() == data


def test_backends_are_alike_only_by_the_time_of_a_lock_that_is_there(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    lines = LaggingBackends(paths, read_only=False)
    assert not lines.are_alike
    lines.note_alike()
    assert not LaggingBackends(paths, read_only=False).are_alike, "there is no lock"
    paths.lock.touch()
    lines.note_alike()
    assert LaggingBackends(paths, read_only=True).are_alike
    order = CallOrder(tmp_path)
    with order.watching():
        lines.note_alike()
    assert order.made == [], "it says so already"
    before = paths.mode.read_bytes()
    reading = LaggingBackends(paths, read_only=True)
    reading.note_lagging("file", 7)
    assert (reading.lags_from("file"), reading.lags_from("rocksdb")) == (7, None)
    assert paths.mode.read_bytes() == before


def test_a_journal_whose_size_cannot_be_asked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "j", lambda _: True)
    assert journal.size() == 0
    journal.append([{"a": 1}])
    assert journal.size() == journal.path.stat().st_size > 0
    Faults(monkeypatch).fail("stat", EIO, str(journal.path))
    with pytest.raises(StoreIOError, match="read the size of the journal") as caught:
        journal.size()
    assert caught.value.path == journal.path


def test_a_note_has_one_entry_or_none_and_may_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "note"

    def read() -> dict[str, object] | None:
        return note.read_note(path, lambda entry: "a" in entry, "the note is damaged")

    assert read() is None
    for number in (1, 2):
        note.write_note(path, {"a": number})
        assert read() == {"a": number}
    line = path.read_bytes()
    for damaged in (b"", line[:-2], line + line, line.replace(b"2", b"3")):
        path.write_bytes(damaged)
        with pytest.raises(CorruptionError, match=r"note is damaged|line of the journal"):
            read()

    def removed(path: Path, _: object) -> list[object]:
        path.unlink()
        return []

    monkeypatch.setattr(note, "read_lines", removed)
    assert read() is None


def test_lines_say_how_far_each_backend_is_whole(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    paths.own.mkdir()
    paths.mode.touch()
    with pytest.raises(CorruptionError, match="record of the backends is damaged"):
        read_backend_state(paths)
    paths.mode.unlink()
    lines = LaggingBackends(paths, read_only=False)
    lines.note_lagging("file", 70)
    lines.note_lagging("rocksdb", 50)
    lines.note_covers("rocksdb", "a;b*")
    written = paths.mode.stat().st_ino
    lines.log_was_cut(70, [])
    assert paths.mode.stat().st_ino == written, "nothing was cut off: it is not rewritten"
    lines.log_was_cut(60, ["rocksdb"])
    assert read_backend_state(paths).lagging == {"file": 60, "rocksdb": 50}
    lines.log_was_cut(40, ["file"])
    assert read_backend_state(paths).lagging == {"file": 60, "rocksdb": 40}
    lines.caught_up("file")
    assert LaggingBackends(paths, read_only=True).backend_state == BackendState(
        None, {"rocksdb": 40}, {"rocksdb": "a;b*"}
    )
    lines.note_covers("rocksdb", None)
    lines.caught_up("rocksdb")
    assert read_backend_state(paths) == BackendState()
    kept = read_lines(paths.own / "kept", lambda _: True)
    assert [*kept] == [{"kept": [], "bytes": {}}], "its loss says nothing"
