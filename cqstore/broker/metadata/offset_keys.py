"""Parsing of offset keys ``topic@group`` into topic and group.

Source: RocketMQ ``ConsumerOffsetManager``, which joins both names with @ even if they contain @.
"""

from collections.abc import Collection

from cqstore.broker.metadata.model import readings
from cqstore.store.record.message import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX

_OWN_GROUPS = frozenset({
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
})  # fmt: skip


def fitting_readings(
    key: str, topics: Collection[str], groups: Collection[str]
) -> list[tuple[str, str]]:
    """Return the best readings of ``key`` as topic and group; several if they are ambiguous.

    A reading with a known topic and a known group is better than a reading with only one of them,
    which is better than a reading with neither. Light queues and a group's own topics count as
    known. Empty: the key has no @ between two names.
    """
    found = list(readings(key))
    if len(found) < 2:  # noqa: PLR2004 - nothing to choose from
        return found
    scores = [_is_topic(*each, topics) + (each[1] in groups) for each in found]
    best = max(scores)
    return [each for each, score in zip(found, scores, strict=True) if score == best]


def _is_topic(topic: str, group: str, topics: Collection[str]) -> bool:
    own = any(topic == f"{prefix}{group}" for prefix in (RETRY_PREFIX, DLQ_PREFIX))
    return own or topic in topics or topic.startswith(LMQ_PREFIX)


def is_own_group(group: str) -> bool:
    """Return whether a broker creates ``group`` at each start; version 2 does not store it.

    Source: RocketMQ ``SubscriptionGroupManager.init``.
    """
    return group in _OWN_GROUPS
