"""A segment is moved while a call of the system's fails: told, and done again it is whole."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.segment import SegmentDone, write_segment
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import StoreError, StoreIOError
from tests.kit.long_too import long_too
from tests.kit.nth_call import FAULTS, Case, NthCall, faults_of

Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("special-defaultRocksDB", "file")]
MOST = 2
"""Calls of each kind that the normal run refuses."""


class Mover:
    """A store of RocketMQ's whose first segment is moved as often as a test wants."""

    def __init__(self, root: Path, target: str) -> None:
        self._plan = make_plan(root, target=target, segment_units=400)
        self._space = Workspace.of(root)
        self._space.segments.mkdir(exist_ok=True)
        self.whole: SegmentDone

    def anew(self) -> None:
        shutil.rmtree(self._space.segments)
        self._space.segments.mkdir()

    def move(self) -> SegmentDone:
        return write_segment(self._space, self._plan, 0)

    def left(self, done: SegmentDone | None) -> list[str]:
        """Return the folders of attempts but for the one that counts."""
        counts = None if done is None else self._space.segments / f"000000.{done.attempt}"
        folders = [path for path in self._space.segments.iterdir() if path.is_dir()]
        return [path.name for path in folders if path != counts]


def moved(done: SegmentDone) -> tuple[int, int, int, list[str]]:
    return done.queues, done.units, done.bytes, sorted(done.files)


def refuse(mover: Mover, calls: NthCall, cases: Iterable[Case]) -> None:
    struck = 0
    for case in cases:
        mover.anew()
        calls.arm(case)
        done: SegmentDone | None = None
        met: StoreError | None = None
        try:
            done = mover.move()
        except StoreError as exc:
            met = exc
        except BaseException as exc:
            exc.add_note(f"{case} at {calls.struck} by {calls.caller}")
            raise
        calls.heal()
        assert not isinstance(met, StoreIOError) or met.path is not None, (case, met)
        struck += bool(calls.struck)
        if case.call not in {"unlink", "open"}:  # by which a folder is removed
            assert mover.left(done) == [], case
        assert moved(mover.move()) == moved(mover.whole), case
    assert struck


def draw(calls: NthCall, drawn: Callable[[int, int], range], most: int) -> list[Case]:
    cases = []
    for call in FAULTS:
        kinds, met = len(faults_of(call, 1)), calls.counts[call]
        for at in drawn(met, min(met, most)) if met else ():
            first = drawn(kinds, 1).start
            cases.append(faults_of(call, at)[(first + at) % kinds])
    return cases


@pytest.fixture(params=MOVES, ids=[target for _, target in MOVES])
def mover(request: pytest.FixtureRequest, golden: Golden) -> Mover:
    name, target = request.param
    return Mover(golden(name), target)


@pytest.fixture
def calls(mover: Mover, tmp_path: Path) -> Iterable[NthCall]:
    with NthCall(tmp_path) as made:
        made.count()
        mover.whole = mover.move()
        made.heal()
        yield made


@pytest.mark.parametrize("most", [MOST, *long_too([1 << 30])])
def test_a_segment_of_which_a_call_fails_is_told_and_moved_again(
    mover: Mover, calls: NthCall, drawn_places: Callable[[int, int], range], most: int
) -> None:
    refuse(mover, calls, draw(calls, drawn_places, most))


def test_progress_that_cannot_be_removed_is_told(mover: Mover, calls: NthCall) -> None:
    """A worker ended with what no error of ours was, and its item was tried four times."""
    cases = [
        case for at in range(1, calls.counts["unlink"] + 1) for case in faults_of("unlink", at)
    ]
    refuse(mover, calls, cases)
