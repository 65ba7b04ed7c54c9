"""EmbeddedLog: topics that a program puts to and reads, and groups that keep their place.

A thin face over one open ``MessageStore``, in a folder that a broker of Apache RocketMQ can open
afterwards: topics and consumer offsets are kept where that keeps them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Literal, Self, overload

from cqstore.broker.groups.group_offsets import OffsetChange
from cqstore.embedded.consumer_offsets import INTERVAL_SECONDS, ConsumerOffsets
from cqstore.embedded.group_members import LogMembers
from cqstore.embedded.log_message import LogMessage, log_message
from cqstore.embedded.log_topics import LogTopics
from cqstore.embedded.names import check_group_name, check_topic_name
from cqstore.embedded.one_reader import filter_of
from cqstore.embedded.put_message import put_message_of, stored
from cqstore.embedded.read_only_tail import POLL_SECONDS, ReadOnlyTail, read_snapshot, report_damage
from cqstore.embedded.reset_target import reset_target
from cqstore.embedded.send_back import MAX_RECONSUME_TIMES, RetryTopics
from cqstore.embedded.store_snapshots import StoreSnapshots
from cqstore.embedded.tail import Tail
from cqstore.store.errors import ReadOnlyStoreError, RefusedStoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.by_group import GroupOffsets
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.arguments import (
    check_numbers,
    check_texts,
    listed_numbers,
    listed_texts,
)
from cqstore.store.service.reading.store_times import Time, time_range
from cqstore.store.service.reading.topic_follower import TopicFollower
from cqstore.store.service.reading.topic_reader import read_topic
from cqstore.store.service.results import PutMessageResult

QUEUES = 4
"""Of a new topic, as a broker gives it for a producer's default."""
Begin = Literal["earliest", "latest"] | Time


