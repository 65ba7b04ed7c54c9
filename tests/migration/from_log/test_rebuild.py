"""Queues built from the log alone: the same as the store's own rebuild, and as RocketMQ's."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cqstore.migration.from_log.block_source import BlockUnitSource
from cqstore.migration.from_log.blocks import BlockWriter
from cqstore.migration.from_log.rebuild_plan import LogPlanReport, make_log_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, QueueGapError, RefusedStoreError, StoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import NAMES, each_kind, load_dump
from tests.kit.plain_record import PlainRecord
from tests.kit.rebuilt import CONFIG, Facts, fill
from tests.kit.rebuilt import facts as all_facts
from tests.kit.tree import tree_digest
from tests.migration.from_log.test_log_scan import write_log

Golden = Callable[[str], Path]
BATCH = "special-default"
pytestmark = pytest.mark.usefixtures("no_processes")


@pytest.fixture(params=backend_names())
def target(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def opened(root: Path, **options: object) -> MessageStore:
    config = CONFIG if options.pop("own", True) else None
    return MessageStore.open(root, config, housekeeping=False, **options)  # type: ignore[arg-type]


def plan(root: Path, target: str, *, own: bool = True, **options: object) -> LogPlanReport:
    given = {"master": "none", "segment_units": 300, "range_bytes": 1} | options
    return make_log_plan(root, CONFIG if own else None, target=target, **given)  # type: ignore[arg-type]


def facts(store: MessageStore) -> Facts:
    """Return what the queues hold that ever held something."""
    return {queue: found for queue, found in all_facts(store).items() if found[1]}


def planned(root: Path) -> Facts:
    """Return the same of the blocks that a plan moves from."""
    source = BlockUnitSource(Workspace.of(root))
    found = {}
    for key in source.queues(None, None):
        units = [row for run in source.runs(key, 7) for row in run.rows.tolist()]
        low, high = source.span(key)
        assert high - low == len(units)
        found[key] = (low, high, [row[:3] for row in units])
    return found


def without_queues(root: Path) -> None:
    for name in ("consumequeue", "consumequeue_rocksdb", "consumequeue_ext"):
        shutil.rmtree(root / name, ignore_errors=True)


def published(root: Path, target: str, config: StoreConfig) -> None:
    """Put what a run has made where a store has its queues."""
    space = Workspace.of(root)
    with opened(root, read_only=True) as store:
        paths = components_of(store).paths
    bulk_backend(target).publish(space.made, paths, config)


# ---- golden stores


@pytest.mark.parametrize("name", each_kind(name for name in NAMES if name != BATCH))
def test_golden_stores_are_planned_as_their_own_rebuild_builds_them(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    """An expired queue of which no record is left goes on where the old queues say."""
    root = golden(name)
    target = "file" if name.endswith("defaultRocksDB") else "rocksdb"
    if name.endswith("combine"):
        shutil.rmtree(root / "consumequeue_rocksdb", ignore_errors=True)
        for path in (root / "consumequeue").iterdir():
            if path.is_file():
                path.unlink()
    shutil.copytree(root, tmp_path / "copy")
    before = tree_digest(root)
    report = plan(root, target, own=False)
    with opened(
        tmp_path / "copy",
        own=False,
        recovery=RecoveryOptions(rebuild=Rebuild.QUEUES),
        backend=target,
    ) as store:
        wanted = facts(store)
        assert report.plan.complete_to == store.max_phy_offset()
        assert report.merged.restarts == store.report.restarts
    assert planned(root) == wanted
    assert report.plan.queues == len(wanted)
    assert report.plan.expired == sum(low == high for low, high, _ in wanted.values())
    shutil.rmtree(root / "cqstore" / "migration")
    if not any((root / "cqstore").iterdir()):
        (root / "cqstore").rmdir()
    assert tree_digest(root) == before, "nothing of the store is changed"


@pytest.mark.parametrize("name", ["special-defaultRocksDB", "basic-defaultRocksDB"])
def test_rocketmqs_own_units_are_built_from_its_log_with_times(golden: Golden, name: str) -> None:
    root = golden(name)
    plan(root, "file", own=False)
    source = BlockUnitSource(Workspace.of(root))
    queues = [queue for queue in load_dump(name)["queues"] if queue["max"]]
    assert len(queues) > 10
    for queue in queues:
        key = QueueKey(queue["topic"], queue["queueId"])
        rows = [
            [run.queue_offset + at, *row]
            for run in source.runs(key, 1000)
            for at, row in enumerate(run.rows.tolist())
        ]
        assert rows == queue["units"]
        assert source.next_offset(key) == queue["max"]


# ---- the whole way


def filled(root: Path, backend: str) -> Facts:
    """Make a store with light queues, a deleted topic and an expired queue; return its queues."""
    with opened(root, backend=backend) as store:
        fill(store, again=True)
        return facts(store)


@pytest.mark.parametrize("old", ["none", "there"])
def test_rebuilt_queues_serve_a_store_as_the_old_ones_did(
    tmp_path: Path, target: str, old: str
) -> None:
    root = tmp_path / "store"
    (backend,) = set(backend_names()) - {target}
    before = filled(root, backend)
    assert before[QueueKey("expired", 0)][:2] == (15, 15)
    assert before[QueueKey("gone", 0)][:2] == (0, 1)
    if old == "none":  # the journal alone knows of the expired queue
        without_queues(root)
    made = plan(root, target, segment_units=100).plan
    assert len(made.segments) > 5
    report = run_plan(root, master="none")
    assert (report.units, report.queues) == (made.units, made.queues)
    without_queues(root)
    published(root, target, made.config)
    with opened(root, read_only=True) as store:
        assert [finding for finding in store.check() if finding.damage] == []
    with opened(root) as store:
        assert components_of(store).queues.name == target
        assert store.report.dispatched_units == 0
        assert facts(store) == before
        assert store.put_message(Message("expired", b"x")).queue_offset == 15


@pytest.mark.slow
def test_rebuilt_on_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    root = tmp_path / "store"
    before = filled(root, "file")
    report = plan(root, "rocksdb", master="local[2]")
    assert report.tasks == 3
    assert planned(root) == before
    assert run_plan(root, master="local[2]").units == report.plan.units


# ---- queues that started over, and gaps


@pytest.mark.parametrize("block_units", [1, 2, 1000])
@pytest.mark.parametrize(
    "places",
    [
        [0, 1, 2, 0, 1],
        [5, 6, 7, 0, 1],
        [0, 1, 2, 3, 2, 3, 4],
        [0, 1, 0, 1, 0],
        [3, 4, 4],
        [0, 1, 3],
    ],
    ids=str,
)
def test_the_last_incarnation_of_a_queue_wins_and_a_gap_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: list[int], block_units: int
) -> None:
    monkeypatch.setattr("cqstore.migration.from_log.log_scan.BATCH_UNITS", block_units)
    monkeypatch.setattr("cqstore.store.log.log_blocks._SCAN_BYTES", 150)
    root = tmp_path / "store"
    records = [PlainRecord(queue_offset=place) for place in places]
    write_log(root / "commitlog", records, None)
    shutil.copytree(root, tmp_path / "copy")
    wanted: Facts | type[StoreError]
    restarts: list[int] = []
    try:
        with opened(tmp_path / "copy", own=False, backend="rocksdb") as store:
            wanted, restarts = facts(store), [each.phy_offset for each in store.report.restarts]
    except QueueGapError as exc:
        wanted = type(exc)
    if wanted is QueueGapError:
        with pytest.raises(QueueGapError, match="expected queue offset 2, found queue offset 3"):
            plan(root, "rocksdb", own=False)
        assert not Workspace.of(root).plan.exists()
        return
    report = plan(root, "rocksdb", own=False)
    assert planned(root) == wanted
    assert restarts
    assert [each.phy_offset for each in report.merged.restarts] == restarts


# ---- damage, resuming, refusing


def test_damage_in_the_log_is_refused_with_its_place(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root, "file")
    files = sorted((root / "commitlog").iterdir())
    with opened(root, read_only=True) as store:
        at = [record.phy_offset for record in components_of(store).log.scan(int(files[1].name))][3]
    with files[1].open("r+b") as file:
        file.seek(at - int(files[1].name) + 100)
        file.write(b"\xff" * 50)
    with pytest.raises(CorruptionError, match="a valid record follows at") as found:
        plan(root, "rocksdb")
    assert (found.value.phy_offset, found.value.path) == (at, files[1])
    assert not Workspace.of(root).plan.exists()


def test_old_queues_that_cannot_be_read_are_built_anew_all_the_same(tmp_path: Path) -> None:
    """Only where queues without a record went on is not known then: the journal says so."""
    root = tmp_path / "store"
    before = filled(root, "rocksdb")
    (root / "consumequeue" / "CURRENT").write_bytes(b"damaged\n")
    plan(root, "file")
    assert planned(root) == before
    noted = {entry["step"]: entry for entry in Workspace.of(root).history()}
    assert "CURRENT file corrupted" in noted["old queues not readable"]["reason"]


def test_a_scan_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    before = filled(root, "file")
    left = [2]

    def stop() -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return False

    with monkeypatch.context() as patched:
        finish = BlockWriter.finish
        patched.setattr(BlockWriter, "finish", lambda self: stop() or finish(self))
        with pytest.raises(KeyboardInterrupt):
            plan(root, "rocksdb")
    space = Workspace.of(root)
    assert not space.plan.exists()
    (space.root / "blocks" / "000002.123-dead").mkdir()  # what a killed task leaves
    report = plan(root, "rocksdb")
    assert report.scanned == report.tasks - 2 > 0
    assert planned(root) == before
    assert not (space.root / "blocks" / "000002.123-dead").exists()


def test_a_scan_of_what_has_changed_since_begins_anew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root, "file")
    plan(root, "rocksdb")
    Workspace.of(root).plan.unlink()
    assert plan(root, "rocksdb").scanned == 0
    Workspace.of(root).plan.unlink()
    with opened(root) as store:
        store.delete_topic("t")
        wanted = facts(store)
    report = plan(root, "rocksdb")
    assert report.scanned == report.tasks
    assert planned(root) == wanted


def test_blocks_that_have_gone_or_changed_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    filled(root, "file")
    plan(root, "rocksdb")
    units = max((Workspace.of(root).root / "blocks").glob("*/units"))
    data = bytearray(units.read_bytes())
    data[5] ^= 1
    units.write_bytes(data)
    with pytest.raises(RefusedStoreError, match="its units differ from the plan"):
        run_plan(root, master="none")
    units.unlink()
    with pytest.raises(CorruptionError, match="scanned blocks are missing"):
        run_plan(root, master="none")


def test_what_cannot_be_built_is_refused_before_the_log_is_scanned(
    golden: Golden, tmp_path: Path
) -> None:
    with pytest.raises(RefusedStoreError, match="BatchCQ"):
        plan(golden(BATCH), "rocksdb", own=False)
    with pytest.raises(RefusedStoreError, match="the store already has file queues"):
        plan(golden("basic-default"), "file", own=False)
    with pytest.raises(RefusedStoreError, match="no store here"):
        plan(tmp_path / "none", "file", own=False)
    root = golden("basic-defaultRocksDB")
    plan(root, "file", own=False)
    with pytest.raises(RefusedStoreError, match="a plan already exists"):
        plan(root, "file", own=False)
