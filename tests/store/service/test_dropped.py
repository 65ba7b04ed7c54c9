"""A store that is dropped without ``close``: it is closed, and can be opened again."""

import gc
import logging
from pathlib import Path

import pytest

from cqstore import Message, MessageStore, StoreConfig, StoreLockedError
from cqstore.store.queue.backends import backend_names
from tests.kit.waiting import until

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16)


def can_be_opened(root: Path, config: StoreConfig) -> bool:
    try:
        MessageStore.open(root, config).close()
    except StoreLockedError:
        return False
    return True


@pytest.mark.parametrize("backend", backend_names())
def test_a_dropped_store_is_closed_and_can_be_opened_again(
    tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MessageStore.open(tmp_path / "s", CONFIG, backend=backend)
    store.put_message(Message("t", b"x"))
    with caplog.at_level(logging.WARNING):
        del store
        gc.collect()
        until(lambda: can_be_opened(tmp_path / "s", CONFIG))
    assert "was dropped without close()" in caplog.text
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        assert store.last_exit_ok
        assert len(store.get_message("t", 0, 0).messages()) == 1


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_that_was_closed_is_dropped_without_a_word(
    tmp_path: Path, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        MessageStore.open(tmp_path / "s", CONFIG, backend=backend).close()
        gc.collect()
    assert "dropped" not in caplog.text


@pytest.mark.parametrize("backend", backend_names())
def test_messages_outlive_a_store_that_was_dropped(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=backend) as store:
        store.put_message(Message("t", b"body"))
    result = MessageStore.open(tmp_path / "s", CONFIG).get_message("t", 0, 0)
    gc.collect()
    until(lambda: can_be_opened(tmp_path / "s", CONFIG))
    assert [bytes(message.body) for message in result.messages()] == [b"body"]
