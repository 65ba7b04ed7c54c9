"""Pending timer messages: in the timer queue, and in the slots of the timer wheel.

The broker copies messages from queue 0 of ``rmq_sys_wheel_timer`` to its timer log, and counts them
in the slot of their time. ``config/timercheck`` contains its positions.

Source: RocketMQ ``TimerMessageStore``, ``TimerWheel``, ``Slot``, ``TimerCheckpoint``.
"""

from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from cqstore.broker.metadata.config_files import TIMER_CHECK_POINT, TimerCheck
from cqstore.broker.pending.pending_parts import PendingPart, PendingSource
from cqstore.store.broker_files.file_names import TIMER_CHECK_BYTES, TIMER_CHECK_FILE, TIMER_WHEEL
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import matching
from cqstore.store.paths import StorePaths
from cqstore.store.queue.facts import known_time
from cqstore.store.record.layout import Layout, Wire
from cqstore.store.record.message import TIMER_TOPIC
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_SLOTS = 2 * 7 * 24 * 3600


class TimerSlot(NamedTuple):
    """The messages of one point in time."""

    time: Annotated[int, Wire("q", "due time, in units of `timerPrecisionMs`")]
    first_pos: Annotated[int, Wire("q", "first message in the timer log")]
    last_pos: Annotated[int, Wire("q", "last message; each refers to the previous one")]
    num: Annotated[int, Wire("i", "messages, minus cancelled ones")]
    magic: Annotated[int, Wire("i", "not read")]


TIMER_SLOT = Layout(TimerSlot)


def timer_parts(store: MessageStore, taken: int, precision: int, now: int) -> list[PendingPart]:
    """Return the pending messages of the wheel and of the queue; empty without a timer.

    ``taken``: queue offset below which messages have been moved to the database; ``precision`` is
    ``timerPrecisionMs``; ``now`` in ms.

    Raises:
        CorruptionError: the wheel or ``timercheck`` has the wrong size or an impossible slot.
        StoreError: the queue cannot be read.
    """
    low, high = components_of(store).queues.queue(TIMER_TOPIC, 0).ends()
    check = read_timer_check(components_of(store).paths)
    wheel = newest_wheel(store.root)
    if wheel is None and not high:
        return []
    position = min(max(low, taken, 0 if check is None else check.queue_offset), high)
    parts = [PendingPart(PendingSource.TIMER_QUEUE, 0, position, high, high - position)]
    if position < high:
        stored = components_of(store).queues.queue(TIMER_TOPIC, 0).unit_timestamp(position)
        parts[0].oldest = known_time(stored)
    if wheel is not None:
        found = PendingPart(PendingSource.TIMER, 0, position, high)
        delivered = 0 if check is None else check.last_read_time
        _add_slots(found, wheel, delivered // precision, precision, now)
        parts.append(found)
    return parts


def read_timer_check(paths: StorePaths) -> TimerCheck | None:
    """Return the broker's positions; ``None`` if the file does not exist.

    Raises:
        CorruptionError: the file is too short.
        StoreIOError: the file cannot be read.
    """
    path = paths.config / TIMER_CHECK_FILE
    with os_errors("read the timer checkpoint", path):
        try:
            data = read_file(path, TIMER_CHECK_BYTES)
        except FileNotFoundError:
            return None
    if len(data) < TIMER_CHECK_POINT.size:
        raise CorruptionError(
            "the timer checkpoint is truncated", path=path,
            expected=f"{TIMER_CHECK_POINT.size} bytes", got=f"{len(data)} bytes",
        )  # fmt: skip
    return TIMER_CHECK_POINT.unpack_from(data)


def newest_wheel(root: Path) -> Path | None:
    """Return the wheel file that was written last; it may be a snapshot, ``timerwheel.N``.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    with os_errors("find the timer wheel", root):
        names = [
            path
            for path in matching(root, f"{TIMER_WHEEL}*")
            if path.name == TIMER_WHEEL or path.suffix[1:].isdecimal()
        ]
        return max(names, key=lambda path: path.stat().st_mtime_ns, default=None)


def _add_slots(part: PendingPart, path: Path, delivered: int, precision: int, now: int) -> None:
    """Count the slots with times after ``delivered``, in units of ``precision`` ms."""
    size = _SLOTS * TIMER_SLOT.size
    with os_errors("read the timer wheel", path):
        data = read_file(path, size)
    if len(data) != size:
        raise CorruptionError(
            "the timer wheel is truncated", path=path,
            expected=f"{size} bytes", got=f"{len(data)} bytes",
        )  # fmt: skip
    slots = np.frombuffer(data, TIMER_SLOT.dtype)
    times = slots["time"].astype(np.int64)
    used = np.flatnonzero((slots["num"] > 0) & (times >= delivered))
    wrong = used[times[used] % _SLOTS != used]
    if len(wrong):
        at = int(wrong[0])
        raise CorruptionError(
            f"slot {at} of the timer wheel, at byte {at * TIMER_SLOT.size}, has an invalid time",
            path=path, expected=f"a time with remainder {at} modulo {_SLOTS}", got=int(times[at]),
        )  # fmt: skip
    if not len(used):
        return
    due, counts = times[used] * precision, slots["num"][used].astype(np.int64)
    part.pending = int(counts.sum())
    part.overdue = int(counts[due <= now].sum())
    part.first_due, part.last_due = int(due.min()), int(due.max())
