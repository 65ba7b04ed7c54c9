"""CleaningRound: examines all topics of a store once, and deletes those that the rules select.

Topics are examined in pages. Each page is deleted in slices at a limited rate, and each slice at
the gate of ``CleanService``: there a topic's ends are compared with those that were examined, while
puts to it wait. So a topic that got a message meanwhile is kept. A killed process leaves each slice
deleted or untouched once the store is opened again (decision 23).
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from cqstore.broker.cleaning.examine import TopicExaminer
from cqstore.broker.cleaning.rules import CleanedTopic, CleaningRules, KeptReason
from cqstore.broker.cleaning.tables import check_tables
from cqstore.broker.metadata.model import BrokerMetadata
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.maintenance.clean_service import TOPICS_AT_ONCE
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_PAGE = 10_000
"""Maximum number of topics that wait in memory for their deletion."""
_CHECKED_EVERY = 1000
"""Number of examined topics after which the round checks whether it must end."""
IsDue = Callable[[str], bool]
Deleter = Callable[[Sequence[str], IsDue], Mapping[str, KeptReason]]
"""Deletes topics for which the function returns True at the gate; returns the others with the
reason."""
Ends = dict[int, int]
"""Queue id → max offset."""


class _Selected(NamedTuple):
    """A topic to delete, and the ends of its queues when it was examined."""

    found: CleanedTopic
    ends: Ends


class CleaningRound:
    """One pass over the topics of a store. One thread."""

    def __init__(
        self,
        store: MessageStore,
        rules: CleaningRules,
        tables: BrokerMetadata,
        delete: Deleter | None,
        wait: Callable[[float], bool],
        now: float,
        progress: Progress = noop,
    ) -> None:
        """Prepare the round.

        Args:
            store: the store; read-only if nothing is deleted.
            rules: the rules.
            tables: topics, groups and offsets of the broker.
            delete: deletes topics; ``None``: they are only reported.
            wait: waits for some seconds; returns whether the round must end now.
            now: the time from which idle times are counted, in seconds since the epoch.
            progress: called with the number of queues examined so far.

        Raises:
            RefusedStoreError: see ``check_tables``.
        """
        check_tables(tables, unused=rules.unused)
        self._store, self._rules = store, rules
        self._delete, self._wait, self._progress = delete, wait, progress
        self._examiner = TopicExaminer(store, rules, tables, int(now * 1000))
        self._pause, self._queues = 0.0, 0
        self.examined = 0
        """Number of examined topics so far."""
        self.is_stopped = False
        """Whether the round ended before all topics were examined and deleted."""

    def topics(self) -> Iterator[CleanedTopic]:
        """Yield each topic that a rule selects, once it is deleted or known to be kept.

        Raises:
            StoreError: a queue cannot be read, or a deletion failed.
        """
        after: QueueKey | None = None
        while not self.is_stopped:
            page: list[_Selected] = []
            after = yield from self._examine(after, page)
            yield from self._delete_page(page)
            if after is None:
                return

    def _examine(
        self, after: QueueKey | None, page: list[_Selected]
    ) -> Generator[CleanedTopic, None, QueueKey | None]:
        """Examine the topics after a queue, until ``page`` is full; yield those not to delete.

        Returns the last examined queue; ``None``: all topics have been examined.
        """
        every = self._store.queue_spans(after=after)
        for topic, found in groupby(every, lambda span: span.queue.topic):
            spans = list(found)
            if self.examined % _CHECKED_EVERY == 0 and self._wait(0):
                self.is_stopped = True
                return spans[-1].queue
            self.examined += 1
            self._queues += len(spans)
            self._progress(self._queues)
            selected = self._examiner.examine(topic, spans)
            if selected is None:
                continue
            if selected.kept is not None or self._delete is None:
                yield selected
                continue
            ends = {span.queue.queue_id: span.max_offset for span in spans}
            page.append(_Selected(selected, ends))
            if len(page) == _PAGE:
                return spans[-1].queue
        return None

    def _delete_page(self, page: Sequence[_Selected]) -> Iterator[CleanedTopic]:
        """Delete topics at the limited rate; yield each with the result."""
        rate = self._rules.topics_per_second
        size = max(1, min(TOPICS_AT_ONCE, int(rate)))
        positions = components_of(self._store).clean.positions
        with positions.read_once([found.topic for found, _ in page]):
            for first in range(0, len(page), size):
                if self._wait(self._pause):
                    self.is_stopped = True
                    return
                part = page[first : first + size]
                kept = self._delete_slice(part)
                self._pause = len(part) / rate
                for found, _ in part:
                    yield found._replace(kept=kept.get(found.topic))

    def _delete_slice(self, part: Sequence[_Selected]) -> Mapping[str, KeptReason]:
        """Delete the topics of ``part`` that have not changed; return the others."""
        ends = {found.topic: each for found, each in part}
        queues = components_of(self._store).queues
        assert self._delete is not None

        def is_due(topic: str) -> bool:
            now = {key.queue_id: queues.queue(*key).max_offset() for key in queues.queues(topic)}
            return now == ends[topic]

        return self._delete([*ends], is_due)


def delete_from_store(store: MessageStore) -> Deleter:
    """Return a function that deletes topics of ``store`` with their consumer offsets."""

    def delete(topics: Sequence[str], is_due: IsDue) -> Mapping[str, KeptReason]:
        deleted = components_of(store).clean.delete_topics(topics, is_due)
        return dict.fromkeys({*topics}.difference(deleted), KeptReason.NEW_MESSAGES)

    return delete
