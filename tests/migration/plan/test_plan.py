"""Plans: what they hold, and what is refused by them."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.plan import read_slices
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    StoreConfigError,
    UnsupportedFormatError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import key_order
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.migrations import NO_SPARK, move, stored, without_times
from tests.kit.tree import tree_digest
from tools.bench.sample_store import make_store, topic_and_queue

UNITS, QUEUES = 5_000, 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 125 units in each of 40 queues."""
    make_store(tmp_path / "store", UNITS, QUEUES)
    return tmp_path / "store"


def test_queues_that_never_had_a_message_are_counted_and_not_moved(root: Path) -> None:
    size = next((root / "consumequeue").rglob(f"{0:020d}")).stat().st_size
    never = root / "consumequeue" / "never" / "0"
    never.mkdir(parents=True)
    (never / f"{0:020d}").write_bytes(bytes(size))
    plan = make_plan(root)
    assert (plan.units, plan.queues, plan.empty) == (UNITS, QUEUES, 1)
    slices = [each for one in plan.segments for each in read_slices(Workspace.of(root).slices, one)]
    assert not [each for each in slices if each.queue.topic == "never"]


def test_slices_cover_every_queue_once_in_key_order(root: Path) -> None:
    plan = make_plan(root, segment_units=60)
    space = Workspace.of(root)
    assert (plan.units, plan.queues, plan.expired, plan.empty) == (UNITS, QUEUES, 0, 0)
    found: dict[tuple[str, int], list[tuple[int, int, int | None]]] = {}
    for segment in plan.segments:
        slices = list(read_slices(space.slices, segment))
        assert sum(each.end - each.begin for each in slices) == segment.units <= 60
        for each in slices:
            found.setdefault(each.queue, []).append((each.begin, each.end, each.next_offset))
    assert list(found) == sorted(map(topic_and_queue, range(QUEUES)), key=key_order)
    for parts in found.values():
        assert parts[0][0] == 0
        assert parts[-1][1:] == (125, 125)
        assert all(a[1] == b[0] and a[2] is None for a, b in pairwise(parts))


def test_small_queues_share_a_segment(root: Path) -> None:
    assert len(make_plan(root, segment_units=UNITS).segments) == 1


def test_parts_of_a_file_queue_end_where_a_file_does(golden: Callable[[str], Path]) -> None:
    root = golden("basic-defaultRocksDB")
    config = StoreConfig(mapped_file_size_consume_queue=400)  # twenty units
    plan = make_plan(root, config, target="file", segment_units=50)
    bounds = [
        (each.begin, each.end, each.next_offset)
        for segment in plan.segments
        for each in read_slices(Workspace.of(root).slices, segment)
    ]
    per_file = plan.config.units_per_file
    assert any(following is None for _, _, following in bounds)
    assert all(end % per_file == 0 for _, end, following in bounds if following is None)
    assert run_plan(root, master=NO_SPARK).units == plan.units
    made, source = Workspace.of(root).made, StorePaths(root)
    assert without_times(stored(made, "file", plan)) == without_times(
        stored(source, "rocksdb", plan)
    )


def test_planning_changes_nothing_of_the_store(root: Path) -> None:
    own = StorePaths(root).own
    own.mkdir()
    before = tree_digest(root, but=own)
    make_plan(root)
    assert tree_digest(root, but=own) == before


def test_a_second_plan_is_refused(root: Path) -> None:
    make_plan(root)
    with pytest.raises(RefusedStoreError, match="a plan already exists"):
        make_plan(root)


@pytest.mark.parametrize("target", ["file", "nonsense"])
def test_targets_that_make_no_sense_are_refused(root: Path, target: str) -> None:
    with pytest.raises((RefusedStoreError, StoreConfigError), match=f"{target}"):
        make_plan(root, target=target)
    assert not Workspace.of(root).plan.exists()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedStoreError, match="no store here"):
        make_plan(tmp_path)


@pytest.mark.parametrize("plan", [make_plan, partial(make_log_plan, master=NO_SPARK)])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "it has compacted topics"),
        ({"duplication_enable": True}, "log duplication assigns its offsets"),
    ],
)
def test_what_a_switch_would_refuse_is_refused_at_once(
    root: Path, plan: Callable[..., object], change: dict[str, object], words: str
) -> None:
    """Hours of work would come to nothing: the switch opens the store to write."""
    if not change:
        (root / "compaction" / "compactionLog" / "topic").mkdir(parents=True)
    config = StoreConfig().model_copy(update=change)
    before = tree_digest(root)
    with pytest.raises(
        RefusedStoreError, match=f"this store can only be opened read-only: .*{words}"
    ):
        plan(root, config)
    with pytest.raises(RefusedStoreError, match=words):
        MessageStore.open(root, config)
    assert tree_digest(root) == before


