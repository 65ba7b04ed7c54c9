"""Journals and notes whose writing is interrupted: they say what they said, or what they were to.

And the same call again says it, with no file left behind.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pytest

from cqstore.ab.mirror.mirror_figures import MirrorFigures, read_figures
from cqstore.ab.mirror.mismatches import Mismatch, MismatchJournal, read_mismatches
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.broker.metadata.config_files import ConfigFiles
from cqstore.replication.epoch_wire import EpochEntry
from cqstore.replication.follow.epoch_file import read_epochs, write_epochs
from cqstore.store.broker_files.file_names import DELAYS_FILE, TIMER_CHECK_FILE
from cqstore.store.journals.backend_state import read_backend_state, set_mode
from cqstore.store.journals.begun_cut import begin_cut, begun_cut, end_cut
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.following import Following, read_following, write_following
from cqstore.store.journals.journal import Journal
from cqstore.store.journals.journal_manifest import check_kept
from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.journals.store_mode import StoreMode
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.mutations import in_time

SECONDS = 30


@dataclass(frozen=True)
class Note:
    """How something is said, by a number, and read from the disk."""

    say: Callable[[StorePaths, int], object]
    said: Callable[[StorePaths], object]


def follow(paths: StorePaths, number: int) -> None:
    fields = dict.fromkeys(Following.__annotations__, 0) | {
        "time": 1.0, "metadata_time": 0.0, "master": "h:1", "metadata_fault": "", "end": number,
        "connected": True, "verified": True, "caught_up": False,
    }  # fmt: skip
    write_following(paths, Following(**fields))  # type: ignore[arg-type]


def delete(paths: StorePaths, number: int) -> None:
    deleted = DeletedTopics(paths.deleted_topics)
    deleted.load()
    deleted.begin(["gone"], number)
    deleted.finish(["gone"])


def deleted_below(paths: StorePaths) -> int:
    """Return up to where records count no more, wherever between two lines it was cut."""
    deleted = DeletedTopics(paths.deleted_topics)
    deleted.load()
    return sum(deleted.has_record("gone", at) for at in range(100))


def fit(paths: StorePaths, number: int) -> None:
    deleted = DeletedTopics(paths.deleted_topics)
    deleted.load()
    if number == 1:
        deleted.begin(["gone"], 90)
    deleted.fit(0, 90 - number)


def differ(paths: StorePaths, number: int) -> None:
    kept = MismatchJournal(paths.ab_differences)
    kept.load()
    answers = {"file": "1", "rocksdb": "2"}
    queue = QueueKey("t", number)
    paths.ab_differences.parent.mkdir(parents=True, exist_ok=True)
    kept.add(Mismatch(1.0, "pull", queue, {}, 0, 0, answers, ""))


def count(paths: StorePaths, number: int) -> None:
    figures = MirrorFigures(paths.ab_figures)
    for _ in range(number):
        figures.count("pull", ReadOutcome.SAME)
    figures.save(0)


def same_reads(paths: StorePaths) -> int:
    found = read_figures(paths.ab_figures)
    return 0 if found is None else found.count(ReadOutcome.SAME)


def begin_to_lag(paths: StorePaths, number: int) -> None:
    lines = LaggingBackends(paths, read_only=False)
    lines.note_lagging("rocksdb", number)
    lines.keep()


NOTES: dict[str, Note] = {
    "following": Note(follow, lambda paths: (found := read_following(paths)) and found.end),
    "cut": Note(begin_cut, begun_cut),
    "cut-ended": Note(
        lambda paths, number: begin_cut(paths, 7) if number == 1 else end_cut(paths), begun_cut
    ),
    "mode": Note(
        lambda paths, number: set_mode(paths, StoreMode.of("file"), {"rocksdb": number}),
        read_backend_state,
    ),
    "behind": Note(
        begin_to_lag, read_backend_state,
    ),
    "deleted": Note(delete, deleted_below),
    "fitted": Note(fit, deleted_below),
    "expired": Note(
        lambda paths, number: ExpiredQueues(paths.expired_queues).add([(("t", 0), number)]),
        lambda paths: ExpiredQueues(paths.expired_queues).ends(),
    ),
    "differences": Note(
        differ, lambda paths: [each.queue for each in read_mismatches(paths.ab_differences)]
    ),
    "figures": Note(count, same_reads),
    "epochs": Note(
        lambda paths, number: write_epochs(paths.epoch_file, [EpochEntry(number, 0)]),
        lambda paths: read_epochs(paths.epoch_file),
    ),
    "table": Note(
        lambda paths, number: ConfigFiles(paths).write(DELAYS_FILE, {"t": {"1": number}}),
        lambda paths: ConfigFiles(paths).read(DELAYS_FILE),
    ),
    "timer": Note(
        lambda paths, number: ConfigFiles(paths).merge_timer_check(bytes([number]) * 56),
        lambda paths: path.read_bytes()
        if (path := ConfigFiles(paths).path(TIMER_CHECK_FILE)).exists()
        else None,
    ),
}  # fmt: skip


def names_below(paths: StorePaths) -> set[str]:
    """Return the files, but for backups of broker's files: the second call makes one."""
    found = {str(path.relative_to(paths.root)) for path in paths.root.rglob("*")}
    return {name for name in found if not name.endswith(".bak")}


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("name", NOTES)
@pytest.mark.parametrize("is_new", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_note_says_the_one_or_the_other_after_an_interrupt_anywhere(
    tmp_path: Path, name: str, *, is_new: bool
) -> None:
    note = NOTES[name]

    def begun(root: Path) -> StorePaths:
        paths = StorePaths(root)
        root.mkdir()
        paths.lock.touch()
        if not is_new:
            note.say(paths, 1)
        return paths

    whole = begun(tmp_path / "whole")
    before = note.said(whole)
    places = run_interrupted(lambda: note.say(whole, 2))
    after, names = note.said(whole), names_below(whole)
    assert before != after or name in {"cut-ended", "fitted"}  # not these, if nothing was there
    with in_time(SECONDS):
        for number in range(1, places + 1):
            paths = begun(tmp_path / str(number))
            with suppress(Interrupted):
                run_interrupted(lambda paths=paths: note.say(paths, 2), number)  # type: ignore[misc]
            assert note.said(paths) in (before, after), number
            note.say(paths, 2)
            assert note.said(paths) == after, number
            assert names_below(paths) == names, number
            check_kept(paths)


@IGNORED
@pytest.mark.parametrize("then", ["append", "read", "another"])
def test_each_line_is_synced_before_the_next_where_an_append_was_interrupted(
    tmp_path: Path, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave the next one whole, and this one not: that would be damage."""
    synced: set[int] = set()
    fsync = os.fsync

    def noting(fd: int) -> None:
        fsync(fd)
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            synced.add(found.st_size)

    monkeypatch.setattr(os, "fsync", noting)

    def case(number: int) -> int:
        path, places = tmp_path / f"{number}", 0
        journal = Journal(path, lambda _: True)
        journal.append([{"line": 1}])
        synced.clear()
        with suppress(Interrupted):
            places = run_interrupted(lambda: journal.append([{"line": 2}]), number)
        if then == "another":
            journal = Journal(path, lambda _: True)
        if then != "append":
            assert next(journal.read()) == {"line": 1}
            assert [*journal.read()]
        journal.append([{"line": 3}])
        assert [entry["line"] for entry in journal.read()] in ([1, 2, 3], [1, 3]), number
        ends = [*accumulate(map(len, path.read_bytes().splitlines(keepends=True)))]
        assert {*ends[1:]} <= synced, number
        return places

    places = case(0)
    assert places > 10
    for number in range(1, places + 1):
        case(number)
