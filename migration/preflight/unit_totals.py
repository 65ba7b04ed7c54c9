"""UnitTotals: the faults of units that a pass over queues found, by kind; sums of several passes.

A unit is outside the log if its record begins before the log, or ends after it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.migration.preflight.queue_survey import UnitRange
from cqstore.store.queue.units import EXT_ADDRESS_MAX


class UnitTotals:
    """Counts of holes, units outside the log, extension addresses and pre-blank units."""

    def __init__(self, min_phy_offset: int, max_phy_offset: int, *, is_written: bool) -> None:
        """Bounds of the log. ``is_written``: a process appends, units may be newer than its end."""
        self._low_phy, self._high_phy = min_phy_offset, max_phy_offset
        self._is_written = is_written
        self._names = {kind: NameCount() for kind in ("holes", "outside", "ext", "blanks")}
        self._sums = dict.fromkeys(self._names, 0)

    def outside(self, rows: "np.ndarray[Any, np.dtype[np.void]]") -> int:
        """Return how many rows point outside the log."""
        phy = rows["phy_offset"].astype(np.int64)
        # Compared this way round no sum can overflow, whatever the bytes say.
        room = self._high_phy - rows["size"].astype(np.int64)
        outside = (phy < self._low_phy) | (phy > room)
        if self._is_written:
            outside &= phy < self._high_phy
        return int(np.count_nonzero(outside))

    @staticmethod
    def addresses(rows: "np.ndarray[Any, np.dtype[np.void]]") -> int:
        """Return how many rows have an extension address."""
        return int(np.count_nonzero(rows["tags_code"] <= EXT_ADDRESS_MAX))

    def note(self, queue: UnitRange, missing: int, astray: int, addresses: int = 0) -> None:
        """Add the counts of one queue."""
        ends = {"min": queue.low, "max": queue.high}
        if missing:
            self._add("holes", queue, missing, missingUnits=missing, **ends)
        if astray:
            self._add("outside", queue, astray, units=astray, **ends)
        if addresses:
            self._add("ext", queue, addresses, units=addresses)

    def note_blanks(self, queue: UnitRange, units: int) -> None:
        """Add the pre-blank units before the first unit of a queue."""
        self._add("blanks", queue, units, units=units)

    def _add(self, kind: str, queue: UnitRange, count: int, **figures: int) -> None:
        self._sums[kind] += count
        self._names[kind].add(queue.name, **figures)

    def to_fields(self) -> dict[str, Any]:
        """Return the counts in a form that fits JSON, for another process."""
        names = {kind: each.to_fields() for kind, each in self._names.items()}
        return {"sums": self._sums, "names": names}

    def add_fields(self, given: dict[str, Any]) -> None:
        """Add the result of ``to_fields`` of a pass over the queues that follow."""
        for kind, names in given["names"].items():
            self._names[kind].add_fields(names)
            self._sums[kind] += given["sums"][kind]

    def findings(self, *, holes_refuse: bool) -> Iterator[PreflightFinding]:
        """Yield one finding per kind. ``holes_refuse``: the target must not have holes."""
        yield from self._names["holes"].finding(
            "holes",
            Severity.REFUSE if holes_refuse else Severity.WARN,
            "Units are missing inside queues; with RocksDB, a broker resets a consumer that "
            "reaches such a hole to offset 0: rebuild the queues first (cqstore rebuild DIR "
            "--topic T).",
            missingUnits=self._sums["holes"],
        )
        yield from self._names["outside"].finding(
            "units-outside-log",
            Severity.REFUSE,
            "Units point outside the commit log: run cqstore recover or cqstore rebuild first.",
            units=self._sums["outside"],
            logMin=self._low_phy,
            logMax=self._high_phy,
        )
        yield from self._names["ext"].finding(
            "extension-addresses",
            Severity.INFO,
            "Tags codes of units are addresses in extension files; the move replaces them with the "
            "tags codes that are stored there.",
            units=self._sums["ext"],
        )
        yield from self._names["blanks"].finding(
            "pre-blank-units",
            Severity.INFO,
            "The first files of queues begin with pre-blank units, which are empty and skipped.",
            units=self._sums["blanks"],
        )
