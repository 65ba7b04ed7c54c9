"""ExpiredQueues: a small journal of cqstore that keeps the next offset of an expired queue.

When all records of a queue have left the log, only the queue itself has its next offset. A rebuild
of all queues from the log reads this journal for queues that have no record in the log.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from cqstore.store.journals.journal import Entry, Journal, is_offset
from cqstore.store.journals.journal_manifest import register
from cqstore.store.path_kind import exists
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET

_IDS = 1 << 31


class ExpiredQueues:
    """Next offsets of completely expired queues. Read only by a rebuild; one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Create the object for the journal at ``path``; accesses no file."""
        self.path = path
        self._journal = Journal(path, _is_entry, register)

    def cut_torn_end(self) -> None:
        """Remove a torn end that a crash left, before a line is added.

        Raises:
            CorruptionError: a line before its end is damaged.
            StoreIOError: the journal cannot be read or written.
        """
        self._journal.cut_torn_end()

    def add(self, ends: Iterable[tuple[tuple[str, int], int]]) -> None:
        """Record the next offset of each queue durably, before its last records are deleted.

        Raises:
            StoreIOError: the journal cannot be written; nothing may be deleted.
        """
        entries: list[Entry] = [{"queue": list(key), "next": end} for key, end in ends]
        if entries:
            self._journal.append(entries)

    def forget(self, topics: Sequence[str]) -> None:
        """Record durably that ``topics`` were deleted: their queues start over.

        Raises:
            StoreIOError: the journal cannot be written.
        """
        if exists(self.path):
            self._journal.append([{"gone": topic} for topic in topics])

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next offset of each queue that was once completely expired.

        Raises:
            CorruptionError: a line before the last one is damaged.
            StoreIOError: the journal cannot be read.
        """
        found: defaultdict[str, dict[tuple[str, int], int]] = defaultdict(dict)  # by topic
        for entry in self._journal.read():
            if "gone" in entry:
                found.pop(entry["gone"], None)
            else:
                topic, queue_id = entry["queue"]
                found[topic][topic, queue_id] = entry["next"]
        return {key: end for ends in found.values() for key, end in ends.items()}


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is a queue's end, or a deleted topic."""
    if "gone" in entry:
        return isinstance(entry["gone"], str)
    queue = entry.get("queue")
    if not isinstance(queue, list) or not is_offset(entry.get("next")):
        return False
    if entry["next"] > MAX_QUEUE_OFFSET:
        return False
    return [type(part) for part in queue] == [str, int] and -_IDS <= queue[1] < _IDS
