"""Which queue a number means, as ``Queues.java`` has it."""

_STRIDE = 7919
"""A prime, so that stepping by it visits every queue once before any queue twice."""
_FEW = 8
_PER_TOPIC = 10


class Queues:
    """``count`` queues in topics of ten, up to eight in one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._per_topic = count if count <= _FEW else _PER_TOPIC
        topics = -(-count // self._per_topic)
        self.topics = [f"BenchTopic-{number:06d}" for number in range(topics)]

    def each(self) -> list[tuple[str, int]]:
        """Return topic and queue id of the first ``count`` messages; then it starts over."""
        return [self.key(self.of(number)) for number in range(self.count)]

    def of(self, number: int) -> int:
        """Return the queue, 0 to ``count``, of message ``number``."""
        return number * _STRIDE % self.count

    def key(self, queue: int) -> tuple[str, int]:
        """Return topic and queue id."""
        return self.topics[queue // self._per_topic], queue % self._per_topic
