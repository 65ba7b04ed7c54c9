"""ScanPlan: log files and rules of each task of a scan; a file of the workspace.

The results of a scan are kept until the plan is made: a scan of the same log with the same settings
continues where it was stopped.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cqstore.migration.markers import MAX_PLAN_BYTES, make_marker, read_marker
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import is_dir
from cqstore.store.settings.config import StoreConfig


class ScanPlan(BaseModel):
    """Input of the tasks of a scan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: str
    """Identity of the store, as in ``Plan``."""
    settings: dict[str, Any]
    log_folders: list[str]
    ranges: list[list[int]]
    """For each task, the start phy offsets of its log files, which are consecutive."""
    deleted_topics: str
    """Path of the journal of deleted topics."""
    deleted_digest: str
    """BLAKE2b of the journal, to detect changes."""
    target: str
    """The backend that the queues are for."""
    whole_only: bool
    """The log was not closed cleanly."""

    @property
    def config(self) -> StoreConfig:
        """Return the settings."""
        return StoreConfig.from_mapping(self.settings)


@dataclass(slots=True)
class ScanDone:
    """Result of one task of the scan; the content of its marker."""

    task: int
    attempt: str
    end: int
    """Phy offset after its last record; after a blank record, the end of its last file."""
    fault: str = ""
    """Why no record starts at ``end``; empty if its last file is full."""
    records: int = 0
    units: int = 0
    seconds: float = 0.0
    digest: str = ""
    """Digest of the index of its blocks."""
    files: dict[str, int] = field(default_factory=dict)


class ScanSpace:
    """The files of a scan of the log, in the workspace of a migration."""

    def __init__(self, workspace: Workspace) -> None:
        self.root = workspace.root / "blocks"
        self.plan = self.root / "scan.json"
        self.merged = self.root / "merged"

    def attempt(self, task: int, attempt: str) -> Path:
        """Return the folder of one attempt at a task."""
        return self.root / f"{task:06d}.{attempt}"

    def done(self, task: int) -> Path:
        """Return the marker of a finished task."""
        return self.root / f"{task:06d}.done"

    def read_plan(self) -> ScanPlan:
        """Return the plan of the scan.

        Raises:
            CorruptionError: it is not a valid plan.
        """
        with os_errors("read the plan of a scan", self.plan):
            text = read_file(self.plan, MAX_PLAN_BYTES)
        try:
            return ScanPlan.model_validate_json(text)
        except (ValueError, ValidationError) as exc:
            raise CorruptionError("not a valid plan of a log scan", path=self.plan) from exc

    def read_done(self, task: int) -> ScanDone | None:
        """Return the marker of a task if its files exist, else ``None``."""
        try:
            done = ScanDone(**read_marker(self.done(task)))
        except (OSError, CorruptionError, ValueError, TypeError):
            return None
        return done if sizes_in(self.attempt(task, done.attempt)) == done.files else None

    def mark(self, done: ScanDone) -> bool:
        """Create the marker; return whether this attempt was the first."""
        other = make_marker(
            self.done(done.task), done.attempt, done, lambda: self.read_done(done.task)
        )
        return other is None


def sizes_in(folder: Path) -> dict[str, int]:
    """Return names and bytes of the files in ``folder``."""
    if not is_dir(folder):
        return {}
    return {entry.name: entry.stat().st_size for entry in os.scandir(folder)}
