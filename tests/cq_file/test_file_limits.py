"""What the kernel allows: more queues than it does are warned of, and lose nothing."""

import logging
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.cq_file.descriptor_cache import LimitWatch, limit_warning, warn_from
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.file_queues import Disk, put, rows

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=200, queue_files_max=16
)
QUEUES = 60
UNDER_A_LIMIT = """
import os, resource, sys
from pathlib import Path
from cqstore.store.settings.config import StoreConfig
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore

config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=200)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
most = 0
with MessageStore.open(Path(sys.argv[1]), config, backend="file") as store:
    for _ in range(3):
        messages = [Message("t", b"x", queue_id) for queue_id in range(300)]
        assert all(result.ok for result in store.put_messages(messages))
        store.flush()
        most = max(most, len(os.listdir("/proc/self/fd")))
print(most)
"""


def test_more_queues_than_the_process_may_open_files_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 64
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        for queue_id in range(300):
            units = list(components_of(store).queues.queue("t", queue_id).iterate(0))
            assert [unit.queue_offset for unit in units] == [0, 1, 2]
            assert all(unit.size > 0 for unit in units)


def test_the_warning_comes_once_before_the_limit_is_met(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with caplog.at_level(logging.WARNING), MessageStore.open(root, CONFIG) as store:
        for _ in range(3):
            for queue_id in range(QUEUES):
                assert store.put_message(Message("t", b"x", queue_id)).ok
        store.flush()
    (warning,) = [record.getMessage() for record in caplog.records if "RLIMIT" in record.message]
    assert warning.startswith("14 file queues")


def test_an_open_of_too_many_queues_warns_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG) as store:
        for queue_id in range(QUEUES):
            assert store.put_message(Message("t", b"x", queue_id)).ok
    caplog.clear()
    with caplog.at_level(logging.WARNING), MessageStore.open(root, CONFIG, read_only=True):
        pass
    (warning,) = [record.getMessage() for record in caplog.records if "RLIMIT" in record.message]
    assert warning.startswith(f"{QUEUES} file queues")


def test_the_warning_names_each_limit_its_value_and_what_is_needed() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    warning = limit_warning(100_000, 16_384)
    assert warning is not None
    assert "queueFilesMax=100000 (16384 can be used)" in warning
    allowed = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    assert f"RLIMIT_NOFILE of 100256 (it is {allowed})" in warning
    maps = Path("/proc/sys/vm/max_map_count").read_text().strip()
    assert f"vm.max_map_count of more than 100000 (it is {maps})" in warning


def test_memory_maps_are_warned_of_where_descriptors_would_do() -> None:
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert limit_warning(maps, maps * 10) is not None
    assert limit_warning(maps // 2, maps * 10) is None


def test_far_below_the_limit_there_is_no_warning() -> None:
    assert warn_from(16) == 14
    assert limit_warning(13, 16) is None
    assert limit_warning(14, 16) is not None


@pytest.mark.parametrize(
    ("maps", "least"),
    [("50", 45), ("1000", 900), ("5000", 900), ("1", 1), ("no number", 900), (None, 900)],
)
def test_the_least_limit_of_those_that_are_known_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maps: str | None, least: int
) -> None:
    path = tmp_path / "max_map_count"
    if maps is not None:
        path.write_text(maps)
    monkeypatch.setattr("cqstore.cq_file.descriptor_cache._MAX_MAPS", path)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 1))
    assert warn_from(1000) == least
    assert limit_warning(least - 1, 1000) is None
    warning = limit_warning(least, 1000)
    assert warning is not None
    assert "(it is unlimited)" in warning
    known = maps if maps is not None and maps.isdigit() else "unknown"
    assert f"(it is {known})" in warning


def test_each_queue_counts_once_and_the_warning_comes_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LimitWatch(100)
    with caplog.at_level(logging.WARNING):
        for queues in (89, 90, 91, 90):
            watch.check(queues)
        assert [record.getMessage()[:14] for record in caplog.records] == ["90 file queues"]
        caplog.clear()
        disk = Disk(tmp_path).limited_to(16)
        store = disk.open()
        for queue_id in range(13):
            put(store, 0, rows(queue_id, 1), queue_id=queue_id)
        assert not caplog.records
        put(store, 0, rows(13, 1), topic="U")
        put(store, 0, rows(14, 1), topic="V")
        assert [record.getMessage()[:14] for record in caplog.records] == ["14 file queues"]
        store.close()
        caplog.clear()
        disk.open(read_only=True).close()
        assert [record.getMessage()[:14] for record in caplog.records] == ["15 file queues"]
