"""Pulls of consumers: the messages of a queue as one copy of the log's bytes.

No object is made for a message. Status, next offset and ends are RocketMQ's; a pull that finds
nothing waits if the client asks for that.

Source: RocketMQ ``PullMessageProcessor``, ``DefaultPullMessageResultHandler``, ``PullSysFlag``.
"""

from functools import lru_cache
from typing import NamedTuple, Protocol

from cqstore.remoting.command import Command
from cqstore.serve.codes import ResponseCode
from cqstore.serve.consumer_groups import ClientLink
from cqstore.serve.held_pulls import HeldPull, HeldPulls, PullLink
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_broker import ServedBroker
from cqstore.store.errors import StoreError
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult, GetMessageStatus

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Bits of ``sysFlag``."""
MAX_PULL_BYTES = 12 << 20
"""Maximum size of a body: clients refuse frames above 16 MiB. A single message may be larger."""
_TAG = "TAG"
_MASTER = "0"
_FILTERS = 1024
_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class ConsumerLink(ClientLink, PullLink, Protocol):
    """The connection of a consumer."""

    def respond(self, request: Request, response: Command) -> None:
        """Send a response."""


class PullRequest(NamedTuple):
    """The parameters of a pull."""

    topic: str
    group: str
    queue_id: int
    offset: int
    max_msgs: int
    max_bytes: int
    flags: int
    commit_offset: int
    suspend_ms: int

    @classmethod
    def of(cls, request: Request) -> "PullRequest":
        """Return the parameters in a request.

        Raises:
            RefusedRequestError: one is missing or invalid.
        """
        return cls(
            request.name("topic"), request.name("consumerGroup"), request.integer("queueId"),
            request.long("queueOffset"), request.integer("maxMsgNums"),
            request.integer("maxMsgBytes", MAX_PULL_BYTES), request.integer("sysFlag"),
            request.long("commitOffset", -1), request.long("suspendTimeoutMillis", 0),
        )  # fmt: skip


class ConsumerPulls:
    """Answers pulls, in the server's event loop."""

    def __init__(self, broker: ServedBroker, held: HeldPulls) -> None:
        self._broker = broker
        self._held = held

    def pull(self, request: Request, link: ConsumerLink) -> Command | None:
        """Return the response to a pull; ``None``: it waits for a message.

        Raises:
            RefusedRequestError: the pull is invalid, or too many are waiting.
            StoreError: the queue cannot be read.
        """
        wanted = PullRequest.of(request)
        with self._broker.served.reading() as store:
            group_flag, topic_flag = self._check(store, wanted)
            tags = self._tags(wanted, request)
            if wanted.flags & COMMIT_OFFSET and wanted.commit_offset >= 0:
                self._broker.offsets.commit(
                    wanted.topic, wanted.group, wanted.queue_id, wanted.commit_offset
                )
            waiting = _WaitingPull(self, wanted, request, link, tags, (topic_flag, group_flag))
            found = waiting.get(store)
        response = waiting.response(found)
        if response.code != ResponseCode.PULL_NOT_FOUND or not wanted.flags & SUSPEND:
            return response
        if not self._held.hold(waiting, max(wanted.suspend_ms, 0) / 1000):
            raise RefusedRequestError(ResponseCode.SYSTEM_BUSY, "too many pulls are waiting")
        waiting.try_answer_if_arrived(self._held)
        return None

    @property
    def served_broker(self) -> ServedBroker:
        """Return the broker whose queues are pulled."""
        return self._broker

    def _check(self, store: MessageStore, wanted: PullRequest) -> tuple[int, int]:
        """Return the flags of group and topic, as a response repeats them.

        Raises:
            RefusedRequestError: a broker would not answer this pull, either.
        """
        topic = self._broker.topic(store, wanted.topic)
        if not topic.is_readable:
            raise RefusedRequestError(
                ResponseCode.NO_PERMISSION, f"topic {wanted.topic!r} is not readable"
            )
        if not 0 <= wanted.queue_id < topic.read_queues:
            raise RefusedRequestError(
                ResponseCode.INVALID_PARAMETER,
                f"queue {wanted.queue_id} of topic {wanted.topic!r} does not exist:"
                f" readQueueNums is {topic.read_queues}",
            )
        group = self._broker.tables.groups.get(wanted.group, {})
        if group.get("consumeEnable") is False:
            raise RefusedRequestError(
                ResponseCode.NO_PERMISSION, f"consumption is disabled for group {wanted.group!r}"
            )
        flag = group.get("groupSysFlag", 0)
        return flag if type(flag) is int else 0, topic.sys_flag

    def _tags(self, wanted: PullRequest, request: Request) -> TagFilter | None:
        """Return the filter of a pull, from the request itself or from the last heartbeat.

        Raises:
            RefusedRequestError: there is no subscription, or it is not by tags.
        """
        if wanted.flags & SUBSCRIPTION:
            kind, expression = (
                request.text("expressionType", _TAG),
                request.text("subscription", ""),
            )
        else:
            found = self._subscription(wanted, request)
            kind = str(found.get("expressionType") or _TAG)
            expression = str(found.get("subString") or "")
        if kind != _TAG:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this server filters messages by tags only, not by {str(kind)[:40]}",
            )
        return _filter(str(expression))

    def _subscription(self, wanted: PullRequest, request: Request) -> dict[str, object]:
        group = self._broker.groups.get(wanted.group)
        found = None if group is None else group.subscriptions.get(wanted.topic)
        if found is None:
            raise RefusedRequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no consumer of group {wanted.group!r} subscribes to topic {wanted.topic!r}",
            )
        version = found.get("subVersion")
        if isinstance(version, int) and version < request.long("subVersion", 0):
            raise RefusedRequestError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of group {wanted.group!r} is older than that of the pull",
            )
        return found


