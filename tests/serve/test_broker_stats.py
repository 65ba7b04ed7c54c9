"""Figures by topic and group, sampled when they are used: against a model with a timer."""

import random
from collections import deque
from typing import Any

import pytest

from cqstore.serve import broker_stats
from cqstore.serve.broker_stats import BrokerStats

WINDOWS = {"statsMinute": (10, 7), "statsHour": (600, 7), "statsDay": (3600, 25)}


class Timed:
    """One figure as RocketMQ samples it: ``StatsItem``, called at every full period."""

    def __init__(self) -> None:
        self.value = self.times = 0
        self.samples: dict[str, deque[tuple[int, int, int]]] = {
            name: deque(maxlen=count) for name, (_, count) in WINDOWS.items()
        }

    def second(self, now: int) -> None:
        for name, (period, _) in WINDOWS.items():
            if now % period == 0:
                found = self.samples[name]
                if not found:
                    found.append((now - period, 0, 0))
                found.append((now, self.times, self.value))

    def data(self) -> dict[str, dict[str, float]]:
        made = {}
        for name, found in self.samples.items():
            row = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
            if found:
                (begin, times, value), (end, all_times, total) = found[0], found[-1]
                row["sum"] = total - value
                row["tps"] = (total - value) / (end - begin)
                row["avgpt"] = (total - value) / (all_times - times) if all_times > times else 0.0
            made[name] = row
        return made


@pytest.mark.parametrize("seed", range(6))
def test_samples_are_those_of_a_timer(seed: int) -> None:
    draw, now = random.Random(seed), 0
    stats, models = BrokerStats("c", lambda: 100.0 + now), dict[str, Timed]()
    step = draw.choice([3, 40, 900])
    for _ in range(80):
        target = now + draw.choice([0, 1, 10, step, 5 * step, 5 * step])
        while now < target:
            now += 1
            for each in models.values():
                each.second(now)
        topic = draw.choice("ab")
        if draw.random() < 0.7:
            count = draw.randint(1, 9)
            stats.put(topic, count, 100 * count)
            model = models.setdefault(topic, Timed())
            model.value, model.times = model.value + count, model.times + 1
        for name, model in models.items():
            assert stats.summary("TOPIC_PUT_NUMS", name) == model.data()
            assert stats.put_tps(name) == model.data()["statsMinute"]["tps"]


def sums(stats: BrokerStats, name: str, key: str) -> Any:
    found: Any = stats.summary(name, key)
    return [(row["sum"], row["tps"], row["avgpt"]) for row in found.values()]


def test_figures_have_rocketmqs_names_and_keys() -> None:
    now = 5.0
    stats = BrokerStats("c", lambda: now)
    stats.put("t", 4, 400)
    stats.put("t", 2, 300)
    stats.pulled("t", "g", 3, 360)
    stats.sent_back("t", "g", 80)
    stats.sent_back("t", "h", 0)
    found = stats.summary("TOPIC_PUT_NUMS", "t")
    assert list(found or ()) == ["statsDay", "statsHour", "statsMinute"]
    assert sums(stats, "TOPIC_PUT_NUMS", "t") == [(0, 0.0, 0.0)] * 3  # the first sample is not due
    now = 15.0
    minute = {
        ("TOPIC_PUT_NUMS", "t"): (6, 0.6, 3.0), ("TOPIC_PUT_SIZE", "t"): (700, 70.0, 350.0),
        ("BROKER_PUT_NUMS", "c"): (6, 0.6, 0.0), ("GROUP_GET_NUMS", "t@g"): (3, 0.3, 3.0),
        ("GROUP_GET_SIZE", "t@g"): (360, 36.0, 360.0), ("BROKER_GET_NUMS", "c"): (3, 0.3, 0.0),
        ("SNDBCK_PUT_NUMS", "t@g"): (1, 0.1, 1.0), ("SNDBCK_PUT_NUMS", "t@h"): (1, 0.1, 1.0),
        ("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"): (1, 0.1, 1.0),
        ("TOPIC_PUT_SIZE", "SCHEDULE_TOPIC_XXXX"): (80, 8.0, 80.0),
    }  # fmt: skip
    for place, expected in minute.items():
        assert sums(stats, *place) == [(0, 0.0, 0.0), (0, 0.0, 0.0), expected]
    assert (stats.put_tps("t"), stats.get_tps("t", "g")) == (0.6, 0.3)
    assert (stats.put_tps("u"), stats.get_tps("t", "h")) == (0.0, 0.0)
    assert stats.summary("TOPIC_PUT_NUMS", "u") is stats.summary("NONE", "t") is None


def test_figures_that_did_not_change_for_the_longest_time_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_stats, "MAX_STATS", 7)
    stats = BrokerStats("c", lambda: 0.0)
    for topic in ("a", "b", "a", "c", "d"):
        stats.put(topic, 1, 1)
    known = [each for each in "abcd" if stats.summary("TOPIC_PUT_NUMS", each) is not None]
    assert known == ["a", "c", "d"]
