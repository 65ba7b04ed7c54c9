"""Growth: samples of each side's memory and disk while a comparison runs."""

import time
from collections.abc import Callable

from cqstore.ab.results.result import Sample
from cqstore.ab.sides.side_process import SideProcess

_SPACING_SECONDS = 1.0
_SHARE = 50
"""A sample takes at most one part of this many of the time between two samples."""


class Growth:
    """Takes samples between turns, at most one per side and second."""

    def __init__(self, began: float, now: Callable[[], float] = time.perf_counter) -> None:
        """``began``: start of the comparison, by ``now``."""
        self._began, self._now = began, now
        self._due: dict[str, float] = {}
        self.samples: list[Sample] = []

    def take(self, side: SideProcess) -> None:
        """Take a sample of a side if one is due; not during a turn."""
        began, name = self._now(), side.spec.name
        if began < self._due.get(name, began):
            return
        pss, disk = side.request("sample")
        self._due[name] = began + max(_SPACING_SECONDS, _SHARE * (self._now() - began))
        self.samples.append(
            Sample(side=name, at=began - self._began, pss_bytes=pss, disk_bytes=disk)
        )
