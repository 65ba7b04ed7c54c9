"""BrokerProcess: waits until the process that had a broker's store open has ended.

A broker may release its store before it writes its tables, as RocketMQ 5.3.3 does. The tables are
complete only when the process has ended.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

from cqstore.broker.conversion.table_files import newest_table
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.paths import StorePaths
from cqstore.store.progress import OnEvent

_POLL_SECONDS = 0.05
_MAX_WAIT_SECONDS = 600.0
_SETTLE_SECONDS = 30.0
"""Seconds for which the tables must be unchanged if the process is unknown."""
_START_TIME = 19
"""Index of the start time among the fields after the program name in ``/proc/PID/stat``."""


class BrokerProcess:
    """The process on this machine that has, or had, the store open. One thread."""

    def __init__(
        self,
        paths: StorePaths,
        *,
        max_wait_seconds: float | None = None,
        settle_seconds: float | None = None,
    ) -> None:
        """Prepare to watch the store at ``paths``; nothing is read yet."""
        self._paths = paths
        self._max_wait = _MAX_WAIT_SECONDS if max_wait_seconds is None else max_wait_seconds
        self._settle = _SETTLE_SECONDS if settle_seconds is None else settle_seconds
        self._pid = 0
        self._start = ""

    def has_store(self) -> bool:
        """Return whether a process has the store open, and record which one.

        Raises:
            StoreIOError, CorruptionError: see ``locked_by``.
        """
        pid = locked_by(self._paths)
        if pid:
            self._pid, self._start = pid, _start_time(pid)
        return pid != 0

    async def ended(self, on_event: OnEvent) -> None:
        """Wait in an event loop, see ``wait``."""
        for _ in self._polls(on_event):
            await asyncio.sleep(_POLL_SECONDS)

    def wait(self, on_event: OnEvent) -> None:
        """Wait until the process that had the store open last has ended.

        If the process was never seen, or runs on another machine, wait until the tables have not
        changed for a while.

        Raises:
            RefusedStoreError: the process did not end within the maximum wait.
            StoreError: see ``has_store``.
        """
        for _ in self._polls(on_event):
            time.sleep(_POLL_SECONDS)

    def _polls(self, on_event: OnEvent) -> Iterator[None]:
        """Yield each time the caller must sleep before the next check."""
        if self._pid == os.getpid():  # the caller is responsible for its own tables
            return
        if not self._start:
            yield from self._settled(on_event)
            return
        end = time.monotonic() + self._max_wait
        if self._is_running():
            on_event(f"waiting for process {self._pid} to exit: it may still write its tables")
        while self._is_running():
            self.has_store()  # it may have been restarted
            if time.monotonic() > end:
                raise RefusedStoreError(
                    f"process {self._pid} has released the store but did not exit within"
                    f" {self._max_wait:.0f} s: it may still write its tables. Stop the process,"
                    " then try again",
                    path=self._paths.root,
                )
            yield

    def _is_running(self) -> bool:
        return _start_time(self._pid) == self._start

    def _settled(self, on_event: OnEvent) -> Iterator[None]:
        """Yield until the newest table is old enough, measured with this machine's clock."""
        newest, since = newest_table(self._paths), time.monotonic()
        age = time.time() - newest if newest is not None else self._settle
        if age >= self._settle:
            return
        on_event(
            "the process that had the store open is unknown: waiting until the broker's tables"
            f" have not changed for {self._settle:.0f} s"
        )
        end = since + self._max_wait
        while True:
            looked, now = time.monotonic(), newest_table(self._paths)
            if now != newest:
                newest, since = now, looked
            elif looked - since >= self._settle:
                return
            if looked > end:
                raise RefusedStoreError(
                    f"the broker's tables still change after {self._max_wait:.0f} s although the"
                    " store is not open. Stop the process that writes them, then try again",
                    path=self._paths.config,
                )
            yield


def _start_time(pid: int) -> str:
    """Return the start time of a process; empty if it does not exist on this machine.

    A zombie process counts as ended, because it writes nothing more.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[_START_TIME]
