"""ScanPlan: log files and rules of each task of a scan; a file of the workspace.

The results of a scan are kept until the plan is made: a scan of the same log with the same settings
continues where it was stopped.
"""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cqstore.migration.markers import MAX_PLAN_BYTES, Attempts
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file
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


class ScanSpace(Attempts[ScanDone]):
    """The files of a scan of the log, in the workspace of a migration."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace.root / "blocks", ScanDone)
        self.plan = self.root / "scan.json"
        self.merged = self.root / "merged"

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
