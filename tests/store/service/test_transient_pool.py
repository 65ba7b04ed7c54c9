"""Records that wait in memory (transient store pool), and files that are warmed up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.quiet_config import quiet_config
from tests.kit.shim.clock import CLOCK
from tests.kit.waiting import until

FILE = 65536
NEVER = 3_600_000
CONFIG = quiet_config(
    mapped_file_size_commit_log=FILE,
    transient_store_pool_enable=True,
    commit_interval_commit_log=NEVER,
    commit_commit_log_thorough_interval=NEVER,
)
"""Nothing is committed but for those who read, flush or close."""


def message(number: int) -> Message:
    return Message("t", b"%d " % number * 100, number % 2, {"KEYS": "k"})


def test_what_waits_is_in_no_file_and_every_reader_finds_it(tmp_path: Path, backend: str) -> None:
    first = tmp_path / "s" / "commitlog" / f"{0:020d}"
    with MessageStore.open(tmp_path / "s", CONFIG, backend=backend) as store:
        for number in range(50):
            assert store.put_message(message(number)).ok
        assert first.read_bytes().count(0) == FILE
        end = store.max_phy_offset()
        pulled = store.get_message("t", 0, 0, 100)
        assert [m.body for m in pulled.messages()] == [message(n).body for n in range(0, 50, 2)]
        assert first.read_bytes()[:end].rstrip(b"\0")
        number, result = 50, store.put_message(message(0))
        while len(components_of(store).log.files.files()) < 3:
            result = store.put_message(message(number))
            number += 1
        assert store.message_by_offset(result.phy_offset).body == message(number - 1).body
        assert len(store.query_message("t", "k", 64)) == 64
        assert [finding for finding in store.check() if finding.damage] == []
        assert store.put_messages([message(number)] * 3)[-1].ok
        store.delete_expired_files(FILE)
        store.flush()
        assert store.flushed_phy_offset() == store.max_phy_offset()
        assert store.put_message(message(0)).ok
    with MessageStore.open(tmp_path / "s", read_only=True) as again:
        assert not again.report.needed
        assert again.max_offset("t", 0) + again.max_offset("t", 1) == number + 5
        assert [finding for finding in again.check() if finding.damage] == []


def test_the_files_are_those_of_a_store_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLOCK, "stopped", 1_700_000_000_000_000_000)
    logs: list[dict[str, bytes]] = []
    for transient in (True, False):
        config = CONFIG.model_copy(update={"transient_store_pool_enable": transient})
        for _ in range(2):  # the second time into a file that is partly full
            with MessageStore.open(tmp_path / str(transient), config, backend="file") as store:
                for number in range(200):
                    put = Message("t", b"x" * 300, number % 2, {}, 0, 0, 1)
                    assert store.put_message(put).ok
        folder = tmp_path / str(transient) / "commitlog"
        logs.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert logs[0] == logs[1]
    assert len(logs[0]) > 1


def test_with_sync_flush_nothing_waits(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    with MessageStore.open(tmp_path / "s", config) as store:
        assert store.put_message(message(0)).ok
        assert store.flushed_phy_offset() == store.max_phy_offset()
        assert not config.is_transient


@pytest.mark.parametrize(
    ("interval", "puts"),
    [("commit_interval_commit_log", 10), ("commit_commit_log_thorough_interval", 1)],
)
def test_what_waits_goes_into_the_file_at_its_interval(
    tmp_path: Path, interval: str, puts: int
) -> None:
    """At one interval where four pages wait, at the other whatever waits."""
    config = CONFIG.model_copy(update={interval: 1})
    first = tmp_path / "s" / "commitlog" / f"{0:020d}"
    with MessageStore.open(tmp_path / "s", config, backend="file") as store:
        at = max(store.put_message(Message("t", b"x" * 2000)).phy_offset for _ in range(puts))
        until(lambda: bool(first.read_bytes()[at : at + 2000].strip(b"\0")))


KILLED = """
import os, sys
from pathlib import Path
from cqstore.store.settings.config import StoreConfig
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
config = StoreConfig.model_validate_json(sys.argv[2])
store = MessageStore.open(Path(sys.argv[1]), config, backend="file")
for number in range(10):
    store.put_message(Message("t", b"x", 0))
store.flush()
for number in range(10):
    store.put_message(Message("t", b"x", 0))
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_loses_what_waited_and_nothing_else(tmp_path: Path) -> None:
    settings = CONFIG.model_dump_json(exclude_unset=True)
    subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "s"), settings], check=False, timeout=60
    )
    with MessageStore.open(tmp_path / "s") as store:
        assert store.max_offset("t", 0) == 10
        assert store.put_message(Message("t", b"x")).queue_offset == 10
        assert [finding for finding in store.check() if finding.damage] == []


def test_warmed_files_are_written_and_the_same(tmp_path: Path) -> None:
    config = StoreConfig.from_mapping(
        {
            "mapped_file_size_commit_log": 3 << 20,
            "warmMapedFileEnable": True,
            "flushLeastPagesWhenWarmMapedFile": 300,
        }
    )
    with MessageStore.open(tmp_path / "s", config) as store:
        while len(components_of(store).log.files.files()) < 2:
            assert store.put_message(Message("t", b"x" * 30_000)).ok
        for file in components_of(store).log.files:
            fd = os.open(file.path, os.O_RDONLY)
            assert os.lseek(fd, 0, os.SEEK_HOLE) == 3 << 20, "no block is left unwritten"
            os.close(fd)
        assert [finding for finding in store.check() if finding.damage] == []
