"""Mismatches: different answers of two backends, kept in the journal ``cqstore/ab/differences``.

The first mismatch at each position is kept, up to a maximum number; the others are only counted. No
other part of the store reads the journal: losing it, or its end, loses nothing else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cqstore.ab.mirror.mirrored_reads import Answer, FailedAnswer, MirroredRead, PullAnswer, UnitRow
from cqstore.store.errors import CorruptionError
from cqstore.store.journals.journal import Entry, Journal
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import LMQ_PREFIX

MAX_KEPT = 1000
MAX_BYTES = 4 << 20
_FIELDS = {
    "time": float, "op": str, "topic": str, "queueId": int, "asked": dict, "queueOffset": int,
    "phyOffset": int, "answers": dict, "wrong": str,
}  # fmt: skip
_NONE = -1


class Mismatch(NamedTuple):
    """One read with different answers of two backends, as stored in the journal."""

    time: float
    """Seconds since the epoch."""
    op: str
    queue: QueueKey
    arguments: Mapping[str, Any]
    """Arguments of the read, named as in operation lines."""
    queue_offset: int
    """The first unit that differs; -1 if an end of the queue or a number differs."""
    phy_offset: int
    """Phy offset of that unit in one of the backends; -1 if there is none."""
    answers: Mapping[str, str]
    """Backend → the part of its answer that differs."""
    wrong: str
    """The backend that the log contradicts; empty if the log does not decide."""


class MismatchJournal:
    """The journal of mismatches. Used by one thread."""

    def __init__(self, path: Path) -> None:
        """Describe the journal; touches no file."""
        self._journal = Journal(path, _is_entry)
        self._known: set[tuple[object, ...]] = set()
        self.kept = 0
        """Number of mismatches in the journal."""

    def load(self) -> None:
        """Read the file.

        Raises:
            CorruptionError: it is damaged before its end.
            StoreIOError: it cannot be read.
        """
        for each in map(_mismatch, self._journal.read()):
            self._known.add(_place(each))
            self.kept += 1

    def add(self, found: Mismatch) -> bool:
        """Store a mismatch durably; return False if its position is known, or the journal is full.

        Raises:
            StoreIOError: it cannot be written.
        """
        if _place(found) in self._known or self.kept >= MAX_KEPT:
            return False
        if self._journal.size() >= MAX_BYTES:
            return False
        line = found._asdict()
        topic, queue_id = line.pop("queue")
        line |= {"topic": topic, "queueId": queue_id, "asked": dict(line.pop("arguments"))}
        line |= {"queueOffset": line.pop("queue_offset"), "phyOffset": line.pop("phy_offset")}
        self._journal.append([line])
        self._known.add(_place(found))
        self.kept += 1
        return True


def read_mismatches(path: Path) -> list[Mismatch]:
    """Return the mismatches of the journal, oldest first. Changes nothing.

    Raises:
        CorruptionError: it is damaged before its end.
        StoreIOError: it cannot be read.
    """
    return [_mismatch(entry) for entry in Journal(path, _is_entry).read()]


def mismatch_of(
    read: MirroredRead, reference: Answer, other: Answer, log: CommitLog, now: float
) -> Mismatch:
    """Return the mismatch between two answers to one read."""
    names = [queues.name for queues in read.sides]
    offset, phy_offset, wrong = _NONE, _NONE, ""
    texts = [_text(reference), _text(other)]
    if isinstance(reference, PullAnswer) and isinstance(other, PullAnswer):
        at = _first_different(reference, other)
        if at is not None:
            offset = at
            rows = reference.at(at), other.at(at)
            texts = [_unit_text(at, row) for row in rows]
            phy_offset = next((row[0] for row in rows if row is not None), _NONE)
            wrong = _blame(log, read.key, at, dict(zip(names, rows, strict=True)))
    return Mismatch(
        now, read.op.value, read.key, read.arguments, offset, phy_offset,
        dict(zip(names, texts, strict=True)), wrong,
    )  # fmt: skip


def _first_different(mine: PullAnswer, other: PullAnswer) -> int | None:
    """Return the first offset, of those that were read, at which the units differ."""
    start = min(mine.first, other.first)
    end = max(mine.first + len(mine.rows), other.first + len(other.rows))
    return next((at for at in range(start, end) if mine.at(at) != other.at(at)), None)


def _text(answer: Answer) -> str:
    if isinstance(answer, FailedAnswer):
        return f"cannot be read: {answer.error}"
    if isinstance(answer, PullAnswer):
        return f"min offset {answer.low}, max offset {answer.high}"
    return str(answer)


def _unit_text(at: int, row: UnitRow | None) -> str:
    if row is None:
        return f"unit {at} is missing"
    return f"unit {at}: phy offset {row[0]}, size {row[1]}, tags code {row[2]}"


def _blame(log: CommitLog, key: QueueKey, at: int, rows: Mapping[str, UnitRow | None]) -> str:
    """Return the backend that the record contradicts; empty if the record does not decide."""
    if key.topic.startswith(LMQ_PREFIX):  # a record bears the place in its own queue alone
        return ""
    right = [name for name, row in rows.items() if row is not None and _is_there(log, key, at, row)]
    return next(name for name in rows if name not in right) if len(right) == 1 else ""


def _is_there(log: CommitLog, key: QueueKey, at: int, row: UnitRow) -> bool:
    try:
        message = log.message(row[0])
    except CorruptionError:
        return False
    head = message.head
    return (message.topic, head.queue_id, head.queue_offset, head.total_size) == (*key, at, row[1])


def _place(found: Mismatch) -> tuple[object, ...]:
    return found.op, found.queue, found.queue_offset, tuple(found.answers)


def _mismatch(entry: Entry) -> Mismatch:
    return Mismatch(
        entry["time"], entry["op"], QueueKey(entry["topic"], entry["queueId"]), entry["asked"],
        entry["queueOffset"], entry["phyOffset"], entry["answers"], entry["wrong"],
    )  # fmt: skip


def _is_entry(entry: Entry) -> bool:
    return entry.keys() == _FIELDS.keys() and all(
        isinstance(entry[name], kind) for name, kind in _FIELDS.items()
    )
