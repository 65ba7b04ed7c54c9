"""Requests of mqadmin and the dashboard: topics, groups, lag, statistics of the broker.

Answered in threads: a store may have a million queues.

Source: RocketMQ ``AdminBrokerProcessor``, ``DefaultRequestProcessor`` (name server).
"""

import shutil
import time
from contextlib import suppress

from cqstore.broker.metadata.model import Json, Table
from cqstore.remoting.body import KeyedByObject, json_body
from cqstore.remoting.command import Command
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.consumer_groups import Consumer
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_broker import JobHandler, ServedBroker
from cqstore.serve.served_store import unit_time
from cqstore.store.errors import CorruptionError
from cqstore.store.service.message_store import MessageStore

_SEPARATOR = ";"
_NO_VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 0}
_ZEROS = (
    "putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps",
)  # fmt: skip
_NO_WAITS = (
    "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow",
    "dispatchBehindBytes", "pageCacheLockTimeMills", "startAcceptSendRequestTimeStamp",
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum",
    "sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize", "ackThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize", "queryThreadPoolQueueHeadWaitTimeMills",
)  # fmt: skip


class ToolRequests:
    """Answers requests of tools."""

    def __init__(self, broker: ServedBroker, version: str) -> None:
        """``version``: the version of cqstore, shown as that of the broker."""
        self._broker = broker
        self._version = version
        self._started = time.time()

    def handlers(self) -> dict[int, JobHandler]:
        """Return the functions that answer, by request code."""
        return {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topic_list,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters,
            RequestCode.GET_TOPIC_STATS_INFO: self.topic_stats,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.GET_TOPIC_CONFIG: self.topic_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
            RequestCode.GET_BROKER_CONFIG: self.broker_config,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
        }

    # ---- topics

    def topic_list(self, request: Request, store: MessageStore) -> Command:
        """Return the names of all topics."""
        return request.respond(
            body=json_body({"topicList": self._broker.tables.topic_names(store)})
        )

    def topic_config(self, request: Request, store: MessageStore) -> Command:
        """Return the row of a topic."""
        topic = self._broker.topic(store, request.name("topic"))
        return request.respond(body=json_body(topic.row))

    def all_topics(self, request: Request, store: MessageStore) -> Command:
        """Return the rows of all topics, or one page of them."""
        tables = self._broker.tables
        names = tables.topic_names(store)
        rows = {
            each: self._broker.topic(store, each).row for each in _page(request, names, "Topic")
        }
        body = {
            "dataVersion": tables.version(Table.TOPICS), "mappingDataVersion": _NO_VERSION,
            "topicConfigTable": rows, "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }  # fmt: skip
        return request.respond(fields={"totalTopicNum": str(len(names))}, body=json_body(body))

    def topic_stats(self, request: Request, store: MessageStore) -> Command:
        """Return the ends of each queue of a topic, and the store time of its last message."""
        name = request.name("topic")
        topic = self._broker.topic(store, name)
        rows = KeyedByObject()
        for queue_id in range(max(topic.read_queues, topic.write_queues)):
            low, high = max(store.min_offset(name, queue_id), 0), store.max_offset(name, queue_id)
            last = unit_time(store, name, queue_id, high - 1) if high > 0 else 0
            found = {"lastUpdateTimestamp": last, "maxOffset": high, "minOffset": low}
            rows.append((self._queue(name, queue_id), found))
        tps = self._broker.stats.put_tps(name)
        return request.respond(body=json_body({"offsetTable": rows, "topicPutTps": tps}))

    # ---- groups

    def groups_of_topic(self, request: Request, _store: MessageStore) -> Command:
        """Return the groups that consume a topic."""
        topic = request.name("topic")
        groups = {*self._broker.groups.of_topic(topic), *self._broker.offsets.groups_of(topic)}
        return request.respond(body=json_body({"groupList": sorted(groups)}))

    def all_groups(self, request: Request, _store: MessageStore) -> Command:
        """Return the rows of all groups, or one page of them."""
        tables = self._broker.tables
        names = sorted(tables.groups)
        rows = {each: tables.groups[each] for each in _page(request, names, "Group")}
        forbidden = {each: row for each, row in tables.forbidden.items() if each in rows}
        body = {
            "dataVersion": tables.version(Table.GROUPS), "forbiddenTable": forbidden,
            "subscriptionGroupTable": rows,
        }  # fmt: skip
        return request.respond(fields={"totalGroupNum": str(len(names))}, body=json_body(body))

    def group_config(self, request: Request, _store: MessageStore) -> Command:
        """Return the row of a group; a known group without one has a broker's defaults.

        Raises:
            RefusedRequestError: the group is not known.
        """
        name = request.name("group")
        row = self._broker.tables.groups.get(name)
        if row is None and not self._broker.knows_group(name):
            raise RefusedRequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker"
            )
        return request.respond(body=json_body(row or {"groupName": name}))

    def producers(self, request: Request, _store: MessageStore) -> Command:
        """Refuse: this server has no producers.

        Raises:
            RefusedRequestError: always, as a broker without this producer does.
        """
        raise RefusedRequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the producer group[{request.name('producerGroup')}] not exist",
        )

    def connections(self, request: Request, _store: MessageStore) -> Command:
        """Return the connected consumers of a group.

        Raises:
            RefusedRequestError: no consumer is connected.
        """
        name = request.name("consumerGroup")
        group = self._broker.groups.get(name)
        if group is None:
            raise RefusedRequestError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        consumers = list(group.consumers.values())
        body = {
            "connectionSet": [_connection(each) for each in consumers],
            "consumeFromWhere": group.from_where, "consumeType": group.consume_type,
            "messageModel": group.message_model, "subscriptionTable": dict(group.subscriptions),
        }  # fmt: skip
        return request.respond(body=json_body(body))

    def consume_stats(self, request: Request, store: MessageStore) -> Command:
        """Return the offsets of a group and the ends of its queues."""
        group, rows, tps = request.name("consumerGroup"), KeyedByObject(), 0.0
        for name in self._consumed(request, group):
            topic = self._broker.tables.topic(store, name)
            tps += self._broker.stats.get_tps(name, group) if topic else 0.0
            for queue_id in range(topic.read_queues if topic else 0):
                rows.append((
                    self._queue(name, queue_id), self._lag(store, name, group, queue_id)
                ))  # fmt: skip
        return request.respond(body=json_body({"consumeTps": tps, "offsetTable": rows}))

    def _consumed(self, request: Request, group: str) -> list[str]:
        """Return the topics whose lag is requested."""
        listed = request.text("topicList", "")
        if listed:
            return [each for each in listed.split(_SEPARATOR) if each]
        topic = request.text("topic", "")
        topics = [topic] if topic.strip() else sorted(self._broker.offsets.topics_of(group))
        online = self._broker.groups.get(group)
        if online is not None and online.subscriptions:
            return [each for each in topics if each in online.subscriptions]
        return topics

    def _lag(self, store: MessageStore, topic: str, group: str, queue_id: int) -> Json:
        offset = self._broker.offsets.committed(topic, group, queue_id) or 0
        found: Json = {
            "brokerOffset": store.max_offset(topic, queue_id), "consumerOffset": offset,
            "lastTimestamp": 0, "pullOffset": offset,
        }  # fmt: skip
        if offset > 0:
            found["lastTimestamp"] = max(unit_time(store, topic, queue_id, offset - 1), 0)
        return found

    # ---- the broker itself

    def clusters(self, request: Request, _store: MessageStore) -> Command:
        """Return the only cluster and the only broker."""
        broker = self._broker
        row = {
            "brokerAddrs": KeyedByObject([(0, broker.advertised or request.local_address)]),
            "brokerName": broker.name, "cluster": broker.cluster, "enableActingMaster": False,
        }  # fmt: skip
        body = {
            "brokerAddrTable": {broker.name: row},
            "clusterAddrTable": {broker.cluster: [broker.name]},
        }  # fmt: skip
        return request.respond(body=json_body(body))

    def runtime_info(self, request: Request, store: MessageStore) -> Command:
        """Return statistics under a broker's names; what a read-only server has not is 0."""
        first = max(store.min_phy_offset(), 0)
        disk = shutil.disk_usage(store.root)
        used = (disk.total - disk.free) / disk.total
        earliest = -1
        with suppress(CorruptionError):  # the log is empty, or its first record is damaged
            earliest = store.message_by_offset(first).store_timestamp
        table = (
            dict.fromkeys(_NO_WAITS, "0")
            | dict.fromkeys(_ZEROS, "0.0 0.0 0.0")
            | {
                "brokerActive": "true",
                "brokerVersionDesc": f"cqstore-{self._version}",
                "bootTimestamp": str(int(self._started * 1000)),
                "commitLogDiskRatio": f"{used:.4f}",
                "commitLogMaxOffset": str(store.max_phy_offset()),
                "commitLogMinOffset": str(first),
                "consumeQueueDiskRatio": f"{used:.4f}",
                "earliestMessageTimeStamp": str(earliest),
                "runtime": f"[ {int(time.time() - self._started)} seconds ]",
                "timerDequeueTps": "0.0",
                "timerEnqueueTps": "0.0",
            }
        )
        return request.respond(body=json_body({"table": table}))

    def broker_config(self, request: Request, store: MessageStore) -> Command:
        """Return the settings that have a meaning here, as a properties file."""
        broker = self._broker
        host, _, port = (broker.advertised or request.local_address).rpartition(":")
        settings = {
            "brokerClusterName": broker.cluster, "brokerId": 0, "brokerIP1": host,
            "brokerName": broker.name, "brokerPermission": broker.perm, "listenPort": port,
            "storePathRootDir": store.root,
        }  # fmt: skip
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        version = json_body({"counter": 0, "stateVersion": 0, "timestamp": 0}).decode()
        return request.respond(fields={"version": version}, body=text.encode("utf-8", "replace"))

    def stats_data(self, request: Request, _store: MessageStore) -> Command:
        """Return the sums of one figure by topic or group.

        Raises:
            RefusedRequestError: nothing was counted for it.
        """
        name, key = request.text("statsName"), request.text("statsKey")
        found = self._broker.stats.summary(name, key)
        if found is None:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{name[:80]}> <{key[:80]}> not exist"
            )
        return request.respond(body=json_body(found))

    def _queue(self, topic: str, queue_id: int) -> Json:
        return {"brokerName": self._broker.name, "queueId": queue_id, "topic": topic}


def _page(request: Request, names: list[str], what: str) -> list[str]:
    """Return the page of ``names`` that a request asks for; without a page, all of them."""
    lower = what.lower()
    first = request.integer(f"{lower}Seq", 0)
    count = request.integer(f"max{what}Num", len(names))
    return names[max(first, 0) : max(first, 0) + max(count, 0)]


def _connection(consumer: Consumer) -> Json:
    return {
        "clientAddr": consumer.link.peer, "clientId": consumer.client_id,
        "language": consumer.language, "version": consumer.version,
    }  # fmt: skip
