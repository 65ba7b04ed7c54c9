"""DeletedTopics: a small journal of ours, so that a deleted topic stays deleted.

The log keeps a deleted topic's records until they expire, and every replay of the log would bring
its queues back. A line here says from where on records of the topic count again. A deletion has
two lines: ``deleting`` before the queues go, ``deleted`` after; where the second is missing the
deletion was interrupted, and opening the store does it again.

A torn last line is dropped; damage before it is an error.
"""

from pathlib import Path

from store.service.journals.journal import (
    Entry,
    append_lines,
    cut_torn_end,
    is_offset,
    read_lines,
    rewrite,
)


class DeletedTopics:
    """The deleted topics of one store. One thread at a time changes them; any may ask."""

    def __init__(self, path: Path) -> None:
        """Describe the journal at ``path``; touches no file."""
        self.path = path
        self._below: dict[str, int] = {}
        self._unfinished: dict[str, int] = {}

    def load(self) -> None:
        """Read the journal, if there is one. Changes nothing.

        Raises:
            CorruptionError: a line before the last one is damaged.
            StoreIOError: it cannot be read.
        """
        for entry in read_lines(self.path, _is_entry):
            if entry is not None:
                self._take(entry)

    def cut_torn_end(self) -> None:
        """Make the journal whole after a crash, before a line is added.

        Raises:
            StoreIOError: it cannot be written.
        """
        cut_torn_end(self.path, _is_entry)

    def __len__(self) -> int:
        return len(self._below)

    def has_record(self, topic: str, phy_offset: int) -> bool:
        """Return whether the record at ``phy_offset`` belongs to a deleted life of ``topic``."""
        return phy_offset < self._below.get(topic, 0)

    def unfinished(self) -> list[str]:
        """Return the topics whose deletion was interrupted."""
        return list(self._unfinished)

    def begin(self, topic: str, end_phy_offset: int) -> None:
        """Note durably that ``topic`` is about to go: its records so far count no more.

        The log must be durable up to there: else records that follow a power cut, written at the
        same places, would be taken for deleted.

        Raises:
            StoreIOError: the line cannot be written; nothing may be deleted.
        """
        entry = {"deleting": topic, "below": end_phy_offset}
        append_lines(self.path, [entry], _is_entry)
        self._take(entry)

    def finish(self, topic: str) -> None:
        """Note durably that the queues of ``topic`` are gone.

        Raises:
            StoreIOError: the line cannot be written; the next open deletes them again.
        """
        entry = {"deleted": topic, "below": self._below[topic]}
        append_lines(self.path, [entry], _is_entry)
        self._take(entry)

    def fit(self, min_phy_offset: int, end_phy_offset: int) -> None:
        """Fit the journal to a log that begins and ends there, before anything is appended.

        Lines below the log's minimum are dropped, and none reaches behind its end. Rewritten as a
        whole, by rename, only if something changes.

        Raises:
            StoreIOError: it cannot be written.
        """
        fitted = {
            topic: min(below, end_phy_offset)
            for topic, below in self._below.items()
            if below > min_phy_offset
        }
        if fitted == self._below:
            return
        entries: list[Entry] = [
            {"deleting" if topic in self._unfinished else "deleted": topic, "below": below}
            for topic, below in fitted.items()
        ]
        rewrite(self.path, entries)
        self._below = fitted
        self._unfinished = {t: fitted[t] for t in self._unfinished if t in fitted}

    # ---- inside

    def _take(self, entry: Entry) -> None:
        if "deleting" in entry:
            topic = entry["deleting"]
            self._unfinished[topic] = entry["below"]
        else:
            topic = entry["deleted"]
            self._unfinished.pop(topic, None)
        self._below[topic] = max(entry["below"], self._below.get(topic, 0))


def _is_entry(entry: Entry) -> bool:
    if not is_offset(entry.get("below")):
        return False
    return isinstance(entry.get("deleting", entry.get("deleted")), str)
