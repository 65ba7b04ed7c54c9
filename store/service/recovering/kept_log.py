"""KeptLog: the log of a stopped broker of a set, in an open that moves its queues.

The brokers of a set keep their logs equal, byte by byte, and a controller's brokers compare them by
``epochFileCheckpoint``. So the recovery reads such a log, and refuses what it would have to change.

Source: RocketMQ ``AutoSwitchHAClient.doTruncate``.
"""

from collections.abc import Collection

from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.journals.begun_cut import begun_cut
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.service.recovering.find_log_end import data_behind
from cqstore.store.service.recovering.recovery_report import RecoveryReport


class KeptLog:
    """The log of one store, which a recovery must not change."""

    def __init__(
        self, paths: StorePaths, log: CommitLog, writer: str, report: RecoveryReport
    ) -> None:
        """``writer``: why it must not be changed, for errors."""
        self._paths = paths
        self._log = log
        self._writer = writer
        self._report = report

    def refuse_changes(self, cut_at: int | None, pass_over: Collection[int]) -> None:
        """Refuse a requested change of the log, also one that an earlier open did not finish.

        Raises:
            RefusedStoreError: a change was requested.
        """
        if cut_at is not None or pass_over or begun_cut(self._paths) is not None:
            self._refuse("a cut of the log was requested", cut_at)
        if exists(self._paths.passing_over):
            self._refuse("a skip of a damaged record is not finished", None)

    def refuse_damage(self, phy_offset: int, fault: CorruptionError | None, damage: str) -> None:
        """Refuse a log with ``fault`` at ``phy_offset``; ``damage``: what a cut there would lose.

        Raises:
            RefusedStoreError: always.
        """
        found = fault.reason if fault is not None else "no record"
        self._refuse(
            f"the log is damaged ({found}) and {damage}. Move the store away and start its broker,"
            " which receives the log from the master again",
            phy_offset,
        )

    def set_end(self, phy_offset: int) -> None:
        """Set the end of the log in memory.

        After a clean stop, RocketMQ may have left bytes after it. After a crash, its broker must
        decide about them.

        Raises:
            RefusedStoreError: there are such bytes, and the store was not closed cleanly.
        """
        if not self._report.last_exit_ok and data_behind(self._log, phy_offset):
            self._refuse(
                "the store was not closed cleanly, and its log has a torn end: start its broker,"
                " which recovers the store, and stop it again",
                phy_offset,
            )
        self._log.set_end(phy_offset)
        self._log.files.is_end_known = True

    def _refuse(self, reason: str, phy_offset: int | None) -> None:
        raise RefusedStoreError(
            f"{reason}; the log is not written: {self._writer}", path=self._paths.commit_log,
            phy_offset=phy_offset,
        )  # fmt: skip
