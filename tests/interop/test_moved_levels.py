"""What waits for a delay level's time, an ordered group's locks, and filters, after a move.

A broker keeps these in files of JSON whatever its ``storeType`` is: ``delayOffset.json``,
``consumerOrderInfo.json``, ``consumerFilter.json``.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message import SCHEDULE_TOPIC
from tests.interop.asking import max_offset
from tests.interop.brokers import Broker, Brokers
from tests.interop.walk import WAYS, Walk, read, registered
from tests.kit.operating import rows
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
SOON, LATER, DUE = 1, 2, 30_000
"""Two levels, and the milliseconds of the second one: the broker has gone before they are over."""
SETTINGS = {
    "messageDelayLevel": f"1s {DUE // 1000}s", "reviveQueueNum": 1,
    "enablePropertyFilter": "true", "enableCalcFilterBitMap": "true",
}  # fmt: skip
WHEEL = "rmq_sys_wheel_timer"
FILTER = "KEYS IN ('first1', 'second2')"
FOR_LONG = 3_600_000


def waiting(name: str) -> Counter[str]:
    return Counter(f"{name}{at}" for at in range(3))


def deliver_soon(broker: Broker, name: str) -> None:
    """Have a message delivered behind all of its level that could come again."""
    assert broker.do("delayed", "n0", SOON, 1, name)["statuses"] == {"SEND_OK": 1}
    until(lambda: read(broker)[f"{name}0"] > 0)


def leave_delayed(broker: Broker, name: str) -> None:
    """Have one message delivered, and let three wait in the topic of the levels, not the wheel."""
    deliver_soon(broker, f"soon-{name}")
    assert broker.do("delayed", "n0", LATER, 3, name)["statuses"] == {"SEND_OK": 3}
    until(lambda: waiting(name) <= read(broker, SCHEDULE_TOPIC))  # queues are built a bit later
    assert not read(broker, WHEEL)
    assert not waiting(name) & read(broker)


def delivered_once(broker: Broker, *names: str) -> None:
    """What waited is delivered when it is due, and nothing that was ever delivered comes again."""
    until(lambda: waiting(names[-1]) <= read(broker))
    deliver_soon(broker, f"after-{names[-1]}")
    known = Counter(f"{when}-{name}0" for name in names for when in ("soon", "after"))
    found = broker.do("read", "n0")
    assert Counter(found["keys"]) == sum(map(waiting, names), known)
    waited = [age for key, age in zip(found["keys"], found["ages"], strict=True) if "-" not in key]
    assert min(waited) >= DUE


def positions(root: Path) -> dict[int, tuple[int, int]]:
    """Return level → how many were delivered, how many wait."""
    found = rows("pending", root, "--of", "delay")
    return {row["part"]: (row["position"], row["pending"]) for row in found}


def pop(broker: Broker, topic: str, group: str = "g") -> dict[str, Any]:
    return broker.do("pop", group, topic, 32, FOR_LONG, "ordered")


def leave_locked(broker: Broker, topic: str) -> dict[str, str]:
    """Pop four messages in order, acknowledge two; return by what each is acknowledged."""
    registered(broker, topic)
    assert broker.do("put", topic, 1, 4)["statuses"] == {"PUT_OK": 4}
    until(lambda: max_offset(broker, topic) == 4)  # it answers before the queue has them
    found = pop(broker, topic)
    handles = dict(zip(found["keys"], found["handles"], strict=True))
    assert list(handles) == ["k0", "k1", "k2", "k3"]
    for key in ("k0", "k1"):
        assert broker.do("ack", "g", topic, key) == {"status": "OK"}
    assert pop(broker, topic)["keys"] == []
    return handles


def is_locked(broker: Broker, topic: str, handles: dict[str, str]) -> None:
    """The group gets no more until it has acknowledged what it popped before the move."""
    registered(broker, topic)
    assert broker.do("put", topic, 1, 1, "after")["statuses"] == {"PUT_OK": 1}
    until(lambda: read(broker, topic)["after0"] > 0)
    for key in ("k2", "k3"):
        assert pop(broker, topic)["keys"] == []
        assert broker.do("ack", "g", topic, key, handles[key]) == {"status": "OK"}
    assert pop(broker, topic)["keys"] == ["after0"]
    assert pop(broker, topic, "other")["keys"] == ["k0", "k1", "k2", "k3", "after0"]


def passed_by(broker: Broker, known: dict[str, Any]) -> list[str]:
    """Return what the filter lets through that the broker has ``known`` since a former run."""
    found = broker.do("filter", "f", "n0")
    assert found == known | {"keys": found["keys"]}
    return sorted(found["keys"])


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.long] * (way == "switch")) for way in WAYS]
)
def test_levels_locks_and_filters_go_on(
    tmp_path: Path, brokers: Brokers, names: dict[str, object], way: str
) -> None:
    walk, handles, known = Walk(way, tmp_path, brokers, {**names, **SETTINGS}), {}, {}

    def first(broker: Broker) -> None:
        handles.update(leave_locked(broker, "n1"))
        registered(broker)
        broker.do("subscribe", "f", "n0", FILTER)
        known.update(broker.do("filter", "f", "n0"))
        assert known["expression"] == FILTER
        leave_delayed(broker, "first")

    def second(broker: Broker) -> None:
        is_locked(broker, "n1", handles)
        handles.update(leave_locked(broker, "n2"))
        registered(broker)
        delivered_once(broker, "first")
        assert passed_by(broker, known) == ["first1"]
        leave_delayed(broker, "second")

    def third(broker: Broker) -> None:
        is_locked(broker, "n2", handles)
        registered(broker)
        delivered_once(broker, "first", "second")
        assert passed_by(broker, known) == ["first1", "second2"]

    walk.live("file", first, then="rocksdb")
    assert positions(walk.root) == {SOON: (1, 0), LATER: (0, 3)}
    walk.live("rocksdb", second, then="file")
    assert positions(walk.root) == {SOON: (3, 0), LATER: (3, 3)}
    walk.live("file", third)
