"""Runs a follower and its metadata replication until the end, and reports progress."""

import asyncio
import contextlib
import signal
import time

from cqstore.cli.options import note
from cqstore.replication.follow.blocking import to_the_end
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Until
from cqstore.replication.signals import ended_by
from cqstore.replication.synchronize.slave_synchronize import SlaveSynchronize
from cqstore.store.errors import StoreError
from cqstore.store.journals.following import write_following
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_NOTE_SECONDS = 2.0


def followed(
    store: MessageStore,
    follower: Follower,
    beside: SlaveSynchronize | None,
    until: Until,
    interval: float,
) -> tuple[signal.Signals | None, dict[str, object]]:
    """Follow until ``until`` returns True or a signal arrives; return signal and results."""
    log, progress = components_of(store).log, follower.progress
    begin, is_new = log.max_phy_offset(), log.min_phy_offset() < 0
    ended = asyncio.run(_run(follower, beside, until, store, interval))
    return ended, {
        "from": max(log.min_phy_offset(), 0) if is_new else begin,
        "end": progress.end, "records": log.appended_records,
        "connections": progress.connections, "caughtUp": progress.caught_up,
    }  # fmt: skip


async def _run(
    follower: Follower,
    beside: SlaveSynchronize | None,
    until: Until,
    store: MessageStore,
    interval: float,
) -> signal.Signals | None:
    """Follow until ``until`` returns True or a signal arrives; return the signal."""
    others = [
        asyncio.create_task(_report_progress(follower, store, interval)),
        asyncio.create_task(_note(follower, store)),
    ]
    if beside is not None:
        others.append(asyncio.create_task(beside.run()))
    try:
        signal_received = await ended_by(follower.run(until))
    finally:
        for other in others:
            other.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await other
    if beside is not None and not signal_received:
        await beside.once()  # so that the metadata is as new as the end of the log
    with contextlib.suppress(StoreError):
        write_following(components_of(store).paths, follower.figures())
    return signal_received


async def _report_progress(follower: Follower, store: MessageStore, interval: float) -> None:
    """Print the progress every ``interval`` seconds, if it has changed."""
    before, printed = follower.progress.end, ""
    while True:
        await asyncio.sleep(interval)
        progress = follower.progress
        line = line_of(progress, (progress.end - before) / interval, _age(store))
        if progress.end != before or line != printed:
            note(line)
        before, printed = progress.end, line


async def _note(follower: Follower, store: MessageStore) -> None:
    """Record the progress periodically in a file, for ``cqstore top`` in another process."""
    reported = ""
    while True:
        try:
            await to_the_end(write_following, components_of(store).paths, follower.figures())
        except StoreError as exc:
            if str(exc) != reported:
                reported = str(exc)
                note(f"cannot record the progress for cqstore top: {exc}")
        await asyncio.sleep(_NOTE_SECONDS)


def line_of(progress: FollowerProgress, bytes_per_second: float, age_seconds: float | None) -> str:
    """Return the progress of a follower as one line.

    A master does not send the end of its log; it only signals that it has nothing more to send.
    The end is known if a broker is queried for it.
    """
    line = f"replicated up to {progress.end}"
    if progress.caught_up:
        return f"{line}: lag 0 bytes"
    if age_seconds is not None:
        line += f", {bytes_per_second:,.0f} bytes/s"
        if progress.lag_bytes is not None:
            line += f", lag {progress.lag_bytes:,} bytes"
        line += f", last record stored {age_seconds:.1f} s ago"
    return line if progress.connected else f"{line}; not connected"


def _age(store: MessageStore) -> float | None:
    stored = components_of(store).log.followed_timestamp
    return max(time.time() - stored / 1000, 0) if stored else None
