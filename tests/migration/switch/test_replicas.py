"""A stopped broker of a set: its queues and tables move, its log and its epochs keep every byte."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight import preflight
from cqstore.migration.rollback.rollback import finish, rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import ReadOnlyStoreError, RefusedStoreError
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, change_mode
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.replica_config import BrokerRole
from tests.kit.cut_short import cut_short
from tests.kit.migrations import NO_SPARK, closed_copy, put_some
from tests.kit.served import served
from tests.migration.preflight.kit import FakeMachine, codes

Golden = Callable[[str], Path]
EPOCHS = "epochFileCheckpoint"
KEPT = ("physic_msg_timestamp", "master_flushed_offset", "confirm_phy_offset")
"""Fields of the checkpoint that are about the log, or about other brokers."""
SET = {
    "epochs": StoreConfig(),
    "controller": StoreConfig(enable_controller_mode=True, all_ack_in_sync_state_set=True),
    "slave": StoreConfig(broker_role=BrokerRole.SLAVE),
}


def as_a_broker_of_a_set_leaves_it(root: Path, confirmed: int | None = None) -> int:
    """Add the epochs, and the offset that all in-sync replicas have confirmed; return the end."""
    if confirmed is None:
        with MessageStore.open(root, read_only=True) as store:
            confirmed = store.max_phy_offset()
    (root / EPOCHS).write_text("1\n0\n1-0\n")
    checkpoint = StoreCheckpoint(root / "checkpoint")
    checkpoint.update(confirm_phy_offset=confirmed)
    checkpoint.flush()
    return confirmed


def log_side(root: Path) -> dict[str, object]:
    """Everything that another replica compares with: log, epochs, confirm offset."""
    files = [*(root / "commitlog").iterdir(), *root.glob(f"{EPOCHS}*")]
    found: dict[str, object] = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in files
    }
    fields = StoreCheckpoint(root / "checkpoint").fields
    return found | {name: getattr(fields, name) for name in KEPT}


def verified_plan(root: Path, target: str, config: StoreConfig | None = None) -> Workspace:
    make_plan(root, config, target=target, segment_units=400)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    return Workspace.of(root)


@pytest.mark.parametrize(
    ("name", "target"), [("basic-default", "rocksdb"), ("basic-defaultRocksDB", "file")]
)
@pytest.mark.parametrize("kind", SET)
def test_queues_move_and_come_back(
    golden: Golden, tmp_path: Path, name: str, target: str, kind: str
) -> None:
    """As compared: nothing has changed since. On the way back, too, the log is only read."""
    config, root = SET[kind], closed_copy(golden(name), tmp_path / "store")
    as_a_broker_of_a_set_leaves_it(root, 0 if kind == "slave" else None)
    if kind != "epochs":
        (root / EPOCHS).unlink()
    before, whole = log_side(root), served(root)
    assert codes(preflight(root, config, to=target, machine=FakeMachine()).refusals) == []
    verified_plan(root, target, config)
    assert switch(root, config).state == StoreMode(target)
    assert (log_side(root), served(root)) == (before, whole)
    back = rollback(root, config)
    assert back is not None
    assert back.state != StoreMode(target)
    assert (log_side(root), served(root)) == (before, whole)
    verified_plan(root, target, config)
    switch(root, config)
    finish(root, config)
    assert (log_side(root), served(root)) == (before, whole)


@pytest.mark.parametrize("to", [None, "double-write-file", "double-write-rocksdb"])
def test_new_queues_catch_up_from_a_log_that_is_only_read(
    golden: Golden, tmp_path: Path, to: str | None
) -> None:
    """The plan is older than the last messages: they are dispatched, and nothing is appended."""
    root = closed_copy(golden("basic-default"), tmp_path / "store")
    verified_plan(root, "rocksdb")
    put_some(root, "since")
    as_a_broker_of_a_set_leaves_it(root)
    before, whole = log_side(root), served(root)
    report = switch(root, to=None if to is None else StoreMode(to))
    assert report.caught_up_units == 5
    assert (log_side(root), served(root)) == (before, whole)
    if to == "double-write-file":
        change_mode(root, StoreMode("double-write-rocksdb"))
        change_mode(root, StoreMode("rocksdb"))
        assert (log_side(root), served(root)) == (before, whole)
    back = rollback(root)
    assert back is not None
    assert (log_side(root), served(root)) == (before, whole)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("step", ["switch", "rollback"])
def test_a_step_of_a_replica_that_is_killed_goes_on(
    golden: Golden, tmp_path: Path, step: str
) -> None:
    saved, root = closed_copy(golden("basic-default"), tmp_path / "saved"), tmp_path / "store"
    make_plan(saved, target="rocksdb", segment_units=400)
    run_plan(saved, master=NO_SPARK)
    assert verify_migration(saved, master=NO_SPARK).equal
    put_some(saved, "since")
    as_a_broker_of_a_set_leaves_it(saved)
    before, whole = log_side(saved), served(saved)
    if step == "rollback":
        switch(saved)
    root.mkdir()
    draw, changes = random.Random(7), 1
    for number in range(6):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        if number == 0:
            changes = cut_short(root, step) or 0
            assert changes > 5
        else:
            assert cut_short(root, step, draw.randint(1, changes)) is None
            assert served(root) == whole
            switch(root) if step == "switch" else _roll_back(root)
        assert (log_side(root), served(root)) == (before, whole)


def _roll_back(root: Path) -> None:
    if Workspace.of(root).plan.exists():  # else the cut was behind its last change
        rollback(root)


def test_only_queues_are_written_while_they_are_moved(golden: Golden, tmp_path: Path) -> None:
    root = closed_copy(golden("basic-default"), tmp_path / "store")
    end = as_a_broker_of_a_set_leaves_it(root)
    before = log_side(root)
    with pytest.raises(RefusedStoreError, match="a controller elects its master"):
        MessageStore.open(root)
    with MessageStore.open(root, StoreConfig().to_move_queues()) as store:
        for put in (store.put_message, store.put_message_future):
            with pytest.raises(ReadOnlyStoreError, match="a controller elects its master"):
                put(Message("t", b"x"))
        with pytest.raises(ReadOnlyStoreError, match="the log of this store is not written"):
            store.append_to_commit_log(end, b"x" * 100)
        with pytest.raises(ReadOnlyStoreError, match="the log of this store is not written"):
            store.delete_expired_files(end)
        with pytest.raises(ReadOnlyStoreError, match="the log of this store is not written"):
            store.delete_files_manually()
        assert not components_of(store).state.failure
        store.delete_topics([next(iter(store.topics()))])
        store.flush()
    assert log_side(root) == before
    assert not (root / "abort").exists()


def test_a_confirmed_end_of_the_log_is_no_record_that_is_missing(
    golden: Golden, tmp_path: Path
) -> None:
    """A broker of a set writes the end of the log where others write the start of a record."""
    root = closed_copy(golden("basic-default"), tmp_path / "store")
    as_a_broker_of_a_set_leaves_it(root)
    with MessageStore.open(root, read_only=True) as store:
        assert store.report.damage is None
        assert not store.report.needed
    (root / EPOCHS).unlink()  # then it is the start of one that was on disk
    with MessageStore.open(root, read_only=True) as store:
        assert store.report.damage is not None


def test_records_that_were_not_confirmed_may_have_no_units(golden: Golden, tmp_path: Path) -> None:
    """A slave dispatches what all replicas have; RocketMQ dispatches the rest when it starts."""
    root = closed_copy(golden("basic-defaultRocksDB"), tmp_path / "store")
    shutil.copytree(root / "consumequeue", tmp_path / "queues")
    with MessageStore.open(root, read_only=True) as store:
        confirmed = store.max_phy_offset()
    put_some(root, "since")
    whole = served(root)
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(tmp_path / "queues", root / "consumequeue")
    as_a_broker_of_a_set_leaves_it(root, confirmed)
    before = log_side(root)
    assert len(served(root)) == len(whole) - 3
    verified_plan(root, "file")
    assert switch(root).caught_up_units == 5
    assert (log_side(root), served(root)) == (before, whole)


def test_bytes_that_rocketmq_has_cut_off_stay(golden: Golden, tmp_path: Path) -> None:
    """It leaves them behind the end, and so must a move."""
    root = closed_copy(golden("basic-default"), tmp_path / "store")
    end = as_a_broker_of_a_set_leaves_it(root)
    _write_behind(root, end)
    before, whole = log_side(root), served(root)
    verified_plan(root, "rocksdb")
    switch(root)
    assert (log_side(root), served(root)) == (before, whole)
    assert rollback(root) is not None
    assert (log_side(root), served(root)) == (before, whole)
    assert not (root / "cqstore" / "cut").exists()


def test_a_replica_that_was_killed_is_left_to_its_broker(golden: Golden, tmp_path: Path) -> None:
    root = closed_copy(golden("basic-default"), tmp_path / "store")
    verified_plan(root, "rocksdb")
    end = as_a_broker_of_a_set_leaves_it(root)
    (root / "abort").write_bytes(b"")
    before = log_side(root)
    way = "start its broker, which recovers the store, and stop it again"
    with pytest.raises(RefusedStoreError, match=way):
        switch(root)
    (finding,) = preflight(root, machine=FakeMachine()).refusals
    assert finding.code == "needs-recovery"
    assert way in finding.sentence
    _write_behind(root, end)
    torn = log_side(root)
    with pytest.raises(RefusedStoreError, match=f"its log has a torn end: {way}"):
        MessageStore.open(root, StoreConfig().to_move_queues())
    assert log_side(root) == torn != before


def _write_behind(root: Path, end: int) -> None:
    """Write bytes that are no record after the end of the log."""
    files = sorted((root / "commitlog").iterdir())
    file = [path for path in files if int(path.name) <= end][-1]
    with file.open("r+b") as log:
        log.seek(end - int(file.name))
        log.write(b"cut off")
