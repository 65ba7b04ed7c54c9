"""Mirror: repeats a share of reads on the other backend of a double-write store.

A reader pays for the random draw, and a sampled reader for recording its answer. One thread does
the rest, behind a bounded queue. No read waits for the mirror or fails because of it: a mirror that
fails stops and reports that in the metrics. The mirror only reads the other backend, and writes
nothing but its own two files.
"""

import random
import time
from dataclasses import dataclass

from cqstore.ab.mirror.mirror_figures import (
    AGAIN,
    AnswerCost,
    MirrorFigures,
    MirrorFiguresSnapshot,
    ReadOrigin,
)
from cqstore.ab.mirror.mirrored_reads import (
    Answer,
    BackendPair,
    MirroredRead,
    NumberRead,
    PullAnswer,
    PullRead,
)
from cqstore.ab.mirror.mismatches import MismatchJournal, mismatch_of
from cqstore.ab.mirror.moments import Moment, Moments
from cqstore.ab.mirror.shares import Shares
from cqstore.ab.mirror.verdict import ReadOutcome, judge
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.paths import StorePaths
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.opening.components import StoreComponents
from cqstore.store.service.reading.puller import Puller, TagFilter
from cqstore.store.service.reading.read_interceptor import QueueQuestion
from cqstore.store.service.results import GetMessageResult
from cqstore.store.service.runtime.bounded_queue import BoundedQueue
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.settings.config import StoreConfig

_LOG = StoreLogger(__name__)
MAX_WAITING = 1024
"""Maximum number of waiting reads; each holds the units that it read."""
LOOK_SECONDS = 0.2
"""Time between two polls of the queue: waking the thread would cost the reader time."""
SAVE_SECONDS = 60.0
ALIKE = 8
"""One in so many mirrored reads is repeated on all sides in random order: once on the other backend
and twice on the reference. Only these latencies are comparable; the reference's two show noise."""
_NS = 1e-9


@dataclass(frozen=True, slots=True)
class MirrorSnapshot:
    """Figures and state of a mirror at one moment."""

    figures: MirrorFiguresSnapshot
    waiting: int
    failure: str
    """Why the mirror stopped; empty while it runs."""


