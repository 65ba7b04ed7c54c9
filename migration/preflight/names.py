"""Whether the names of topics and the queue ids can be held where the queues are to go.

Source: spec 1, 9.2, T24; field notes 24.
"""

from collections.abc import Iterator

from cq_file.listing import check_folder_name
from cq_rocksdb.keys import MAX_TOPIC_BYTES, check_topic
from cq_rocksdb.private_folder import DATABASE_FILE
from migration.preflight.report import Finding, Severity, Tally
from migration.preflight.survey import QueueCheck, QueueSpan
from store.errors import IllegalMessageError
from store.record.message import CHECKPOINT_TOPIC


class KeyNames(QueueCheck):
    """Names that no RocksDB key may hold."""

    def __init__(self) -> None:
        self._too_long, self._no_text, self._reserved = Tally(), Tally(), Tally()
        self._longest = 0

    def look(self, queue: QueueSpan) -> None:
        """Look at the topic's name."""
        try:
            check_topic(queue.topic)
        except IllegalMessageError:
            self._add(queue)

    def _add(self, queue: QueueSpan) -> None:
        size = len(queue.topic.encode("utf-8", "surrogateescape"))
        self._longest = max(self._longest, size)
        if queue.topic == CHECKPOINT_TOPIC:
            self._reserved.add(queue.name)
        elif size > MAX_TOPIC_BYTES:
            self._too_long.add(queue.name, bytes=size, units=queue.units)
        else:
            self._no_text.add(queue.name)

    def findings(self) -> Iterator[Finding]:
        """Yield a finding a kind."""
        yield from self._too_long.finding(
            "name-too-long",
            Severity.REFUSE,
            f"Topics have names longer than the {MAX_TOPIC_BYTES} bytes of UTF-8 that RocketMQ's "
            "RocksDB keys have room for: one of them blocks its dispatch for ever.",
            most=MAX_TOPIC_BYTES,
            longest=self._longest,
        )
        yield from self._reserved.finding(
            "name-reserved",
            Severity.REFUSE,
            f"A topic is called {CHECKPOINT_TOPIC}, the name of RocksDB's checkpoint entry.",
        )
        yield from self._no_text.finding(
            "name-not-utf-8",
            Severity.REFUSE,
            "Names of topics are no UTF-8, which keys are made of.",
        )


class FolderNames(QueueCheck):
    """Names that no folder may have."""

    def __init__(self) -> None:
        self._bad = Tally()

    def look(self, queue: QueueSpan) -> None:
        """Look at the topic's name."""
        try:
            check_folder_name(queue.topic)
        except IllegalMessageError:
            size = len(queue.topic.encode("utf-8", "surrogateescape"))
            self._bad.add(queue.name, bytes=size, units=queue.units)

    def findings(self) -> Iterator[Finding]:
        """Yield one finding."""
        yield from self._bad.finding(
            "name-no-folder",
            Severity.REFUSE,
            "Names of topics cannot be names of folders, as queue files need: '/' or NUL in them, "
            "'.' or '..', or more than 255 bytes.",
        )


class DatabaseNames(QueueCheck):
    """Topics named like RocksDB's own files, where both share ``consumequeue/``."""

    def __init__(self) -> None:
        self._bad = Tally()

    def look(self, queue: QueueSpan) -> None:
        """Look at the topic's name."""
        if DATABASE_FILE.fullmatch(queue.topic):
            self._bad.add(queue.name)

    def findings(self) -> Iterator[Finding]:
        """Yield one finding."""
        yield from self._bad.finding(
            "name-of-database-file",
            Severity.REFUSE,
            "Topics are named like files of RocksDB, which share consumequeue/ with the folders of "
            "topics: use useSeparateStorePathForRocksdbCQ (5.5.0).",
        )


class QueueIds(QueueCheck):
    """Queue ids below zero: RocksDB's keys would sort them behind all others."""

    def __init__(self) -> None:
        self._bad = Tally()

    def look(self, queue: QueueSpan) -> None:
        """Look at the id."""
        if queue.queue_id < 0:
            self._bad.add(queue.name, units=queue.units)

    def findings(self) -> Iterator[Finding]:
        """Yield one finding."""
        yield from self._bad.finding(
            "negative-queue-id",
            Severity.REFUSE,
            "Queues have ids below 0, which no broker writes and RocksDB's key order does not fit.",
        )
