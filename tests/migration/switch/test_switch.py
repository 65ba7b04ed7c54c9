"""The switch and the way back: what is served, what is kept, and what stops it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cqstore.cq_rocksdb.bulk
import cqstore.migration.switch.switch
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import finish, rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.status import status
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError, StoreIOError, StoreLockedError
from cqstore.store.journals.backend_state import read_backend_state
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, change_mode
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands
from tests.kit.golden import load_dump
from tests.kit.long_too import long_too
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("special-defaultRocksDB", "file")]
OTHER = {"rocksdb": "file", "file": "rocksdb"}


def prepare(root: Path, target: str) -> Workspace:
    """Plan, run and verify."""
    make_plan(root, target=target, segment_units=400)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    return Workspace.of(root)


def put(root: Path, count: int, topic: str = "since") -> None:
    with MessageStore.open(root, housekeeping=False) as store:
        for number in range(count):
            assert store.put_message(Message(topic, b"x" * 50, number % 3, {"TAGS": "t"})).ok


def backend_of(root: Path) -> list[str]:
    with MessageStore.open(root, read_only=True) as store:
        return [each.name for each in components_of(store).queues.backends()]


@pytest.mark.parametrize(("name", "target"), MOVES)
def test_there_and_back(golden: Golden, name: str, target: str) -> None:
    root = golden(name)
    before = served(root)
    source = OTHER[target]
    prepare(root, target)
    put(root, 20)
    whole = served(root)
    assert len(whole) == len(before) + 3
    report = switch(root)
    assert report.state == StoreMode(target)
    assert report.caught_up_units == 20
    assert backend_of(root) == [target]
    assert served(root) == whole
    put(root, 7, "later")
    assert read_backend_state(StorePaths(root)).mode is not None
    assert list(report.left_behind) == [source]
    whole = served(root)
    back = rollback(root)
    assert back is not None
    assert (back.state, back.caught_up_units) == (StoreMode(source), 7)
    assert backend_of(root) == [source]
    assert served(root) == whole
    assert status(root)["stage"] == "nothing"
    prepare(root, target)  # nothing of the first time is in the way
    switch(root)
    assert served(root) == whole


def test_nothing_is_lost_of_what_rocketmq_read(golden: Golden) -> None:
    root = golden("wide-default")
    prepare(root, "rocksdb")
    switch(root)
    with MessageStore.open(root, read_only=True) as store:
        assert components_of(store).queues.name == "rocksdb"
        for queue in load_dump("wide-default")["queues"]:
            key = (queue["topic"], queue["queueId"])
            assert store.min_offset(*key) == queue["min"]
            assert store.max_offset(*key) == queue["max"]


@pytest.mark.parametrize(
    ("name", "separate"),
    [
        ("basic-default", False),
        pytest.param("wide-default", False, marks=pytest.mark.long),
        pytest.param("wide-default", True, marks=pytest.mark.long),
    ],
)
def test_the_old_queues_and_the_log_keep_their_bytes(
    golden: Golden, name: str, *, separate: bool
) -> None:
    root = golden(name)
    prepare(root, "rocksdb")
    kept = [*(root / "consumequeue").rglob("0*"), *(root / "commitlog").iterdir()]
    files = {path: path.read_bytes() for path in kept if path.is_file()}
    config = StoreConfig(use_separate_store_path_for_rocksdb_cq=separate)
    switch(root, config)
    folder = "consumequeue_rocksdb" if separate else "consumequeue"
    assert (root / folder / "CURRENT").exists()
    assert (root / "consumequeue" / "CURRENT").exists() is not separate
    assert {path: path.read_bytes() for path in files} == files
    rollback(root, config)
    assert not list(root.glob("consumequeue*/CURRENT"))
    assert {path: path.read_bytes() for path in files} == files


def test_a_migration_that_is_finished_leaves_the_new_queues_alone(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    with pytest.raises(RefusedStoreError, match="no migration to finish"):
        finish(root)
    switch(root, to=StoreMode("double-write-rocksdb"))
    with pytest.raises(RefusedStoreError, match="the state of the store is double-write-rocksdb"):
        finish(root)
    switch(root)
    whole = served(root)
    assert list(finish(root)) == ["file"]
    assert served(root) == whole
    assert not [path for path in (root / "consumequeue").iterdir() if path.is_dir()]
    prepare(root, "file")  # and nothing is in the way of going back by another migration
    switch(root)
    assert served(root) == whole
    assert backend_of(root) == ["file"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("basic-default", "rocksdb"),
        pytest.param("wide-default", "rocksdb", marks=pytest.mark.long),
    ],
)
def test_queues_built_from_the_log_take_the_place_of_damaged_ones(
    golden: Golden, name: str, target: str
) -> None:
    root = golden(name)
    whole = served(root)
    for path in sorted((root / "consumequeue").glob("*/*/0*"))[::3]:
        path.write_bytes(bytes(path.stat().st_size))
    make_log_plan(root, target=target, master=NO_SPARK, segment_units=400)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK, deep=True).equal
    put_into = switch(root)
    assert put_into.state == StoreMode(target)
    assert served(root) == whole
    with pytest.raises(RefusedStoreError, match="there are no old queues to serve again"):
        rollback(root)
    finish(root)
    assert served(root) == whole


def test_a_step_in_between_is_a_state_of_its_own(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    assert switch(root, to=StoreMode("double-write-file")).state == StoreMode("double-write-file")
    assert backend_of(root) == ["file", "rocksdb"]
    put(root, 9)
    assert switch(root).state == StoreMode("rocksdb")
    assert backend_of(root) == ["rocksdb"]


def test_records_that_expired_since_are_no_obstacle(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    put(root, 30)
    with MessageStore.open(root, housekeeping=False) as store:
        store.delete_expired_files(3 * 262_144)
        assert store.min_phy_offset() == 3 * 262_144
    whole = served(root)
    switch(root)
    assert served(root) == whole
    put(root, 3)
    whole = served(root)
    rollback(root)
    assert served(root) == whole


@pytest.mark.parametrize("by_rocketmq", [False, True])
def test_a_topic_deleted_since_stays_deleted(golden: Golden, *, by_rocketmq: bool) -> None:
    root = golden("basic-default")
    with MessageStore.open(root, read_only=True) as store:
        topic = next(iter(store.topics()))
    prepare(root, "rocksdb")
    if by_rocketmq:  # which keeps no journal of it
        shutil.rmtree(root / "consumequeue" / topic)
        (root / "cqstore" / "file-queue-ends.npz").unlink(missing_ok=True)
    else:
        with MessageStore.open(root, housekeeping=False) as store:
            store.delete_topic(topic)
    whole = served(root)
    assert topic not in {key.topic for key in whole}
    report = switch(root)
    assert report.deleted_since == ([topic] if by_rocketmq else [])
    assert served(root) == whole


def test_a_copy_can_be_moved_and_the_store_switched(golden: Golden, tmp_path: Path) -> None:
    root = golden("basic-default")
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    space = prepare(copy, "rocksdb")
    put(root, 25)
    whole = served(root)
    assert switch(root, workspace=space).caught_up_units == 25
    assert served(root) == whole
    assert backend_of(copy) == ["file"]
    rollback(root)
    assert served(root) == whole
    assert backend_of(root) == ["file"]


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("end", [rollback, finish])
def test_a_switch_ends_whichever_workspace_is_named(
    golden: Golden, tmp_path: Path, end: Callable[..., object], *, by_command: bool
) -> None:
    """The copy's has no note of the switch, and is not what is to be emptied."""
    root = golden("basic-default")
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    space = prepare(copy, "rocksdb")
    switch(root, workspace=space)
    before = tree_digest(copy)
    if by_command:
        words = ["migrate", end.__name__, str(root), "--workspace", str(space.root)]
        done = commands.run(words)
        assert done.returncode == 0, done.stderr
        assert str(Workspace.of(root).root / "report-") in done.stderr
    else:
        end(root, workspace=space)
    assert backend_of(root) == ["file" if end is rollback else "rocksdb"]
    assert status(root)["stage"] == "nothing"
    assert tree_digest(copy) == before


