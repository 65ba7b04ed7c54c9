"""TopicCleaner: deletes topics of an open store by rules, once per interval, in its own thread."""

import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial

from cqstore.broker.cleaning.cleaning_round import CleaningRound, Deleter, delete_from_store
from cqstore.broker.cleaning.report import CleaningReport, CleaningTally
from cqstore.broker.cleaning.rules import CleaningRule, CleaningRules
from cqstore.broker.cleaning.tables import newest_tables
from cqstore.broker.metadata.model import BrokerMetadata
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreClosedError, StoreConfigError, StoreError, StoreStateError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.cleaning import CleaningFigures
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.arguments import check_kind, check_seconds
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.runtime.watched_thread import Worker

_LOG = StoreLogger(__name__)
EVERY_SECONDS = 600.0
"""Default time between two rounds, and before the first one."""
Tables = Callable[[], BrokerMetadata]


def clean_topics(
    store: MessageStore,
    rules: CleaningRules,
    *,
    every: float = EVERY_SECONDS,
    dry_run: bool = True,
) -> "TopicCleaner":
    """Delete topics of an open store by ``rules``, once per ``every`` seconds, until it is closed.

    The first round is after ``every`` seconds; ``run`` makes a round at once. Topics and consumer
    offsets are those that a broker's tables in the folder ``config`` have, read in each round, each
    in the form that was written last. Rows of topics stay there. With ``dry_run``, rounds only
    report.

    Raises:
        StoreConfigError: the store has such a service already, or ``every`` is not above 0.
        ReadOnlyStoreError: the store is read-only, and ``dry_run`` is false.
        StoreStateError: the store is closed, or this is a child process.
    """
    check_kind(MessageStore, "a MessageStore", store=store)
    paths = components_of(store).paths
    return start_cleaner(
        store, rules, every, partial(newest_tables, paths), None if dry_run else delete_from_store
    )


def start_cleaner(
    store: MessageStore, rules: CleaningRules, every: float, tables: Tables,
    delete: Callable[[MessageStore], Deleter] | None,
) -> "TopicCleaner":  # fmt: skip
    """Start a service, see ``clean_topics``; ``delete`` returns a function that deletes topics.

    Raises:
        StoreError: as for ``clean_topics``.
    """
    check_kind(CleaningRules, "CleaningRules", rules=rules)
    check_kind((int, float), "a number of seconds", every=every)
    check_seconds(every=every)
    if not every > 0:
        raise StoreConfigError(f"invalid every {every!r}: expected more than 0 seconds")
    components = components_of(store)
    if delete is not None:
        components.state.check_writable()
    components.state.check_open()
    cleaner, before = TopicCleaner(store, rules, every, tables, delete), components.attached
    if isinstance(found := before.get(TopicCleaner), TopicCleaner) and found.is_stopped:
        del before[TopicCleaner]
    if before.setdefault(TopicCleaner, cleaner) is not cleaner:
        raise StoreConfigError("topics are already being cleaned", path=components.paths.root)
    components.metrics.cleaning = cleaner.figures
    cleaner.worker.start()
    return cleaner


class TopicCleaner:
    """Deletes topics of one open store. Any thread may call any method.

    A close of the store stops it first: a slice in progress is completed.
    """

    def __init__(
        self,
        store: MessageStore,
        rules: CleaningRules,
        every: float,
        tables: Tables,
        delete: Callable[[MessageStore], Deleter] | None,
        environment: Environment | None = None,
    ) -> None:
        """See ``start_cleaner``; the thread is not started."""
        self._owner, self._root = weakref.ref(store), components_of(store).paths.root
        self.rules, self._every = rules, every
        self._tables, self._delete = tables, delete
        self._environment = environment or Environment()
        self._stop = Latch()
        self._lock = CheckedLock("a cleaning of topics")  # one round at a time
        self._rounds = self._failures = self._queue_bytes = 0
        self._deleted: Counter[CleaningRule] = Counter()
        self.report: CleaningReport | None = None
        """The report of the last round; ``None``: none has ended."""
        self.worker = Worker(
            "cqstore-clean", self._run, self._give_up, "topics are no longer cleaned"
        )

    def __repr__(self) -> str:
        how = "reports" if self._delete is None else "deletes"
        return f"<TopicCleaner of {str(self._root)!r}, {how} topics every {self._every:g} s>"

    def run(self) -> CleaningReport:
        """Make a round now and return its report; waits for a round in progress.

        Raises:
            RefusedStoreError: the broker's tables are damaged, or have no topics.
            StoreClosedError: the service was stopped, or the store is closed.
            StoreError: as for ``MessageStore.delete_topics``, or a queue cannot be read.
        """
        if self.is_stopped:
            raise StoreClosedError("the service was stopped", path=self._root)
        report = self._round()
        if report.error is not None:
            raise report.error
        return report

    def figures(self) -> CleaningFigures:
        """Return the counts since the start, and those of the last round."""
        last = self.report
        return CleaningFigures(
            is_dry_run=self._delete is None,
            rounds=self._rounds,
            failures=self._failures,
            topics={rule.value: count for rule, count in self._deleted.items()},
            queue_bytes=self._queue_bytes,
            selected=0 if last is None else sum(last.selected.values()),
            kept={} if last is None else {kept.value: each for kept, each in last.kept.items()},
            last_ended=0.0 if last is None else last.ended,
        )

    @property
    def is_stopped(self) -> bool:
        """Return whether ``stop`` was called, also by a close of the store."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End the service; a slice of topics in progress is deleted completely."""
        self._stop.set()
        self.worker.end()

    def _round(self) -> CleaningReport:
        """Make a round; the report has its error."""
        with self._lock.entry():
            tally, of = CleaningTally(self._delete is None), None
            error: StoreError | None = None
            try:
                of = self._new_round()
                for each in tally.counted(of.topics()):
                    self._log(each.topic, each.rule, each.kept)
            except StoreError as exc:
                error = exc
            examined = 0 if of is None else of.examined
            is_complete = error is None and of is not None and not of.is_stopped
            self.report = report = tally.report(examined, is_complete=is_complete, error=error)
            self._add(report)
        return report

    def _new_round(self) -> CleaningRound:
        store = self._owner()
        if store is None:
            raise StoreClosedError("the store is closed", path=self._root)
        delete = None if self._delete is None else self._delete(store)
        wait = partial(self._environment.wait, self._stop)
        now = self._environment.now()
        return CleaningRound(store, self.rules, self._tables(), delete, wait, now)

    def _add(self, report: CleaningReport) -> None:
        self._rounds += 1
        self._failures += report.error is not None
        if self._delete is not None:
            self._deleted.update(report.selected)
            self._queue_bytes += report.queue_bytes
        total = sum(report.selected.values())
        _LOG.info(
            "%d of %d topics %s, %d kept",
            total, report.examined, "would be deleted" if report.is_dry_run else "deleted",
            sum(report.kept.values()),
        )  # fmt: skip

    def _log(self, topic: str, rule: str, kept: str | None) -> None:
        if kept is None and self._delete is not None:
            _LOG.info("topic %r deleted (%s)", topic, rule)

    def _run(self) -> None:
        """Make a round per interval, until the end."""
        while not self._environment.wait(self._stop, self._every):
            error = self._round().error
            if isinstance(error, StoreStateError):
                _LOG.warning("topics are no longer cleaned: %s", error)
                return
            if error is not None:
                _LOG.warning("cannot clean topics, will retry: %s", error)

    def _give_up(self, exc: BaseException) -> None:
        self._failures += 1
        _LOG.error("topics are no longer cleaned: %s", exc)
