"""storeType was changed by hand: RocksDB lacks what came before, the files what came after."""

import shutil
from pathlib import Path

import pytest

import cqstore.migration.switch.switch
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, change_mode
from tests.kit.double_write import StoredOffsets, config
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served
from tests.kit.tree import tree_digest
from tests.store.comparing.test_comparison import Database

EACH = 30
PLAIN = config(rocksdb_cq_double_write_enable=False)


@pytest.fixture
def reported() -> StoredOffsets:
    return StoredOffsets()


@pytest.fixture
def root(tmp_path: Path, reported: StoredOffsets) -> Path:
    """Files up to the change, RocksDB from five units a queue before it on, no line of ours."""
    root, aside = tmp_path / "store", tmp_path / "aside"
    with MessageStore.open(root, PLAIN, backend="file") as store:
        reported.put(store, 5 * EACH)
    (root / "consumequeue").rename(aside)
    with MessageStore.open(root, PLAIN, backend="rocksdb") as store:
        reported.put(store, 20)
    with Database(root) as database:
        for queue_id in range(5):
            database.lose(queue_id, *range(25))
    shutil.copytree(aside, root / "consumequeue", dirs_exist_ok=True)
    shutil.rmtree(root / "cqstore")
    return root


def prepare(root: Path) -> None:
    make_plan(root, PLAIN, replace=True, segment_units=40)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal


def whole(reported: StoredOffsets) -> dict[QueueKey, list[int]]:
    return dict(reported.phys)


def phys(root: Path) -> dict[QueueKey, list[int]]:
    return {key: [row[0] for row in rows[1:]] for key, rows in served(root).items()}


def test_what_happened_is_told_and_what_to_do(root: Path, reported: StoredOffsets) -> None:
    before = tree_digest(root)
    with pytest.raises(RefusedStoreError) as caught:
        make_plan(root, PLAIN)
    said = caught.value.reason
    end = max(each[EACH - 1] for each in reported.phys.values())
    assert "the store already has rocksdb queues (was storeType changed by hand?)" in said
    assert f"the file queues end at phy offset {end}"[:-3] in said
    assert "the rocksdb queues lack 125 older units in 5 queues" in said
    assert "plan --replace" in said
    assert "cqstore recover DIR" in said
    with pytest.raises(RefusedStoreError) as caught:
        make_plan(root, PLAIN, target="file", source="rocksdb")
    assert "plan --replace" not in caught.value.reason
    with pytest.raises(
        RefusedStoreError, match="cannot replace the file queues: the rocksdb queues lack"
    ):
        make_plan(root, PLAIN, target="file", source="rocksdb", replace=True)
    assert tree_digest(root) == before


def test_the_poorer_side_is_replaced_and_kept(root: Path, reported: StoredOffsets) -> None:
    prepare(root)
    report = switch(root, PLAIN)
    assert report.state == StoreMode("rocksdb")
    assert report.caught_up_units > 0
    assert phys(root) == whole(reported)
    (kept,) = (root / "cqstore" / "replaced").iterdir()
    assert (kept / "consumequeue" / "CURRENT").is_file()
    rollback(root, PLAIN)
    assert phys(root) == whole(reported)


def test_the_log_can_fill_both_instead(root: Path, reported: StoredOffsets) -> None:
    with MessageStore.open(root, PLAIN) as store:
        assert store.verify().is_clean
    reported.check(root)
    with pytest.raises(
        RefusedStoreError, match=r"the rocksdb queues are complete. .*mode DIR --to"
    ):
        make_plan(root, PLAIN)
    change_mode(root, StoreMode("rocksdb"), PLAIN, passing=True)
    assert phys(root) == whole(reported)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", ["set_mode", "write_file"])
@pytest.mark.parametrize("count", [0, 1])
def test_cut_short_it_goes_on_or_back(
    root: Path,
    reported: StoredOffsets,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    count: int,
    *,
    back: bool,
) -> None:
    prepare(root)
    real, left = getattr(cqstore.migration.switch.switch, name), [count]

    def broken(*words: object, **more: object) -> object:
        if not left[0]:
            raise StoreIOError("pulled")
        left[0] -= 1
        return real(*words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(cqstore.migration.switch.switch, name, broken)
        if name == "write_file" and count:
            switch(root, PLAIN)
        else:
            with pytest.raises(StoreIOError, match="pulled"):
                switch(root, PLAIN)
    kept = tree_digest(root / "cqstore" / "replaced")
    if back:
        rollback(root, PLAIN)
        with MessageStore.open(root, PLAIN):
            pass
    else:
        switch(root, PLAIN)
        if (name, count) != ("set_mode", 0):
            assert tree_digest(root / "cqstore" / "replaced") == kept, "nothing new is moved away"
    assert phys(root) == whole(reported)
    assert Workspace.of(root).plan.exists() is not back
    assert StorePaths(root).mode.exists()


def test_what_only_the_target_has_is_not_replaced(root: Path) -> None:
    light = config(
        rocksdb_cq_double_write_enable=True, enableLmq=True, enableMultiDispatch=True,
        combineCQUseRocksdbForLmq=True,
    )  # fmt: skip
    with MessageStore.open(root, light) as store:
        message = Message("t", b"", 0, {"INNER_MULTI_DISPATCH": "%LMQ%a"})
        assert store.put_message(message).ok
    with pytest.raises(RefusedStoreError, match=r"lack 1 older units in 1 queues .*%LMQ%a"):
        make_plan(root, PLAIN, source="file", replace=True)
