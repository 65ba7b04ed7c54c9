"""Compiled code that takes nothing: what it is asked goes the way of what is odd, in Python."""

from typing import Any

from cqstore.store.index.index_file import IndexFile
from cqstore.store.queue.units import UnitBatch


class Declines:
    """In the place of ``FastQuery`` and ``FileUnits``: no question is plain."""

    def query(self, *_: object) -> None:
        """Answer no query."""

    def fast_units(self, *_: object) -> None:
        """Read no units."""

    def search(self, *_: object) -> None:
        """Find no time."""


class DeclinesAppends:
    """In the place of ``FileAppends``: all units are left."""

    def append(self, batch: UnitBatch, held_back: object) -> bytearray:
        """Write nothing; every queue of the batch is left."""
        _ = held_back
        return bytearray(b"\1" * len(batch.queues))


def decline_walks(patch: Any) -> None:
    """Have chains of index files walked in Python; ``patch`` is a ``pytest.MonkeyPatch``."""
    patch.setattr(IndexFile, "_walk", lambda *_: None)
