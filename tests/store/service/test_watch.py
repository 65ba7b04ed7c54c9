"""What the files of a store tell while others write to it: names that go, markers of any kind."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.watch import StoreWatch, measure
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.faults import Faults

CONFIG = StoreConfig(mapped_file_size_commit_log=16384)
DISK = SimpleNamespace(f_blocks=100, f_bfree=40, f_bavail=20)
"""Three quarters used: 60 of 80 blocks, for what is kept for root counts as neither."""


@pytest.mark.parametrize(
    ("marker", "opener"),
    [
        (None, None), (b"", 0), (b"7", 7), (b" 42\n", 42), (b"9876543210", 9_876_543_210),
        (b"98765432101", 0), (b"987654321012", 0), (b"12a", 0), (b"-3", 0),
    ],
)  # fmt: skip
def test_the_marker_names_a_process_or_none(
    tmp_path: Path, marker: bytes | None, opener: int | None
) -> None:
    if marker is not None:
        (tmp_path / "abort").write_bytes(marker)
    assert StoreWatch(detect(tmp_path, CONFIG)).sample().opener == opener


def test_what_vanishes_meanwhile_does_not_count_and_the_rest_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        for name in ("1", "2"):
            (tmp_path / folder / name).write_bytes(b"x")
    faults = Faults(monkeypatch)
    faults.fail("stat", errno.ENOENT, str(tmp_path), times=1)
    found = measure(tmp_path)
    assert (found.files, found.whole, faults.refused) == (5, True, 1)
    faults.fail("list", errno.ENOENT, f"{tmp_path}/", times=1)
    found = measure(tmp_path)
    assert (found.files, found.whole, faults.refused) == (4, True, 1)


def test_a_look_tells_what_was_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: DISK)
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as store:
        result = store.put_message(Message("t", b"x", 0, {"KEYS": "k"}))
        store.flush()
        look = StoreWatch(components_of(store).layout).sample()
        assert look.log is not None
        assert look.checkpoint == components_of(store).checkpoint.fields
        assert look.checkpoint.physic_msg_timestamp == result.appended.store_timestamp  # type: ignore[union-attr]
        assert look.folders.keys() == {"consumequeue", "index"}
        assert look.folders["consumequeue"].files == 1
        assert look.log_disk_used_ratio == look.queue_disk_used_ratio == 0.75
