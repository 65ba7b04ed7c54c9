"""Work that writes, as ``Puts.java`` does it; each message is made again for its put."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import numpy as np

from cqstore import Message, MessageStore, PutMessageResult, PutMessageStatus
from cqstore.store.record.client_batch import encode_client_batch
from tools.bench.peer.queues import Queues

Figures = dict[str, float]
_PERCENTILES = (50, 99, 99.9, 100)


class Puts:
    """Puts into one store; each command continues with the next numbers."""

    def __init__(self, store: MessageStore, queues: Queues, body: int, *, keys: bool) -> None:
        self._store = store
        self._queues, self._places = queues, queues.each()
        self._body = bytes(at * 31 % 256 for at in range(body))
        self._keys = keys
        self._produced = 0

    def single(self, count: int, threads: int) -> Figures:
        """Put one message a call, until all are in their queues."""
        numbers = self._next(count)

        def work(worker: int) -> None:
            put, message = self._store.put_message, self._message
            for number in numbers[worker::threads]:
                _require(put(message(number)))

        return self._timed(count, lambda: _in_threads(threads, work))

    def in_flight(self, count: int, tasks: int) -> Figures:
        """Put one message a call, by tasks of one event loop, until all are in their queues."""
        numbers = self._next(count)

        async def work(worker: int) -> None:
            put, message = self._store.put_message_async, self._message
            for number in numbers[worker::tasks]:
                _require(await put(message(number)))

        async def all_of_them() -> None:
            await asyncio.gather(*map(work, range(tasks)))

        return self._timed(count, lambda: asyncio.run(all_of_them()))

    def lists(self, count: int, size: int) -> Figures:
        """Put lists of ``size`` messages of one queue."""
        places, body = self._places, self._body
        numbers = self._next(count // size)

        def work() -> None:
            for number in numbers:
                topic, queue_id = places[number % len(places)]
                messages = [Message(topic, body, queue_id, {"TAGS": "TagA"}) for _ in range(size)]
                _require_all(self._store.put_messages(messages))

        return self._timed(count, work)

    def batches(self, count: int, size: int) -> Figures:
        """Put client batches of ``size`` messages of one queue; their bodies come ready."""
        places = self._places
        numbers = self._next(count // size)
        encoded = encode_client_batch([Message("", self._body, 0, {"TAGS": "TagA"})] * size)

        def work() -> None:
            for number in numbers:
                topic, queue_id = places[number % len(places)]
                batch = Message(topic, encoded, queue_id)
                _require_all(self._store.put_client_batch(batch))

        return self._timed(count, work)

    def paced(self, count: int, rate: int) -> Figures:
        """Put at a steady pace; each put counts from its call and from the moment it was due.

        The caller sleeps until a put is due, as RocketMQ's does.
        """
        numbers = self._next(count)
        calls, waits = np.zeros(count), np.zeros(count)

        def work() -> None:
            now, put = time.perf_counter, self._store.put_message
            begin = now()
            for at, number in enumerate(numbers):
                due = begin + at / rate
                while (called := now()) < due:
                    time.sleep(due - called)
                _require(put(self._message(number)))
                done = now()
                calls[at], waits[at] = done - called, done - due

        took = self._timed(count, work)
        for name, spent in (("call", calls), ("due", waits)):
            values = np.percentile(spent, _PERCENTILES)
            for share, value in zip(_PERCENTILES, values, strict=True):
                took[f"{name}_p{share}_us"] = float(value) * 1e6
        return took

    def delete_topics(self) -> Figures:
        """Delete the topics of all queues in one call; the next puts fill them again."""
        topics = self._queues.topics
        self.caught_up()
        return self._timed(len(topics), lambda: self._store.delete_topics(topics))

    def _next(self, count: int) -> range:
        first = self._produced
        self._produced += count
        return range(first, first + count)

    def _message(self, number: int) -> Message:
        topic, queue_id = self._places[number % len(self._places)]
        properties = {"TAGS": "TagA"}
        if self._keys:
            properties["KEYS"] = f"key-{number}"
        return Message(topic, self._body, queue_id, properties)

    def _timed(self, count: int, work: Callable[[], None]) -> Figures:
        cpu, begin = time.process_time(), time.perf_counter()
        work()
        called = time.perf_counter() - begin
        self.caught_up()
        seconds = time.perf_counter() - begin
        return {
            "count": count, "seconds": seconds, "called_seconds": called,
            "cpu_seconds": time.process_time() - cpu,
        }  # fmt: skip

    def caught_up(self) -> None:
        """Wait until all queues have what the log has."""
        self._store.max_offset(*self._queues.key(0))  # a reader sees all that was put before


def _require(result: PutMessageResult) -> None:
    if result.status is not PutMessageStatus.PUT_OK:
        raise RuntimeError(f"a put answers {result.status.name}")


def _require_all(results: Iterable[PutMessageResult]) -> None:
    for result in results:
        _require(result)


def _in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run ``work`` in so many threads at once; raise what the first raised that failed."""
    failures: list[BaseException] = []

    def guarded(worker: int) -> None:
        try:
            work(worker)
        except BaseException as exc:  # noqa: BLE001 - the waiting thread raises it
            failures.append(exc)

    threads = [threading.Thread(target=guarded, args=(worker,)) for worker in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
