"""Recorder: records every operation of a store in a trace, then passes it to the store."""

from collections.abc import Sequence
from time import perf_counter

from cqstore.ab.trace.operation_lines import StoreOp
from cqstore.ab.trace.trace import Trace
from cqstore.store.concurrency.future import Promised, Soon, at_once
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.service.reading.puller import Puller, TagFilter
from cqstore.store.service.reading.read_interceptor import QueueQuestion, ReadInterceptor
from cqstore.store.service.results import GetMessageResult, PutMessageResult
from cqstore.store.service.writing.putter import Puts


class DirectReads:
    """Answers reads from the store's own queues, without an interceptor."""

    def __init__(self, puller: Puller, queues: ConsumeQueueStore) -> None:
        self.pull = puller.get
        self._queues = queues

    def number(self, question: QueueQuestion) -> int:
        """Ask the queue."""
        return question.ask(self._queues.queue(question.topic, question.queue_id))


class Recorder:
    """Records every read in a trace; the store's interceptor ``installed`` or ``direct`` answers.

    Queries by key and listings of topics are recorded too; the store answers them.
    """

    def __init__(
        self, trace: Trace, direct: DirectReads, installed: ReadInterceptor | None
    ) -> None:
        self.trace = trace
        self._direct = direct
        self._installed = installed

    def samples_this(self) -> bool:
        """Return True: a trace has every read."""
        return True

    def _next(self) -> ReadInterceptor | DirectReads:
        installed = self._installed
        return installed if installed is not None and installed.samples_this() else self._direct

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull, and note what was asked and found."""
        self.trace.note(StoreOp.PULL, topic, queue_id, offset, max_msgs, tags and tags.expression)
        return self._next().pull(topic, queue_id, offset, max_msgs, tags, max_total_bytes)

    def number(self, question: QueueQuestion) -> int:
        """Record and ask."""
        arguments = question.arguments.values()
        self.trace.note(StoreOp(question.op), question.topic, question.queue_id, *arguments)
        return self._next().number(question)

    def on_query(self, topic: str, key: str, max_num: int, begin: int, end: int) -> None:
        """Note a query by key."""
        self.trace.note(StoreOp.QUERY, topic, key, max_num, begin, end)
        if self._installed is not None:
            self._installed.on_query(topic, key, max_num, begin, end)

    def on_list_topics(self, prefix: str) -> None:
        """Note a listing of topics."""
        self.trace.note(StoreOp.LIST_TOPICS, prefix)
        if self._installed is not None:
            self._installed.on_list_topics(prefix)


class RecordedPutter:
    """Records each accepted put: topic, queue, body size and tag."""

    def __init__(self, trace: Trace, putter: Puts) -> None:
        self._trace = trace
        self.putter = putter
        """The putter that stores the messages."""

    def put(self, message: Message, *, wait: bool = True) -> PutMessageResult:
        """Put a message, and note it unless it was refused."""
        began = perf_counter()
        result = self.putter.put(message, wait=wait)
        self._note(message, began, stored=result.ok)
        return result

    def put_later(
        self, message: Message, promised: Promised[PutMessageResult], soon: Soon = at_once
    ) -> None:
        """Put and note; what is not done yet was not refused."""
        began = perf_counter()
        watched = _NotRefused(promised)
        self.putter.put_later(message, watched, soon)
        self._note(message, began, stored=watched.stored)

    def put_list(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Put messages, and note each that was not refused."""
        began = perf_counter()
        results = self.putter.put_list(messages)
        for message, result in zip(messages, results, strict=True):
            self._note(message, began, stored=result.ok)
        return results

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Put a batch, and note it as one message unless it was refused."""
        began = perf_counter()
        results = self.putter.put_client_batch(batch)
        self._note(batch, began, stored=all(result.ok for result in results))
        return results

    def _note(self, message: Message, began: float, *, stored: bool) -> None:
        if stored:
            tags = message.properties.get(MessageProperty.TAGS)
            place = message.topic, message.queue_id
            self._trace.note(StoreOp.PUT, *place, len(message.body), tags, at=began)


class _NotRefused:
    """Remembers whether a put was rejected, which is known at once."""

    def __init__(self, promised: Promised[PutMessageResult]) -> None:
        self._promised = promised
        self.stored = True

    def set_result(self, result: PutMessageResult, /) -> None:
        self.stored = result.ok
        self._promised.set_result(result)

    def set_exception(self, exception: BaseException, /) -> None:
        self._promised.set_exception(exception)
