"""Compare the queues with the broker's topic table.

A broker with RocksDB queues deletes, ten minutes after its start and then hourly, all queues of
topics that are not in its topic table; light queues and system topics are exempt.

Source: RocketMQ ``RocksDBConsumeQueueStore.cleanDirty``; spec 9.7, 15; field notes 8, 14.
"""

from collections.abc import Iterator, Mapping

from cqstore.broker.lite_topics import lite_expirations
from cqstore.broker.metadata.model import Table
from cqstore.broker.metadata.table_forms import faults_of, read_newest, table_forms
from cqstore.migration.preflight.preflight_report import (
    NameCount,
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.store.paths import StorePaths
from cqstore.store.record.topic_names import is_exempt


class TopicsCheck(QueueCheck):
    """Check for topics that have queues but are not in the table, and the reverse."""

    def __init__(
        self,
        topics: set[str],
        *,
        complete: bool = True,
        lite_expirations: Mapping[str, int] | None = None,
    ) -> None:
        """``topics`` is modified; ``complete``: the table could be read."""
        self.lite_expirations = (lite_expirations or {}) if complete else None
        """Parent of lite topics → minutes; ``None`` if unknown."""
        self._unseen = topics
        self._listed = len(topics)
        self._complete = complete
        self._missing, self._idle = NameCount(), NameCount()
        self._topic: str | None = None
        self._is_missing = False
        self._queues = self._units = 0
        self._queues_at_risk = self._units_at_risk = 0

    def check(self, queue: UnitRange) -> None:
        """Add one queue to its topic."""
        if queue.topic != self._topic:
            self._end_topic()
            self._topic = queue.topic
            listed = queue.topic in self._unseen
            self._unseen.discard(queue.topic)
            self._is_missing = not (listed or is_exempt(queue.topic))
        self._queues += 1
        self._units += queue.units

    def _end_topic(self) -> None:
        if self._topic is not None and self._is_missing:
            self._missing.add(self._topic, queues=self._queues, units=self._units)
            self._queues_at_risk += self._queues
            self._units_at_risk += self._units
        self._queues = self._units = 0

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield both findings; nothing if there is no table to compare with."""
        if not self._complete:
            return
        self._end_topic()
        self._topic = None
        yield from self._missing.finding(
            "topics-without-metadata",
            Severity.WARN,
            "Topics with queues are missing from the topic table: a broker deletes their RocksDB "
            "queues ten minutes after its start.",
            listedTopics=self._listed,
            queuesAtRisk=self._queues_at_risk,
            unitsAtRisk=self._units_at_risk,
        )
        for topic in sorted(self._unseen):
            if not is_exempt(topic):
                self._idle.add(topic)
        yield from self._idle.finding(
            "topics-without-queues",
            Severity.INFO,
            "Topics of the topic table have no queues: nothing was written to them.",
        )


def read_topic_table(paths: StorePaths) -> tuple[TopicsCheck, list[PreflightFinding]]:
    """Return the check against the topic table, and findings about a missing or unreadable one."""
    config = paths.config
    found = read_newest(config, table_forms(paths)).get(Table.TOPICS)
    if found is None:
        sentence = "config/topics.json does not exist: a broker that starts here has no topics."
        return TopicsCheck(set()), [finding("no-topic-table", Severity.WARN, sentence)]
    if faults := faults_of(Table.TOPICS, found, config):
        sentence = f"Cannot read the topics in form {found.form}: {faults[0]}."
        return TopicsCheck(set(), complete=False), [
            finding("no-topic-table", Severity.WARN, sentence)
        ]
    return TopicsCheck(set(found.topics), lite_expirations=lite_expirations(found.topics)), []
