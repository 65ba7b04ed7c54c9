"""Requests of consumers: routes, heartbeats, offsets, and who shares a group's queues.

All are answered in the server's event loop.

Source: RocketMQ ``ClientRequestProcessor`` (name server), ``ClientManageProcessor``,
``ConsumerManageProcessor``, ``AdminBrokerProcessor``.
"""

from collections.abc import Callable

from cqstore.remoting.body import KeyedByObject, json_body
from cqstore.remoting.command import Command
from cqstore.serve.broker_tables import TopicInfo
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.consumer_groups import ConsumerGroup
from cqstore.serve.pulls import ConsumerLink
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_broker import ServedBroker
from cqstore.serve.served_store import unit_time
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.message_store import MessageStore

_MASTER = 0
_MAX_LOCKS = 65_536
Handler = Callable[[Request, ConsumerLink], Command | None]


class ConsumerRequests:
    """Answers the requests of consumers, except for pulls."""

    def __init__(
        self, broker: ServedBroker, on_change: Callable[[str, ConsumerGroup], object]
    ) -> None:
        """``on_change`` is called with a group whose consumers have changed."""
        self._broker = broker
        self._on_change = on_change

    def handlers(self) -> dict[int, Handler]:
        """Return the functions that answer, by request code."""
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumers,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.QUERY_CONSUMER_OFFSET: self.offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.offset_by_time,
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: self.min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    # ---- the name server's

    def route(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the queues of a topic, and this server as the only broker that has them.

        In a read-only server they are not writable, so that producers find no queue to send to.
        """
        name = request.name("topic")
        with self._broker.served.reading() as store:
            topic = self._broker.topic(store, name)
        return request.respond(body=json_body(self._route(request, topic)))

    def _route(self, request: Request, topic: TopicInfo) -> dict[str, object]:
        broker, address = self._broker, self._broker.advertised or request.local_address
        # Old clients parse keys without quotes, new ones both.
        addresses: object = KeyedByObject([(_MASTER, address)])
        if request.flag("acceptStandardJsonOnly"):
            addresses = {str(_MASTER): address}
        return {
            "brokerDatas": [
                {
                    "brokerAddrs": addresses, "brokerName": broker.name,
                    "cluster": broker.cluster, "enableActingMaster": False,
                }
            ],
            "filterServerTable": {},
            "queueDatas": [
                {
                    "brokerName": broker.name, "perm": topic.perm & broker.perm,
                    "readQueueNums": topic.read_queues, "topicSysFlag": topic.sys_flag,
                    "writeQueueNums": topic.write_queues,
                }
            ],
        }  # fmt: skip

    # ---- groups

    def heartbeat(self, request: Request, link: ConsumerLink) -> Command:
        """Register the client's consumers."""
        command = request.command
        changed = self._broker.groups.heartbeat(
            link, command.language, command.version, request.body
        )
        for name, _ in changed:
            self._broker.on_group(name)
        self._report(changed)
        return request.respond()

    def unregister(self, request: Request, link: ConsumerLink) -> Command:
        """Remove the client from a group."""
        group = request.command.fields.get("consumerGroup")
        if group:
            self._report(self._broker.groups.leave(link, group))
        return request.respond()

    def check_client(self, request: Request, _link: ConsumerLink) -> Command:
        """Accept subscriptions by tags; a client asks this for others.

        Raises:
            RefusedRequestError: the subscription is not by tags.
        """
        found = _object(request)
        subscription = found.get("subscriptionData")
        kind = subscription.get("expressionType") if isinstance(subscription, dict) else None
        if kind not in {None, "TAG"}:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this server filters messages by tags only, not by {str(kind)[:40]}",
            )
        return request.respond()

    def consumers(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the ids of the group's consumers.

        Raises:
            RefusedRequestError: the group has none.
        """
        name = request.name("consumerGroup")
        group = self._broker.groups.get(name)
        if group is None:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}"
            )
        return request.respond(body=json_body({"consumerIdList": group.client_ids}))

    def lock(self, request: Request, _link: ConsumerLink) -> Command:
        """Lock queues for an orderly consumer; in memory only."""
        group, client_id, queues = _locks(request)
        locked = self._broker.groups.lock(group, client_id, queues)
        return request.respond(body=json_body({"lockOKMQSet": [queues[each] for each in locked]}))

    def unlock(self, request: Request, _link: ConsumerLink) -> Command:
        """Release queues of an orderly consumer."""
        self._broker.groups.unlock(*_locks(request))
        return request.respond()

    def _report(self, changed: list[tuple[str, ConsumerGroup]]) -> None:
        for name, group in changed:
            self._on_change(name, group)

    # ---- offsets

    def offset(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the committed offset of a group in one queue.

        A group without one begins at 0 if the queue still has its first message.

        Raises:
            RefusedRequestError: there is none, and the client decides where to begin.
        """
        topic, queue_id = request.name("topic"), request.integer("queueId")
        found = self._broker.offsets.committed(topic, request.name("consumerGroup"), queue_id)
        if found is None:
            may_begin = request.command.fields.get("setZeroIfNotFound", "true").lower() == "true"
            with self._broker.served.reading() as store:
                low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            if not may_begin or low > 0 or high <= 0:
                raise RefusedRequestError(
                    ResponseCode.QUERY_NOT_FOUND, "the group has no offset in this queue"
                )
            found = 0
        return _offset(request, found)

    def commit(self, request: Request, _link: ConsumerLink) -> Command:
        """Set the offset of a group in one queue; in memory, or the file for offsets."""
        topic = request.name("topic")
        with self._broker.served.reading() as store:
            self._broker.topic(store, topic)
        self._broker.offsets.commit(
            topic, request.name("consumerGroup"), request.integer("queueId"),
            request.long("commitOffset"),
        )  # fmt: skip
        return request.respond()

    def offset_by_time(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the offset of a queue for a store time."""
        upper = request.text("boundaryType", "lower").lower() == "upper"
        boundary = BoundaryType.UPPER if upper else BoundaryType.LOWER
        with self._broker.served.reading() as store:
            topic, queue_id = self._queue(store, request)
            timestamp = request.long("timestamp")
            return _offset(request, store.offset_by_time(topic, queue_id, timestamp, boundary))

    def max_offset(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the max offset of a queue."""
        with self._broker.served.reading() as store:
            return _offset(request, store.max_offset(*self._queue(store, request)))

    def min_offset(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the min offset of a queue."""
        with self._broker.served.reading() as store:
            return _offset(request, store.min_offset(*self._queue(store, request)))

    def earliest_time(self, request: Request, _link: ConsumerLink) -> Command:
        """Return the store time of the first message of a queue, -1 without one."""
        with self._broker.served.reading() as store:
            topic, queue_id = self._queue(store, request)
            first = store.min_offset(topic, queue_id)
            time = unit_time(store, topic, queue_id, first)
        return request.respond(fields={"timestamp": str(time)})

    def _queue(self, store: MessageStore, request: Request) -> tuple[str, int]:
        """Return topic and queue id of a request.

        Raises:
            RefusedRequestError: the topic does not exist, or the number is negative.
        """
        topic, queue_id = request.name("topic"), request.integer("queueId")
        self._broker.topic(store, topic)
        if queue_id < 0:
            raise RefusedRequestError(
                ResponseCode.INVALID_PARAMETER, f"invalid queue {queue_id} of topic {topic!r}"
            )
        return topic, queue_id


def _offset(request: Request, offset: int) -> Command:
    return request.respond(fields={"offset": str(offset)})


def _object(request: Request) -> dict[str, object]:
    """Return the JSON object in the body of a request.

    Raises:
        RefusedRequestError: there is none.
    """
    try:
        return broker_object(request.body)
    except ValueError as exc:
        raise RefusedRequestError(
            ResponseCode.SYSTEM_ERROR, f"invalid request: the body is not valid JSON: {exc}"
        ) from exc


def _locks(request: Request) -> tuple[str, str, dict[str, object]]:
    """Return group, client id, and the queues of a request by their text.

    Raises:
        RefusedRequestError: one is missing or invalid.
    """
    found = _object(request)
    group, client_id, queues = (found.get(key) for key in ("consumerGroup", "clientId", "mqSet"))
    if not (isinstance(group, str) and isinstance(client_id, str) and isinstance(queues, list)):
        raise RefusedRequestError(
            ResponseCode.SYSTEM_ERROR, "invalid request: consumerGroup, clientId or mqSet"
        )
    if len(queues) > _MAX_LOCKS:
        raise RefusedRequestError(
            ResponseCode.SYSTEM_ERROR, f"more than {_MAX_LOCKS} queues to lock"
        )
    return group, client_id, {
        f"{each.get('topic')}/{each.get('queueId')}": each
        for each in queues if isinstance(each, dict)
    }  # fmt: skip
