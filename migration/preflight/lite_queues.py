"""Find lite queues that a broker deletes soon after its start, read or unread.

The rules are in ``lite_topics``. In a copy, lite queues are idle since the copy was made.
"""

import time
from collections.abc import Iterator, Mapping

from cqstore.broker.lite_topics import NEVER, LiteRules, parent_topic
from cqstore.migration.preflight.preflight_report import (
    NameCount,
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import LogView


class LiteQueues(QueueCheck):
    """Lite queues and their units that a broker deletes at its first scan."""

    def __init__(
        self,
        queues: ConsumeQueueStore,
        log: LogView,
        expirations: Mapping[str, int] | None,
        rules: LiteRules,
        now: int | None = None,
    ) -> None:
        """Prepare the check.

        Args:
            queues: the backend to examine.
            log: the log of the same store.
            expirations: parent → minutes in the topic table; ``None`` if it could not be read.
            rules: rules of the broker.
            now: start of the broker, ms since the epoch; ``None``: now.
        """
        self._queues, self._log = queues, log
        self._expirations, self._rules = expirations, rules
        self._now = int(time.time() * 1000) if now is None else now
        self._expiring, self._parents = NameCount(), set[str]()
        self._lite = self._units = self._units_at_risk = 0

    def check(self, queue: UnitRange) -> None:
        """Compare the newest message of a lite queue with its parent's expiration."""
        parent = parent_topic(queue.topic)
        if parent is None or queue.queue_id or not queue.units:
            return
        self._lite += 1
        self._units += queue.units
        minutes = (self._expirations or {}).get(parent, NEVER)
        if minutes <= 0:
            return
        newest = self._newest(queue)
        first_scan = self._now + self._rules.min_ttl_ms
        if newest > 0 and self._rules.expires(newest, minutes, first_scan):
            self._parents.add(parent)
            self._units_at_risk += queue.units
            figures = {"units": queue.units, "newest": newest, "expirationMinutes": minutes}
            self._expiring.add(queue.name, **figures)

    def _newest(self, queue: UnitRange) -> int:
        """Return the store time of the last message, ms; -1 if its record is not in the log."""
        block = self._queues.queue(queue.topic, queue.queue_id).read_units(queue.high - 1, 1)
        for phy_offset, size, _ in block.rows():
            return self._log.store_timestamp(phy_offset, size)
        return -1

    def findings(self) -> Iterator[PreflightFinding]:
        """Yield a finding about expiring queues, or about an unreadable topic table."""
        if self._expirations is None and self._lite:
            yield finding(
                "lite-queues-not-compared", Severity.INFO,
                "There are lite queues, but the expirations of their parent topics"
                " (lite.topic.expiration) cannot be read: a broker may delete the queues.",
                liteQueues=self._lite, units=self._units,
            )  # fmt: skip
        yield from self._expiring.finding(
            "lite-queues-expire",
            Severity.WARN,
            "Lite queues received no message for longer than lite.topic.expiration of their parent:"
            " a broker deletes them, read or unread, after it has run for minLiteTTl.",
            liteQueues=self._lite,
            parents=len(self._parents),
            queuesAtRisk=self._expiring.total,
            unitsAtRisk=self._units_at_risk,
            minLiteTTlMillis=self._rules.min_ttl_ms,
        )
