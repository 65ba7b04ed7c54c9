"""What a store has, and what it kept, after a part of its log was cut off."""

from pathlib import Path

import numpy as np

from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from tests.kit.parted import CONFIG
from tests.kit.served import served as all_served


def served(root: Path) -> dict[QueueKey, list[tuple[int, int, int]]]:
    """As ``tests.kit.served``, without queues that never had a unit of what the log has now."""
    return {key: units for key, units in all_served(root).items() if units != [(0, 0, 0)]}


def saved_in(root: Path, begin: int, size: int) -> bytes:
    """Return ``size`` bytes of the log from ``begin`` on as they are kept below ``cqstore/cut``.

    Zeros at the end of a file need not be, and a second attempt may find a part gone.
    """
    found = np.zeros(size, np.uint8)
    for path in (root / "cqstore" / "cut").iterdir():
        data, at = path.read_bytes(), int(path.name.partition("-")[0]) - begin
        found[at : at + len(data)] |= np.frombuffer(data, np.uint8)
    return found.tobytes()


def check_sound(root: Path) -> None:
    with MessageStore.open(root, CONFIG) as store:
        assert not store.report.needed
        assert [finding for finding in store.check() if finding.damage] == []
        for key in store.queue_keys():  # the index knows no more than the log
            for number in range(0, 100, 9):
                for message in store.query_message(key.topic, f"{key.topic}-{number}"):
                    assert message.head.phy_offset < store.max_phy_offset()
