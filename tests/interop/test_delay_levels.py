"""Messages that one side has put into the schedule, and the other delivers: each once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cqstore.embedded.log import EmbeddedLog
from cqstore.store.record.message import SCHEDULE_TOPIC
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Broker, Brokers
from tests.interop.test_moved_levels import positions
from tests.interop.test_moved_tables import KINDS, MASTER, config
from tests.interop.walk import SMALL, read, registered
from tests.kit.delays import HOUR_SECONDS, Clock, deliver, on_disk
from tests.kit.waiting import until

pytestmark = pytest.mark.interop
SOON, LATER = 1, 2
LEVELS = "1s 30s"
"""The broker has gone before the second one is over."""
RETRY = "%RETRY%billing"
OF_SCHEDULE = {"DELAY", "REAL_TOPIC", "REAL_QID"}


def settings() -> StoreConfig:
    known = {"message_delay_level": LEVELS, "enable_schedule_message_service": True}
    return config().model_copy(update=known)


def opened(root: Path, backend: str, clock: Clock, **given: Any) -> MessageStore:
    options = OpenOptions(backend=backend, environment=clock, **given)
    return open_served(MessageStore, root, settings(), options)


def schedule_ours(root: Path, backend: str, clock: Clock) -> None:
    """Leave three messages and one that was sent back, without the thread that would deliver."""
    log = EmbeddedLog(opened(root, backend, clock, housekeeping=False), 4, 3600.0)
    with log:
        for number in range(3):
            log.put("n0", b"later", key=f"ours{number}", tags="new", delay_level=SOON)
        log.put("n0", b"bad", key="back")
        (message,) = log.read("n0")
        log.send_back(message, "billing", SOON)


def is_scheduled(broker: Broker, *keys: str) -> bool:
    return {*keys} <= read(broker, SCHEDULE_TOPIC).keys()


def properties(store: MessageStore, topic: str, key: str) -> dict[str, str]:
    """Return those of the one message with a key."""
    (message,) = store.query_message(topic, key)
    return dict(message.properties)


@pytest.mark.parametrize("backend", list(KINDS))
def test_each_delivers_what_the_other_has_scheduled(
    tmp_path: Path,
    brokers: Brokers,
    names: dict[str, object],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    given = {
        **MASTER, **SMALL, **names, "messageDelayLevel": LEVELS, "storeType": KINDS[backend],
    }  # fmt: skip
    ours, theirs = [f"ours{at}" for at in range(3)], [f"theirs{at}" for at in range(3)]
    schedule_ours(tmp_path, backend, clock)
    with brokers.running(tmp_path, **given) as broker:
        until(lambda: {*ours} <= read(broker).keys() and read(broker, RETRY).keys() == {"back"})
        registered(broker)
        assert broker.do("delayed", "n0", LATER, 3, "theirs")["statuses"] == {"SEND_OK": 3}
        until(lambda: is_scheduled(broker, *theirs))
        assert not {*theirs} & read(broker).keys()
    assert positions(tmp_path)[SOON] == (4, 0)
    clock.ahead = HOUR_SECONDS
    with opened(tmp_path, backend, clock) as store:
        until(lambda: all(store.query_message("n0", key) for key in theirs))
        deliver(store)
        for key in ("ours0", "theirs0"):
            waited = properties(store, SCHEDULE_TOPIC, key)
            received = properties(store, "n0", key)
            assert waited.keys() >= OF_SCHEDULE, key
            assert received.items() <= waited.items(), key
            # RocketMQ removes it when the properties are bytes already.
            assert ("DELAY" in received) is (key == "ours0")
    assert on_disk(tmp_path) == {SOON: 4, LATER: 3}
    with brokers.running(tmp_path, **given) as broker:
        registered(broker)
        assert broker.do("delayed", "n0", SOON, 1, "after")["statuses"] == {"SEND_OK": 1}
        until(lambda: read(broker)["after0"] > 0)
        assert read(broker) == Counter([*ours, *theirs, "back", "after0"])
        assert read(broker, RETRY) == Counter(["back"])
