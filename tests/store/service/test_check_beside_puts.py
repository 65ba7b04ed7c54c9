"""A check of a store that is being put to tells of no damage that is none."""

from pathlib import Path

import pytest

from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig


@pytest.mark.parametrize("name", backend_names())
def test_what_is_put_after_a_check_began_is_no_damage(tmp_path: Path, name: str) -> None:
    """Records that waited for their queues had "no unit", and the log something behind its end."""
    config = StoreConfig(mapped_file_size_commit_log=1 << 16)
    with MessageStore.open(tmp_path, config, backend=name) as store:
        for number in range(20):
            store.put_message(Message("t", b"x" * 50, number % 2, {"KEYS": "k"}))
        checker = store.checker()
        store.put_message(Message("t", b"y", 0, {"KEYS": "k"}))
        store.put_message(Message("new", b"y", 0, {"KEYS": "k"}))
        found = checker.run()
        assert list(found) == []
        assert checker.records == 20
