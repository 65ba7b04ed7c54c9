"""Shares: the share of reads that is mirrored, for all topics or by class of topics."""

import math
import random

from cqstore.store.queue.class_of_topic import ClassOfTopic


class Shares:
    """Draws the reads that are mirrored, by the shares of their topics.

    Any thread may call it. Two threads at once may draw the same candidate, or skip one.
    """

    def __init__(self, share: float, classes: list[tuple[str, float]]) -> None:
        """``classes``: topic patterns as in ``selects``, with shares; the first match counts."""
        self._classes = ClassOfTopic(classes, share)
        self.max_share = max(share, *(each for _, each in classes), 0.0)
        """The largest share, 0 to 1; 0 if no read is mirrored."""
        self._random = random.Random()

    def of(self, topic: str) -> float:
        """Return the share of ``topic``, 0 to 1."""
        return self._classes.of(topic)

    def gap(self) -> int:
        """Return the number of reads up to the next candidate, 1 or more.

        Random, so that each read is a candidate with the probability ``max_share``. If that is 0,
        the number is larger than any count of reads.
        """
        if self.max_share >= 1:
            return 1
        if self.max_share <= 0:
            return 1 << 62
        return 1 + int(math.log(1 - self._random.random()) / math.log1p(-self.max_share))

    def samples(self, topic: str) -> bool:
        """Return whether a candidate is mirrored, by the share of its topic."""
        share = self.of(topic)
        return share >= self.max_share or self._random.random() * self.max_share < share
