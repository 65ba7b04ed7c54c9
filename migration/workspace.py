"""Workspace: every file of one migration, below one folder beside the store's own.

By default ``DIR/cqstore/migration``. What a step has finished is shown by what exists: the plan, a
marker a segment, the folder of made queues, the report. The journal says when.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import make_folder, replace_file
from cqstore.store.journals.journal import Journal, read_lines
from cqstore.store.journals.output_lock import lock_file
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_SEGMENT_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths of all files of a migration, below ``root``."""

    root: Path

    @classmethod
    def of(cls, store: Path, given: Path | None = None) -> "Workspace":
        """Return the workspace of the store in ``store``, elsewhere if ``given``."""
        return cls((given or StorePaths(store).own / "migration").absolute())

    @classmethod
    def of_switch(cls, store: Path, given: "Workspace | None") -> "Workspace":
        """Return the workspace that has the note of the store's switch: after it, always its own.

        Before the switch ``given``, which may be the workspace of a copy, by default its own.
        """
        own = cls.of(store)
        return own if given is None or exists(own.switched) else given

    @property
    def plan(self) -> Path:
        """Return the plan: what is moved, its segments, its digest."""
        return self.root / "plan.json"

    @property
    def slices(self) -> Path:
        """Return the queues of the plan, a line each, in key order."""
        return self.root / "queues.jsonl"

    @property
    def segments(self) -> Path:
        """Return the folder of what tasks write."""
        return self.root / "segments"

    @property
    def made(self) -> StorePaths:
        """Return the new queues, laid out as in the root of a store."""
        return StorePaths(self.root / "made")

    @property
    def unfinished(self) -> StorePaths:
        """Return the new queues while they are put together."""
        return StorePaths(self.root / "making")

    @property
    def report(self) -> Path:
        """Return the last comparison, JSON."""
        return self.root / "report.json"

    @property
    def report_page(self) -> Path:
        """Return the last comparison, for people."""
        return self.root / "report.html"

    def keep_report(self) -> Path | None:
        """Give the last comparison a name that no later one takes; return it, the page if there is.

        It is the proof that operators were told of; a workspace is emptied but for it.
        """
        stamp, kept = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), None
        for path in (self.report, self.report_page):
            if exists(path):
                kept = path.with_name(f"{path.stem}-{stamp}{path.suffix}")
                path.rename(kept)
        return kept

    @property
    def known_queues(self) -> Path:
        """Return the file of which queues are as the last comparison read them, 16 bytes each."""
        return self.root / "known-queues"

    @property
    def switched(self) -> Path:
        """Return what the store was and is since the switch, JSON; there is one only after it."""
        return self.root / "switched.json"

    @property
    def journal(self) -> Path:
        """Return what was done when."""
        return self.root / "journal"

    def done(self, segment: int) -> Path:
        """Return the marker of a finished segment."""
        return self.segments / f"{segment:0{_SEGMENT_DIGITS}d}.done"

    def attempt(self, segment: int, attempt: str) -> Path:
        """Return the folder of one attempt at a segment."""
        return self.segments / f"{segment:0{_SEGMENT_DIGITS}d}.{attempt}"

    def note(self, step: str, **facts: object) -> None:
        """Append to the journal, durably."""
        entry = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "step": step, **facts}
        Journal(self.journal, _is_entry).append([entry])

    def history(self) -> list[dict[str, Any]]:
        """Return the entries of the migration's journal, oldest first."""
        return [entry for entry in read_lines(self.journal, _is_entry) if entry is not None]

    @contextmanager
    def held(self, *, begin: bool = False) -> Iterator[None]:
        """Keep other drivers out while the block runs; tasks do not ask.

        Only with ``begin`` the folder is made, and it goes again if the block leaves nothing in it.

        Raises:
            RefusedStoreError: there is no folder, and none is to be made.
            StoreLockedError: another driver works here.
            CorruptionError: the journal is damaged; said before anything is done.
            StoreIOError: the folder cannot be made.
        """
        if not begin and not exists(self.root):
            raise RefusedStoreError(
                "no migration found: run cqstore migrate plan first", path=self.root
            )
        missing = [folder for folder in (self.root, *self.root.parents) if not exists(folder)]
        path = self.root / "lock"
        with os_errors("use the workspace of the migration", self.root):
            make_folder(self.root)
            descriptor = lock_file(path, "another migration command is using this workspace")
            try:
                self.history()
                yield
            finally:
                if missing and list(self.root.iterdir()) == [path]:
                    path.unlink()
                    with suppress(OSError):  # another program put files into one of them
                        for folder in missing:
                            folder.rmdir()
                os.close(descriptor)


def write_file(path: Path, text: str) -> None:
    """Write a whole file durably, by rename.

    Raises:
        StoreIOError: it cannot be written; the former file is unchanged.
    """
    with os_errors("write", path):
        make_folder(path.parent)
        replace_file(path, text.encode())


def _is_entry(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("step"), str) and isinstance(entry.get("at"), str)