class _WaitingPull(HeldPull):
    """One pull, which may wait."""

    __slots__ = ("_asked", "_consumer", "_flags", "_pulls", "_request", "_tags")

    def __init__(
        self,
        pulls: ConsumerPulls,
        wanted: PullRequest,
        request: Request,
        link: ConsumerLink,
        tags: TagFilter | None,
        flags: tuple[int, int],
    ) -> None:
        super().__init__(QueueKey(wanted.topic, wanted.queue_id), wanted.offset, link)
        self._pulls = pulls
        self._asked = wanted
        self._request = request
        self._consumer = link
        self._tags = tags
        self._flags = flags

    def get(self, store: MessageStore) -> GetMessageResult:
        """Return what the queue has now."""
        wanted = self._asked
        size = max(min(wanted.max_bytes, MAX_PULL_BYTES), 1)
        return store.get_message(*self.key, self.offset, wanted.max_msgs, self._tags, size)

    def response(self, found: GetMessageResult) -> Command:
        """Return the response for ``found``."""
        status = found.status
        code = _CODES.get(status)
        if code is None:  # no message in queue
            code = ResponseCode.PULL_OFFSET_MOVED if self.offset else ResponseCode.PULL_NOT_FOUND
        is_found = status is GetMessageStatus.FOUND
        if is_found:
            self._pulls.served_broker.stats.pulled(
                self.key.topic, self._asked.group, found.record_count(), found.total_bytes
            )
        fields = {
            "suggestWhichBrokerId": _MASTER,
            "nextBeginOffset": str(found.next_begin_offset),
            "minOffset": str(found.min_offset),
            "maxOffset": str(found.max_offset),
            "topicSysFlag": str(self._flags[0]),
            "groupSysFlag": str(self._flags[1]),
        }
        return self._request.respond(code, status.name, fields, found.raw if is_found else b"")

    def try_answer_if_arrived(self, held: HeldPulls) -> None:
        """Answer at once if a message arrived before the pull was held."""
        with self._pulls.served_broker.served.reading() as store:
            has_arrived = store.max_offset(*self.key) > self.offset
        if has_arrived:
            held.wake([self.key])

    def try_answer(self, *, is_last: bool) -> bool:
        """Pull again; see ``HeldPull``."""
        try:
            with self._pulls.served_broker.served.reading() as store:
                if not is_last and store.max_offset(*self.key) == self.offset:
                    return False
                found = self.get(store)
            if is_last and self.link.is_blocked:  # no more bytes for a client that does not read
                found = GetMessageResult(
                    GetMessageStatus.OFFSET_OVERFLOW_ONE, self.offset, found.min_offset,
                    found.max_offset,
                )  # fmt: skip
            response = self.response(found)
        except StoreError as exc:
            response = self._request.respond(ResponseCode.SYSTEM_ERROR, exc.reason)
        if response.code == ResponseCode.PULL_NOT_FOUND and not is_last:
            return False
        self._consumer.respond(self._request, response)
        return True


@lru_cache(_FILTERS)
def _filter(expression: str) -> TagFilter | None:
    """Return the filter of an expression; ``None``: all messages."""
    made = TagFilter(expression)
    return None if made.takes_all else made
