"""Checks of metadata against the queues of its store.

Source: RocketMQ ``RocksDBConsumeQueueStore.cleanDirty``, ``PullMessageProcessor``.
"""

from collections.abc import Iterable, Iterator

from cqstore.broker.metadata.findings import MetadataSeverity, MetaFinding
from cqstore.broker.metadata.model import BrokerMetadata
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.record.topic_names import is_exempt

_Places = dict[tuple[str, int], list[tuple[str, int]]]
"""Topic and queue id → key and offset of each group with a committed offset there."""


class QueueChecks:
    """Compares one form with a stream of queues; memory use depends only on the offsets."""

    def __init__(self, found: BrokerMetadata) -> None:
        self._known = found.topics
        self._offsets = _places(found)
        self._unseen = dict.fromkeys(self._offsets)
        self._topics = set[str]()
        form = found.form
        self._beyond = MetaFinding(
            form, MetadataSeverity.WARN, "offset-beyond-queue",
            "A group's offset is above the max offset of its queue: its next pull moves it to the"
            " max offset, and messages appended before that pull are never consumed.",
        )  # fmt: skip
        self._below = MetaFinding(
            form, MetadataSeverity.INFO, "offset-below-queue",
            "A group's offset is below the min offset of its queue: messages in between expired.",
        )  # fmt: skip
        self._no_queue = MetaFinding(
            form, MetadataSeverity.WARN, "offset-without-queue",
            "A group has an offset in a queue that does not exist: the group would skip the first"
            " messages of a new queue.",
        )  # fmt: skip
        self._unknown = MetaFinding(
            form, MetadataSeverity.WARN, "topics-without-metadata",
            "Topics have queues but no configuration: a broker deletes their RocksDB queues ten"
            " minutes after its start (cqstore meta make-topics).",
        )  # fmt: skip
        self._idle = MetaFinding(
            form, MetadataSeverity.INFO, "topics-without-queues",
            "Topics have no queues: nothing was written to them.",
        )  # fmt: skip

    def compare(self, span: QueueSpan) -> None:
        """Compare the metadata with the ends of one queue."""
        key, low, high = span
        topic, queue_id = key
        if topic not in self._topics:
            self._topics.add(topic)
            if topic not in self._known and not is_exempt(topic):
                self._unknown.add(topic)
        if (topic, queue_id) not in self._unseen:
            return
        del self._unseen[topic, queue_id]
        for name, offset in self._offsets[topic, queue_id]:
            if offset > high:
                self._beyond.add(f"{name} {queue_id}: {offset} > {high}")
            elif is_below(offset, low):
                self._below.add(f"{name} {queue_id}: {offset} < {low}")

    def findings(self) -> Iterator[MetaFinding]:
        """Yield the findings, after all queues were compared."""
        for topic, queue_id in self._unseen:
            for name, offset in self._offsets[topic, queue_id]:
                if offset > 0:
                    self._no_queue.add(f"{name} {queue_id}: {offset}")
        self._idle.with_names(
            name for name in self._known if name not in self._topics and not is_exempt(name)
        )
        kinds = (self._unknown, self._beyond, self._no_queue, self._below, self._idle)
        yield from (finding for finding in kinds if finding.total)


def is_below(offset: int, low: int) -> bool:
    """Return whether a group's next message has expired.

    A broker treats a negative offset as never committed.

    Source: RocketMQ ``ConsumerManageProcessor.queryConsumerOffset``.
    """
    return 0 <= offset < low


def check_queues(
    found: Iterable[BrokerMetadata], spans: Iterable[QueueSpan]
) -> Iterator[MetaFinding]:
    """Yield the mismatches between each form and the queues, which are read once."""
    checks = [QueueChecks(each) for each in found]
    for span in spans:
        for check in checks:
            check.compare(span)
    for check in checks:
        yield from check.findings()


def _places(found: BrokerMetadata) -> _Places:
    """Return the queue of each offset; ambiguous keys are left out."""
    made: _Places = {}
    for key, row in found.offsets.items():
        fitting = fitting_readings(key, found.topics, found.groups)
        if len(fitting) == 1:
            for queue_id, offset in row.items():
                made.setdefault((fitting[0][0], queue_id), []).append((key, offset))
    return made
