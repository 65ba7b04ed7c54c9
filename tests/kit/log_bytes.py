"""The bytes of a store's log, and such bytes cut anywhere."""

import random
from collections.abc import Iterator

from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


def log_of(store: MessageStore) -> bytes:
    """Return the bytes of the log, from its minimum to its end."""
    log = components_of(store).log
    at, found = log.min_phy_offset(), b""
    for file in log.files:
        last = min(log.max_phy_offset() - file.file_from_offset, file.file_size)
        if last < 0:  # made ahead, by a store that was not closed well
            break
        found += file.read(0, last)
        at += last
    assert at == log.max_phy_offset()
    return found


def pieces(data: bytes, most: int, seed: int = 1) -> Iterator[bytes]:
    """Yield ``data`` cut anywhere."""
    draw, at = random.Random(seed), 0
    while at < len(data):
        size = draw.randint(1, most)
        yield data[at : at + size]
        at += size
