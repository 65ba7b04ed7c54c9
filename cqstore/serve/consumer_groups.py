"""ConsumerGroups: the consumers that are connected, as their heartbeats describe them.

Source: RocketMQ ``ConsumerManager``, ``ConsumerGroupInfo``, ``RebalanceLockManager``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol, TypeGuard

from cqstore.remoting.command import Command
from cqstore.serve.codes import ResponseCode
from cqstore.serve.request import MAX_NAME, RefusedRequestError
from cqstore.store.broker_files.fastjson import broker_object

Json = dict[str, object]
MAX_GROUPS = 10_000
"""Maximum number of groups with connected consumers, and of consumers in one group."""
_MAX_SUBSCRIPTIONS = 4096
_EXPIRES_SECONDS = 120.0
_LOCK_SECONDS = 60.0
_MAX_LOCKS = 200_000


class ClientLink(Protocol):
    """The connection of a client."""

    peer: str
    """``HOST:PORT``"""

    def send(self, command: Command) -> None:
        """Send a request without a response."""


@dataclass(slots=True)
class Consumer:
    """One consumer of a group."""

    client_id: str
    link: ClientLink
    language: str
    version: int
    seen_at: float


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers of one group. Its type and subscriptions are those of the last heartbeat."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    from_where: str = "CONSUME_FROM_LAST_OFFSET"
    consumers: dict[ClientLink, Consumer] = field(default_factory=dict)
    subscriptions: dict[str, Json] = field(default_factory=dict)

    @property
    def client_ids(self) -> list[str]:
        """Return the ids of the consumers, sorted, as they share the queues."""
        return sorted({each.client_id for each in self.consumers.values()})


class ConsumerGroups:
    """All groups with connected consumers, and the queues that they have locked. One thread."""

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self._locks: dict[tuple[str, str], tuple[str, float]] = {}

    def __len__(self) -> int:
        """Return the number of groups with connected consumers. Any thread."""
        return len(self._groups)

    def get(self, group: str) -> ConsumerGroup | None:
        """Return a group; ``None``: no consumer of it is connected."""
        return self._groups.get(group)

    def of_topic(self, topic: str) -> list[str]:
        """Return the groups that subscribe to ``topic``. Any thread."""
        return [name for name, each in list(self._groups.items()) if topic in each.subscriptions]

    def heartbeat(
        self, link: ClientLink, language: str, version: int, body: bytes
    ) -> list[tuple[str, ConsumerGroup]]:
        """Register the consumers of a client; return the groups that have changed.

        A group has changed if a consumer joined it, or subscribes to other topics.

        Raises:
            RefusedRequestError: the body is not a heartbeat, or there are too many groups.
        """
        try:
            found = broker_object(body)
        except ValueError as exc:
            raise _invalid(f"the heartbeat is not valid JSON: {exc}") from exc
        client_id = _text(found, "clientID")
        changed: list[tuple[str, ConsumerGroup]] = []
        for data in _objects(found.get("consumerDataSet")):
            name = _text(data, "groupName")
            group = self._groups.get(name) or ConsumerGroup()
            is_new = link not in group.consumers
            if is_new and max(len(group.consumers), len(self._groups)) >= MAX_GROUPS:
                raise RefusedRequestError(
                    ResponseCode.SYSTEM_BUSY, f"more than {MAX_GROUPS} groups or consumers"
                )
            before = group.subscriptions
            self._groups[name] = group
            group.consumers[link] = Consumer(client_id, link, language, version, monotonic())
            _describe(group, data)
            if is_new or group.subscriptions.keys() != before.keys():
                changed.append((name, group))
        return changed

    def leave(self, link: ClientLink, group: str | None = None) -> list[tuple[str, ConsumerGroup]]:
        """Remove the consumers of a client from ``group``, or from all groups.

        Returns the groups that have lost a consumer and have others.
        """
        names = list(self._groups) if group is None else [group]
        return [found for name in names if (found := self._remove(name, [link])) is not None]

    def expire(self) -> list[tuple[str, ConsumerGroup]]:
        """Remove consumers without a heartbeat for two minutes; return what ``leave`` does."""
        limit = monotonic() - _EXPIRES_SECONDS
        changed: list[tuple[str, ConsumerGroup]] = []
        for name, group in list(self._groups.items()):
            late = [link for link, each in group.consumers.items() if each.seen_at < limit]
            if late and (found := self._remove(name, late)) is not None:
                changed.append(found)
        return changed

    def lock(self, group: str, client_id: str, queues: Iterable[str]) -> Iterator[str]:
        """Yield those of ``queues`` that the client now has for itself, for a minute."""
        now = monotonic()
        for queue in queues:
            owner, until = self._locks.get((group, queue), ("", 0.0))
            if owner == client_id or until < now:
                if len(self._locks) >= _MAX_LOCKS:
                    self._locks = {key: each for key, each in self._locks.items() if each[1] >= now}
                if len(self._locks) < _MAX_LOCKS:
                    self._locks[group, queue] = client_id, now + _LOCK_SECONDS
                    yield queue

    def has_locks(self, group: str) -> bool:
        """Return whether consumers of ``group`` have queues for themselves: they are orderly."""
        now = monotonic()
        return any(
            owner == group and until >= now for (owner, _), (_, until) in self._locks.items()
        )

    def unlock(self, group: str, client_id: str, queues: Iterable[str]) -> None:
        """Release queues that the client has locked."""
        for queue in queues:
            if self._locks.get((group, queue), ("", 0.0))[0] == client_id:
                del self._locks[group, queue]

    def _remove(self, name: str, links: Iterable[ClientLink]) -> tuple[str, ConsumerGroup] | None:
        group = self._groups.get(name)
        if group is None:
            return None
        before = len(group.consumers)
        for link in links:
            group.consumers.pop(link, None)
        if not group.consumers:
            del self._groups[name]
            return None
        return (name, group) if len(group.consumers) < before else None


def _describe(group: ConsumerGroup, data: Json) -> None:
    """Set the type and the subscriptions of a group as a heartbeat has them."""
    group.consume_type = _text(data, "consumeType", group.consume_type)
    group.message_model = _text(data, "messageModel", group.message_model)
    group.from_where = _text(data, "consumeFromWhere", group.from_where)
    found = {_text(each, "topic"): each for each in _objects(data.get("subscriptionDataSet"))}
    if len(found) > _MAX_SUBSCRIPTIONS:
        raise _invalid(f"more than {_MAX_SUBSCRIPTIONS} subscriptions in one group")
    if found:
        group.subscriptions = found


def _objects(value: object) -> Iterator[Json]:
    for each in value if isinstance(value, list) else ():
        if _is_object(each):
            yield each


def _is_object(value: object) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _text(found: Json, name: str, default: str | None = None) -> str:
    value = found.get(name, default)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise _invalid(f"the heartbeat's {name} has no text of 1 to {MAX_NAME} characters")
    return value


def _invalid(what: str) -> RefusedRequestError:
    return RefusedRequestError(ResponseCode.SYSTEM_ERROR, f"invalid request: {what}")
