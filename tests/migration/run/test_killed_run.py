"""A run's driver, or a worker of it, is killed at random instants: nothing is done twice or lost.

Instants are drawn among the names that a run makes in its folder of segments.
"""

import random
import threading
from itertools import product
from pathlib import Path

import pytest

import cqstore.migration.run.segment
from cqstore.migration.plan.plan import Plan, read_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.run.segment import write_segment
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import StoreError
from cqstore.store.settings.config import StoreConfig
from tests.kit.long_too import long_too
from tests.kit.migrations import NO_SPARK
from tests.kit.running import Seen, descendants, finished, gone, kill_a_worker, running, until
from tools.bench.sample_store import make_store

UNITS, QUEUES, SEGMENTS = 6_000, 24, 12
RATE = 28 * UNITS / 2.5
"""Bytes a second at which all segments take about two seconds and a half."""
INSTANTS = 2 * (SEGMENTS - 4)
"""Names that a run makes, an attempt and a marker a segment, before its last four segments."""
SPARK = "local[2]"
EVER = long_too(product([NO_SPARK, SPARK], range(100, 105)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a plan of twelve segments of two queues each."""
    make_store(tmp_path / "store", UNITS, QUEUES)
    plan = make_plan(tmp_path / "store", segment_units=UNITS // SEGMENTS)
    assert len(plan.segments) == SEGMENTS
    return tmp_path / "store"


def check(root: Path, before: dict[int, str], killed: list[Path]) -> None:
    """The run has ended: all is there, once; what was done before is as it was; nothing else is."""
    space = Workspace.of(root)
    after = finished(space)
    assert {number: after[number] for number in before} == before
    assert not [path for path in killed if path.exists()]
    kept = {f"{number:06}.{end}" for number, each in after.items() for end in (each, "done")}
    assert {path.name for path in space.segments.iterdir()} == kept
    assert len(after) == SEGMENTS
    report = verify_migration(root, master=NO_SPARK)
    assert report.equal
    assert report.result.target.units == UNITS


def kill_the_driver(root: Path, master: str, seed: int) -> None:
    space, draw = Workspace.of(root), random.Random(seed)
    names, seen = draw.randint(1, INSTANTS), Seen(space)
    with running(root, master, RATE) as process:
        until(process, lambda: seen.look() >= names)
        below = descendants(process.pid)
        process.kill()
    assert process.returncode == -9
    before = finished(space)
    assert not space.made.root.exists()
    report = run_plan(root, master=NO_SPARK)  # at once: what the dead one left may still run
    assert report.moved <= SEGMENTS - len(before)
    gone(below)
    check(root, before, [])


def kill_one_worker(root: Path, master: str, seed: int) -> None:
    space, draw = Workspace.of(root), random.Random(seed)
    names, seen = draw.randint(1, INSTANTS), Seen(space)
    with running(root, master, RATE) as process:
        until(process, lambda: seen.look() >= names)
        killed = kill_a_worker(process, space, draw)
        before = finished(space)
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    check(root, before, [killed])


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize(("master", "seed"), [(NO_SPARK, 1), (NO_SPARK, 2), *EVER])
def test_a_run_whose_driver_was_killed_goes_on(root: Path, master: str, seed: int) -> None:
    kill_the_driver(root, master, seed)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize(("master", "seed"), [(NO_SPARK, 1), *long_too([(SPARK, 2)]), *EVER])
def test_the_segment_of_a_killed_worker_is_tried_again(root: Path, master: str, seed: int) -> None:
    kill_one_worker(root, master, seed)


@pytest.mark.slow
@pytest.mark.crash
def test_workers_end_with_their_driver(root: Path) -> None:
    space = Workspace.of(root)
    with running(root, NO_SPARK, 1) as process:  # at this rate they would go on for hours
        until(process, lambda: len(list(space.segments.glob("*/progress"))) > 0)
        below = descendants(process.pid)
        assert below
        process.kill()
    gone(below)


@pytest.mark.parametrize("planned_anew", [False, True])
def test_an_attempt_that_ends_after_another_run_does_no_harm(
    root: Path, monkeypatch: pytest.MonkeyPatch, *, planned_anew: bool
) -> None:
    """A task of a dead driver stops just before its marker, until the next run is over."""
    space, plan = Workspace.of(root), read_plan(Workspace.of(root))
    written, over = threading.Event(), threading.Event()
    ended: list[object] = []

    def late_check(space: Workspace) -> Plan:
        written.set()
        assert over.wait(180)
        return read_plan(space)

    def attempt() -> None:
        try:
            ended.append(write_segment(space, plan, 3))
        except StoreError as exc:
            ended.append(exc)

    space.segments.mkdir()
    monkeypatch.setattr(cqstore.migration.run.segment, "read_plan", late_check)
    thread = threading.Thread(target=attempt)
    thread.start()
    assert written.wait(180)
    if planned_anew:
        rollback(root)
        make_plan(root, config=StoreConfig(rocksdb_memory_bytes=8 << 20), segment_units=500)
        assert read_plan(space).digest != plan.digest
    run_plan(root, master=NO_SPARK)
    before = finished(space)
    over.set()
    thread.join(180)
    assert len(ended) == 1
    check(root, before, [])