class EmbeddedLog:
    """One open log: topics to put to and to read, and groups that keep their place."""

    def __init__(
        self,
        store: MessageStore,
        queues: int = QUEUES,
        interval: float = INTERVAL_SECONDS,
        open_again: Callable[[], MessageStore] | None = None,
    ) -> None:
        """Serve ``store``, which is the log's own from now on; see ``cqstore.open``.

        ``open_again`` opens one that is read-only as it is later.
        """
        self._snapshots: StoreSnapshots | None = None
        if store.read_only:
            self._snapshots = StoreSnapshots(
                store,
                open_again or partial(MessageStore.open, store.root, read_only=True),
            )
        self._store = store
        self._members = LogMembers()
        self._offsets: ConsumerOffsets | None = None
        self._topics: LogTopics | None = None
        if not store.read_only:
            self._offsets = offsets = ConsumerOffsets(store, interval, self._members.share_anew)
            components_of(store).clean.positions.owner = offsets
            self._topics = LogTopics(store, queues, offsets.forget_topic)
            offsets.start()

    def __repr__(self) -> str:
        return repr(self.store).replace("MessageStore", "EmbeddedLog", 1)

    @property
    def offsets(self) -> GroupOffsets | None:
        """What keeps the offsets of the groups, for figures; ``None`` where it is read only."""
        return self._offsets

    @property
    def store(self) -> MessageStore:
        """Return what is below; of a log that is read-only, as it was refreshed last."""
        return self._store if self._snapshots is None else self._snapshots.newest

    # ---- putting

    def put(
        self,
        topic: str,
        body: bytes,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int | None = None,
    ) -> PutMessageResult:
        """Put one message; it is visible when this returns, and as durable as ``StoreConfig`` says.

        Messages with one ``key`` go to one queue and keep their order; without a key each queue has
        its turn. A key has no space, and ``tags`` is one tag, so that queries and filters find it.
        The first put fixes how many queues a topic has. With a ``delay_level``, counted from 1, the
        message comes to its topic after ``message_delay_level`` (5 s for 2); the result has its
        place in the schedule until then. Needs ``enable_schedule_message_service``.

        Raises:
            PutRefusedError: it was not stored: too long, a disk is full, or nothing delivers it
                later.
            IllegalMessageError: a broker would not take the topic's name, or key or tag is several.
            RefusedStoreError: the topic may not be written, or has no such queue.
            StoreError: as for ``MessageStore.put_message``.
        """
        message = put_message_of(
            self._writable_topics(), topic, body, key, tags, properties, queue_id, delay_level
        )
        return stored(self.store.put_message(message))

    async def put_async(
        self,
        topic: str,
        body: bytes,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int | None = None,
    ) -> PutMessageResult:
        """Put as ``put`` does, and await what is due, see ``MessageStore.put``.

        Raises:
            StoreError: as for ``put``.
        """
        message = put_message_of(
            self._writable_topics(), topic, body, key, tags, properties, queue_id, delay_level
        )
        return stored(await self.store.put_message_async(message))

    def send_back(
        self,
        message: LogMessage,
        group: str,
        level: int | None = None,
        *,
        max_reconsume_times: int = MAX_RECONSUME_TIMES,
    ) -> PutMessageResult:
        """Have ``message``, which ``group`` could not process, given to the group again.

        After a delay that grows with each try, from 10 s (level 3) to 2 h, or that of ``level``. A
        copy goes to the topic ``%RETRY%group``, which the group's tails read too; commit the
        message itself. What was sent back ``max_reconsume_times`` times goes to ``%DLQ%group``, and
        so does it at a level below 0. That topic no tail reads by itself.

        Raises:
            RefusedStoreError: nothing delivers it again (``enable_schedule_message_service``), or
                the message is in the log no more.
            PutRefusedError, StoreError: as for ``put``.

        Source: RocketMQ ``AbstractSendMessageProcessor.consumerSendMsgBack``.
        """
        copied = self._retry_topics().sent_back(message, group, level, max_reconsume_times)
        return stored(self.store.put_message(copied))

    async def send_back_async(
        self,
        message: LogMessage,
        group: str,
        level: int | None = None,
        *,
        max_reconsume_times: int = MAX_RECONSUME_TIMES,
    ) -> PutMessageResult:
        """Send back as ``send_back`` does, and await what is due, see ``MessageStore.put``.

        Raises:
            StoreError: as for ``send_back``.
        """
        copied = self._retry_topics().sent_back(message, group, level, max_reconsume_times)
        return stored(await self.store.put_message_async(copied))

    def create_topic(self, topic: str, queues: int | None = None) -> int:
        """Make a topic known with so many queues; return how many it has.

        Raises:
            RefusedStoreError: it is known, with another number of them.
            StoreError: as for ``put``.
        """
        return self._writable_topics().create(topic, queues)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic: its queues, the offsets of all groups in them, and its number of queues.

        Durable when it returns; it does nothing for an unknown topic. The messages stay in the log
        files until these expire, and cannot be read. When the topic is put to again, it is a new
        one: its queues begin at offset 0, and every group gets the first message.

        Raises:
            IllegalMessageError: no topic of a program could have the name.
            RefusedStoreError: a group has consumers of it: close them first; or delayed messages
                are delivered from it.
            StoreError: as for ``put``, or a table of offsets cannot be read or written.

        Source: RocketMQ ``AdminBrokerProcessor.deleteTopic``.
        """
        topics = self._writable_topics()
        check_topic_name(topic)
        self._members.forget(topic)
        self._store.delete_topic(topic)
        topics.forget(topic)

    def topics(self) -> list[str]:
        """Return the topics of the log, light queues and a broker's own among them."""
        if self._snapshots is None:
            return sorted({*self._writable_topics().names(), *self._store.topics()})
        with self._snapshots.reading() as store:
            return sorted({*store.topics(), *TopicFollower(components_of(store)).topics()})

    # ---- reading

    def read(
        self,
        topic: str,
        begin: Time | None = None,
        end: Time | None = None,
        *,
        tags: str = "*",
        queue_ids: Collection[int] | None = None,
    ) -> Iterator[LogMessage]:
        """Yield what was stored between two times, both included, over all queues by store time.

        ``None`` is unbounded. The time of each message is compared, see ``read_topic``.

        It ends where the queues end now; of a log that is read-only, where they ended when it was
        opened or refreshed last. No group moves. What is damaged is logged, and passed over. An
        unknown topic has no messages.

        Raises:
            RefusedStoreError: a time is probably not in ms.
            StoreConfigError: ``begin`` is later than ``end``.
            StoreClosedError: the log is closed.
        """
        times = time_range(begin, end)
        check_texts(topic=topic)
        if queue_ids is not None:
            queue_ids = listed_numbers(queue_ids=queue_ids)
        wanted = filter_of(tags)
        if self._snapshots is not None:
            return read_snapshot(self._snapshots, topic, times, wanted, queue_ids)
        found = read_topic(
            self.store, topic, *times, queue_ids=queue_ids, tags=wanted,
            on_damage=report_damage,
        )  # fmt: skip
        return (log_message(topic, each) for each in found)

    def refresh(self) -> None:
        """See what another process has put, deleted and expired since; for a log that is read-only.

        It opens the store anew, which costs what an opening does. What is being read goes on with
        the store as it was. A log that is written here shows all at any time: nothing is done.

        Raises:
            StoreClosedError: the log is closed.
            StoreError: the store cannot be opened now; it is read as it was.
        """
        if self._snapshots is not None:
            self._snapshots.refresh()

    @overload
    def tail(
        self, topic: str, *, group: str, begin: Begin = ..., tags: str = ...,
        auto_commit: bool = ..., retries: bool = ...,
    ) -> Tail: ...  # fmt: skip

    @overload
    def tail(
        self, topic: str, *, begin: Begin = ..., tags: str = ..., poll_seconds: float = ...
    ) -> ReadOnlyTail: ...

    def tail(
        self,
        topic: str,
        *,
        group: str | None = None,
        begin: Begin = "earliest",
        tags: str = "*",
        auto_commit: bool = True,
        retries: bool = True,
        poll_seconds: float = POLL_SECONDS,
    ) -> Tail | ReadOnlyTail:
        """Return a consumer of ``group``: ``async for message in log.tail(...)``.

        Or ``for`` in a thread, and ``for message in tail.messages(timeout=5)``.

        It goes on where the group has committed. A queue in which the group has committed nothing
        is read from ``begin``. Several consumers of a group share the queues of the topic. A topic
        that is not known yet is made known. Without ``auto_commit`` messages are committed by
        ``message.commit()``. Leave it by ``with`` or ``async with``, or let it go: then its queues
        go to the others. With ``retries`` it gives what the group has sent back too, of whatever
        topic (``message.origin_topic``), where delayed messages are delivered.

        A log that is read-only is followed without a group: all from ``begin`` on, and what the
        process that writes puts, as soon as it is whole in the log, which is looked at each
        ``poll_seconds``. That may be before it is on disk, or acknowledged.

        Raises:
            ReadOnlyStoreError: a log that was opened to read has no groups.
            RefusedStoreError: the group's consumers filter by other tags; or there is no group.
            StoreError: as for ``put``.
        """
        check_texts(topic=topic, tags=tags)
        if group is None:
            return self._follow(topic, begin, tags, poll_seconds)
        check_group_name(group)
        offsets = self._writable_offsets()
        queue_ids = self._writable_topics().queues_to_read(topic)
        if begin == "latest":
            offsets.begin(group, topic, queue_ids, partial(self.store.max_offset, topic))
        elif begin != "earliest":
            first = partial(self.store.offset_at_time, topic, time=begin)
            offsets.begin(group, topic, queue_ids, first)
        members = [self._members.of(topic, group, queue_ids, tags)]
        again = self._retry_topics().of(group) if retries else None
        if again is not None and again != topic:
            queue_ids = self._writable_topics().queues_to_read(again)
            members.append(self._members.of(again, group, queue_ids, "*"))
        return Tail(self.store, offsets, members, topic, group, tags=tags, auto_commit=auto_commit)

    def _follow(self, topic: str, begin: Begin, tags: str, poll_seconds: float) -> ReadOnlyTail:
        """Return a tail of a log that is read-only.

        Raises:
            RefusedStoreError: the log is written here.
        """
        if self._snapshots is None:
            raise RefusedStoreError(
                "no group given: tail() needs group=NAME unless the log was opened read-only",
                path=self._store.root,
            )
        is_new_alone = begin == "latest"
        first = None if isinstance(begin, str) else begin
        return ReadOnlyTail(
            self._snapshots, topic, first, is_new_alone=is_new_alone, tags=tags,
            poll_seconds=poll_seconds,
        )  # fmt: skip

    # ---- groups

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return queue id → offset at which ``group`` goes on, of the queues that it has read."""
        check_texts(group=group, topic=topic)
        return self._writable_offsets().of_topic(group, topic)

    def reset_group(
        self,
        group: str,
        topic: str,
        *,
        to: Literal["earliest", "latest"] | int | None = None,
        time: Time | None = None,
        queue_id: int | None = None,
    ) -> list[OffsetChange]:
        """Have a group go on at an end, an offset, or the first message at or behind a time.

        Durable when it returns.

        Raises:
            RefusedStoreError: the group has consumers there, or an offset is outside of its queue.
            NoSuchQueueError: the topic has no such queue.
            StoreError: it cannot be written.
        """
        check_texts(group=group, topic=topic)
        if queue_id is not None:
            check_numbers(queue_id=queue_id)
        self._members.refuse_consumed(group, topic)
        target = reset_target(self.store, to, time)
        return self._writable_offsets().reset(group, topic, target, queue_id)

    def copy_group(
        self, source: str, group: str, topics: Collection[str] = ()
    ) -> list[OffsetChange]:
        """Have ``group`` go on where ``source`` does, in ``topics`` or in all; durable, see above.

        Raises:
            StoreError: as for ``reset_group``.
        """
        check_texts(source=source, group=group)
        topics = listed_texts(topics=topics)
        self._members.refuse_consumed(group, *topics)
        return self._writable_offsets().copy(source, group, topics)

    def forget_group(self, group: str, topics: Collection[str] = ()) -> list[OffsetChange]:
        """Have ``group`` begin as a new one does, in ``topics`` or in all; durable, see above.

        Raises:
            StoreError: as for ``reset_group``.
        """
        check_texts(group=group)
        topics = listed_texts(topics=topics)
        self._members.refuse_consumed(group, *topics)
        return self._writable_offsets().forget(group, topics)

    # ---- flush and close

    def flush(self) -> None:
        """Make durable what was put and committed before: that survives a power cut.

        Raises:
            StoreError: the disk refused.
        """
        self.store.flush()
        if self._offsets is not None:
            self._offsets.flush()

    def close(self) -> None:
        """Flush, and let the log go; tails that wait end with ``StoreClosedError``.

        A second call does nothing.

        Raises:
            StoreError: as for ``MessageStore.close``; offsets that could not be written are lost,
                and their messages come again.
        """
        try:
            if self._offsets is not None and not self._offsets.is_closed:
                self._offsets.close()
        finally:
            (self._snapshots or self._store).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- what the others ask

    def _writable_topics(self) -> LogTopics:
        if self._topics is None:
            raise ReadOnlyStoreError("the log was opened read-only", path=self.store.root)
        return self._topics

    def _retry_topics(self) -> RetryTopics:
        return RetryTopics(self.store, self._writable_topics(), self._writable_offsets())

    def _writable_offsets(self) -> ConsumerOffsets:
        if self._offsets is None:
            raise ReadOnlyStoreError(
                "the log was opened read-only: only the process that writes the log can use groups",
                path=self.store.root,
            )
        return self._offsets
