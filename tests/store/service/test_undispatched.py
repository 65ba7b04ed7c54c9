"""Records that a writer left undispatched when it stopped cleanly, as RocketMQ may after a wait."""

import shutil
from pathlib import Path

import pytest

from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=8192, max_hash_slot_num=50, max_index_num=100)


@pytest.mark.parametrize("backend", backend_names())
def test_they_reach_queues_and_index(tmp_path: Path, backend: str) -> None:
    root, earlier = tmp_path / "store", tmp_path / "earlier"
    for number in range(10):
        with MessageStore.open(root, CONFIG, backend=backend, housekeeping=False) as store:
            assert store.put_message(Message("t", b"x", 0, {"KEYS": f"k{number}"})).ok
        if number == 4:
            shutil.copytree(root, earlier)
    shutil.rmtree(earlier / "commitlog")
    shutil.copytree(root / "commitlog", earlier / "commitlog")
    with MessageStore.open(earlier, CONFIG, backend=backend, housekeeping=False) as store:
        assert store.last_exit_ok
        assert store.max_offset("t", 0) == 10
        for number in range(10):
            (found,) = store.query_message("t", f"k{number}")
            assert found.queue_offset == number
        assert [finding for finding in store.check() if finding.damage] == []
