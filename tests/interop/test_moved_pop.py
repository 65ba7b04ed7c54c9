"""Messages that were popped, and not acknowledged, come again after the queues were moved."""

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.brokers import Broker, Brokers
from tests.interop.walk import Walk, read, registered
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
POP: dict[str, dict[str, object]] = {
    "kv-store": {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"},
    "revive-topic": {"reviveQueueNum": 1},
}
INVISIBLE, FOR_LONG, SOON = 10_000, 3_600_000, 1000


def popped(
    broker: Broker, topic: str, count: int, invisible_ms: int, group: str = "g"
) -> list[str]:
    """Pop ``count`` messages, first come or come again; return their keys, sorted."""
    found = list[str]()

    def all_received() -> bool:
        found.extend(broker.do("pop", group, topic, 32, invisible_ms)["keys"])
        return len(found) >= count

    until(all_received)
    return sorted(found)


def acknowledged(broker: Broker, topic: str, keys: list[str]) -> None:
    for key in keys:
        assert broker.do("ack", "g", topic, key) == {"status": "OK"}


def leave_popped(broker: Broker, topic: str) -> None:
    """Pop four messages, two of which are acknowledged."""
    registered(broker, topic)
    keys = [f"k{at}" for at in range(4)]
    assert broker.do("put", topic, 1, 4)["statuses"] == {"PUT_OK": 4}
    assert popped(broker, topic, 4, INVISIBLE) == keys
    acknowledged(broker, topic, keys[:2])
    assert read(broker, f"%RETRY%g_{topic}") == Counter()


def pop_again(broker: Broker, topic: str) -> None:
    """Those that were not acknowledged come, and come before what is popped later."""
    registered(broker, topic)
    assert popped(broker, topic, 2, FOR_LONG) == ["k2", "k3"]
    acknowledged(broker, topic, ["k2", "k3"])
    broker.do("put", topic, 1, 1, "after")
    assert popped(broker, topic, 1, SOON) == ["after0"]
    assert popped(broker, topic, 1, FOR_LONG) == ["after0"]
    acknowledged(broker, topic, ["after0"])


def are_to_come_again(broker: Broker, topic: str) -> None:
    """Those that were not acknowledged come into the group's retry topic, and these alone.

    The group itself is not asked. With ``kvStore`` a broker forgets how far it has popped by any
    stop and start: all of the topic would come once more.
    """
    registered(broker, topic)
    until(lambda: read(broker, f"%RETRY%g_{topic}").total() >= 2)
    assert popped(broker, topic, 4, SOON, group="other") == ["k0", "k1", "k2", "k3"]
    until(lambda: read(broker, f"%RETRY%other_{topic}").total() == 4)
    assert read(broker, f"%RETRY%g_{topic}") == Counter(["k2", "k3"])


COMING = {"kv-store": are_to_come_again, "revive-topic": pop_again}


@pytest.mark.parametrize(
    ("way", "form"),
    [
        ("follow", "kv-store"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("switch", "kv-store"), ("switch", "revive-topic"), ("follow", "revive-topic"),
            )
        ),
    ],
)  # fmt: skip
def test_popped_messages_that_were_not_acknowledged_come_again_once(
    tmp_path: Path, brokers: Brokers, names: dict[str, object], way: str, form: str
) -> None:
    walk = Walk(way, tmp_path, brokers, {**names, **POP[form]})
    walk.live("file", lambda broker: leave_popped(broker, "n0"), then="rocksdb")

    def between(broker: Broker) -> None:
        COMING[form](broker, "n0")
        leave_popped(broker, "n1")

    walk.live("rocksdb", between, then="file")
    walk.live("file", lambda broker: COMING[form](broker, "n1"))
