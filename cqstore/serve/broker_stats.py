"""BrokerStats: messages and bytes by topic and group, over a minute, an hour and a day.

Each figure is sampled as a broker samples it: every 10 s for the minute, every 10 minutes for the
hour, every hour for the day. Samples are made when a figure is changed or read, not by a timer.

Source: RocketMQ ``BrokerStatsManager``, ``StatsItem``, ``StatsItemSet``.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import NamedTuple

from cqstore.broker.metadata.model import Json
from cqstore.store.record.message import SCHEDULE_TOPIC

TOPIC_PUT_NUMS, TOPIC_PUT_SIZE = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"
GROUP_GET_NUMS, GROUP_GET_SIZE = "GROUP_GET_NUMS", "GROUP_GET_SIZE"
SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"
BROKER_PUT_NUMS, BROKER_GET_NUMS = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
MAX_STATS = 10_000
"""Maximum number of figures; those that have not changed for the longest time are dropped."""


class _Window(NamedTuple):
    """How one sum of a figure is sampled."""

    field: str
    seconds: float
    """Time from a sample to the next."""
    samples: int


_MINUTE = _Window("statsMinute", 10.0, 7)
_WINDOWS = (_Window("statsDay", 3600.0, 25), _Window("statsHour", 600.0, 7), _MINUTE)


class Summary(NamedTuple):
    """One sum of a figure, with RocketMQ's names."""

    avgpt: float = 0.0
    """Average per request."""
    sum: int = 0
    tps: float = 0.0
    """Sum per second."""


class _Sample(NamedTuple):
    seconds: float
    times: int
    value: int


class _Samples:
    """The samples of one figure in one window."""

    __slots__ = ("_found", "_tick", "_window")

    def __init__(self, window: _Window, now: float) -> None:
        self._window = window
        self._tick = int(now // window.seconds)
        self._found: deque[_Sample] = deque(maxlen=window.samples)

    def take(self, now: float, times: int, value: int) -> None:
        """Take the samples that are due, of a figure that has not changed since."""
        seconds, tick = self._window.seconds, int(now // self._window.seconds)
        if tick == self._tick:
            return
        if not self._found:
            self._found.append(_Sample(self._tick * seconds, 0, 0))
        for each in range(max(self._tick, tick - self._window.samples) + 1, tick + 1):
            self._found.append(_Sample(each * seconds, times, value))
        self._tick = tick

    def summary(self) -> Summary:
        if not self._found:
            return Summary()
        first, last = self._found[0], self._found[-1]
        total, times = last.value - first.value, last.times - first.times
        return Summary(
            total / times if times else 0.0, total, total / (last.seconds - first.seconds)
        )


class _Figure:
    """One figure, such as the messages put to one topic."""

    __slots__ = ("_due", "_times", "_value", "_windows")

    def __init__(self, now: float) -> None:
        self._times = self._value = 0
        self._due = now
        self._windows = {each.field: _Samples(each, now) for each in _WINDOWS}

    def add(self, now: float, value: int, times: int) -> None:
        self._take(now)
        self._value += value
        self._times += times

    def summary(self, now: float, field: str) -> Summary:
        self._take(now)
        return self._windows[field].summary()

    def _take(self, now: float) -> None:
        if now < self._due:
            return
        seconds = _MINUTE.seconds  # the times of the other windows are multiples of it
        self._due = (now // seconds + 1) * seconds
        for samples in self._windows.values():
            samples.take(now, self._times, self._value)


class BrokerStats:
    """The figures of one server, by RocketMQ's names. Any thread."""

    def __init__(self, cluster: str, clock: Callable[[], float] = monotonic) -> None:
        """``cluster``: the key of the figures of the whole server."""
        self._cluster = cluster
        self._clock = clock
        self._started = clock()
        self._figures = OrderedDict[tuple[str, str], _Figure]()
        self.messages_in = 0
        """Number of messages of clients that were put, with those sent back for a retry."""
        self.messages_out = 0
        """Number of messages that pulls were answered with."""
        self._lock = Lock()

    def put(self, topic: str, messages: int, size: int) -> None:
        """Count a request that has put messages into ``topic``; ``size``: bytes of the records."""
        self._add(
            (TOPIC_PUT_NUMS, topic, messages, 1), (TOPIC_PUT_SIZE, topic, size, 1),
            (BROKER_PUT_NUMS, self._cluster, messages, 0), messages_in=messages,
        )  # fmt: skip

    def sent_back(self, topic: str, group: str, scheduled_size: int) -> None:
        """Count a message of ``topic`` that a consumer has sent back.

        ``scheduled_size``: bytes of the record that waits for its delay; 0: a dead letter.
        """
        parts = [(SNDBCK_PUT_NUMS, f"{topic}@{group}", 1, 1)]
        if scheduled_size:
            parts += [
                (TOPIC_PUT_NUMS, SCHEDULE_TOPIC, 1, 1),
                (TOPIC_PUT_SIZE, SCHEDULE_TOPIC, scheduled_size, 1),
            ]
        self._add(*parts, messages_in=1)

    def pulled(self, topic: str, group: str, messages: int, size: int) -> None:
        """Count a pull that has found messages; ``size``: bytes of the records."""
        key = f"{topic}@{group}"
        self._add(
            (GROUP_GET_NUMS, key, messages, 1), (GROUP_GET_SIZE, key, size, 1),
            (BROKER_GET_NUMS, self._cluster, messages, 0), messages_out=messages,
        )  # fmt: skip

    def summary(self, name: str, key: str) -> Json | None:
        """Return the three sums of a figure as JSON; ``None``: nothing was counted for it."""
        with self._lock:
            found, now = self._figures.get((name, key)), self._now()
            if found is None:
                return None
            return {each.field: found.summary(now, each.field)._asdict() for each in _WINDOWS}

    def put_tps(self, topic: str) -> float:
        """Return the messages that were put per second, over the last minute."""
        return self._tps(TOPIC_PUT_NUMS, topic)

    def get_tps(self, topic: str, group: str) -> float:
        """Return the messages that a group has pulled per second, over the last minute."""
        return self._tps(GROUP_GET_NUMS, f"{topic}@{group}")

    def _tps(self, name: str, key: str) -> float:
        with self._lock:
            found = self._figures.get((name, key))
            return 0.0 if found is None else found.summary(self._now(), _MINUTE.field).tps

    def _add(
        self, *parts: tuple[str, str, int, int], messages_in: int = 0, messages_out: int = 0
    ) -> None:
        with self._lock:
            self.messages_in += messages_in
            self.messages_out += messages_out
            now, figures = self._now(), self._figures
            for name, key, value, times in parts:
                found = figures.get((name, key))
                if found is None:
                    found = figures[name, key] = _Figure(now)
                    if len(figures) > MAX_STATS:
                        figures.popitem(last=False)
                found.add(now, value, times)
                figures.move_to_end((name, key))

    def _now(self) -> float:
        return self._clock() - self._started
