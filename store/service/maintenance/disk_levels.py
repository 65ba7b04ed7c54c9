"""DiskLevels: the disk usage, and the deletions and refusals that it requires.

Source: RocketMQ ``DefaultMessageStore.CleanCommitLogService.isSpaceToDelete``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cqstore.store.path_kind import is_dir
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.settings.config import StoreConfig


class DiskDemand(NamedTuple):
    """Deletions and refusals that the current disk usage requires."""

    delete: bool
    """Delete expired files at any hour."""
    at_once: bool
    """Delete the oldest files although they have not expired."""
    full: str
    """Why puts are refused, one sentence; empty if they are accepted."""
    log_percent: int
    """Disk usage of the commit log in percent; -1: unknown."""
    queues_percent: int


class DiskPercents(NamedTuple):
    """The effective levels: the settings, within RocketMQ's limits."""

    max_used: int
    clean_forcibly: int
    warning_level: int

    @classmethod
    def of(cls, config: StoreConfig) -> "DiskPercents":
        """Return the levels of a store with these settings."""
        return cls(
            min(max(config.disk_max_used_space_ratio, 10), 95),
            min(max(config.disk_space_clean_forcibly_ratio, 30), 85),
            min(max(config.disk_space_warning_level_ratio, 35), 90),
        )


class DiskLevels:
    """Three levels: delete expired files, delete files early, refuse all writes."""

    def __init__(
        self, config: StoreConfig, environment: Environment, log: Sequence[Path], queues: Path
    ) -> None:
        """``log``: folders of the commit log; the disk with the lowest usage counts."""
        self._environment = environment
        self._log = log
        self._queues = queues
        self._levels = DiskPercents.of(config)

    def full_log_folders(self) -> list[Path]:
        """Return the folders of the log whose disk is so full that files are deleted early."""
        level, used_percent = self._levels.clean_forcibly, self._environment.used_percent
        return [folder for folder in self._log if used_percent(folder) > level]

    def demand(self) -> DiskDemand:
        """Return what to delete, and whether puts are accepted, from the current disk usage."""
        levels, used_percent = self._levels, self._environment.used_percent
        log = min(used_percent(folder) for folder in self._log)
        queues = used_percent(self._queues if is_dir(self._queues) else self._queues.parent)
        full = ""
        for what, percent in (("commit log", log), ("queues", queues)):
            if percent > levels.warning_level:
                full = (
                    f"the disk of the {what} is {percent} % full: puts are refused above"
                    f" {levels.warning_level} % (diskSpaceWarningLevelRatio)"
                )
        at_once = max(log, queues) > levels.clean_forcibly
        unknown = min(log, queues) < 0
        any_hour = at_once or unknown or max(log, queues) > levels.max_used
        return DiskDemand(any_hour, at_once, full, log, queues)
