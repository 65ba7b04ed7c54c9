"""CleaningFigures: counts of a service that deletes topics of an open store."""

from collections.abc import Mapping
from typing import NamedTuple


class CleaningFigures(NamedTuple):
    """The counts of one service since it was started, and the result of its last round."""

    is_dry_run: bool
    """Topics are only reported: ``topics`` and ``queue_bytes`` stay 0."""
    rounds: int
    """Number of ended rounds, including failed ones."""
    failures: int
    """Number of rounds that an error ended; each is repeated after the usual time."""
    topics: Mapping[str, int]
    """Rule → number of deleted topics."""
    queue_bytes: int
    """Size of their queues, see ``CleanedTopic.queue_bytes``."""
    selected: int
    """Number of topics that the last round deleted, or would have deleted."""
    kept: Mapping[str, int]
    """Reason → number of topics that a rule selected in the last round, and that were kept."""
    last_ended: float
    """End of the last round in seconds since the epoch; 0: none has ended."""
