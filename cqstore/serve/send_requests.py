"""Requests that put messages: sends, client batches, and messages that consumers send back.

The store decides what may be put. A message is acknowledged as the settings of the store promise:
under ``SYNC_FLUSH`` when it is on disk.

Source: RocketMQ ``SendMessageProcessor``, ``AbstractSendMessageProcessor``.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial

from cqstore.broker.topic_kind import group_of
from cqstore.embedded.send_back import QUEUES
from cqstore.remoting.command import Command
from cqstore.serve.broker_tables import TopicInfo
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.consumer_requests import Handler
from cqstore.serve.limits import ServeLimits
from cqstore.serve.new_topics import NewTopics
from cqstore.serve.pulls import ConsumerLink
from cqstore.serve.put_responses import REGION, batch_response, put_response, send_back_response
from cqstore.serve.put_tasks import PutTasks
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.send_request import SendRequest
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.store_writer import StoreWriter
from cqstore.serve.unique_key import new_unique_key
from cqstore.store.errors import IllegalMessageError, StoreError
from cqstore.store.record.message import (
    DLQ_PREFIX,
    LOOPBACK,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    Host,
    Message,
    MessageProperty,
    SysFlag,
)
from cqstore.store.record.properties import delay_level
from cqstore.store.service.results import PutMessageResult

_CLUSTER = "CLUSTER"
"""Property that a broker adds, as it adds those of ``REGION``."""
_DEAD_LETTER = "-1"


class SendRequests:
    """Answers requests that put messages, in the server's event loop."""

    def __init__(self, broker: ServedBroker, writer: StoreWriter, limits: ServeLimits) -> None:
        self._broker = broker
        self._writer = writer
        self._store = writer.store
        self._topics = NewTopics(broker, writer)
        self._tasks = PutTasks(limits)
        self._waits = writer.store.config.syncs_each_put
        self._thread = ThreadPoolExecutor(1, "cqstore-batches")  # one: batches keep their order

    def handlers(self) -> dict[int, Handler]:
        """Return the functions that answer, by request code."""
        sends: dict[int, Handler] = dict.fromkeys(
            (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE),
            self.send,
        )
        return {**sends, RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def drain(self) -> None:
        """Refuse further messages, and acknowledge those that were put."""
        await self._tasks.drain()
        self._thread.shutdown()

    # ---- sends

    def send(self, request: Request, link: ConsumerLink) -> Command | None:
        """Put a message or a client batch; ``None``: the response follows when it is on disk.

        Raises:
            RefusedRequestError: the request is invalid, or the topic does not accept it.
            StoreError: the store has failed, or the topic cannot be created.
        """
        self._tasks.check(request, link)
        wanted = SendRequest.of(request)
        topic = self._topics.for_send(wanted)
        queue_id = _queue(wanted, topic)
        if wanted.is_batch:
            return self._put_batch(request, link, wanted, topic, queue_id)
        message = self._message(request, wanted, topic, queue_id)
        message.properties = self._properties(request, wanted)
        if wanted.topic.startswith(RETRY_PREFIX):
            self._to_dead_letters_if_due(message, wanted)
        key = message.properties[MessageProperty.UNIQ_KEY]

        def respond(result: PutMessageResult) -> Command:
            self._count([result], message)
            return put_response(request, queue_id, key, result)

        return self._put(request, link, message, respond)

    def _put(
        self, request: Request, link: ConsumerLink, message: Message,
        respond: Callable[[PutMessageResult], Command],
    ) -> Command | None:  # fmt: skip
        if not self._waits:
            return respond(self._store.put_message(message))

        async def work() -> Command:
            return respond(await self._store.put_message_async(message))

        self._tasks.start(request, link, work())
        return None

    def _put_batch(
        self, request: Request, link: ConsumerLink, wanted: SendRequest, topic: TopicInfo,
        queue_id: int,
    ) -> Command | None:  # fmt: skip
        """Put a client batch.

        Raises:
            RefusedRequestError: it is for a retry topic.
        """
        if wanted.topic.startswith(RETRY_PREFIX):
            raise RefusedRequestError(
                ResponseCode.MESSAGE_ILLEGAL, "a client batch for a retry topic is not supported"
            )
        batch = self._message(request, wanted, topic, queue_id)
        batch.properties = wanted.properties | {_CLUSTER: self._broker.cluster}
        put = partial(self._store.put_client_batch, batch)

        def respond(results: Sequence[PutMessageResult]) -> Command:
            self._count(results, batch)
            return batch_response(request, topic, queue_id, batch, results)

        if not self._waits:
            return respond(put())

        async def work() -> Command:
            loop = asyncio.get_running_loop()
            return respond(await loop.run_in_executor(self._thread, put))

        self._tasks.start(request, link, work())
        return None

    def _message(
        self, request: Request, wanted: SendRequest, topic: TopicInfo, queue_id: int
    ) -> Message:
        """Return the message to put, without its properties."""
        is_multi_tag = topic.row.get("topicFilterType") == "MULTI_TAG"
        return Message(
            wanted.topic, request.body, queue_id, {}, wanted.flag,
            wanted.sys_flag | (SysFlag.MULTI_TAGS if is_multi_tag else 0), wanted.born_timestamp,
            host_of(request.peer), self._store_host(request), wanted.reconsume_times,
        )  # fmt: skip

    def _properties(self, request: Request, wanted: SendRequest) -> dict[str, str]:
        """Return the properties of a message, with those that a broker adds."""
        found = wanted.properties | REGION | {_CLUSTER: self._broker.cluster}
        if MessageProperty.UNIQ_KEY not in found:
            found[MessageProperty.UNIQ_KEY] = new_unique_key()
        return found

    def _to_dead_letters_if_due(self, message: Message, wanted: SendRequest) -> None:
        """Change the topic of a message that a consumer has sent back too often.

        A consumer sends back by itself if request 36 fails, or if it is orderly.

        Source: RocketMQ ``SendMessageProcessor.handleRetryAndDLQ``.
        """
        group = group_of(wanted.topic)
        if group is None:
            return
        limit = wanted.max_reconsume_times
        if limit is None:
            limit = self._writer.max_reconsume_times(group)
        if wanted.reconsume_times <= limit and not self._broker.groups.has_locks(group):
            return
        message.topic, message.queue_id = DLQ_PREFIX + group, 0
        self._topics.create(message.topic, QUEUES)
        message.properties[MessageProperty.DELAY] = _DEAD_LETTER

    # ---- messages that consumers send back

    def send_back(self, request: Request, link: ConsumerLink) -> Command | None:
        """Put a copy of a message for its group: later, or as a dead letter.

        Raises:
            RefusedRequestError: the request is invalid, or there is no such message.
            StoreError: the store has failed, or a topic cannot be created.
        """
        self._tasks.check(request, link)
        group, level = request.name("group"), request.integer("delayLevel")
        limit = request.integer("maxReconsumeTimes", self._writer.max_reconsume_times(group))
        phy_offset = request.long("offset")
        queues = self._writer.retry_queues(group)
        if queues <= 0:
            return request.respond()
        try:
            stored = self._store.message_by_offset(phy_offset)
            stored.check_body()  # the copy would get a new checksum that hides damage
        except StoreError as exc:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"no message at phy offset {phy_offset}: {exc.reason}"
            ) from exc
        message = self._topics.created(
            lambda: self._writer.retries.copy_for(group, stored, level, limit, queues)
        )
        message.store_host = self._store_host(request)

        def respond(result: PutMessageResult) -> Command:
            if result.appended is not None:
                topic = message.properties[MessageProperty.RETRY_TOPIC]
                size = result.appended.size if _is_delayed(message) else 0
                self._broker.stats.sent_back(topic, group, size)
            return send_back_response(request, result)

        return self._put(request, link, message, respond)

    def _count(self, results: Sequence[PutMessageResult], message: Message) -> None:
        """Count what was put of a message or client batch; delayed ones first wait elsewhere."""
        sizes = [each.appended.size for each in results if each.appended is not None]
        if sizes:
            topic = SCHEDULE_TOPIC if _is_delayed(message) else message.topic
            self._broker.stats.put(topic, len(sizes), sum(sizes))

    def _store_host(self, request: Request) -> Host:
        """Return the address inside message ids, at which clients ask for a message by its id."""
        return host_of(self._broker.advertised, request.local_address)


