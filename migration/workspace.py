"""Workspace: the folder with all files of one migration.

By default ``DIR/cqstore/migration``. The files show which steps are finished: the plan, one marker
per segment, the folder of new queues, the report. The journal has the times of all steps.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import make_folder, replace_file
from cqstore.store.journals.journal import Journal, read_lines
from cqstore.store.journals.output_lock import lock_file
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths


class Workspace:
    """The paths of all files of a migration, below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plan = root / "plan.json"
        """The plan: queues, segments, digest."""
        self.slices = root / "queues.jsonl"
        """The queues of the plan, one line each, in key order."""
        self.planning = root / "planning"
        """Folder for the tasks of the plan command, removed at its end."""
        self.segments = root / "segments"
        """The folder that tasks write to."""
        self.made = StorePaths(root / "made")
        """Folder of the new queues, laid out like the root of a store."""
        self.unfinished = StorePaths(root / "making")
        """Folder of the new queues while they are being assembled."""
        self.report = root / "report.json"
        """The last report, JSON."""
        self.report_page = root / "report.html"
        """The last report as an HTML page."""
        self.known_queues = root / "known-queues"
        """The digests of the compared queues, 16 bytes each."""
        self.switched = root / "switched.json"
        """The state file of the switch, JSON; it exists after the switch."""
        self.journal = root / "journal"
        """The journal: steps and their times."""

    @classmethod
    def of(cls, store: Path, given: Path | None = None) -> "Workspace":
        """Return the workspace of the store in ``store``: its own folder, or ``given``."""
        return cls((given or StorePaths(store).own / "migration").absolute())

    @classmethod
    def of_switch(cls, store: Path, given: "Workspace | None") -> "Workspace":
        """Return the workspace that has the state file of the switch; later always the store's own.

        Before the switch, return ``given``, which may belong to a copy, or the store's own.
        """
        own = cls.of(store)
        return own if given is None or exists(own.switched) else given

    def keep_report(self) -> Path | None:
        """Rename the last report so that no later one replaces it; return the new path.

        The path is that of the page if there is one. The report is the proof of the migration, so
        it is kept when the workspace is emptied.
        """
        stamp, kept = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), None
        for path in (self.report, self.report_page):
            if exists(path):
                kept = path.with_name(f"{path.stem}-{stamp}{path.suffix}")
                path.rename(kept)
        return kept

    def note(self, step: str, **facts: object) -> None:
        """Append to the journal, durably."""
        entry = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "step": step, **facts}
        Journal(self.journal, _is_entry).append([entry])

    def history(self) -> list[dict[str, Any]]:
        """Return the entries of the migration's journal, oldest first."""
        return [entry for entry in read_lines(self.journal, _is_entry) if entry is not None]

    @contextmanager
    def held(self, *, begin: bool = False) -> Iterator[None]:
        """Lock the workspace against other commands while the block runs; tasks take no lock.

        The folder is created only with ``begin``, and removed again if the block leaves it empty.

        Raises:
            RefusedStoreError: the folder does not exist, and ``begin`` is not set.
            StoreLockedError: another command is using the workspace.
            CorruptionError: the journal is damaged; raised before anything is done.
            StoreIOError: the folder cannot be created.
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
