"""Lite topics: their parents, and the rules by which a broker deletes them when they are idle.

A lite topic is a light queue ``%LMQ%$PARENT$NAME``. A broker that has run for ``minLiteTTl``
deletes those that received no message for longer than their parent's ``lite.topic.expiration``.
Consumer lag does not prevent the deletion.

Source: RocketMQ ``AbstractLiteLifecycleManager``, ``LiteUtil``, ``TopicConfig``.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.settings.broker_keys import Version

_SIGN = "$"
_LITE_PREFIX = LMQ_PREFIX + _SIGN
_FIRST_RELEASE: Version = (5, 5, 0)
"""First release with lite topics."""
_LIMIT_IN_LONG: Version = (5, 5, 1)
"""First release that counts the milliseconds of an expiration in 64 bits, not in 32."""
MIN_TTL = "minLiteTTl"
"""Setting of a broker: ``LiteRules.min_ttl_ms``."""
_MIN_TTL_MS = 15 * 60_000
_MINUTE_MS = 60_000
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
NEVER = -1
"""Minutes of a lite topic without an expiration, as RocketMQ writes it."""


class LiteRules(NamedTuple):
    """Rules by which a broker expires lite queues."""

    min_ttl_ms: int = _MIN_TTL_MS
    """Minimum run time of the broker, and idle time of a queue, before a deletion, in ms."""
    limit_in_long: bool = True

    def limit_ms(self, minutes: int) -> int:
        """Return how long a queue may be idle, in ms, for an expiration in minutes."""
        limit = minutes * _MINUTE_MS
        return limit if self.limit_in_long else (limit + (1 << 31)) % (1 << 32) - (1 << 31)

    def expires(self, newest: int, minutes: int, now: int) -> bool:
        """Return whether a scan at the time ``now`` deletes the queue.

        Args:
            newest: store time of its newest message, ms.
            minutes: the expiration of its parent, more than 0.
            now: ms since the epoch.
        """
        idle = now - newest
        return idle >= self.min_ttl_ms and idle > self.limit_ms(minutes)


def lite_rules(version: Version, values: Mapping[str, Any]) -> LiteRules | None:
    """Return the rules of a release with the settings of a broker, ``None`` before lite topics."""
    if version < _FIRST_RELEASE:
        return None
    return LiteRules(min_ttl_ms(values), version >= _LIMIT_IN_LONG)


def min_ttl_ms(values: Mapping[str, Any]) -> int:
    """Return ``LiteRules.min_ttl_ms`` of a broker with these settings."""
    found = values.get(MIN_TTL, _MIN_TTL_MS)
    assert isinstance(found, int)
    return found


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


def lite_expirations(topics: Mapping[str, object]) -> dict[str, int]:
    """Return parent of lite topics → expiration in minutes, from a table of topics."""
    found = {topic: lite_expiration(config) for topic, config in topics.items()}
    return {topic: minutes for topic, minutes in found.items() if minutes is not None}
