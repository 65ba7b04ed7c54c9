"""Stores that deliver delayed messages, by a clock that the test sets forward."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.scheduling.schedule_message_service import ScheduleMessageService
from cqstore.store.settings.config import StoreConfig
from tests.kit.logs import CONFIG
from tests.kit.shim.clock import CLOCK

HOUR_SECONDS = 3600
LEVELS = "1h 2h 10h"
"""No test takes so long, so nothing is due unless the clock is set."""
THREAD = "cqstore-schedule"


class Clock(Environment):
    """The machine's clock, and what a test has set it forward by; puts go by it too."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(CLOCK, "ahead", 0)

    @property
    def ahead(self) -> float:
        """Seconds."""
        return float(CLOCK.ahead / 1e9)

    @ahead.setter
    def ahead(self, seconds: float) -> None:
        CLOCK.ahead = round(seconds * 1e9)


def config_of(**changes: Any) -> StoreConfig:
    """Return the settings of a store that delivers, and writes offsets when it is asked."""
    known = {
        "enable_schedule_message_service": True, "message_delay_level": LEVELS,
        "flush_delay_offset_interval": (1 << 31) - 1,
    }  # fmt: skip
    return StoreConfig.model_validate(CONFIG.model_dump(exclude_unset=True) | known | changes)


def opened(root: Path, clock: Clock, backend: str = "file", **changes: Any) -> MessageStore:
    options = OpenOptions(backend=backend, environment=clock)
    return open_served(MessageStore, root, config_of(**changes), options)


def put(store: MessageStore, level: int, *given: int) -> None:
    """Put messages with these numbers, delayed by ``level``."""
    assert all(result.ok for result in store.put_messages([delayed(n, level) for n in given]))


def service(store: MessageStore) -> ScheduleMessageService:
    schedule = components_of(store).schedule
    assert schedule is not None
    return schedule


def deliver(store: MessageStore) -> None:
    """Have all delivered that is due, in this thread or in the service's own."""
    service(store).run()


def delayed(number: int, level: int, topic: str = "t", queue_id: int = 0) -> Message:
    return Message(topic, b"%d" % number, queue_id, {"DELAY": str(level)})


def numbers(store: MessageStore, topic: str = "t", queue_id: int = 0) -> list[int]:
    """Return what the queue has, in order."""
    found: list[int] = []
    at = store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        pulled = store.get_message(topic, queue_id, at)
        found += [int(message.body) for message in pulled.messages()]
        assert pulled.next_begin_offset > at
        at = pulled.next_begin_offset
    return found


def scheduled(store: MessageStore, level: int) -> int:
    """Return how many messages were ever put with the level."""
    return store.max_offset(SCHEDULE_TOPIC, level - 1)


def on_disk(root: Path) -> dict[int, int]:
    """Return level → offset, as the file says."""
    path = root / "config" / "delayOffset.json"
    found = json.loads(path.read_text())["offsetTable"] if path.exists() else {}
    return {int(level): offset for level, offset in found.items()}
