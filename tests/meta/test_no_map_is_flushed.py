"""``mmap.flush`` holds the interpreter's lock while the disk works: nothing here may call it."""

import os
from pathlib import Path

import pytest

from cqstore.store.log import log_map
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import FlushDiskType, StoreConfig


class Unflushable(log_map.LogMap):
    """A map that must not be flushed."""

    def flush(self, *_: object) -> None:
        raise AssertionError("a map was flushed")


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("transient", [False, True])
def test_no_flush_of_the_store_is_a_flush_of_a_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType, *, transient: bool
) -> None:
    monkeypatch.setattr(log_map, "LogMap", Unflushable)
    config = StoreConfig(
        mapped_file_size_commit_log=65536,
        flush_disk_type=flush,
        transient_store_pool_enable=transient,
        warm_mapped_file_enable=True,
    )
    with MessageStore.open(tmp_path, config) as store:
        while len(components_of(store).log.files.files()) < 3:
            assert store.put_message(Message("t", b"x" * 3000)).ok
        store.flush()
        assert isinstance(components_of(store).log.files.files()[0].map(), Unflushable)
        assert store.flushed_phy_offset() == store.max_phy_offset()
        store.delete_expired_files(65536)
    assert os.listdir(tmp_path / "commitlog")  # noqa: PTH208
