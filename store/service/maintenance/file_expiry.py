"""FileExpiry: deletes log files when they are old, or when the disk is too full.

Old files are deleted at the hours of ``deleteWhen``, or at any hour if the disk usage exceeds
``diskMaxUsedSpaceRatio``; other files if it is higher still. The last file is never deleted, and a
file whose records are being read stays with its readers until they release it.

Source: RocketMQ ``DefaultMessageStore.CleanCommitLogService``,
``MappedFileQueue.deleteExpiredFileByTime``.
"""

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreError, StoreIOError, os_errors
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.maintenance.clean_service import ExpiryReport
from cqstore.store.service.maintenance.disk_levels import DiskDemand, DiskLevels
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)
FIRST_RUN_SECONDS = 60
MANUAL_RUNS = 20
"""Number of runs for which one call of ``delete_files_manually`` is effective."""
_HOUR = 3600


class FileOutlook(NamedTuple):
    """Whether a log file will be deleted, and why."""

    file_from_offset: int
    file_size: int
    written: float
    """Time of the last write, seconds since the epoch."""
    goes: bool
    early: bool
    """The file is deleted before ``fileReservedTime``."""
    reason: str
    """Why the file is deleted or kept."""

    @property
    def end(self) -> int:
        """Return the phy offset after the file."""
        return self.file_from_offset + self.file_size


class FileExpiry:
    """Deletes due files every ``clean_resource_interval``, in its own thread.

    ``delete`` deletes up to a phy offset. ``full`` is called with the reason for refusing writes,
    with an empty string when they are accepted again; ``failed`` with the exception that ended the
    thread unexpectedly.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        levels: DiskLevels,
        environment: Environment,
        delete: Callable[[int], ExpiryReport],
        full: Callable[[str], None],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._config = config
        self._log = log
        self._levels = levels
        self._environment = environment
        self._delete = delete
        self._full = full
        self._manual_runs = 0
        self._retry_at = 0.0
        self._stop = Latch()
        self.worker = Worker("cqstore-expiry", self._run, failed)

    def start(self) -> None:
        """Start the thread; its first run is after a minute."""
        self.worker.start()

    def stop(self) -> None:
        """End the thread; a deletion in progress completes."""
        self._stop.set()
        self.worker.end()

    def delete_manually(self) -> None:
        """Make the next 20 runs delete old files, whatever the hour."""
        self._manual_runs = MANUAL_RUNS

    def run(self) -> int:
        """Check once and delete at most ``delete_file_batch_max`` files; return how many.

        Deletes none outside of ``delete_hours``, unless a disk is nearly full or a manual deletion
        was requested, and none within ``redelete_hanged_file_interval`` of a failed one. A file
        that cannot be deleted is not an error: it is logged, and ends this run.

        Raises:
            StoreIOError: a file's status cannot be read.
            StoreError: the store has failed or is closed.
        """
        config, environment = self._config, self._environment
        demand = self._levels.demand()
        self._full(demand.full)
        manual, self._manual_runs = self._manual_runs > 0, max(self._manual_runs - 1, 0)
        if not (environment.local_hour() in config.delete_hours or demand.delete or manual):
            return 0
        if environment.now() < self._retry_at:
            return 0
        deleted = early = 0
        due = takewhile(attrgetter("goes"), self._outlook(demand))
        for file in islice(due, config.delete_file_batch_max):
            if deleted and environment.wait(
                self._stop, config.delete_commit_log_files_interval / 1000
            ):
                break
            report = self._delete(file.end)
            if report.fault is not None:
                self._retry_at = environment.now() + config.redelete_hanged_file_interval / 1000
                _LOG.warning("cannot delete an expired log file, will retry: %s", report.fault)
                break
            deleted += report.log_files
            early += file.early
        if deleted:
            _LOG.info(
                "%d commit log files deleted, %d of them before fileReservedTime", deleted, early
            )
        return deleted

    def outlook(self) -> tuple[DiskDemand, list[FileOutlook]]:
        """Return the disks' demand, and what a manual deletion would do with each file now.

        This is the result of ``run`` at one of the hours: old files are deleted, and of the others
        as many as one run may delete. Changes nothing.

        Raises:
            StoreIOError: a file's status cannot be read.
        """
        demand = self._levels.demand()
        return demand, list(self._outlook(demand))

    def _outlook(self, demand: DiskDemand) -> Iterator[FileOutlook]:
        """Yield the files in order; after a file that stays, all others stay."""
        reserved, now = self._config.file_reserved_time, self._environment.now()
        left = self._config.delete_file_batch_max if self._is_forced(demand) else 0
        files, goes = self._log.files.files(), True
        for number, file in enumerate(files, 1):
            with os_errors("inspect a commit log file", file.path):
                written = file.path.stat().st_mtime
            old, early = now >= written + reserved * _HOUR, False
            if not goes:
                reason = "an earlier file is kept"
            elif number == len(files):
                goes, reason = False, "the last file is never deleted"
            elif old:
                reason = f"not written for {reserved} hours (fileReservedTime)"
            elif early := left > 0:
                reason = "the disk is nearly full (diskSpaceCleanForciblyRatio)"
            else:
                goes, reason = False, f"written within {reserved} hours (fileReservedTime)"
            left -= early
            yield FileOutlook(file.file_from_offset, file.file_size, written, goes, early, reason)

    def _is_forced(self, demand: DiskDemand) -> bool:
        return demand.at_once and self._config.clean_file_forcibly_enable

    def _run(self) -> None:
        """Run once per interval, until the end."""
        seconds: float = FIRST_RUN_SECONDS
        while not self._environment.wait(self._stop, seconds):
            seconds = self._config.clean_resource_interval / 1000
            try:
                self.run()
            except StoreIOError as exc:
                _LOG.warning("cannot check for expired files: %s", exc)
            except StoreError as exc:  # no more deletions are possible
                _LOG.warning("expired files are no longer deleted: %s", exc)
                return
