"""DeletedTopics: a small journal of ours, so that a deleted topic stays deleted.

The log keeps a deleted topic's records until they expire, and every replay of the log would bring
its queues back. A line here says from where on records of the topic count again. A deletion has
two lines: ``deleting`` before the queues go, ``deleted`` after; where the second is missing the
deletion was interrupted, and opening the store does it again.

A line is the CRC-32C of its text, eight hex digits, a space, the text (JSON), a newline. A torn
last line was never promised to anybody and is dropped; damage before it is an error.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crcmod.predefined import mkCrcFun

from store.errors import CorruptionError, os_errors
from store.log.mapped_file import sync_folder

_crc32c = mkCrcFun("crc-32c")
_CRC_DIGITS = 8


class DeletedTopics:
    """The deleted topics of one store. One thread at a time changes them; any may ask."""

    def __init__(self, path: Path) -> None:
        """Describe the journal at ``path``; touches no file."""
        self.path = path
        self._below: dict[str, int] = {}
        self._unfinished: dict[str, int] = {}
        self._torn = False

    def load(self) -> None:
        """Read the journal, if there is one. Changes nothing.

        Raises:
            CorruptionError: a line before the last one is damaged.
            StoreIOError: it cannot be read.
        """
        with os_errors("read the journal of deleted topics", self.path):
            data = self.path.read_bytes() if self.path.exists() else b""
        lines = data.split(b"\n")
        self._torn = bool(lines.pop())
        position = 0
        for number, line in enumerate(lines):
            entry = _parse(line)
            if entry is None:
                if number == len(lines) - 1 and not self._torn:
                    self._torn = True
                    break
                raise CorruptionError(
                    "a line of the journal of deleted topics is damaged",
                    path=self.path, position=position,
                )  # fmt: skip
            self._take(entry)
            position += len(line) + 1

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
        self._append(entry)
        self._take(entry)

    def finish(self, topic: str) -> None:
        """Note durably that the queues of ``topic`` are gone.

        Raises:
            StoreIOError: the line cannot be written; the next open deletes them again.
        """
        entry = {"deleted": topic, "below": self._below[topic]}
        self._append(entry)
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
        if fitted == self._below and not self._torn:
            return
        lines = [
            _line({"deleting" if topic in self._unfinished else "deleted": topic, "below": below})
            for topic, below in fitted.items()
        ]
        self._rewrite(lines)
        self._below, self._torn = fitted, False
        self._unfinished = {t: fitted[t] for t in self._unfinished if t in fitted}

    # ---- inside

    def _take(self, entry: dict[str, Any]) -> None:
        if "deleting" in entry:
            topic = entry["deleting"]
            self._unfinished[topic] = entry["below"]
        else:
            topic = entry["deleted"]
            self._unfinished.pop(topic, None)
        self._below[topic] = max(entry["below"], self._below.get(topic, 0))

    def _append(self, entry: dict[str, Any]) -> None:
        with os_errors("write the journal of deleted topics", self.path):
            created = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(_line(entry))
                file.flush()
                os.fsync(file.fileno())
            if created:
                sync_folder(self.path.parent)

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        unfinished = self.path.with_suffix(".new")
        with os_errors("write the journal of deleted topics", self.path):
            with unfinished.open("wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self.path)
            sync_folder(self.path.parent)


def _line(entry: dict[str, Any]) -> bytes:
    text = json.dumps(entry, ensure_ascii=True).encode()
    return b"%0*x %s\n" % (_CRC_DIGITS, _crc32c(text), text)


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line, ``None`` if it is damaged."""
    crc, _, text = line.partition(b" ")
    if crc != b"%0*x" % (_CRC_DIGITS, _crc32c(text)):
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if _is_entry(entry) else None


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("below"), int):
        return False
    return isinstance(entry.get("deleting", entry.get("deleted")), str)
