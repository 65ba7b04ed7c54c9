"""TopicKeys: selects the keys ``topic@group`` of an offset table that belong to given topics.

Source: RocketMQ ``ConsumerOffsetManager.cleanOffsetByTopic``.
"""

from collections.abc import Collection, Mapping
from typing import Self

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import Json, readings
from cqstore.broker.metadata.offset_keys import fitting_readings
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.paths import StorePaths

_LOG = StoreLogger(__name__)
OFFSET_TABLES = ("offsetTable", "pullOffsetTable", "resetOffsetTable", "lmqOffsetTable")
"""Fields of a JSON file whose keys are ``topic@group``."""
Known = list[tuple[set[str], set[str]]]
"""Topics and groups in the tables; empty until they are read."""


class TopicKeys:
    """The set of keys ``topic@group`` that belong to some topics."""

    def __init__(
        self, paths: StorePaths, topics: Collection[str], known: Known | None = None
    ) -> None:
        """Select ``topics``; the tables of ``paths`` are read only to resolve ambiguous keys.

        ``known``: topics and groups in the tables, if they have been read.
        """
        self._paths = paths
        self.topics = frozenset(topics)
        self._known: Known = [] if known is None else known

    def part(self, topics: Collection[str]) -> Self:
        """Return the set for other topics, which reads the tables at most once with this one."""
        return type(self)(self._paths, topics, self._known)

    def topics_of(self, key: str) -> list[str]:
        """Return the topics, of those selected, that ``key`` may belong to."""
        return [topic for topic, _ in readings(key) if topic in self.topics]

    def __contains__(self, key: str) -> bool:
        """Return whether ``key`` belongs to one of the topics.

        If a key has several readings, the best one decides. A key whose best readings disagree is
        kept, and this is logged.
        """
        if not self.topics_of(key):
            return False
        ways = list(readings(key))
        if len(ways) > 1:
            ways = fitting_readings(key, *self._names())
        found = {topic in self.topics for topic, _ in ways}
        if len(found) > 1:
            _LOG.warning("the offset of %r is kept: several topics match its key: %s", key, ways)
        return found == {True}

    def _names(self) -> tuple[set[str], set[str]]:
        """Return the known topics and groups of all forms."""
        if not self._known:
            forms = read_forms(self._paths)
            topics = {name for each in forms for name in each.topics}
            self._known.append((topics, {name for each in forms for name in each.groups}))
        return self._known[0]

    def removed_from(self, content: Mapping[str, object]) -> Json:
        """Return the content of a JSON file without the rows of these topics."""
        made = dict(content)
        for name in OFFSET_TABLES:
            if isinstance(table := content.get(name), dict):
                made[name] = {key: row for key, row in table.items() if key not in self}
        return made