class Mirror:
    """The mirror of one open store, an ``InstalledInterceptor``. Any thread reads through it."""

    def __init__(
        self,
        config: StoreConfig,
        paths: StorePaths,
        log: CommitLog,
        queues: CombinedConsumeQueueStore,
        puller: Puller,
    ) -> None:
        self._queues = queues
        self._puller = puller
        self._log = log
        self._resolves = config.enable_consume_queue_ext
        self._moments = Moments(queues.changes, log)
        self._shares = Shares(config.ab_share, config.ab_share_classes)
        self._left = self._shares.gap()  # reads until the next candidate
        self._waiting: BoundedQueue[MirroredRead] = BoundedQueue(MAX_WAITING)
        self._figures = MirrorFigures(paths.ab_figures)
        self._mismatches = MismatchJournal(paths.ab_differences)
        self._random = random.Random()
        self._stop = Latch()
        self._saves = True
        self._failure = ""
        self._goes_on = False  # whether the saved figures have been loaded
        self.worker = Worker(
            "cqstore-mirror", self._run, self._give_up, "reads are no longer mirrored"
        )

    @classmethod
    def of(cls, components: StoreComponents) -> "Mirror | None":
        """Return the mirror of two backends, or ``None`` if no reads are mirrored.

        An entry point of ``cqstore.interceptors``.
        """
        queues = components.queues
        if not isinstance(queues, CombinedConsumeQueueStore):
            return None
        mirror = cls(components.config, components.paths, components.log, queues, components.puller)
        return mirror if mirror._shares.max_share > 0 else None

    # ---- as a read interceptor

    def samples_this(self) -> bool:
        """Count down to the next candidate; return whether this is it."""
        self._left -= 1
        return self._left <= 0

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull, and queue the read to be mirrored."""
        sides = self._draw(topic)
        if sides is None:
            return self._puller.get(topic, queue_id, offset, max_msgs, tags, max_total_bytes)
        moment = self._moments.now()
        read = PullRead(QueueKey(topic, queue_id), sides, moment, self._resolves)
        try:
            result = self._puller.get_from(read, offset, max_msgs, tags, max_total_bytes)
        except StoreError as exc:
            read.fail(exc)
            self._waiting.put(read)
            raise
        self._waiting.put(read)
        return result

    def number(self, question: QueueQuestion) -> int:
        """Return the reference's answer, and queue the read to be mirrored if it is sampled."""
        sides = self._draw(question.topic)
        if sides is None:
            return question.ask(self._queues.queue(question.topic, question.queue_id))
        read = NumberRead(question, sides, self._moments.now())
        try:
            number = read.first()
        except StoreError:
            self._waiting.put(read)
            raise
        self._waiting.put(read)
        return number

    def on_query(self, *_arguments: object) -> None:
        """Do nothing: the index gives the same answer for every backend."""

    def on_list_topics(self, _prefix: str) -> None:
        """Do nothing: listings are not mirrored."""

    def _draw(self, topic: str) -> BackendPair | None:
        """Return the two backends for a candidate, ``None`` if it is not mirrored."""
        self._left = self._shares.gap()
        try:
            if self._failure or not self._shares.samples(topic):
                return None
            sides = self._queues.alike(topic)
        except Exception:  # noqa: BLE001 - no topic at all: the read itself says what it says
            return None
        return None if sides is None or self._waiting.is_full() else sides

    # ---- about itself

    def snapshot(self) -> MirrorSnapshot:
        """Return the figures of the mirror so far."""
        figures = self._figures.snapshot(self._waiting.dropped)
        return MirrorSnapshot(figures, len(self._waiting), self._failure)

    # ---- the thread

    def start(self) -> None:
        """Start the thread that repeats the reads."""
        self.worker.start()

    def stop(self) -> None:
        """Stop the thread after its current read; waiting reads are not mirrored."""
        self._stop.set()
        self.worker.end()

    def halt(self) -> None:
        """End the thread as ``stop`` does, but save no figures: the store was dropped."""
        self._saves = False
        self.stop()

    def _run(self) -> None:
        """Repeat the waiting reads, and save the figures once a minute."""
        self._figures.load()
        self._mismatches.load()
        self._goes_on = True
        saved = time.monotonic()
        while not self._stop.wait(LOOK_SECONDS):
            while not self._stop.is_set() and (read := self._waiting.poll()) is not None:
                self._mirror(read)
            if time.monotonic() - saved >= SAVE_SECONDS:
                self._figures.save(self._waiting.dropped)
                saved = time.monotonic()
        if self._saves:
            self._figures.save(self._waiting.dropped)

    def _give_up(self, exc: BaseException) -> None:
        self._failure = str(exc) or repr(exc)
        while self._waiting.poll() is not None:  # they will not be compared: release what they hold
            pass

    def _mirror(self, read: MirroredRead) -> None:
        """Repeat a read on the other backend, compare the answers, and record the outcome."""
        figures, op = self._figures, read.op.value
        if self._queues.alike(read.key.topic) != read.sides:
            figures.count(op, ReadOutcome.GONE)
            return
        reference, other = read.sides
        figures.observe(op, reference.name, ReadOrigin.SERVED, read.nanoseconds * _NS)
        if self._random.random() * ALIKE < 1:
            later, after = self._read_all(read)
        else:
            later, _ = read.read_from(other)
            after = self._moments.now()
        verdict = judge(read, later, after, self._moments, self._stop.wait)
        if verdict.answers is not None:
            self._record(read, *verdict.answers)
        figures.count(op, verdict.outcome)

    def _read_all(self, read: MirroredRead) -> tuple[Answer, Moment]:
        """Repeat a read on all sides in random order; return the other side's answer and moment."""
        reference, other = read.sides
        name = reference.name
        sides = [(name, reference), (name + AGAIN, reference), (other.name, other)]
        self._random.shuffle(sides)
        taken: dict[str, AnswerCost] = {}
        later: Answer = 0
        after = read.moment
        for side, queues in sides:
            cpu = time.thread_time_ns()
            answer, nanoseconds = read.read_from(queues)
            taken[side] = AnswerCost(nanoseconds * _NS, (time.thread_time_ns() - cpu) * _NS)
            if queues is other:
                later, after = answer, self._moments.now()
        self._figures.add_alike(read.op.value, taken, _items(later))
        return later, after

    def _record(self, read: MirroredRead, reference: Answer, other: Answer) -> None:
        found = mismatch_of(read, reference, other, self._log, time.time())
        if self._mismatches.add(found):
            _LOG.warning(
                "%s on queue %d of topic %r: the backends gave different answers: %s",
                found.op, found.queue.queue_id, found.queue.topic, dict(found.answers),
            )  # fmt: skip


def _items(answer: Answer) -> int:
    return len(answer.rows) if isinstance(answer, PullAnswer) else 1
