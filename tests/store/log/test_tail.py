"""Logs whose tail and files compiled code holds: odd ones, and the last that there can be."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.log._log import FastLog
from cqstore.store.log._tail import FilePositions, FilesByStart, LogTail
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading._query import FastQuery
from cqstore.store.settings.config import StoreConfig
from tests.kit.quiet_config import HOUR_MS


def test_a_log_that_leads_to_itself_goes(tmp_path: Path) -> None:
    """What compiled fields hold is seen by the collector, like what stands in a dict."""
    log: Any = CommitLog([tmp_path], StoreConfig(mapped_file_size_commit_log=4096), read_only=False)
    log.current = FilePositions()
    log.current.heap = log.current.mapped = log
    log.files.by_start = {0: log}
    gone = weakref.ref(log)
    del log
    gc.collect()
    assert gone() is None


def test_a_log_without_its_files_is_no_plain_one(tmp_path: Path) -> None:
    """Nor does it take the process with it where the parts of a log are made by hand."""

    class Bare(LogTail):
        files = FilesByStart()

        def readable(self, _: int) -> None:
            return None

        def min_phy_offset(self) -> int:
            return -1

        def max_phy_offset(self) -> int:
            return self.end

    log: Any = Bare()
    config = StoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=16, max_index_num=64)
    with MessageStore.open(tmp_path, config) as store:
        store.put_message(Message("t", b"x", 0, {"KEYS": "k"}))
        store.flush()
        index = components_of(store).index
        assert index is not None
        for files in ({}, {0: object()}, {0: FilePositions()}):
            log.files.by_start = files
            for size in (0, 1, 4096):
                log.files.file_size = size
                plain = FastQuery(FastLog(log), index, 4096)
                assert plain.query("t", "k", 1, 0, 1 << 62) is None


@pytest.mark.parametrize("files", [1, 2])
def test_the_last_file_that_a_long_can_name_is_taken(tmp_path: Path, files: int) -> None:
    size = 4096
    folder = tmp_path / "commitlog"
    folder.mkdir()
    last = (1 << 63) - size
    for number in range(files):
        (folder / f"{last - number * size:020d}").write_bytes(bytes(size))
    config = StoreConfig(mapped_file_size_commit_log=size, flush_interval_commit_log=HOUR_MS)
    with MessageStore.open(tmp_path, config) as store:
        first = last - (files - 1) * size
        assert store.put_message(Message("t", b"x")).phy_offset == first
        assert store.put_message(Message("t", b"y")).ok
    with MessageStore.open(tmp_path, config) as store:
        assert [each.stored_body for each in store.get_message("t", 0, 0).messages()] == [
            b"x",
            b"y",
        ]
