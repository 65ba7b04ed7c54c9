"""ClassOfTopic: the value that the settings assign to a topic's class, see ``topic_classes``."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from cqstore.store.queue.backend_replica import selects
from cqstore.store.record.bounded_cache import BoundedCache

V = TypeVar("V")
_REMEMBERED_BYTES = 4 << 20


class ClassOfTopic(Generic[V]):
    """The value of the first class that contains a topic. Any thread."""

    def __init__(self, classes: Sequence[tuple[str, V]], other: V) -> None:
        """``classes``: selections as for ``selects``; ``other``: the value for all other topics."""
        self._classes = classes
        self._other = other
        self._known = BoundedCache[str, V](_REMEMBERED_BYTES)

    def of(self, topic: str) -> V:
        """Return the value for ``topic``."""
        if not self._classes:
            return self._other
        value = self._known.get(topic)
        if value is None:
            fitting = (each for topics, each in self._classes if selects(topics, topic))
            text_bytes = len(topic.encode("utf-8", "surrogatepass"))
            value = self._known.learn(topic, next(fitting, self._other), text_bytes)
        return value
