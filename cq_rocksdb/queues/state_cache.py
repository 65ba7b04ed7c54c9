"""StateCache: last and first unit of the queues in use, in a table of bounded size.

When all slots are taken, the CLOCK algorithm evicts a queue that was not used since the last pass
of its hand. About 130 bytes per queue with a 19-byte topic; nothing for queues that are not used.
"""

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_rocksdb.engine._states import StateTable

FIELDS = 4
UNKNOWN = -1
"""Value of all fields of a queue without units, and of a first unit not looked up yet."""


class StateCache(StateTable):
    """Rows ``(last phy, last offset, first phy, first offset)`` by prefix.

    Not thread-safe: the table that owns it holds a lock around every call. Each change is one call
    of compiled code, which cannot be interrupted.
    """

    def find(self, prefixes: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return a row for each of ``prefixes``, and the indexes of those not in the cache."""
        rows = np.full((len(prefixes), FIELDS), UNKNOWN, np.int64)
        return rows, np.array(self.find_into(prefixes, rows), np.intp)

    def put(self, prefixes: list[bytes], rows: NDArray[np.int64]) -> None:
        """Set the rows of ``prefixes``; if more are new than fit, the last ones remain."""
        self.put_from(prefixes, np.ascontiguousarray(rows))

    def put_one(self, prefix: bytes, row: list[int]) -> None:
        """Set the row of one queue."""
        self.put_from([prefix], np.array([row], np.int64))
