"""Each path of a log has its disk: where new files go, and when old ones are deleted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.store.errors import StoreIOError
from cqstore.store.log.file_places import FilePlaces
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.store.service.test_file_expiry import FILE, HOUR, Machine, fill


@pytest.fixture
def machine() -> Machine:
    return Machine()


@contextmanager
def opened(tmp_path: Path, machine: Machine, **given: object) -> Iterator[MessageStore]:
    """Open the store ``s`` with a log in ``a``, ``b`` and ``c``."""
    root = tmp_path / "s"
    config = StoreConfig.from_mapping({
        "mapped_file_size_commit_log": FILE, "storePathRootDir": str(root),
        "storePathCommitLog": ",".join(f"{tmp_path}/{name}" for name in "abc"), **given,
    })  # fmt: skip
    options = OpenOptions(housekeeping=False, environment=machine)
    with open_served(MessageStore, root, config, options) as store:
        yield store


def folders(store: MessageStore) -> str:
    return "".join(file.path.parent.name for file in components_of(store).log.files.files())


A, B, C = (Path(f"/{name}") for name in "abc")


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ([], "abcabc"),
        ([A], "bcbcbc"),
        ([B], "acacac"),
        ([A, C], "bbbbbb"),
        ([A, B, C], "abcabc"),  # none is better than the others
        ([Path("/d")], "abcabc"),
    ],
)
def test_full_folders_lose_their_turn(full: list[Path], expected: str) -> None:
    places = FilePlaces([A, B, C], lambda: full)
    assert "".join(places.folder(number).name for number in range(6)) == expected


def test_the_only_folder_is_used_without_a_look_at_its_disk() -> None:
    places = FilePlaces([A], lambda: pytest.fail("asked"))
    assert {places.folder(number) for number in range(3)} == {A}


def test_a_disk_above_the_forcible_level_gets_no_new_file(tmp_path: Path, machine: Machine) -> None:
    with opened(tmp_path, machine) as store:
        machine.percent = {"a": 85}
        fill(store, 3)
        assert folders(store) == "abc"
        machine.percent = {"a": 86}
        fill(store, 7)
        assert folders(store)[5:] == "cb"  # numbers 5 and 6 over b, c; 3 and 4 may be made ahead
        machine.percent = {"a": 86, "b": 99, "c": 86}
        fill(store, 12)
        assert folders(store)[9:] == "abc"


def test_a_lower_level_of_the_settings_counts(tmp_path: Path, machine: Machine) -> None:
    machine.percent = {"a": 40, "b": 41, "c": 40}
    with opened(tmp_path, machine, diskSpaceCleanForciblyRatio=40) as store:
        fill(store, 4)
        assert folders(store) == "acac"


def test_the_emptiest_disk_decides_about_deletions_and_puts(
    tmp_path: Path, machine: Machine
) -> None:
    with opened(tmp_path, machine) as store:
        fill(store, 6)
        expiry = components_of(store).expiry
        machine.percent = {"a": 99, "b": 99, "c": 75}
        assert expiry.run() == 0
        assert store.put_message(Message("t", b"x")).ok
        machine.percent["c"] = 76
        machine.ahead = 73 * HOUR
        assert expiry.run() == 5  # old ones, at any hour; the oldest first, whatever its path is
        assert len(folders(store)) == 1
        machine.percent["c"] = 91
        assert expiry.run() == 0
        status = store.put_message(Message("t", b"x")).status
        assert status is PutMessageStatus.SERVICE_NOT_AVAILABLE
        machine.percent["c"] = 90
        expiry.run()
        assert store.put_message(Message("t", b"x")).ok


def test_files_are_deleted_early_only_if_all_disks_are_nearly_full(
    tmp_path: Path, machine: Machine
) -> None:
    with opened(tmp_path, machine) as store:
        fill(store, 4)
        expiry = components_of(store).expiry
        machine.percent = {"a": 86, "b": 85, "c": 86}
        assert expiry.run() == 0
        machine.percent["b"] = 86
        assert expiry.run() == 3
        assert not list((tmp_path / "b").iterdir())[1:]


def test_disks_of_files_that_are_only_read_do_not_count(tmp_path: Path, machine: Machine) -> None:
    (tmp_path / "old").mkdir()
    machine.percent = {"old": 1, "a": 91, "b": 91, "c": 91}
    given = {"readOnlyCommitLogStorePaths": f"{tmp_path}/old"}
    with opened(tmp_path, machine, **given) as store:
        fill(store, 2)
        components_of(store).expiry.run()
        assert not store.put_message(Message("t", b"x")).ok


def test_old_files_in_a_read_only_path_expire_too(tmp_path: Path, machine: Machine) -> None:
    with opened(tmp_path, machine) as store:
        fill(store, 4)
    given = {"readOnlyCommitLogStorePaths": f"{tmp_path}/a"}
    with opened(tmp_path, machine, **given) as store:
        machine.hour, machine.ahead = 4, 73 * HOUR
        assert components_of(store).expiry.run() == 3
        assert folders(store).startswith("a")  # the last file is never deleted


def test_a_folder_that_vanishes_is_not_made_again(tmp_path: Path) -> None:
    """A new file must not land on the disk of the mount point."""
    folders = [tmp_path / "a", tmp_path / "b"]
    files = MappedFileQueue(folders, 4096, mapped_max=4, read_only=False)
    files.places = FilePlaces(folders)
    (tmp_path / "b").mkdir()
    files.append_file()
    (tmp_path / "b").rename(tmp_path / "unmounted")
    with pytest.raises(StoreIOError) as caught:
        files.append_file()
    assert caught.value.path == tmp_path / "b" / f"{4096:020d}"
    assert not (tmp_path / "b").exists()
    (tmp_path / "unmounted").rename(tmp_path / "b")
    assert files.append_file().path.parent == tmp_path / "b"
    files.close()


def test_metrics_have_the_ratio_of_the_emptiest_disk(tmp_path: Path, machine: Machine) -> None:
    with opened(tmp_path, machine) as store:
        fill(store, 2)
        assert 0 < store.metrics.snapshot().log_disk_used_ratio < 1
