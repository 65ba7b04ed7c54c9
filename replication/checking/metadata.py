"""What differs in the tables of two brokers, as their ``config/*.json`` have them.

Source: RocketMQ ``TopicConfigManager``, ``SubscriptionGroupManager``, ``ConsumerOffsetManager``.
"""

from dataclasses import dataclass
from pathlib import Path

from replication.tables.config_files import CONSUMER_OFFSET, DELAY_OFFSET, GROUPS, TOPICS
from store.broker_json import broker_object
from store.errors import CorruptionError, os_errors
from store.files import read_file

_MOST_BYTES = 512 << 20
_TABLES = {
    TOPICS: "topicConfigTable",
    GROUPS: "subscriptionGroupTable",
    CONSUMER_OFFSET: "offsetTable",
    DELAY_OFFSET: "offsetTable",
    "consumerFilter.json": "filterDataByTopic",
    "consumerOrderInfo.json": "table",
}
Table = dict[str, object]


@dataclass(frozen=True, slots=True)
class Unlike:
    """One name whose entries differ; ``None``: it has none on that side."""

    file: str
    name: str
    one: object
    other: object

    def as_json(self) -> dict[str, object]:
        """Return it by name."""
        return {"file": self.file, "name": self.name, "a": self.one, "b": self.other}


def compare_metadata(one: Path, other: Path) -> list[Unlike]:
    """Return what differs in the tables of two folders ``config``, sorted by file and name.

    A file that is on one side alone counts as empty on the other one. Versions of data do not
    count.

    Raises:
        CorruptionError: a file is no such table.
        StoreIOError: one cannot be read.
    """
    found: list[Unlike] = []
    for file in _TABLES:
        mine, others = read_table(one / file), read_table(other / file)
        for name in sorted({*mine, *others}):
            found += _unlike(file, name, mine.get(name), others.get(name))
    return found


def _unlike(file: str, name: str, mine: object, others: object) -> list[Unlike]:
    if mine == others:
        return []
    if isinstance(mine, dict) and isinstance(others, dict):  # what is the same need not be told
        keys = [key for key in {**mine, **others} if mine.get(key) != others.get(key)]
        mine, others = ({key: each.get(key) for key in keys} for each in (mine, others))
    return [Unlike(file, name, mine, others)]


def read_table(path: Path) -> Table:
    """Return name → entry of one file; empty if it is not there.

    Raises:
        CorruptionError: it is no such table.
        StoreIOError: it cannot be read.
    """
    with os_errors("read a table of the broker's", path):
        if not path.exists():
            return {}
        data = read_file(path, _MOST_BYTES)
    try:
        whole = broker_object(data) if data.strip() else {}
    except ValueError as exc:
        raise CorruptionError(f"this is no table of a broker's: {exc}", path=path) from exc
    table = whole.get(_TABLES[path.name])
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise CorruptionError("there is no table in it", path=path)
    return table


def offsets_of(table: Table) -> dict[tuple[str, str, int], int]:
    """Return (topic, group, queue id) → offset of ``consumerOffset.json``; not odd entries."""
    found: dict[tuple[str, str, int], int] = {}
    for name, queues in table.items():
        topic, _, group = name.partition("@")
        for queue_id, offset in queues.items() if isinstance(queues, dict) else ():
            if str(queue_id).isdecimal() and isinstance(offset, int):
                found[topic, group, int(queue_id)] = offset
    return found