# ---- refused


def test_what_was_not_verified_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    make_plan(root)
    with pytest.raises(RefusedStoreError, match="no new queues found"):
        switch(root)
    run_plan(root, master=NO_SPARK)
    with pytest.raises(RefusedStoreError, match="the new queues are not verified"):
        switch(root)
    assert backend_of(root) == ["file"]


def test_another_store_is_refused(golden: Golden) -> None:
    space = prepare(golden("basic-default"), "rocksdb")
    other = golden("wide-default")
    before = tree_digest(other)
    with pytest.raises(RefusedStoreError, match=r"the plan was made for another store|no longer"):
        switch(other, workspace=space)
    assert tree_digest(other) == before


def test_a_store_in_use_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    with (
        MessageStore.open(root, housekeeping=False),
        pytest.raises((StoreLockedError, RefusedStoreError)),
    ):
        switch(root)
    assert backend_of(root) == ["file"]
    switch(root)


def test_a_store_that_was_not_closed_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    (root / "abort").touch()
    with pytest.raises(RefusedStoreError, match="not closed cleanly and needs recovery"):
        switch(root)
    with MessageStore.open(root, housekeeping=False):
        pass
    switch(root)


def test_a_store_that_has_stepped_on_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    change_mode(root, StoreMode("double-write-file"))
    with pytest.raises(RefusedStoreError, match="the state of the store is double-write-file"):
        switch(root)


