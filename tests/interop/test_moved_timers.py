"""Timer messages that wait, in the wheel or ``rocksdbstore``, are delivered once after a move."""

from pathlib import Path

import pytest

from tests.interop.brokers import TIMED, Broker, Brokers
from tests.interop.walk import WAYS, Walk, read
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
DUE = 40_000
"""Milliseconds until timer messages are due, when the broker has gone."""


def leave_timers(broker: Broker, name: str) -> None:
    """Let three timer messages wait, which the timer has taken out of its queue."""
    broker.do("topic", "n0")
    assert broker.do("timer", "n0", 3, DUE, name)["statuses"] == {"PUT_OK": 3}
    deliver_soon(broker, f"soon-{name}")
    assert not [key for key in read(broker) if key.startswith(name)]


def deliver_soon(broker: Broker, name: str) -> None:
    """Have a message delivered in a second, behind all that are due or could come again."""
    broker.do("timer", "n0", 1, 1000, name)
    until(lambda: read(broker)[f"{name}0"] > 0)


def timers_delivered_once(broker: Broker, *names: str) -> None:
    """What waited is delivered, and nothing comes again.

    Not so what the broker delivered last before it stopped: of ``rocksdbstore`` it delivers that
    once more after any stop and start.
    """
    waiting = [f"{name}{at}" for name in names for at in range(3)]
    until(lambda: set(waiting) <= read(broker).keys())
    deliver_soon(broker, f"after-{names[-1]}")
    found = read(broker)
    assert {key: found[key] for key in waiting} == dict.fromkeys(waiting, 1)


FORMS: dict[str, dict[str, object]] = {"wheel": {}, "rocksdbstore": {"timerRocksDBEnable": "true"}}


@pytest.mark.long
@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("way", WAYS)
def test_timer_messages_that_wait_are_delivered_once(
    tmp_path: Path, brokers: Brokers, way: str, form: str
) -> None:
    walk = Walk(way, tmp_path, brokers, TIMED | FORMS[form])
    walk.live("file", lambda broker: leave_timers(broker, "first"), then="rocksdb")

    def between(broker: Broker) -> None:
        timers_delivered_once(broker, "first")
        leave_timers(broker, "second")

    walk.live("rocksdb", between, then="file")
    walk.live("file", lambda broker: timers_delivered_once(broker, "first", "second"))
