"""Shares: which reads are mirrored. A share of all, or of topics of a class."""

import math
import random

from cqstore.store.queue.class_of_topic import ClassOfTopic


class Shares:
    """Draws the reads that are mirrored, by the shares of their topics.

    Any thread; two at once may both draw, or neither.
    """

    def __init__(self, share: float, classes: list[tuple[str, float]]) -> None:
        """``classes``: topics as ``selects`` takes them, and their share; the first counts."""
        self._classes = ClassOfTopic(classes, share)
        self.max_share = max(share, *(each for _, each in classes), 0.0)
        """The largest of them, 0 to 1; 0: nothing is ever drawn."""
        self._random = random.Random()

    def of(self, topic: str) -> float:
        """Return the share of ``topic``, 0 to 1."""
        return self._classes.of(topic)

    def gap(self) -> int:
        """Return how many reads further the next candidate is, 1 or more.

        Drawn at random so that each read is a candidate with the probability ``max_share``; where
        that is 0 there is no next one, and the number larger than reads can be counted.
        """
        if self.max_share >= 1:
            return 1
        if self.max_share <= 0:
            return 1 << 62
        return 1 + int(math.log(1 - self._random.random()) / math.log1p(-self.max_share))

    def samples(self, topic: str) -> bool:
        """Return whether a candidate is mirrored: those of smaller shares are thinned out."""
        share = self.of(topic)
        return share >= self.max_share or self._random.random() * self.max_share < share
