"""CleaningReport: the result of a round; CleaningTally: its sums while it runs."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cqstore.broker.cleaning.rules import CleanedTopic, CleaningRule, KeptReason
from cqstore.store.errors import StoreError

MAX_TOPICS = 1000
"""Maximum number of topics in a report; the sums count all."""


@dataclass(frozen=True, slots=True)
class CleaningReport:
    """The result of one round over all topics of a store."""

    is_dry_run: bool
    """Nothing was deleted; topics that would be deleted are counted as selected."""
    began: float
    """In seconds since the epoch."""
    ended: float
    examined: int
    """Number of topics that have queues."""
    selected: Mapping[CleaningRule, int]
    """Rule → number of topics that were deleted, or would be deleted."""
    queues: int
    """Number of queues of the selected topics."""
    messages: int
    queue_bytes: int
    kept: Mapping[KeptReason, int]
    """Reason → number of topics that a rule selects, and that were kept."""
    topics: tuple[CleanedTopic, ...]
    """The first of these topics, at most ``MAX_TOPICS``."""
    omitted: int
    """Number of topics that are not in ``topics``."""
    is_complete: bool
    """Whether all topics were examined and deleted: no stop and no error ended the round."""
    error: StoreError | None = None
    """The error that ended the round; topics that it deleted before are counted."""


@dataclass(slots=True)
class CleaningTally:
    """The sums of a round so far."""

    is_dry_run: bool
    began: float = field(default_factory=time.time)
    selected: Counter[CleaningRule] = field(default_factory=Counter)
    queues: int = 0
    messages: int = 0
    queue_bytes: int = 0
    kept: Counter[KeptReason] = field(default_factory=Counter)
    topics: list[CleanedTopic] = field(default_factory=list)
    omitted: int = 0

    def counted(self, topics: Iterable[CleanedTopic]) -> Iterator[CleanedTopic]:
        """Yield ``topics`` and add each of them."""
        for each in topics:
            self._add(each)
            yield each

    def _add(self, each: CleanedTopic) -> None:
        if len(self.topics) < MAX_TOPICS:
            self.topics.append(each)
        else:
            self.omitted += 1
        if each.kept is not None:
            self.kept[each.kept] += 1
            return
        self.selected[each.rule] += 1
        self.queues += each.queues
        self.messages += each.messages
        self.queue_bytes += each.queue_bytes

    def report(
        self, examined: int, *, is_complete: bool, error: StoreError | None = None
    ) -> CleaningReport:
        """Return the report of the round, which has ended."""
        return CleaningReport(
            self.is_dry_run, self.began, time.time(), examined, dict(self.selected), self.queues,
            self.messages, self.queue_bytes, dict(self.kept), tuple(self.topics), self.omitted,
            is_complete, error,
        )  # fmt: skip
