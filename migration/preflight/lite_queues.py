"""Find lite queues that a broker deletes soon after its start, read or unread.

A lite topic is a light queue ``%LMQ%$PARENT$NAME``. A broker that has run for ``minLiteTTl``
deletes those that received no message for longer than their parent's ``lite.topic.expiration``. In
a copy they are idle since the copy was made. Consumer lag does not prevent the deletion.

Source: RocketMQ ``AbstractLiteLifecycleManager``, ``LiteUtil``, ``TopicConfig``.
"""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cqstore.migration.preflight.preflight_report import (
    NameCount,
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.migration.preflight.queue_survey import QueueCheck, UnitRange
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import LogView
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.settings.broker_keys import Version

_SIGN = "$"
_LITE_PREFIX = LMQ_PREFIX + _SIGN
_FIRST_RELEASE: Version = (5, 5, 0)
"""First release with lite topics."""
_LIMIT_IN_LONG: Version = (5, 5, 1)
"""First release that counts the milliseconds of an expiration in 64 bits, not in 32."""
_MIN_TTL = "minLiteTTl"
_MIN_TTL_MS = 15 * 60_000
_MINUTE_MS = 60_000
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
NEVER = -1
"""Minutes of a lite topic without an expiration, as RocketMQ writes it."""


class LiteRules(NamedTuple):
    """Rules by which a broker expires lite queues."""

    min_ttl_ms: int
    """Minimum run time of the broker, and idle time of a queue, before a deletion, in ms."""
    limit_in_long: bool

    def limit_ms(self, minutes: int) -> int:
        """Return how long a queue may be idle, in ms, for an expiration in minutes."""
        limit = minutes * _MINUTE_MS
        return limit if self.limit_in_long else (limit + (1 << 31)) % (1 << 32) - (1 << 31)

    def expires(self, newest: int, minutes: int, now: int) -> bool:
        """Return whether the first scan of a broker that is started ``now`` deletes the queue.

        Args:
            newest: store time of its newest message, ms.
            minutes: the expiration of its parent, more than 0.
            now: ms since the epoch.
        """
        idle = now + self.min_ttl_ms - newest
        return idle >= self.min_ttl_ms and idle > self.limit_ms(minutes)


def lite_rules(version: Version, values: Mapping[str, Any]) -> LiteRules | None:
    """Return the rules of a release with the settings of a broker, ``None`` before lite topics."""
    if version < _FIRST_RELEASE:
        return None
    return LiteRules(values.get(_MIN_TTL, _MIN_TTL_MS), version >= _LIMIT_IN_LONG)


def parent_topic(topic: str) -> str | None:
    """Return the parent of a lite topic; ``None`` for other topics."""
    if not topic.startswith(_LITE_PREFIX):
        return None
    parent, sign, name = topic[len(_LITE_PREFIX) :].partition(_SIGN)
    return parent if parent and sign and name and _SIGN not in name else None


def lite_expiration(config: object) -> int | None:
    """Return the expiration in minutes in a topic's entry; ``None`` if it has no lite queues."""
    attributes = config.get("attributes") if isinstance(config, dict) else None
    if not isinstance(attributes, dict) or attributes.get("message.type") != "LITE":
        return None
    text = attributes.get("lite.topic.expiration")
    minutes = int(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else NEVER
    return minutes if -(1 << 31) <= minutes < 1 << 31 else NEVER


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
        if newest > 0 and self._rules.expires(newest, minutes, self._now):
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
