"""TopicExaminer: decides by the rules whether a topic is deleted, and why it is kept."""

from collections.abc import Sequence

from cqstore.broker.cleaning.rules import CleanedTopic, CleaningRule, CleaningRules, KeptReason
from cqstore.broker.groups.group_lag import GroupRows
from cqstore.broker.lite_topics import LiteRules, lite_expirations, parent_topic
from cqstore.broker.metadata.model import BrokerMetadata
from cqstore.broker.topic_kind import TopicKind, topic_kind
from cqstore.store.errors import IllegalMessageError
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.queue_reads import QueueReads
from cqstore.store.record.topic_names import is_exempt, is_system_topic
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.last_put import LastPut, last_put

_DAY_MS = 86_400_000
_SHOWN = 3
"""Maximum number of groups that the detail of a backlog names."""


class TopicExaminer:
    """Examines topics of one store by the tables of one moment."""

    def __init__(
        self, store: MessageStore, rules: CleaningRules, tables: BrokerMetadata, now_ms: int
    ) -> None:
        """``now_ms``: the time from which idle times are counted, ms since the epoch."""
        self._queues = components_of(store).queues
        self._rules = rules
        self._topics = tables.topics
        self._groups = GroupRows(tables)
        self._expirations = lite_expirations(tables.topics) if rules.lite else {}
        self._lite = LiteRules(rules.min_lite_ttl_ms)
        self._now = now_ms

    def examine(self, topic: str, spans: Sequence[QueueSpan]) -> CleanedTopic | None:
        """Return a topic that a rule selects, maybe to be kept; ``None``: no rule selects it.

        ``spans`` are all queues of the topic. The size is that of the queues at this moment.
        """
        if not topic.startswith(self._rules.prefix):
            return None
        found = self._selected(topic, spans)
        if found is None:
            return None
        rule, last = found
        kept, detail = self._kept(topic, spans)
        if kept is None and rule is not CleaningRule.UNUSED and not last.is_known:
            kept = KeptReason.UNKNOWN_TIME
        return CleanedTopic(
            topic, rule, len(spans), sum(span.max_offset - span.min_offset for span in spans),
            self._queues.topic_size_bytes(topic), last.newest, kept, detail,
        )  # fmt: skip

    def _selected(
        self, topic: str, spans: Sequence[QueueSpan]
    ) -> tuple[CleaningRule, LastPut] | None:
        """Return the first rule that selects the topic, and its newest store time."""
        rules, last = self._rules, _Lazy(self._queues, spans)
        if rules.unused and topic not in self._topics and not is_exempt(topic):
            return CleaningRule.UNUSED, last.put
        if rules.lite and self._is_expired(topic, spans, last):
            return CleaningRule.LITE, last.put
        if rules.idle_days is not None and topic_kind(topic) is TopicKind.TOPIC:
            before = self._now - rules.idle_days * _DAY_MS
            if last.put.newest is None or last.put.newest < before:
                return CleaningRule.IDLE, last.put
        return None

    def _is_expired(self, topic: str, spans: Sequence[QueueSpan], last: "_Lazy") -> bool:
        """Return whether a broker deletes a lite topic, unless its store time is unknown."""
        minutes = self._expirations.get(parent_topic(topic) or "", 0)
        if minutes <= 0 or [span.queue.queue_id for span in spans] != [0]:
            return False
        newest = last.put.newest
        return newest is None or self._lite.expires(newest, minutes, self._now)

    def _kept(self, topic: str, spans: Sequence[QueueSpan]) -> tuple[KeptReason | None, str]:
        """Return why a selected topic is kept, and more about it for people."""
        if is_system_topic(topic):
            return KeptReason.SYSTEM, ""
        try:
            self._queues.check_topic(topic)
        except IllegalMessageError as exc:
            return KeptReason.INVALID_NAME, exc.reason
        if self._rules.lagging:
            return None, ""
        lags: dict[str, int] = {}
        for each in self._groups.of_topic(topic, spans):
            if (unread := each.lag - each.expired) > 0:
                lags[each.group] = lags.get(each.group, 0) + unread
        if lags:
            named = [f"{group}: {lag}" for group, lag in [*lags.items()][:_SHOWN]]
            more = [f"{len(lags) - _SHOWN} more"] if len(lags) > _SHOWN else []
            return KeptReason.BACKLOG, ", ".join([*named, *more])
        has_messages = any(span.min_offset < span.max_offset for span in spans)
        if has_messages and topic_kind(topic) is TopicKind.DLQ:
            return KeptReason.DEAD_LETTERS, ""
        return None, ""


class _Lazy:
    """The newest store time of a topic, read when it is first used."""

    def __init__(self, queues: QueueReads, spans: Sequence[QueueSpan]) -> None:
        self._queues, self._spans = queues, spans
        self._put: LastPut | None = None

    @property
    def put(self) -> LastPut:
        """Return the newest store time."""
        if self._put is None:
            self._put = last_put(self._queues, self._spans)
        return self._put