def test_a_state_without_the_new_queues_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    with pytest.raises(RefusedStoreError, match="to state file: it does not use the new rocksdb"):
        switch(root, to=StoreMode("file"))


def test_nothing_to_switch_to_or_roll_back_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    before = tree_digest(root)
    for step in (switch, rollback, finish):
        with pytest.raises(RefusedStoreError, match="no migration found"):
            step(root)
    assert tree_digest(root) == before


# ---- cut short


def test_before_the_switch_a_way_back_leaves_the_store_alone(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    own = StorePaths(root).own
    before = tree_digest(root, but=own)
    assert rollback(root) is None
    assert tree_digest(root, but=own) == before
    assert status(root)["stage"] == "nothing"


STEPS = ["set_mode", "write_file", "change_mode", "_forget_deleted"]
CUTS = [
    (name, after, *MOVES[(number + after + turn) % 2])
    for turn in (0, 1)
    for number, name in enumerate(STEPS)
    for after in (False, True)
]
"""Each step is cut short before and after its work; first in one direction, then in the other."""


@pytest.mark.parametrize(
    ("name", "after", "golden_name", "target"),
    [*CUTS[: len(CUTS) // 2], *long_too(CUTS[len(CUTS) // 2 :])],
)
def test_a_switch_that_is_cut_short_goes_on_or_back(
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    golden_name: str,
    target: str,
    *,
    after: bool,
) -> None:
    root = golden(golden_name)
    prepare(root, target)
    put(root, 5)
    whole = served(root)
    real = getattr(cqstore.migration.switch.switch, name)

    def broken(*words: object, **more: object) -> object:
        if after:
            real(*words, **more)
        raise StoreIOError("pulled")

    with monkeypatch.context() as patch:
        patch.setattr(cqstore.migration.switch.switch, name, broken)
        with pytest.raises(StoreIOError, match="pulled"):
            switch(root)
    assert served(root) == whole
    back = Path(shutil.copytree(root, root.with_name("back")))
    if name == "set_mode" or (name == "write_file" and not after):
        # The plan names the folder that it was made in; only what is in the store goes back here.
        shutil.rmtree(back)
    else:
        rollback(back)
        assert served(back) == whole
    assert switch(root).state == StoreMode(target)
    assert served(root) == whole


@pytest.mark.parametrize("count", range(6))
def test_a_publishing_that_is_cut_short_goes_on_or_back(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    whole = served(root)
    left = [count]
    link = cqstore.cq_rocksdb.bulk._link

    def broken(file: Path, target: Path) -> None:
        if not left[0]:
            raise OSError(5, "pulled")
        left[0] -= 1
        link(file, target)

    with monkeypatch.context() as patch:
        patch.setattr(cqstore.cq_rocksdb.bulk, "_link", broken)
        with pytest.raises(StoreIOError, match="pulled"):
            switch(root)
    assert served(root) == whole
    assert backend_of(root) == ["file"]
    if count % 2:
        assert rollback(root) is None
        assert not (root / "consumequeue" / "CURRENT").exists()
        assert not list((root / "consumequeue").glob("*.sst"))
        put(root, 3)
        return
    switch(root)
    assert served(root) == whole
    assert backend_of(root) == ["rocksdb"]
