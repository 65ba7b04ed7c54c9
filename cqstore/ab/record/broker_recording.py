"""BrokerRecording: records what a running broker does, from its log and its consumer offsets."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cqstore.ab.record.group_progress import OffsetTable
from cqstore.ab.record.log_tap import LogTap
from cqstore.ab.record.missing import Ending
from cqstore.ab.record.names import Names
from cqstore.ab.record.recorded_lines import LAST_LINE_BYTES, RecordedLines
from cqstore.ab.trace.operation_lines import MASTER, first_line
from cqstore.ab.trace.trace_output import TraceOutput
from cqstore.broker.metadata.lmq_offsets import LMQ_TABLE
from cqstore.replication.endpoint import reason_of
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.synchronize.broker_client import BrokerClient
from cqstore.replication.synchronize.broker_requests import consumer_offsets, log_end
from cqstore.store.errors import StoreError, StoreIOError, os_errors
from cqstore.store.record.decoder import StoredMessage

_GRACE_SECONDS = 15.0
"""Maximum time to wait for puts that were stored before the end."""
_TURN_SECONDS = 0.1
_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """What to record, from where and for how long."""

    master: MasterPort
    broker: tuple[str, int] | None
    """Address of the broker that has the consumer offsets; ``None``: record no pulls."""
    path: Path
    seconds: float
    max_bytes: int
    poll_seconds: float = 5.0
    names: Names = field(default_factory=Names)
    timing: Timing = field(default_factory=Timing)
    grace_seconds: float = _GRACE_SECONDS


class BrokerRecording:
    """One recording: ``begin``, then ``run``, then ``end``, in one event loop and its block."""

    def __init__(self, plan: RecordingPlan, on_event: Callable[[str], object]) -> None:
        self._plan, self._on_event = plan, on_event
        self._tap = LogTap(plan.master, plan.timing, self._receive, on_event)
        self._client = None if plan.broker is None else BrokerClient(
            *plan.broker, answer_seconds=_ANSWER_SECONDS
        )  # fmt: skip
        self._output: TraceOutput
        self._lines: RecordedLines
        self._failed_polls, self._poll_fault = 0, ""
        self._is_behind, self._is_over = True, False

    async def __aenter__(self) -> Self:
        """Return the recording; nothing is connected yet."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connection to the broker."""
        if self._client is not None:
            await self._client.__aexit__(None, None, None)

    async def begin(self) -> None:
        """Check both addresses, then create the trace.

        Raises:
            StoreError: an address does not answer as expected, or the file cannot be created.
        """
        await self._tap.check()
        offsets = None
        if self._client is not None:
            try:
                await log_end(self._client)  # refuses a slave, whose offsets are late
                offsets = await self._offsets(self._client)
            except OSError as exc:
                where = f"{self._client.host}:{self._client.port}"
                raise StoreIOError(f"{where} (--broker): {reason_of(exc)}") from exc
        plan, began_ms = self._plan, int(time.time() * 1000)
        first = first_line(began_ms, MASTER)
        self._output = TraceOutput(plan.path, plan.max_bytes, first, LAST_LINE_BYTES)
        self._lines = RecordedLines(self._output, plan.names, began_ms, plan.seconds, offsets)

    async def run(self, on_second: Callable[[int], object]) -> None:
        """Record until the end; ``on_second`` is called with the seconds that have passed.

        Raises:
            CorruptionError: the master's bytes are not a log.
            StoreIOError: the trace cannot be written.
        """
        tasks = [
            asyncio.create_task(self._tap.run()),
            asyncio.create_task(self._poll_again_and_again()),
            asyncio.create_task(self._wait(on_second)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
        await self._poll()
        self._is_over = True

    def end(self) -> Ending:
        """Write the last line and close the file; return what is missing.

        Raises:
            StoreIOError: the file cannot be written or synced.
        """
        lines, progress = self._lines, self._lines.progress
        ending = Ending(
            counts=lines.counts, seconds=self._plan.seconds,
            stopped_at=None if self._is_over else max(lines.seconds(), 0.0),
            is_behind=self._is_behind, lost_bytes=self._tap.lost_bytes,
            resets=progress.resets if progress else 0,
            newcomers=progress.newcomers if progress else 0, failed_polls=self._failed_polls,
        )  # fmt: skip
        try:
            lines.end([*ending.missing(), *ending.limits()])
        finally:
            with os_errors("write the trace", self._plan.path):
                self._output.close()
        return ending

    def facts(self) -> dict[str, object]:
        """Return the size of the recording."""
        counts = self._lines.counts
        return {
            "trace": str(self._plan.path), "puts": counts.puts, "pulls": counts.pulls,
            "bytes": self._output.total_bytes,
        }  # fmt: skip

    # ---- tasks

    def _receive(self, records: Sequence[StoredMessage]) -> None:
        self._lines.put(records)

    async def _wait(self, on_second: Callable[[int], object]) -> None:
        """Wait for the end: the time is over and all its puts have arrived, or the file is full."""
        plan, lines = self._plan, self._lines
        end = time.monotonic() + plan.seconds - lines.seconds()
        while not self._output.full and (now := time.monotonic()) < end + plan.grace_seconds:
            if now >= end and (lines.is_past or self._tap.quiet_at >= end):
                self._is_behind = False
                return
            on_second(round(min(lines.seconds(), plan.seconds)))
            await asyncio.sleep(_TURN_SECONDS)

    async def _poll_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._plan.poll_seconds)
            await self._poll()

    async def _poll(self) -> None:
        """Request the consumer offsets once, and write the pulls since the last request."""
        if self._client is None:
            return
        try:
            offsets = await self._offsets(self._client)
        except (OSError, StoreError) as exc:
            self._failed_polls += 1
            if reason_of(exc) != self._poll_fault:
                self._poll_fault = reason_of(exc)
                self._on_event(f"{self._poll_fault}; retrying")
            return
        self._poll_fault = ""
        self._lines.consumed(offsets)

    @staticmethod
    async def _offsets(client: BrokerClient) -> OffsetTable:
        found = await consumer_offsets(client)
        return {
            **found["offsetTable"],
            **{key: {"0": offset} for key, offset in (found.get(LMQ_TABLE) or {}).items()},
        }
