"""A store with a topic of each kind, and the tables of its broker."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cqstore.broker.cleaning.cleaning_round import CleaningRound, Deleter, delete_from_store
from cqstore.broker.cleaning.rules import CleanedTopic, CleaningRules
from cqstore.broker.cleaning.tables import newest_tables
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.operating import write_config, write_offsets
from tests.migration.made_log import Made, make_store

NOW = int(time.time()) * 1000
MINUTE, DAY = 60_000, 86_400_000
LISTED = {
    "orders": 1, "idle10": 10, "idle100": 100, "idle-read": 40, "idle-lag": 40,
    "%RETRY%listed": 40, "%DLQ%listed": 40, "brief": 1, "never": 1,
}  # fmt: skip
"""Topics of the table → days since their newest message."""
UNLISTED = {
    "gone": 1, "gone-read": 1, "gone-lag": 1, "%RETRY%g": 1, "%DLQ%g": 1, "RMQ_SYS_mine": 1,
}  # fmt: skip
NEVER_TOUCHED = {
    "rmq_sys_wheel_timer": 200, "SCHEDULE_TOPIC_XXXX": 200, "TBW102": 200, "%LMQ%light": 200,
}  # fmt: skip
LITE = {
    "%LMQ%$brief$old": 60, "%LMQ%$brief$lag": 60, "%LMQ%$brief$new": 5, "%LMQ%$never$old": 60,
    "%LMQ%$gone$old": 60, "%LMQ%$brief$a$b": 60,
}  # fmt: skip
"""Lite topics → minutes since their newest message; ``brief`` has an expiration of 30."""
OFFSETS = {
    "idle-read@billing": {0: 1, 1: 1}, "idle-lag@billing": {0: 1}, "gone-lag@billing": {0: 1, 1: 0},
    "gone-read@billing": {0: 1, 1: 1}, "%LMQ%$brief$lag@billing": {0: 0}, "orders@billing": {0: 0},
}  # fmt: skip
_LITE = {"message.type": "LITE"}


def fill(root: Path, backend: str) -> None:
    """Make the store: each topic has a message in queues 0 and 1, a lite one in queue 0 alone."""
    records = []
    for topic, days in (LISTED | UNLISTED | NEVER_TOUCHED).items():
        queues = (0,) if topic.startswith("%LMQ%") else (0, 1)
        records += [Made(topic, queue_id, NOW - days * DAY + queue_id) for queue_id in queues]
    records += [Made(topic, 0, NOW - minutes * MINUTE) for topic, minutes in LITE.items()]
    make_store(root, sorted(records, key=lambda made: made.stored_at), 8192, backend)
    attributes = {"brief": _LITE | {"lite.topic.expiration": "30"}, "never": _LITE}
    table = {
        topic: {
            "topicName": topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6,
            "attributes": attributes.get(topic, {}),
        }
        for topic in LISTED
    }  # fmt: skip
    write_config(root, "topics.json", {"dataVersion": {"counter": 1}, "topicConfigTable": table})
    write_offsets(root, OFFSETS)


def made_round(
    store: MessageStore, rules: CleaningRules, delete: Deleter | None = None,
    wait: Callable[[float], bool] = lambda _: False,
) -> CleaningRound:  # fmt: skip
    return CleaningRound(
        store, rules, newest_tables(components_of(store).paths), delete, wait, NOW / 1000
    )


def cleaned(store: MessageStore, rules: CleaningRules) -> dict[str, str | None]:
    """Delete by ``rules``; return the selected topics with the reason for which they are kept."""
    return reasons(made_round(store, rules, delete_from_store(store)).topics())


def reasons(found: Iterable[CleanedTopic]) -> dict[str, str | None]:
    return {each.topic: each.kept.value if each.kept else None for each in found}


def there(store: MessageStore) -> dict[str, int]:
    """Return topic → number of messages, of all topics that have queues."""
    counts: dict[str, int] = {}
    for span in store.queue_spans():
        counts[span.queue.topic] = counts.get(span.queue.topic, 0) + span.max_offset
    return counts
