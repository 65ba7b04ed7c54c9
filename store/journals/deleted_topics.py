"""DeletedTopics: a small journal of cqstore that keeps deleted topics deleted.

The log keeps a deleted topic's records until they expire, and every replay of the log would restore
its queues. An entry here has the phy offset from which records of the topic are valid again. A
deletion has two entries: ``deleting`` before the queues are removed, ``deleted`` after; if the
second is missing, the deletion was interrupted, and opening the store repeats it.

A torn last line is dropped; damage before it is an error.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cqstore.store.journals.journal import Entry, Journal, is_offset
from cqstore.store.journals.journal_manifest import register

_SPARE_BYTES = 1 << 16
"""Bytes beyond twice its size after the last rewrite at which the journal is rewritten."""


class DeletedTopics:
    """The deleted topics of one store. One thread at a time changes them; any thread may read."""

    def __init__(self, path: Path) -> None:
        """Create the object for the journal at ``path``; accesses no file."""
        self._journal = Journal(path, _is_entry, register)
        self._compact_from = _SPARE_BYTES
        self._below: dict[str, int] = {}
        self._unfinished: set[str] = set()

    @property
    def path(self) -> Path:
        """Return the path of the journal."""
        return self._journal.path

    def load(self) -> None:
        """Read the journal, if there is one. Changes nothing.

        Raises:
            CorruptionError: a line before the last one is damaged.
            StoreIOError: the journal cannot be read.
        """
        for entry in self._journal.read():
            self._take(entry)

    def cut_torn_end(self) -> None:
        """Remove a torn end that a crash left, before a line is added.

        Raises:
            StoreIOError: the journal cannot be written.
        """
        self._journal.cut_torn_end()

    def __len__(self) -> int:
        return len(self._below)

    def has_record(self, topic: str, phy_offset: int) -> bool:
        """Return whether the record at ``phy_offset`` is of a deleted incarnation of ``topic``."""
        return phy_offset < self._below.get(topic, 0)

    def unfinished(self) -> list[str]:
        """Return the topics whose deletion was interrupted."""
        return sorted(self._unfinished)

    def begin(self, topics: Sequence[str], end_phy_offset: int) -> None:
        """Record durably that ``topics`` are being deleted: their existing records are invalid.

        The log must be durable up to ``end_phy_offset``: otherwise records that are written at the
        same offsets after a power failure would count as deleted.

        Raises:
            StoreIOError: the journal cannot be written; nothing may be deleted.
        """
        self._append(_entry("deleting", topic, end_phy_offset) for topic in topics)

    def finish(self, topics: Sequence[str]) -> None:
        """Record durably that the queues of ``topics`` are deleted.

        Raises:
            StoreIOError: the journal cannot be written; the next open deletes them again.
        """
        self._append(_entry("deleted", topic, self._below[topic]) for topic in topics)

    def fit(self, min_phy_offset: int, end_phy_offset: int) -> None:
        """Adjust the journal to the ends of the log, before anything is appended.

        Lines before the log's minimum are dropped, and offsets are limited to its end.

        Raises:
            StoreIOError: the journal cannot be written; it is unchanged.
        """
        fitted = {
            topic: min(below, end_phy_offset)
            for topic, below in self._below.items()
            if below > min_phy_offset
        }
        if fitted != self._below:
            self._replace(fitted)

    def compact(self, min_phy_offset: int) -> None:
        """Rewrite the journal if its size has doubled since the last rewrite.

        So its size is little more than twice the valid entries, however often topics are deleted.

        Raises:
            StoreIOError: the journal cannot be written; it is unchanged.
        """
        if self._journal.size() > self._compact_from:
            counts = {topic: at for topic, at in self._below.items() if at > min_phy_offset}
            self._replace(counts)
            self._compact_from = 2 * self._journal.size() + _SPARE_BYTES

    # ---- inside

    def _append(self, entries: Iterable[Entry]) -> None:
        new = list(entries)
        self._journal.append(new)
        for entry in new:
            self._take(entry)

    def _replace(self, below: dict[str, int]) -> None:
        begun = self._unfinished
        self._journal.replace(
            [_entry("deleting" if topic in begun else "deleted", topic, below[topic])
             for topic in below]
        )  # fmt: skip
        self._below, self._unfinished = below, begun & below.keys()

    def _take(self, entry: Entry) -> None:
        """Apply a line: a deletion was begun, or has ended."""
        if "deleting" in entry:
            topic = entry["deleting"]
            self._unfinished.add(topic)
        else:
            topic = entry["deleted"]
            self._unfinished.discard(topic)
        self._below[topic] = max(entry["below"], self._below.get(topic, 0))


def _entry(verb: str, topic: str, below: int) -> Entry:
    return {verb: topic, "below": below}


def _is_entry(entry: Entry) -> bool:
    if not is_offset(entry.get("below")):
        return False
    return isinstance(entry.get("deleting", entry.get("deleted")), str)
