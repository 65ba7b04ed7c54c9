"""Consumer offsets against the queues: a consumer outside [min, max] is moved by the broker.

Source: RocketMQ ``ConsumerOffsetManager``, ``LmqConsumerOffsetManager``; spec 13.1, 15.
"""

from collections.abc import Iterator
from typing import Any

from cqstore.broker.metadata.json_entries import table_entries
from cqstore.broker.metadata.locations import FILES_OF_TABLE
from cqstore.broker.metadata.model import BrokerMetadata, Table
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding, Severity
from cqstore.migration.preflight.topics_check import in_database
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore

_TABLES = ("offsetTable", "lmqOffsetTable")


class OffsetsCheck:
    """Compares a store's consumer offsets, in whichever form, with the ends of its queues."""

    def __init__(self, paths: StorePaths, queues: ConsumeQueueStore) -> None:
        self._paths = paths
        self._queues = queues
        self._beyond, self._below, self._unknown = NameCount(), NameCount(), NameCount()
        self.compared = 0

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield consumers beyond the maximum, below the minimum, and of unknown topics."""
        found = in_database(self._paths, Table.OFFSETS)
        if found is not None:
            if found.faults:
                said = f"Consumer offsets cannot be read from the form {found.form}"
                yield not_compared(Severity.WARN, f"{said}: {found.faults[0]}.")
            self._check_database(found)
            yield from self._found()
            return
        files = [self._paths.config / name for name in FILES_OF_TABLE[Table.OFFSETS]]
        present = [path for path in files if exists(path)]
        if not present:
            yield not_compared(Severity.INFO, "There are no consumer offsets (config/) here.")
            return
        try:
            for path in present:
                for table in _TABLES:
                    for key, value in table_entries(path, table):
                        self._check(key, value)
        except StoreError as exc:
            yield not_compared(Severity.WARN, f"{exc}.")
        yield from self._found()

    def _check_database(self, found: BrokerMetadata) -> None:
        """Compare every offset whose topic is known by the names of topics and groups."""
        for key, row in found.offsets.items():
            ways = fitting_readings(key, found.topics, found.groups)
            if len(ways) == 1:
                [(topic, group)] = ways
                known = next(self._queues.queues(topic), None) is not None
                for queue_id, offset in row.items():
                    self._compare(topic, group, queue_id, offset, known=known)

    def _check(self, key: str, value: object) -> None:
        """Compare the offsets of one key with the queues.

        Raises:
            CorruptionError: they are none.
        """
        topic, separator, group = key.partition(TOPIC_GROUP_SEPARATOR)
        offsets: dict[str, Any] = value if isinstance(value, dict) else {"0": value}
        if not separator:
            raise CorruptionError(f"{key!r} in the consumer offsets is not TOPIC@GROUP")
        known = next(self._queues.queues(topic), None) is not None
        for queue_id, offset in offsets.items():
            try:
                self._compare(topic, group, int(queue_id), int(offset), known=known)
            except (TypeError, ValueError, OverflowError) as exc:
                raise CorruptionError(f"the consumer offset of {key!r} is no number") from exc

    def _compare(self, topic: str, group: str, queue_id: int, offset: int, *, known: bool) -> None:
        """Count an offset, and note it where it does not lie within its queue."""
        self.compared += 1
        name = f"{group} on {topic}/{queue_id}"
        if not known:
            if offset > 0:  # 0 is what every group has on a topic without messages
                self._unknown.add(name, offset=offset)
            return
        low, high = self._queues.queue(topic, queue_id).ends()
        if offset > high:
            self._beyond.add(name, offset=offset, max=high)
        elif 0 <= offset < low:
            self._below.add(name, offset=offset, min=low)

    def _found(self) -> Iterator[PreflightFinding]:
        """Yield a finding for each way in which offsets do not fit."""
        yield from self._beyond.finding(
            "consumers-beyond-max",
            Severity.WARN,
            "Consumers are beyond the maximum of their queue: a broker will set them back.",
            compared=self.compared,
        )
        yield from self._below.finding(
            "consumers-below-min",
            Severity.INFO,
            "Consumers are below the minimum of their queue: what they have not read has expired.",
            compared=self.compared,
        )
        yield from self._unknown.finding(
            "consumers-of-unknown-topics",
            Severity.WARN,
            "Consumers have offsets on topics without queues.",
            compared=self.compared,
        )


def not_compared(severity: Severity, sentence: str) -> PreflightFinding:
    """Return the finding that offsets were not compared; the sentence says why."""
    return PreflightFinding(code="offsets-not-compared", severity=severity, sentence=sentence)
