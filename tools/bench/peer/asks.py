"""Work that reads, as ``Asks.java`` does it; ``answer`` is a sum over what came."""

import time
from collections.abc import Callable

from cqstore import GetMessageResult, MessageStore
from tools.bench.peer.puts import Figures
from tools.bench.peer.queues import Queues

_PULL = 32
_STEP = 104_729
"""A prime that has nothing to do with the stride of the queues."""


class Reads:
    """Questions to one store; each goes on where the last one stopped."""

    def __init__(self, store: MessageStore, queues: Queues) -> None:
        self._store = store
        self._queues = queues
        self._reads = 0

    def pull(self, count: int) -> Figures:
        """Pull 32 messages: where they lie, and their bytes in the log."""
        places = self._units() - _PULL + 1

        def read(queue: int, number: int) -> int:
            return self._pulled(queue, number * _STEP % places).total_bytes

        return self._timed(count, read)

    def gather(self, count: int) -> Figures:
        """Pull 32 messages, and gather their bytes in one buffer, as for a client."""
        places = self._units() - _PULL + 1

        def read(queue: int, number: int) -> int:
            raw = self._pulled(queue, number * _STEP % places).raw
            return len(raw) + raw[3] + raw[-1]

        return self._timed(count, read)

    def decode(self, count: int) -> Figures:
        """Do the same, each message decoded: body, properties, tag."""
        places = self._units() - _PULL + 1

        def read(queue: int, number: int) -> int:
            answer = 0
            for message in self._pulled(queue, number * _STEP % places).messages():
                tag = message.properties["TAGS"]
                answer += len(message.body) + message.queue_offset + len(tag)
            return answer

        return self._timed(count, read)

    def _pulled(self, queue: int, offset: int) -> GetMessageResult:
        topic, queue_id = self._queues.key(queue)
        result = self._store.get_message(topic, queue_id, offset, _PULL)
        if result.record_count() != _PULL:
            raise RuntimeError(f"{result.record_count()} messages, {result.status.name}")
        return result

    def time(self, count: int) -> Figures:
        """Search by store time, spread over the time in which the queues were filled."""
        ends = (self._stored_at(0), self._stored_at(self._units() - 1))
        first, span = ends[0], ends[1] - ends[0] + 1

        def read(queue: int, number: int) -> int:
            topic, queue_id = self._queues.key(queue)
            return self._store.offset_by_time(topic, queue_id, first + number * _STEP % span)

        return self._timed(count, read)

    def _stored_at(self, offset: int) -> int:
        result = self._store.get_message(*self._queues.key(0), offset, 1)
        (message,) = result.messages()
        return message.store_timestamp

    def query(self, count: int) -> Figures:
        """Query by a key that one message has."""
        messages = self._units() * self._queues.count

        def read(_queue: int, number: int) -> int:
            wanted = number * _STEP % messages
            topic, _ = self._queues.key(self._queues.of(wanted))
            (found,) = self._store.query_message(topic, f"key-{wanted}", _PULL)
            return found.size

        return self._timed(count, read)

    def _units(self) -> int:
        return self._store.max_offset(*self._queues.key(0))

    def _timed(self, count: int, read: Callable[[int, int], int]) -> Figures:
        answer, queue_of = 0, self._queues.of
        first = self._reads
        self._reads += count
        cpu, begin = time.process_time(), time.perf_counter()
        for number in range(first, first + count):
            answer += read(queue_of(number), number)
        seconds = time.perf_counter() - begin
        cpu_seconds = time.process_time() - cpu
        return {"count": count, "seconds": seconds, "cpu_seconds": cpu_seconds, "answer": answer}
