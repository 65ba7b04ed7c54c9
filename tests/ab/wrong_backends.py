"""Backends that are wrong on purpose, and the distribution that makes them known."""

import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cqstore.cq_file.named_queue import NamedFileQueue
from cqstore.store.queue.consume_queue import PulledUnits
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.units import BlockStop, QueueKey, UnitBlock
from tests.kit import other_files
from tests.kit.other_files import OtherFiles

LOST = (QueueKey("topic_000001", 2), 5)
"""Queue and offset of the unit that a losing backend loses, of ``tools.bench.sample_store``."""
WRONG_AT = 1000
"""One in so many pulls is answered wrongly."""


class _WrongQueue(NamedFileQueue):
    """A queue whose pulls are as wrong as its reads."""

    __slots__ = ()

    def fast_units(self, queue_offset: int, max_count: int) -> None:
        """Keep the core from reading the files itself: its answers are right."""
        _ = queue_offset, max_count

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        low, high, block = super().pull(queue_offset, max_count)
        if block is not None and low <= queue_offset < high:
            block = self.read_units(queue_offset, min(max_count, high - queue_offset))
        return PulledUnits(low, high, block)


class _LyingQueue(_WrongQueue):
    __slots__ = ()

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        low, high, block = super().pull(queue_offset, max_count)
        # At random: the process of a round has too few pulls to count a thousand of them.
        lies = queue_offset + 1 < high and not random.randrange(WRONG_AT)
        return PulledUnits(low, high - lies, block)


class Lying(OtherFiles):
    """One pull in a thousand finds the queue a unit shorter than it is."""

    name = "lying"

    def queue(self, topic: str, queue_id: int) -> NamedFileQueue:
        return _LyingQueue(self._table, self.context, topic, queue_id)


class _LosingQueue(_WrongQueue):
    __slots__ = ()

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        (queue, lost) = LOST
        if queue != self.key or not queue_offset <= lost < queue_offset + max_count:
            return super().read_units(queue_offset, max_count)
        block = super().read_units(queue_offset, lost - queue_offset) \
            if lost > queue_offset else None  # fmt: skip
        data, stride = (bytes(block.data), block.stride) if block else (b"", 20)
        return UnitBlock(queue_offset, data, stride, BlockStop.HOLE, range(lost, lost + 1))


class Losing(OtherFiles):
    """One unit is not there."""

    name = "losing"

    def queue(self, topic: str, queue_id: int) -> NamedFileQueue:
        return _LosingQueue(self._table, self.context, topic, queue_id)


class Slow(OtherFiles):
    """Listings take a tenth longer."""

    name = "slow"

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        began = time.thread_time()
        found: Sequence[QueueSpan] = list(super().spans(topic, after))
        now = time.thread_time()
        while time.thread_time() < now + (now - began) / 10:
            pass
        return iter(found)


class Dying(OtherFiles):
    """Its process ends in the middle of a pull."""

    name = "dying"

    def queue(self, topic: str, queue_id: int) -> NamedFileQueue:
        if self._recovered and not self.context.read_only and topic == "":
            os._exit(3)
        return super().queue(topic, queue_id)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the backends known to this process and to those that it starts."""
    other_files.install(folder, monkeypatch, (OtherFiles, Lying, Losing, Slow, Dying))
