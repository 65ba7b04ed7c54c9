"""The ways that the core does not go: its twins, which a test can step through and watch."""

import pytest

from cq_file.store import FileConsumeQueueStore
from store.queue.units import UnitBatch
from store.service.message_store import MessageStore
from store.service.writing.plain_puts import NoPlainPuts


def go_the_long_way(store: MessageStore) -> None:
    """Let every message that is put to ``store`` from here on go the twin's way."""
    store._parts.putter._plain = NoPlainPuts()


def append_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the functions of ``os`` write all units of queues in files from here on."""
    monkeypatch.setattr(FileConsumeQueueStore, "_append_plain", all_is_left)


def all_is_left(_: FileConsumeQueueStore, batch: UnitBatch) -> UnitBatch:
    """Stand in for the core, to which nothing is plain."""
    return batch