def _is_delayed(message: Message) -> bool:
    """Return whether a message that was put first waits in the schedule's topic."""
    return delay_level(message.properties) > 0


def _queue(wanted: SendRequest, topic: TopicInfo) -> int:
    """Return the queue of a message; a negative number asks for any.

    Raises:
        RefusedRequestError: the topic has no such queue, or accepts no messages.
    """
    if not topic.is_writable or topic.write_queues <= 0:
        raise RefusedRequestError(
            ResponseCode.NO_PERMISSION,
            f"topic {wanted.topic!r} is not writable: perm is {topic.perm}, writeQueueNums is"
            f" {topic.write_queues}",
        )
    if wanted.queue_id < 0:
        return random.randrange(topic.write_queues)
    queues = max(topic.read_queues, topic.write_queues)
    if wanted.queue_id >= queues:
        raise RefusedRequestError(
            ResponseCode.INVALID_PARAMETER,
            f"queue {wanted.queue_id} of topic {wanted.topic!r} does not exist: it has {queues}",
        )
    return wanted.queue_id


@lru_cache(4096)
def host_of(address: str, otherwise: str = "") -> Host:
    """Return ``HOST:PORT`` as a record holds it; a name instead of an IP address: ``otherwise``."""
    host, _, port = address.rpartition(":")
    try:
        return Host.of(host.strip("[]").partition("%")[0], int(port))
    except (IllegalMessageError, ValueError):
        return host_of(otherwise) if otherwise else LOOPBACK
