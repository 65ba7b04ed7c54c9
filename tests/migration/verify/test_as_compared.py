"""The switch of a store that nothing has touched since it was compared, and of a touched one."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import read_report, verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError, StoreIOError
from cqstore.store.journals.backend_state import read_backend_state
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.crash_images import crash_image
from tests.kit.cut_short import cut_short
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served

Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("special-defaultRocksDB", "file")]
AT_ONCE = ["publishing", "opening the store"]


def compared(root: Path, target: str) -> str:
    """Plan, run and verify; return what the report says of the store's files."""
    make_plan(root, target=target, segment_units=400)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    plan = read_report(Workspace.of(root).report).plan
    assert plan is not None
    return plan.known_queues


def steps(root: Path) -> list[str]:
    reported: list[str] = []
    switch(root, on_event=reported.append)
    return reported


@pytest.mark.parametrize(("name", "target"), MOVES)
def test_what_was_compared_is_served_at_once_and_goes_back(
    golden: Golden, name: str, target: str
) -> None:
    root = golden(name)
    StoreLock(StorePaths(root)).release()  # as every store has it that was ever open
    before = served(root)
    assert compared(root, target)
    assert steps(root) == AT_ONCE
    record = read_backend_state(StorePaths(root))
    assert (record.mode, set(record.lagging)) == (target, {"file", "rocksdb"} - {target})
    assert served(root) == before
    assert rollback(root) is not None
    assert served(root) == before


def kill_and_go_on(root: Path, target: str, seed: int, cuts: int) -> None:
    """Kill the switch ``cuts`` times, each time anew from the same untouched store."""
    StoreLock(StorePaths(root)).release()
    compared(root, target)
    whole, draw = served(root), random.Random(seed)
    saved = shutil.copytree(root, root.with_name("saved"))

    def anew() -> None:
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert verify_migration(root, master=NO_SPARK).equal  # of these very files

    anew()
    changes = cut_short(root, "switch")
    assert changes is not None
    assert served(root) == whole
    for number in range(cuts):
        anew()
        assert cut_short(root, "switch", draw.randint(1, changes)) is None
        assert served(root) == whole
        (rollback if number % 2 and Workspace.of(root).plan.exists() else switch)(root)
        assert served(root) == whole


@pytest.mark.slow
@pytest.mark.crash
def test_a_switch_that_is_killed_goes_on_or_back(golden: Golden) -> None:
    kill_and_go_on(golden("basic-default"), "rocksdb", seed=1, cuts=2)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("group", range(3))
@pytest.mark.parametrize(("name", "target"), MOVES)
def test_a_switch_that_is_killed_goes_on_or_back_ever(
    golden: Golden, name: str, target: str, group: int
) -> None:
    kill_and_go_on(golden(name), target, seed=100 + group, cuts=10)


@pytest.mark.parametrize("touched", ["touched", ""])
def test_a_kill_right_after_the_switch_brings_back_nothing_that_was_deleted(
    golden: Golden, touched: str
) -> None:
    root = golden("special-defaultRocksDB")
    whole = served(root)
    assert compared(root, "file")
    if touched:
        os.utime(next((root / "commitlog").iterdir()))
    assert (steps(root) == AT_ONCE) is not bool(touched)
    with MessageStore.open(root, housekeeping=False):
        killed = crash_image(root, root.with_name("killed"))
    with MessageStore.open(killed, housekeeping=False) as store:
        assert not store.report.last_exit_ok
    assert served(killed) == whole


def change_a_unit(root: Path) -> None:
    """Change a unit and give the file its time back: only the system's own time tells."""
    path = next((root / "consumequeue").glob("*/*/0*"))
    status = path.stat()
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(12)[8:])
        file.seek(8)
        file.write((size + 1).to_bytes(4))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_unit_that_was_changed_since_is_found(golden: Golden) -> None:
    root = golden("basic-default")
    StoreLock(StorePaths(root)).release()
    assert compared(root, "rocksdb")
    change_a_unit(root)
    with pytest.raises(RefusedStoreError):
        switch(root)
    with MessageStore.open(root, read_only=True) as store:
        assert components_of(store).queues.backends()[0].name == "file"


CHANGES: dict[str, Callable[[Path], object]] = {
    "a queue file's time": lambda root: os.utime(next((root / "consumequeue").glob("*/*/0*"))),
    "a new queue": lambda root: (root / "consumequeue" / "new" / "0").mkdir(parents=True),
    "a log file's time": lambda root: os.utime(next((root / "commitlog").iterdir())),
    "a start of RocketMQ": lambda root: os.utime(root / "lock", ns=(1, 1)),
    "a journal of ours": lambda root: (root / "cqstore" / "note").write_text(""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_that_was_touched_since_is_compared_again(golden: Golden, change: str) -> None:
    root = golden("basic-default")
    StoreLock(StorePaths(root)).release()
    before = served(root)
    assert compared(root, "rocksdb")
    CHANGES[change](root)
    assert steps(root)[1] == "changing the state to double-write-file"
    assert served(root) == before


def test_a_store_that_was_open_while_it_was_compared_is_compared_again(golden: Golden) -> None:
    root = golden("basic-default")
    lock = StoreLock(StorePaths(root))
    assert not compared(root, "rocksdb")
    lock.release()
    assert steps(root)[1] == "changing the state to double-write-file"


def test_new_queues_that_cannot_be_opened_leave_the_old_ones_served(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden("basic-default")
    StoreLock(StorePaths(root)).release()
    before = served(root)
    compared(root, "rocksdb")

    def refuse(*_: object, **__: object) -> None:
        raise StoreIOError("no room", path=root)

    with monkeypatch.context() as patched:
        patched.setattr("cqstore.migration.switch.switch.MessageStore.open", refuse)
        with pytest.raises(StoreIOError, match="no room"):
            switch(root)
    record = read_backend_state(StorePaths(root))
    assert (record.mode, list(record.lagging)) == ("file", ["rocksdb"])
    assert served(root) == before
    assert (
        steps(root)[0] == "changing the state to double-write-file"
    )  # the same call takes all steps
    assert served(root) == before


def test_a_copy_is_compared_again(golden: Golden, tmp_path: Path) -> None:
    root = golden("basic-default")
    StoreLock(StorePaths(root)).release()
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    assert compared(copy, "rocksdb")
    reported: list[str] = []
    switch(root, workspace=Workspace.of(copy), on_event=reported.append)
    assert reported[1] == "changing the state to double-write-file"
