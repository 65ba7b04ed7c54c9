"""Compare consumer offsets with the queues: a broker corrects offsets outside [min, max].

Source: RocketMQ ``ConsumerOffsetManager``, ``LmqConsumerOffsetManager``; spec 13.1, 15.
"""

from collections.abc import Iterator, Mapping

from cqstore.broker.metadata.json_form import read_json_file
from cqstore.broker.metadata.locations import FILES_OF_TABLE
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.broker.metadata.queue_checks import is_below
from cqstore.broker.metadata.table_forms import faults_of, read_newest, table_forms
from cqstore.migration.preflight.preflight_report import (
    NameCount,
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.store.broker_files.file_names import is_either_there
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore


class OffsetsCheck:
    """Comparison of the consumer offsets of a store, in any form, with the ends of its queues."""

    def __init__(self, paths: StorePaths, queues: ConsumeQueueStore) -> None:
        self._paths = paths
        self._queues = queues
        self._beyond, self._below, self._unknown = NameCount(), NameCount(), NameCount()
        self.compared = 0

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield findings about offsets above max, below min, or of topics without queues."""
        sources = read_newest(self._paths.config, table_forms(self._paths))
        offsets = sources.get(Table.OFFSETS)
        if offsets is None:
            yield not_compared(Severity.INFO, "No consumer offsets found in config/.")
            return
        for source in self._sources(offsets):
            if faults := faults_of(Table.OFFSETS, source, self._paths.config):
                fault = f"Cannot read the consumer offsets in form {source.form}"
                yield not_compared(Severity.WARN, f"{fault}: {faults[0]}.")
            yield from self._check(source, sources)
        yield from self._found()

    def _sources(self, newest: BrokerMetadata) -> Iterator[BrokerMetadata]:
        """Yield the sources of offsets; for JSON both files: ``enableLmq`` selects one."""
        if newest.form is not Form.JSON:
            yield newest
            return
        for name in FILES_OF_TABLE[Table.OFFSETS]:
            if is_either_there(self._paths.config / name):
                yield read_json_file(self._paths.config, name)

    def _check(
        self, found: BrokerMetadata, sources: Mapping[Table, BrokerMetadata]
    ) -> Iterator[PreflightFinding]:
        """Compare every offset whose key can be split into topic and group."""
        topics, groups = (sources.get(each, found) for each in (Table.TOPICS, Table.GROUPS))
        for key, row in found.offsets.items():
            ways = fitting_readings(key, topics.topics, groups.groups)
            if not ways:
                fault = f"Invalid key {key!r} in the consumer offsets: expected TOPIC@GROUP"
                yield not_compared(Severity.WARN, f"{fault} ({found.path}).")
            if len(ways) > 1:
                ways = [each for each in ways if self._has_queues(each[0])]
            if len(ways) == 1:
                [(topic, group)] = ways
                known = self._has_queues(topic)
                for queue_id, offset in row.items():
                    self._compare(topic, group, queue_id, offset, known=known)

    def _has_queues(self, topic: str) -> bool:
        return next(self._queues.queues(topic), None) is not None

    def _compare(self, topic: str, group: str, queue_id: int, offset: int, *, known: bool) -> None:
        """Count an offset, and record it if it is outside its queue."""
        self.compared += 1
        name = f"{group} on {topic}/{queue_id}"
        if not known:
            if offset > 0:  # every group has offset 0 on a topic without messages
                self._unknown.add(name, offset=offset)
            return
        low, high = self._queues.queue(topic, queue_id).ends()
        if offset > high:
            self._beyond.add(name, offset=offset, max=high)
        elif is_below(offset, low):
            self._below.add(name, offset=offset, min=low)

    def _found(self) -> Iterator[PreflightFinding]:
        """Yield one finding for each kind of wrong offset."""
        yield from self._beyond.finding(
            "consumers-beyond-max",
            Severity.WARN,
            "Consumer offsets are above the max offset of their queue: a broker will lower them.",
            compared=self.compared,
        )
        yield from self._below.finding(
            "consumers-below-min",
            Severity.INFO,
            "Consumer offsets are below the min offset of their queue: the unread messages"
            " have expired.",
            compared=self.compared,
        )
        yield from self._unknown.finding(
            "consumers-of-unknown-topics",
            Severity.WARN,
            "Consumer groups have offsets for topics that have no queues.",
            compared=self.compared,
        )


def not_compared(severity: Severity, sentence: str) -> PreflightFinding:
    """Return the finding that offsets were not compared, with the reason in ``sentence``."""
    return finding("offsets-not-compared", severity, sentence)