def test_queues_without_a_log_are_refused(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    with pytest.raises(RefusedStoreError, match="found queues but no commit log"):
        make_plan(root)


# ---- what a run refuses


def test_a_run_without_a_plan_is_refused(root: Path) -> None:
    with pytest.raises(RefusedStoreError, match="no migration found"):
        run_plan(root, master=NO_SPARK)
    assert not StorePaths(root).own.exists()
    Workspace.of(root).root.mkdir(parents=True)
    with pytest.raises(RefusedStoreError, match="no plan found"):
        run_plan(root, master=NO_SPARK)


def test_a_plan_that_is_refused_leaves_no_folder(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    before = sorted(root.rglob("*"))
    for given in (None, Workspace(tmp_path / "some" / "where")):
        with pytest.raises(RefusedStoreError, match="no queues to move"):
            make_plan(root, workspace=given)
    assert sorted(root.rglob("*")) == before
    assert not (tmp_path / "some").exists()


def test_a_plan_of_a_newer_release_is_refused(root: Path) -> None:
    make_plan(root)
    path = Workspace.of(root).plan
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(
        UnsupportedFormatError, match="the plan has format 2, but this release reads format 1"
    ):
        run_plan(root, master=NO_SPARK)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}', "\0" * 100])
def test_what_is_no_plan_is_refused(root: Path, text: str) -> None:
    make_plan(root)
    Workspace.of(root).plan.write_text(text)
    with pytest.raises(CorruptionError, match="not a valid plan"):
        run_plan(root, master=NO_SPARK)


def test_a_plan_that_was_edited_is_refused(root: Path) -> None:
    make_plan(root)
    path = Workspace.of(root).plan
    plan = json.loads(path.read_text())
    plan["complete_to"] += 1
    path.write_text(json.dumps(plan))
    with pytest.raises(CorruptionError, match="the plan was modified after it was made"):
        run_plan(root, master=NO_SPARK)


def test_queues_of_a_plan_that_were_edited_are_refused(root: Path) -> None:
    make_plan(root)
    path = Workspace.of(root).slices
    path.write_text(path.read_text().replace(",125,", ",124,", 1))
    with pytest.raises(CorruptionError, match="the lines of segment 0 were modified"):
        run_plan(root, master=NO_SPARK)


def test_the_plan_of_another_store_is_refused(root: Path, tmp_path: Path) -> None:
    make_store(tmp_path / "other", 100, 4, seed=2)
    make_plan(tmp_path / "other")
    shutil.copytree(Workspace.of(tmp_path / "other").root, Workspace.of(root).root)
    with pytest.raises(RefusedStoreError, match="the plan was made for the store in"):
        run_plan(root, master=NO_SPARK)


# ---- a source that was changed since


def first_file(root: Path) -> Path:
    return root / "consumequeue" / "topic_000002" / "3" / f"{0:020d}"


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def remove_unit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(124 * 20)
        file.write(bytes(20))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: flip(path, 60 * 20 + 15), id="tags code"),
        pytest.param(lambda path: flip(path, 60 * 20 + 6), id="phy offset"),
        pytest.param(remove_unit, id="last unit"),
        pytest.param(lambda path: shutil.rmtree(path.parent), id="queue"),
    ],
)
def test_a_changed_source_is_refused(root: Path, change: Callable[[Path], None]) -> None:
    make_plan(root)
    change(first_file(root))
    with pytest.raises(
        RefusedStoreError, match="changed after the plan was made: queue 3 of topic 'topic_000002'"
    ):
        run_plan(root, master=NO_SPARK)
    assert not Workspace.of(root).made.root.exists()
    assert not list(Workspace.of(root).segments.iterdir())


def test_a_log_that_has_lost_its_oldest_file_is_refused(golden: Callable[[str], Path]) -> None:
    root = golden("basic-default")
    make_plan(root)
    min((root / "commitlog").iterdir()).unlink()
    with pytest.raises(RefusedStoreError, match="its oldest log file no longer exists"):
        run_plan(root, master=NO_SPARK)


def test_a_unit_that_leads_to_no_record_is_an_error(root: Path) -> None:
    flip(first_file(root), 60 * 20 + 11)  # its size, before the plan is made
    with pytest.raises(
        CorruptionError, match="unit 60 of queue 3 of topic 'topic_000002'"
    ) as found:
        move(root)
    assert found.value.expected == "a record of 178 bytes"
    assert not Workspace.of(root).made.root.exists()


def test_units_appended_since_are_no_change(root: Path) -> None:
    plan = make_plan(root)
    with first_file(root).open("r+b") as file:
        file.seek(125 * 20)
        file.write(file.read(0) + bytes(19) + b"\1")
    assert run_plan(root, master=NO_SPARK).units == plan.units
