"""FileExpiry: log files go when they are old, or when the disk asks for it.

Old ones at the hours of ``deleteWhen``, at any hour where the disk is fuller than
``diskMaxUsedSpaceRatio``, and those that are not old where it is fuller still. The last file never
goes, and a file whose records are being read stays with its readers until they let go.

Source: RocketMQ ``DefaultMessageStore.CleanCommitLogService``, ``MappedFileQueue.
deleteExpiredFileByTime``.
"""

import logging
import threading
from collections.abc import Callable

from store.config import StoreConfig
from store.errors import StoreError, StoreIOError, os_errors
from store.log.commit_log import CommitLog
from store.log.mapped_file import MappedFile
from store.service.cleaning.clean_service import ExpiryReport
from store.service.cleaning.disk_levels import DiskLevels
from store.service.surroundings import Surroundings
from store.service.worker import Worker

_LOG = logging.getLogger(__name__)
FIRST_RUN_SECONDS = 60
MANUAL_RUNS = 20
"""Runs that one call of ``delete_files_manually`` lasts."""
_HOUR = 3600


class FileExpiry:
    """Runs every ``clean_resource_interval`` in a thread of its own.

    ``delete`` deletes up to a phy offset; ``full`` is told why nothing may be written any more,
    and an empty string when it may again, ``failed`` what ended the thread unexpectedly.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        levels: DiskLevels,
        surroundings: Surroundings,
        delete: Callable[[int], ExpiryReport],
        full: Callable[[str], None],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._config = config
        self._log = log
        self._levels = levels
        self._surroundings = surroundings
        self._delete = delete
        self._full = full
        self._manual_runs = 0
        self._retry_at = 0.0
        self._stop = threading.Event()
        self._thread = Worker("cqstore-expiry", self._run, failed)

    def start(self) -> None:
        """Start the thread; its first run is a minute away."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a deletion that is under way comes to its end."""
        self._stop.set()
        self._thread.end()

    def delete_manually(self) -> None:
        """Let the next 20 runs delete what is old, whatever the hour."""
        self._manual_runs = MANUAL_RUNS

    def run(self) -> int:
        """Look once and delete at most ``delete_file_batch_max`` files; return how many.

        Raises:
            StoreError: the store has failed or is closed.
        """
        config, surroundings = self._config, self._surroundings
        demand = self._levels.demand()
        self._full(demand.full)
        manual, self._manual_runs = self._manual_runs > 0, max(self._manual_runs - 1, 0)
        if not (surroundings.local_hour() in config.delete_hours or demand.delete or manual):
            return 0
        if surroundings.now() < self._retry_at:
            return 0
        at_once = demand.at_once and config.clean_file_forcibly_enable
        deleted = 0
        for file in self._log.files.files()[:-1][: config.delete_file_batch_max]:
            if not (at_once or self._is_old(file)):
                break
            if deleted and surroundings.wait(
                self._stop, config.delete_commit_log_files_interval / 1000
            ):
                break
            report = self._delete(file.file_from_offset + file.file_size)
            if report.fault is not None:
                self._retry_at = surroundings.now() + config.redelete_hanged_file_interval / 1000
                _LOG.warning("an expired log file stays and is tried again: %s", report.fault)
                break
            deleted += report.log_files
        if deleted:
            reason = "the disk is nearly full" if at_once else "expired"
            _LOG.info("%d commit log files deleted: %s", deleted, reason)
        return deleted

    def _is_old(self, file: MappedFile) -> bool:
        with os_errors("look at a commit log file", file.path):
            written = file.path.stat().st_mtime
        return self._surroundings.now() >= written + self._config.file_reserved_time * _HOUR

    def _run(self) -> None:
        seconds: float = FIRST_RUN_SECONDS
        while not self._surroundings.wait(self._stop, seconds):
            seconds = self._config.clean_resource_interval / 1000
            try:
                self.run()
            except StoreIOError as exc:
                _LOG.warning("expired files could not be looked at: %s", exc)
            except StoreError as exc:  # nothing can be deleted any more
                _LOG.warning("no files are deleted any more: %s", exc)
                return
