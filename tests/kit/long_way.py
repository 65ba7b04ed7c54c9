"""The way of puts that the core does not go: its twin, which a test can step through."""

from store.service.message_store import MessageStore
from store.service.writing.plain_puts import NoPlainPuts


def go_the_long_way(store: MessageStore) -> None:
    """Let every message that is put to ``store`` from here on go the twin's way."""
    store._parts.putter._plain = NoPlainPuts()
