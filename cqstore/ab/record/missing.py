"""Sentences about what a recording of a broker lacks."""

from collections.abc import Iterator
from dataclasses import dataclass

from cqstore.ab.record.recorded_lines import Counts
from cqstore.ab.trace.operations import MAX_PUT_BYTES

_CLOCK_SECONDS = 2.0
"""Difference of two clocks that is reported."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a recording ended, and what was counted."""

    counts: Counts
    seconds: float
    """Requested duration."""
    stopped_at: float | None
    """Seconds after the start at which a signal or an error ended it; ``None``: nothing did."""
    is_behind: bool
    """Whether the master may have more puts of that time."""
    lost_bytes: int
    resets: int
    newcomers: int
    failed_polls: int

    def missing(self) -> Iterator[str]:
        """Yield sentences about operations that should be in the trace."""
        counts = self.counts
        if self.stopped_at is not None:
            yield f"The recording was stopped after {self.stopped_at:.0f} of {self.seconds:.0f} s."
        if counts.full_at >= 0:
            yield (
                f"The file was full after {counts.full_at:.0f} s; at least {counts.unwritten:,}"
                " operations are missing."
            )
        elif self.is_behind and self.stopped_at is None:
            last = max(counts.newest, 0.0)
            yield f"Puts after {last:.0f} s are missing: they did not arrive in time."
        if self.lost_bytes:
            yield (
                f"Puts of up to {self.lost_bytes:,} bytes of the log are missing: the connection"
                " was interrupted, and the master began a new file."
            )
        if counts.large:
            yield f"{counts.large:,} puts with more than {MAX_PUT_BYTES:,} bytes are missing."

    def limits(self) -> Iterator[str]:
        """Yield sentences about operations that cannot be known, and about clocks."""
        counts = self.counts
        if self.resets:
            yield f"{self.resets:,} times an offset moved too fast for a consumer: not recorded."
        if self.newcomers:
            yield (
                f"{self.newcomers:,} queues of groups committed their first offset; their pulls"
                " before it are unknown."
            )
        if self.failed_polls:
            yield (
                f"{self.failed_polls:,} requests for consumer offsets failed; pulls of that time"
                " are spread over longer intervals."
            )
        if counts.ahead > _CLOCK_SECONDS:
            yield f"The master's clock is ahead by up to {counts.ahead:.0f} s."
        if _CLOCK_SECONDS < counts.behind < float("inf"):
            yield (
                f"Records arrived {counts.behind:.0f} s or more after their store time: the clocks"
                " differ, or replication lags."
            )
        if not counts.puts and counts.newest < 0 and counts.newest > -float("inf"):
            yield f"The last record of the log was stored {-counts.newest:.0f} s before the start."
