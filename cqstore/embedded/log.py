"""EmbeddedLog: topics that a program writes and reads, and groups that store their offsets.

A thin layer over one open ``MessageStore``. A broker of Apache RocketMQ can open the folder
afterwards: topics and consumer offsets are stored in the broker's files.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Literal, Self, overload

from cqstore.broker.cleaning.rules import CleaningRules
from cqstore.broker.cleaning.topic_cleaner import EVERY_SECONDS, TopicCleaner
from cqstore.broker.groups.group_offsets import OffsetChange, reset_target
from cqstore.embedded.clean_log import clean_log
from cqstore.embedded.consumer_offsets import INTERVAL_SECONDS, ConsumerOffsets
from cqstore.embedded.group_members import LogMembers
from cqstore.embedded.log_message import LogMessage, log_message
from cqstore.embedded.log_tables import LogTables
from cqstore.embedded.log_topics import LogTopics
from cqstore.embedded.names import check_group_name, check_topic_name
from cqstore.embedded.one_reader import filter_of
from cqstore.embedded.put_message import put_message_of, stored
from cqstore.embedded.read_only_tail import POLL_SECONDS, ReadOnlyTail, read_snapshot, report_damage
from cqstore.embedded.send_back import MAX_RECONSUME_TIMES, RetryTopics
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
from cqstore.store.service.store_snapshots import StoreSnapshots

QUEUES = 4
"""Number of queues of a new topic, a broker's default."""
Begin = Literal["earliest", "latest"] | Time


