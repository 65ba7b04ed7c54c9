"""The way of a put that the core does not go: its twin, where that is what is tried.

Python can stop between two lines of the twin, and not inside the core: interrupts, and a kill
between two records of a list. What the system refuses is refused to the core, see ``shim``.
"""

from store.service.message_store import MessageStore
from store.service.writing.fast_put import NoFastPut


def go_the_long_way(store: MessageStore) -> None:
    """Let every message that is put to ``store`` from here on go the twin's way."""
    store._parts.putter._plain = NoFastPut(store._parts.putter._encoder)
