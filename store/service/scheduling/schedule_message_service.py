"""ScheduleMessageService: delivers messages with a delay level when they are due.

RocketMQ checks each level ten times a second. Here a thread sleeps until the next message is due.
The first waiting message starts it, and it ends when no message waits and the offsets are written.

Source: RocketMQ ``ScheduleMessageService``.
"""

import atexit
import os
from collections.abc import Callable
from functools import partial

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.concurrency.wakeup import Wakeup
from cqstore.store.errors import StoreError, StoreStateError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.record.message import SCHEDULE_TOPIC
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.runtime.meters import Histogram
from cqstore.store.service.runtime.watched_thread import EXIT_SECONDS, Worker
from cqstore.store.service.scheduling.delay_offsets import DelayOffsets
from cqstore.store.service.scheduling.level_delivery import (
    RETRY_MS,
    DelayLevelFigures,
    LevelDelivery,
    ListPut,
)

_LOG = StoreLogger(__name__)
LATE_BOUNDS = (1e-3, 1e-2, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3600.0, 43200.0)
"""Upper bounds of the buckets of ``late_seconds``: after a restart messages are hours late."""
_MAX_SLEEP_SECONDS = 60.0
"""Limit, because the clock may be set forward meanwhile, or the machine may be suspended."""


class ScheduleMessageService:
    """The delay levels of one open store. Any thread may call ``notify`` and ``persist``.

    Delivery is at least once: messages delivered since the last write of the offsets are delivered
    again if the process is killed. The log is made durable before the offsets, so no message is
    skipped.
    """

    def __init__(
        self,
        levels: DelayLevels,
        log: CommitLog,
        queues: ConsumeQueueStore,
        offsets: DelayOffsets,
        put: ListPut,
        ready: Callable[[], object],
        flush_log: Callable[[], object],
        environment: Environment,
        interval_ms: int,
    ) -> None:
        """``ready`` dispatches appended units; ``interval_ms``: from a delivery to its write."""
        self.late_seconds = Histogram(LATE_BOUNDS)
        """Delay between the due times of messages and their deliveries."""
        self.deliveries = {
            level: LevelDelivery(level, delay_ms, log, queues, put, self._observe)
            for level, delay_ms in enumerate(levels.delays_ms, 1)
        }
        """By level."""
        self._unserved: list[LevelDelivery] = []
        """Levels that are no longer in the settings, but have waiting messages in their queues."""
        self._unserved_of = partial(LevelDelivery, delay_ms=0, log=log, queues=queues, put=put)
        self._queues = queues
        self._offsets = offsets
        self._ready, self._flush_log = ready, flush_log
        self._environment, self._interval_ms = environment, interval_ms
        self._running = CheckedLock("a delivery of delayed messages")
        self._writing = CheckedLock("a write of the offsets of delay levels")
        self._starting = CheckedLock("the start of deliveries")  # guards _is_running
        self._written: dict[int, int] = {}
        self._write_at: int | None = None
        self._wake = Wakeup()
        self._has_begun = self._is_running = self._stopped = False
        self._pid = os.getpid()
        self.worker: Worker | None = None
        """``None``: no message has ever waited."""
        self._interrupted: list[Worker | None] = []
        """Workers whose start was interrupted: each may run, beside a later one."""
        self.failures = 0
        """Failed checks of the thread; each is repeated."""

    # ---- public

    def figures(self) -> tuple[DelayLevelFigures, ...]:
        """Return the figures of each level that ever had a message, by level. Any thread.

        Also of levels that ``messageDelayLevel`` no longer has, whose messages are not delivered.

        Raises:
            StoreError: the ends of a queue cannot be read.
        """
        now = self._now()
        every = [*self.deliveries.values(), *self._unserved]
        found = (each.figures(now) for each in every)
        return tuple(each for each in found if each is not None)

    def start(self) -> None:
        """Read the progress of each level, and start the thread if messages wait.

        Raises:
            CorruptionError: the offsets cannot be read.
            StoreError: a queue cannot be read.
        """
        self._written = self._offsets.read()
        for level, delivery in self.deliveries.items():
            delivery.begin(self._written.get(level))
        self._report_unserved()
        self._has_begun = True
        atexit.register(self._leave)
        self.notify_all()

    def _report_unserved(self) -> None:
        """Log levels that are not configured but have waiting messages: these are not delivered."""
        levels = sorted(key.queue_id + 1 for key in self._queues.queues(SCHEDULE_TOPIC))
        for level in levels:
            if level in self.deliveries:
                continue
            delivery = self._unserved_of(level)
            delivery.begin(self._written.get(level))
            if waiting := delivery.end() - delivery.next_offset:
                self._unserved.append(delivery)
                _LOG.error(
                    "%d messages of delay level %d are not delivered: messageDelayLevel has %d"
                    " levels. Add the level again to deliver them",
                    waiting, level, len(self.deliveries),
                )  # fmt: skip

    def notify(self, level: int) -> None:
        """Schedule the delivery of an appended message of ``level``. Never waits."""
        delivery = self.deliveries.get(level)
        if delivery is None:
            return
        delivery.is_noted = True
        if delivery.due is None:
            self._wake_or_start()

    def notify_all(self) -> None:
        """Check all levels whose queues may have new messages."""
        for delivery in self.deliveries.values():
            delivery.is_noted = delivery.is_noted or delivery.next_offset < delivery.end()
        if self._has_noted() or self._offsets_now() != self._written:
            self._wake_or_start()

    def persist(self) -> None:
        """Make durable the progress of each level, and the messages that were delivered before.

        Raises:
            StoreError: it cannot be written; messages delivered since are repeated after a kill.
        """
        with self._writing.entry():
            offsets = self._offsets_now()
            if offsets != self._written and self._has_begun:
                self._flush_log()  # first: no level is ahead of the log on disk
                self._offsets.write(offsets)
                self._written = offsets
            self._write_at = None

    def stop(self) -> None:
        """End the thread, and write the offsets. In a child of the process: does nothing."""
        if self._pid != os.getpid():
            return
        self.halt()
        try:
            self.persist()
        except StoreError as exc:
            _LOG.warning("delayed messages may be delivered again: %s", exc)

    def halt(self) -> None:
        """End the thread without writing: the store was dropped."""
        self._end(None)
        atexit.unregister(self._leave)

    # ---- deliveries

    def run(self) -> float | None:
        """Deliver due messages, write due offsets; return the seconds to the next check.

        ``None``: no message waits, and everything is written.

        Raises:
            StoreError: as for ``LevelDelivery.deliver`` and ``persist``.
        """
        with self._running.entry():
            while not self._stopped and self._deliver_once():
                pass
        now = self._now()
        if self._offsets_now() != self._written and self._write_at is None:
            self._write_at = now + self._interval_ms
        at = self._write_at
        if at is not None and not now < at <= now + self._interval_ms:
            self.persist()
        whens = [each.due for each in self.deliveries.values()] + [self._write_at]
        next_look = min((when for when in whens if when is not None), default=None)
        return None if next_look is None else max(next_look - self._now(), 0) / 1000

    def _deliver_once(self) -> bool:
        """Deliver a batch of each level with due messages; return whether there was one."""
        now = self._now()
        due = [each for each in self.deliveries.values() if each.is_due(now)]
        if due:
            self._ready()
        for each in due:
            each.deliver(now)
        return bool(due)

    def _offsets_now(self) -> dict[int, int]:
        """Return the offsets to write: of levels that had messages, or are in the file."""
        there = {level: each.next_offset for level, each in self.deliveries.items()}
        return self._written | {
            level: at for level, at in there.items() if at or level in self._written
        }

    def _has_noted(self) -> bool:
        return any(each.is_noted and each.due is None for each in self.deliveries.values())

    def _now(self) -> int:
        return int(self._environment.now() * 1000)

    def _observe(self, due: int) -> None:
        self.late_seconds.observe(max(self._now() - due, 0) / 1000)

    # ---- the thread

    def _wake_or_start(self) -> None:
        """Wake the thread, or start one if none runs."""
        self._wake.set()
        if self._starting.is_mine():  # a signal handler in the middle of this method
            return
        with self._starting.entry():
            if self._is_running or self._stopped:
                return
            self._is_running = True
            try:
                self.worker = Worker(
                    "cqstore-schedule",
                    self._run,
                    self._give_up,
                    "delayed messages are not delivered",
                )
                self.worker.start()
            except (RuntimeError, MemoryError) as exc:
                self._is_running = False
                _LOG.error("cannot start the thread that delivers delayed messages: %s", exc)
            except BaseException:
                self._interrupted.append(self.worker)
                self._is_running = False
                raise

    def _run(self) -> None:
        """Deliver due messages, and sleep until more are due; ends when no message waits."""
        try:
            self._run_until_stopped()
        finally:
            if self._stopped:  # the call of `set` woke one thread: wake the next
                self._wake.set()

    def _run_until_stopped(self) -> None:
        while not self._stopped:
            try:
                seconds = self.run()
            except StoreStateError as exc:
                _LOG.warning("delayed messages are no longer delivered: %s", exc)
                return
            except StoreError as exc:
                self.failures += 1
                _LOG.warning("cannot deliver delayed messages, will retry: %s", exc)
                seconds = RETRY_MS / 1000
            if seconds is None and self._has_ended():
                return
            if seconds:
                self._wake.wait(min(seconds, _MAX_SLEEP_SECONDS))

    def _has_ended(self) -> bool:
        """Let the next waiting message start another thread, unless one waits already."""
        with self._starting.entry():
            self._is_running = False
            if self._has_noted():
                self._is_running = True
        return not self._is_running

    def _give_up(self, exc: BaseException) -> None:
        """Leave waiting messages to the next put, or to the next opening."""
        self._is_running = False
        self.failures += 1
        _LOG.error("no delayed messages are delivered until the next one is put: %s", exc)

    def _end(self, seconds: float | None) -> None:
        self._stopped = True
        self._wake.set()
        for worker in (*self._interrupted, self.worker):
            if worker is not None:
                worker.end(seconds)

    def _leave(self) -> None:
        """End the thread before the interpreter ends: otherwise it would keep its locks."""
        if self._pid == os.getpid():
            self._end(EXIT_SECONDS)
