"""Old log files go by RocketMQ's rules; the machine's clock, calendar and disk are made up."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreConfigError, StoreIOError
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.settings.config import StoreConfig
from tests.kit.waiting import until

HOUR = 3600
FILE = 65536


class Machine(Environment):
    """Says what it is given; without a wait."""

    def __init__(self) -> None:
        self.hour = 12
        self.ahead = 0.0
        self.percent: dict[str, int] = {}
        self.waits: list[float] = []

    def now(self) -> float:
        return time.time() + self.ahead

    def local_hour(self) -> int:
        return self.hour

    def used_percent(self, folder: Path) -> int:
        return self.percent.get(folder.name, 50)

    def wait(self, stop: Latch, seconds: float) -> bool:
        self.waits.append(seconds)
        return stop.is_set()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@contextmanager
def opened(
    root: Path, machine: Machine, backend: str = "file", **settings: object
) -> Iterator[MessageStore]:
    config = StoreConfig.from_mapping({"mapped_file_size_commit_log": FILE, **settings})
    options = OpenOptions(backend=backend, housekeeping=False, environment=machine)
    with open_served(MessageStore, root, config, options) as store:
        yield store


def fill(store: MessageStore, files: int) -> None:
    while len(components_of(store).log.files.files()) < files:
        assert store.put_message(Message("t", b"x" * 2000)).ok


def left(store: MessageStore) -> int:
    there = len(list(components_of(store).paths.commit_log.iterdir()))
    assert there in {
        len(components_of(store).log.files.files()),
        len(components_of(store).log.files.files()) + 1,
    }
    return len(components_of(store).log.files.files())


def age(store: MessageStore, *files: int, hours: float) -> None:
    """Let the files at these places have been written so many hours ago."""
    for at in files:
        path = components_of(store).log.files.files()[at].path
        then = time.time() - hours * HOUR
        os.utime(path, (then, then))


@pytest.mark.parametrize("backend", backend_names())
def test_old_files_go_at_their_hour_and_what_points_into_them_follows(
    tmp_path: Path, machine: Machine, backend: str
) -> None:
    with opened(tmp_path / "s", machine, backend) as store:
        fill(store, 5)
        age(store, 0, 1, hours=72.1)
        age(store, 2, hours=71.9)
        assert components_of(store).expiry.run() == 0, "it is not 4 o'clock"
        machine.hour = 4
        assert components_of(store).expiry.run() == 2
        assert left(store) == 3
        assert store.min_phy_offset() == 2 * FILE
        first = next(components_of(store).log.scan(2 * FILE))
        assert store.min_offset("t", 0) == first.queue_offset
        assert components_of(store).expiry.run() == 0
        assert [finding for finding in store.check() if finding.damage] == []


def test_a_file_is_old_at_the_very_second(tmp_path: Path, machine: Machine) -> None:
    """RocketMQ: ``currentTimeMillis() >= lastModified + reserved``."""
    with opened(tmp_path / "s", machine, fileReservedTime=2) as store:
        fill(store, 3)
        for at, written in enumerate((1000, 1001)):
            os.utime(components_of(store).log.files.files()[at].path, (written, written))
        machine.now = lambda: 1000.0 + 2 * HOUR  # type: ignore[method-assign]
        _, files = store.expiring_files()
        assert [file.goes for file in files] == [True, False, False]
        assert [file.written for file in files[:2]] == [1000, 1001]


def test_the_last_file_never_goes_and_a_young_one_keeps_those_behind_it(
    tmp_path: Path, machine: Machine
) -> None:
    machine.hour = 4
    with opened(tmp_path / "s", machine) as store:
        fill(store, 4)
        age(store, 0, 2, 3, hours=1000)
        assert components_of(store).expiry.run() == 1
        assert left(store) == 3
        machine.ahead = 1000 * HOUR
        assert components_of(store).expiry.run() == 2
        assert left(store) == 1
        assert components_of(store).expiry.run() == 0
        assert store.put_message(Message("t", b"x")).ok


def test_one_run_deletes_a_batch_and_rests_between_files(tmp_path: Path, machine: Machine) -> None:
    machine.hour, machine.ahead = 16, 73 * HOUR
    with opened(tmp_path / "s", machine, deleteWhen="04; 16", deleteFileBatchMax=3) as store:
        fill(store, 6)
        machine.waits.clear()
        assert components_of(store).expiry.run() == 3
        assert machine.waits == [0.1, 0.1]
        assert left(store) == 3


@pytest.mark.parametrize("which", ["commitlog", "consumequeue"])
@pytest.mark.parametrize(
    ("percent", "old", "young"), [(75, 0, 0), (76, 1, 0), (85, 1, 0), (86, 1, 1), (-1, 1, 0)]
)
def test_a_disk_that_fills_lets_old_files_go_at_any_hour_and_then_young_ones(
    tmp_path: Path, machine: Machine, which: str, percent: int, old: int, young: int
) -> None:
    with opened(tmp_path / "s", machine) as store:
        fill(store, 3)
        age(store, 0, hours=73)
        machine.percent[which] = percent
        assert components_of(store).expiry.run() == old + young
        assert left(store) == 3 - old - young


def test_young_files_stay_where_forced_deletion_is_off(tmp_path: Path, machine: Machine) -> None:
    machine.percent["commitlog"] = 89
    with opened(tmp_path / "s", machine, cleanFileForciblyEnable=False) as store:
        fill(store, 3)
        assert components_of(store).expiry.run() == 0


@pytest.mark.parametrize("which", ["commitlog", "consumequeue"])
def test_a_nearly_full_disk_takes_no_puts_until_it_has_room_again(
    tmp_path: Path, machine: Machine, which: str
) -> None:
    with opened(tmp_path / "s", machine) as store:
        fill(store, 1)
        end = store.max_offset("t", 0)
        machine.percent[which] = 90
        components_of(store).expiry.run()
        assert store.put_message(Message("t", b"x")).ok
        machine.percent[which] = 91
        components_of(store).expiry.run()
        refused = [
            store.put_message(Message("t", b"x")),
            *store.put_messages([Message("t", b"x")] * 2),
            *store.put_client_batch(Message("t", b"x")),
            store.put_message_future(Message("t", b"x")).result(0),
        ]
        assert {put.status for put in refused} == {PutMessageStatus.SERVICE_NOT_AVAILABLE}
        assert not any(put.ok for put in refused)
        assert "91 % full" in refused[0].reason
        assert len(refused) == 5
        assert store.get_message("t", 0, 0).records
        store.flush()
        assert store.max_offset("t", 0) == end + 1
        machine.percent[which] = 90
        components_of(store).expiry.run()
        assert store.put_message(Message("t", b"x")).queue_offset == end + 1


def test_levels_beyond_rocketmqs_bounds_are_drawn_in(tmp_path: Path, machine: Machine) -> None:
    with opened(
        tmp_path / "s",
        machine,
        diskSpaceWarningLevelRatio=99,
        diskSpaceCleanForciblyRatio=5,
        diskMaxUsedSpaceRatio=3,
    ) as store:
        demand = components_of(store).expiry._levels.demand
        machine.percent["commitlog"] = machine.percent["consumequeue"] = 10
        assert demand() == (False, False, "", 10, 10)
        machine.percent["commitlog"] = 11
        assert demand() == (True, False, "", 11, 10)
        machine.percent["commitlog"] = 31
        assert demand() == (True, True, "", 31, 10)
        machine.percent["commitlog"] = 91
        assert demand().full


def test_levels_are_drawn_in_from_the_other_side_too(tmp_path: Path, machine: Machine) -> None:
    """RocketMQ: 30 to 85 % for files that are not old, 35 to 90 % for puts; 0 % is known."""
    with opened(
        tmp_path / "s",
        machine,
        diskSpaceWarningLevelRatio=5,
        diskSpaceCleanForciblyRatio=99,
        diskMaxUsedSpaceRatio=99,
    ) as store:
        demand = components_of(store).expiry._levels.demand
        machine.percent["commitlog"], machine.percent["consumequeue"] = 0, 35
        assert demand() == (False, False, "", 0, 35)
        machine.percent["consumequeue"] = 36
        assert "queues is 36 % full: puts are refused above 35 %" in demand().full
        machine.percent["consumequeue"] = 85
        assert demand()[:2] == (False, False)
        machine.percent["consumequeue"] = 86
        assert demand()[:2] == (True, True)


def test_by_hand_old_files_go_at_any_hour_for_twenty_runs(tmp_path: Path, machine: Machine) -> None:
    with opened(tmp_path / "s", machine) as store:
        fill(store, 3)
        age(store, 0, hours=73)
        store.delete_files_manually()
        assert left(store) == 2
        for _ in range(18):
            assert components_of(store).expiry.run() == 0
        age(store, 0, hours=73)
        assert components_of(store).expiry.run() == 1, "the twentieth"
        fill(store, 3)
        age(store, 0, hours=73)
        assert components_of(store).expiry.run() == 0


def test_a_file_that_cannot_be_deleted_stays_and_is_tried_again(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.hour, machine.ahead = 4, 73 * HOUR
    with opened(tmp_path / "s", machine) as store:
        fill(store, 4)
        stuck = components_of(store).log.files.files()[1].path
        unlink = MappedFile.unlink

        def refuse(file: MappedFile) -> None:
            if file.path == stuck:
                raise StoreIOError("cannot delete a commit log file: busy", path=file.path)
            unlink(file)

        monkeypatch.setattr(MappedFile, "unlink", refuse)
        assert components_of(store).expiry.run() == 1
        assert stuck.exists()
        assert store.min_phy_offset() == FILE
        assert store.put_message(Message("t", b"x")).ok, "the store goes on"
        first = next(components_of(store).log.scan(FILE)).queue_offset
        assert store.min_offset("t", 0) == first
        assert store.get_message("t", 0, first).records
        monkeypatch.undo()
        assert components_of(store).expiry.run() == 0, "not before two minutes have passed"
        machine.ahead += 121
        assert components_of(store).expiry.run() == 2
        assert not stuck.exists()


def test_who_reads_a_file_that_goes_keeps_what_he_has(tmp_path: Path, machine: Machine) -> None:
    machine.hour, machine.ahead = 4, 73 * HOUR
    with opened(tmp_path / "s", machine) as store:
        fill(store, 3)
        pulled = store.get_message("t", 0, 0)
        before = [bytes(record) for record in pulled.records]
        assert components_of(store).expiry.run() == 2
        assert [bytes(record) for record in pulled.records] == before
        assert store.get_message("t", 0, 0).status.name == "OFFSET_TOO_SMALL"


def test_the_thread_deletes_by_itself_and_ends_with_the_store(
    tmp_path: Path, machine: Machine
) -> None:
    config = StoreConfig(mapped_file_size_commit_log=FILE, clean_resource_interval=1)
    root = tmp_path / "s"
    with opened(root, machine) as store:
        fill(store, 3)
    machine.hour, machine.ahead = 4, 73 * HOUR
    store = open_served(MessageStore, root, config, OpenOptions(environment=machine))
    until(lambda: len(components_of(store).log.files.files()) <= 1)
    assert left(store) == 1
    assert machine.waits[0] == 60
    store.close()
    assert "cqstore-expiry" not in {thread.name for thread in threading.enumerate()}


def test_used_percent_is_what_df_says(tmp_path: Path) -> None:
    def df() -> int:
        done = subprocess.run(
            ["df", "--output=pcent", str(tmp_path)], capture_output=True, text=True, check=True
        )
        return int(done.stdout.split()[-1].rstrip("%"))

    before, found, after = df(), Environment().used_percent(tmp_path), df()
    assert min(before, after) <= found <= max(before, after)
    assert Environment().used_percent(tmp_path / "nowhere") == -1


@pytest.mark.parametrize("hours", ["24", "4,5", "noon", "-1"])
def test_hours_that_are_none_are_refused(hours: str) -> None:
    with pytest.raises(StoreConfigError, match="deleteWhen"):
        StoreConfig.from_mapping({"deleteWhen": hours})


def test_what_would_go_is_told_with_the_reason_and_is_what_goes(
    tmp_path: Path, machine: Machine
) -> None:
    with opened(tmp_path / "s", machine, deleteFileBatchMax=2) as store:
        fill(store, 8)
        age(store, 0, 1, 3, hours=73)
        demand, files = store.expiring_files()
        assert (demand.at_once, demand.log_percent) == (False, 50)
        assert [file.goes for file in files] == [True] * 2 + [False] * 6
        assert "fileReservedTime" in files[0].reason
        assert "fileReservedTime" in files[2].reason
        assert "an earlier file is kept" in files[3].reason
        machine.percent["consumequeue"] = 86
        demand, files = store.expiring_files()
        assert demand.at_once
        assert [(file.goes, file.early) for file in files[:5]] == [
            (True, False), (True, False), (True, True), (True, False), (True, True),
        ]  # fmt: skip
        assert [file.goes for file in files[5:]] == [False] * 3
        assert "diskSpaceCleanForciblyRatio" in files[4].reason
        assert files[4].end == files[5].file_from_offset
        machine.percent["consumequeue"] = 50
        store.delete_files_manually()
        assert left(store) == 6
        machine.ahead = 1000 * HOUR
        _, files = store.expiring_files()
        assert [file.goes for file in files] == [True] * 5 + [False]
        assert "last" in files[5].reason
