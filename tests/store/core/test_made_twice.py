"""Compiled objects whose ``__init__`` is called again: others may use what they hold."""

from pathlib import Path

import pytest

from cqstore.store.queue._estimate import FastFilter
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=65536)


def test_a_filter_takes_as_many_codes_as_it_has_room_for() -> None:

    class Many(list[int]):
        def __len__(self) -> int:
            return 1

    filtered = FastFilter(range(16))
    for _ in range(3):
        filtered.__init__(range(16))  # type: ignore[misc]
    for codes in (range(17), Many(range(2000))):
        with pytest.raises(ValueError, match="too many"):
            FastFilter(codes)


def test_a_message_is_read_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as store:
        assert all(put.ok for put in store.put_messages([Message("t", b"x" * 40)] * 3))
        result = store.get_message("t", 0, 0)
        (first, second, _) = result.messages()
        record = bytes(second.record)
        for message in (first, StoredMessage(record)):
            with pytest.raises(TypeError, match="already"):
                message.__init__(record)  # type: ignore[misc]
            assert message.body == b"x" * 40
        result.__init__(GetMessageStatus.FOUND, 0, 0, 0)  # type: ignore[misc]
        assert result.messages() == []
        assert result.records == []
