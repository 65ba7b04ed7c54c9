"""Scanned records noted one by one, in Python: the core's ``ReplayBatcher`` notes the same."""

from collections.abc import Iterator
from typing import Any

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.scan import ScannedRecord
from cqstore.store.service.dispatching.replay import Replay, ReplayResult


def replay_by_oracle(replay: Replay) -> None:
    """Let the oracle fill the batches of ``replay`` from here on."""
    replay._fill = OneByOne(replay).fill


class OneByOne:
    """As ``ReplayBatcher``; each record goes the way of those that are not plain."""

    def __init__(self, replay: Replay) -> None:
        self._note = replay._batcher._note
        self._blocks: Iterator[Any] = iter(())
        self._records: Iterator[ScannedRecord] = iter(())

    def fill(
        self,
        blocks: Iterator[Any],
        result: object,
        units: UnitBatch,
        keys: IndexBatch,
        queues_from: int,
        index_from: int | None,
        full_at: int,
    ) -> bool:
        """Note records until ``full_at`` units wait; return whether there may be more."""
        assert isinstance(result, ReplayResult)
        if blocks is not self._blocks:
            self._blocks, self._records = blocks, _records(blocks)
        for record in self._records:
            result.note_several(record, record, 1)
            self._note(record, units, keys, queues_from, index_from)
            if len(units) >= full_at:
                return True
        return False


def _records(blocks: Iterator[Any]) -> Iterator[ScannedRecord]:
    for block in blocks:
        if isinstance(block, ScannedRecord):
            yield block
        else:
            yield from block