class EmbeddedLog:
    """One open log: topics to write and read, and groups that store their offsets.

    A log that is garbage-collected without ``close`` is released as by a killed process, with a
    ``ResourceWarning``. Tails and readers keep it open.
    """

    def __init__(
        self,
        store: MessageStore,
        queues: int = QUEUES,
        interval: float = INTERVAL_SECONDS,
        open_again: Callable[[], MessageStore] | None = None,
    ) -> None:
        """Take over ``store``, which then belongs to the log; see ``cqstore.open``.

        ``open_again`` opens the current state of a read-only store again.
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
            self._topics, self._offsets = LogTables.take_over(
                store, queues, interval, self._members.share_anew
            )

    def __repr__(self) -> str:
        return repr(self.store).replace("MessageStore", "EmbeddedLog", 1)

    @property
    def offsets(self) -> GroupOffsets | None:
        """Return the consumer offsets, for metrics; ``None`` if the log is read-only."""
        return self._offsets

    @property
    def store(self) -> MessageStore:
        """Return the store of the log; if it is read-only, as of the last refresh."""
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
        """Put one message; it is visible when this returns, and as durable as ``StoreConfig`` sets.

        Messages with the same ``key`` are put to the same queue and keep their order; without a key
        the queues take turns. A key contains no space, and ``tags`` is a single tag, so that
        queries and filters find it. The first put fixes the topic's number of queues. With a
        ``delay_level``, counted from 1, the message is delivered to its topic after the delay in
        ``message_delay_level`` (5 s for 2); until then, the result has its place in the schedule.
        Needs ``enable_schedule_message_service``.

        Raises:
            PutRefusedError: the message was not stored: it is too long, the disk is full, or
                delayed delivery is disabled.
            IllegalMessageError: a broker would not accept the topic's name, the key or the tag.
            RefusedStoreError: the topic is not writable, or has no such queue.
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
        """Put as ``put`` does, and await disk and replicas, see ``MessageStore.put``.

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
        """Deliver ``message``, which ``group`` could not process, to the group again.

        The delay grows with each try, from 10 s (level 3) to 2 h, unless ``level`` is given. A copy
        is put to the topic ``%RETRY%group``, which the group's tails read too; commit the message
        itself. A message that was sent back ``max_reconsume_times`` times, or at a level below 0,
        is put to ``%DLQ%group``, which no tail reads unless it is opened for that topic.

        Raises:
            RefusedStoreError: delayed delivery is disabled (``enable_schedule_message_service``),
                or the message no longer exists.
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
        """Send back as ``send_back`` does, and await disk and replicas, see ``MessageStore.put``.

        Raises:
            StoreError: as for ``send_back``.
        """
        copied = self._retry_topics().sent_back(message, group, level, max_reconsume_times)
        return stored(await self.store.put_message_async(copied))

    def create_topic(self, topic: str, queues: int | None = None) -> int:
        """Create a topic with ``queues`` queues, if it does not exist; return their number.

        Raises:
            RefusedStoreError: the topic exists with a different number of queues.
            StoreError: as for ``put``.
        """
        return self._writable_topics().create(topic, queues)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic: its queues, the offsets of all groups in them, and its number of queues.

        Durable when it returns. Does nothing if the topic does not exist. The messages stay in the
        log files until the files expire, but cannot be read. A put to the topic creates it again:
        its queues start at offset 0, and every group gets the first message.

        Raises:
            IllegalMessageError: the topic name is invalid or reserved.
            RefusedStoreError: a group has open consumers of the topic, or delayed messages are
                delivered from it.
            StoreError: as for ``put``, or a table of offsets cannot be read or written.

        Source: RocketMQ ``AdminBrokerProcessor.deleteTopic``.
        """
        topics = self._writable_topics()
        check_topic_name(topic)
        self._members.forget(topic)
        self._store.delete_topic(topic)
        topics.forget([topic])

    def clean_topics(
        self, rules: CleaningRules, *, every: float = EVERY_SECONDS, dry_run: bool = True
    ) -> TopicCleaner:
        """Delete topics by ``rules`` once per ``every`` seconds, until the log is closed.

        As ``cqstore.clean_topics``, but with the topics and consumer offsets of the log, also those
        that are only in memory. Deleted topics leave the table. A topic with open consumers is
        kept.

        Raises:
            StoreConfigError: the log has such a service already, or ``every`` is not above 0.
            ReadOnlyStoreError: the log was opened read-only.
            StoreStateError: the log is closed, or this is a child process.
        """
        return clean_log(
            self._store, self._writable_topics(), self._writable_offsets(), self._members, rules,
            every, dry_run=dry_run,
        )  # fmt: skip

    def topics(self) -> list[str]:
        """Return the topics of the log, including light queues and topics of brokers."""
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
        """Yield the messages stored from ``begin`` to ``end``, of all queues by store time.

        Both times are included; ``None`` is unbounded. The time of each message is compared, see
        ``read_topic``.

        Ends at the current end of the queues; in a read-only log, at their end when it was last
        opened or refreshed. No consumer offset changes. Damaged messages are logged and skipped. An
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
        """Make changes by another process visible in a read-only log.

        Opens the store again, at the cost of an open. Reads in progress continue with the previous
        state. Does nothing in a log that was opened for writing, which is always up to date.

        Raises:
            StoreClosedError: the log is closed.
            StoreError: the store cannot be opened now; the previous state stays readable.
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

        In a thread, use ``for``, or ``for message in tail.messages(timeout=5)``.

        The tail starts at the group's consumer offsets; a queue without one is read from ``begin``.
        Several consumers of a group share the queues of the topic. An unknown topic is created.
        Without ``auto_commit``, commit messages with ``message.commit()``. Close the tail with
        ``with`` or ``async with``, or drop all references; its queues are then released to the
        other consumers. With ``retries``, and if delayed delivery is enabled, it also reads the
        messages of all topics that the group has sent back (``message.origin_topic``).

        A read-only log is followed without a group: the tail yields the messages from ``begin``,
        then each message that the other process puts, once it is complete in the log, which is
        polled every ``poll_seconds``. That may be before the message is on disk or acknowledged.

        Raises:
            ReadOnlyStoreError: ``group`` is given, and the log was opened read-only.
            RefusedStoreError: the group's other consumers use other tags, or no group is given.
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
        """Return a tail of a read-only log.

        Raises:
            RefusedStoreError: the log was opened for writing.
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
        """Return queue id → consumer offset of ``group``, of the queues that have one."""
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
        """Set a group's offsets to an end, an offset, or the first message at or after a time.

        Durable when it returns.

        Raises:
            RefusedStoreError: the group has open consumers, or an offset is outside of its queue.
            NoSuchQueueError: the topic has no such queue.
            StoreError: the offsets cannot be written.
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
        """Copy the offsets of ``source`` to ``group``, in ``topics`` or in all; durable on return.

        Raises:
            StoreError: as for ``reset_group``.
        """
        check_texts(source=source, group=group)
        topics = listed_texts(topics=topics)
        self._members.refuse_consumed(group, *topics)
        return self._writable_offsets().copy(source, group, topics)

    def forget_group(self, group: str, topics: Collection[str] = ()) -> list[OffsetChange]:
        """Delete the offsets of ``group``, in ``topics`` or in all; durable on return.

        Raises:
            StoreError: as for ``reset_group``.
        """
        check_texts(group=group)
        topics = listed_texts(topics=topics)
        self._members.refuse_consumed(group, *topics)
        return self._writable_offsets().forget(group, topics)

    # ---- flush and close

    def flush(self) -> None:
        """Write all messages and commits to disk, so that they survive a power cut.

        Raises:
            StoreError: they cannot be written.
        """
        self.store.flush()
        if self._offsets is not None:
            self._offsets.flush()

    def close(self) -> None:
        """Flush and close the log; waiting tails end with ``StoreClosedError``.

        A second call does nothing.

        Raises:
            StoreError: as for ``MessageStore.close``. Offsets that could not be written are lost,
                and their messages are delivered again.
        """
        try:
            if self._offsets is not None and not self._offsets.is_closed:
                self._offsets.close()
        finally:
            (self._snapshots or self._store).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- internal

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
