"""TopicKeys: selects the keys ``topic@group`` of an offset table that belong to given topics.

Source: RocketMQ ``ConsumerOffsetManager.cleanOffsetByTopic``.
"""

from collections.abc import Collection, Mapping

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import Json, readings
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.paths import StorePaths

_LOG = StoreLogger(__name__)
_TABLES = ("offsetTable", "pullOffsetTable", "resetOffsetTable", "lmqOffsetTable")


class TopicKeys:
    """The set of keys ``topic@group`` that belong to some topics."""

    def __init__(self, paths: StorePaths, topics: Collection[str]) -> None:
        """Select ``topics``; the tables of ``paths`` are read only to resolve ambiguous keys."""
        self._paths = paths
        self._topics = frozenset(topics)
        self._known: tuple[set[str], set[str]] | None = None

    def __contains__(self, key: str) -> bool:
        """Return whether ``key`` belongs to one of the topics.

        If a key has several readings, the best one decides. A key whose best readings disagree is
        kept, and this is logged.
        """
        ways = list(readings(key))
        if not any(topic in self._topics for topic, _ in ways):
            return False
        if len(ways) > 1:
            ways = fitting_readings(key, *self._names())
        found = {topic in self._topics for topic, _ in ways}
        if len(found) > 1:
            _LOG.warning("the offset of %r is kept: several topics match its key: %s", key, ways)
        return found == {True}

    def _names(self) -> tuple[set[str], set[str]]:
        """Return the known topics and groups of all forms."""
        if self._known is None:
            forms = read_forms(self._paths)
            topics = {name for each in forms for name in each.topics}
            self._known = topics, {name for each in forms for name in each.groups}
        return self._known

    def removed_from(self, content: Mapping[str, object]) -> Json:
        """Return the content of a JSON file without the rows of these topics."""
        made = dict(content)
        for name in _TABLES:
            if isinstance(table := content.get(name), dict):
                made[name] = {key: row for key, row in table.items() if key not in self}
        return made
