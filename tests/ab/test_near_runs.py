"""Whole comparisons in this process: what is made, proved, measured, said, and left behind."""

import gc
import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cqstore.ab.results.result import Cache, Result
from cqstore.ab.run import comparison as running
from cqstore.ab.run import rounds
from cqstore.ab.run.comparison import Run
from cqstore.ab.run.rounds import Effort
from cqstore.ab.sides import building
from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.ab.stores.equality import QueueDigest, first_difference, unit_rows, whole_digest
from cqstore.ab.trace.operation_lines import StoreOp, operation_line
from cqstore.ab.trace.operations import MaxOffset, MinOffset, Operation, read_trace
from cqstore.store.errors import CorruptionError, StoreConfigError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.ab.made_store import CONFIG, make_varied_store
from tests.ab.near import NearSide
from tests.ab.running import options
from tests.kit.tree import tree_digest

pytestmark = pytest.mark.slow
QUICK = Effort(3, 0.0003)
SIDES = ["file", "file,queue_files_max=99"]


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["Noting"]]:
    """All sides are of this process."""
    Noting.started, Noting.processes = [], []
    monkeypatch.setattr(building, "SideProcess", Noting)
    monkeypatch.setattr(running, "DERIVED", 100)
    monkeypatch.setattr(rounds, "_OPEN_SECONDS", 0.001)
    gc.collect()  # what is garbage now would stay
    gc.freeze()  # a side collects garbage before each turn: that of this process is much
    yield Noting.started
    assert all(not side.worker._side.is_open for side in Noting.started), "all are stopped"


class Noting(NearSide):
    started: list["Noting"] = []  # noqa: RUF012 - of one test
    processes: list[str] = []  # noqa: RUF012 - of one test: the side of each process

    def __init__(self, *given: Any) -> None:
        self.root = Path(given[1])
        super().__init__(*given)
        Noting.started.append(self)

    def start(self) -> None:
        super().start()
        Noting.processes.append(self.root.name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_varied_store(tmp_path / "store", 400)
    return tmp_path / "store"


def compared(root: Path, *workloads: str, **given: object) -> tuple[Result, list[Any]]:
    """Return the result, and what was said on the way."""
    requested: dict[str, object] = {"sides": SIDES, "effort": QUICK}
    began = time.perf_counter()
    run = Run(options(root, *workloads, **(requested | given)))
    run.prepare()
    said: list[Any] = []
    before = tree_digest(root)
    try:
        found = run.measure(lambda text, share: said.append((text, share)))
    finally:
        assert tree_digest(root) == before
        assert not root.with_name("store.ab").exists()
    turns = [turn for each in found.workloads for turn in each.rounds]
    within = sum(side.build_seconds for side in found.sides) + sum(turn.seconds for turn in turns)
    within += sum(side.footprint.open_seconds for side in found.sides if side.footprint)
    assert 0 < within < found.seconds <= time.perf_counter() - began
    return found, said


def test_sides_are_built_proved_and_measured_one_workload_after_the_other(
    root: Path, near: list[Noting]
) -> None:
    found, said = compared(root, "offsets", "filtered-pull", "expiry", command=["cqstore", "ab"])
    names = ["file", "file, queue_files_max=99"]
    twin = f"{names[0]} (twin)"
    assert [(side.name, side.given, side.backend, side.twin_of) for side in found.sides] == [
        (names[0], "file", "file", None), (names[1], SIDES[1], "file", None),
        (twin, "file", "file", "file"),
    ]  # fmt: skip
    assert found.sides[1].options == {"queue_files_max": "99"}
    for side in found.sides:
        assert side.log_shared_by in {"hard links", "reflinks", "copies"}
        assert side.build_seconds > 0
        foot = side.footprint
        assert foot is not None
        assert foot.files > 3 < foot.disk_bytes
        assert foot.open_seconds > 0
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert found.proof is not None
        proof = (found.proof.digest, found.proof.queues, found.proof.units)
        assert proof == whole_digest(store)
    sides = [f"side-{at}" for at in range(3)]
    assert [side.root.name for side in near] == sides
    # What queues take is measured by processes that have done nothing else; the last two of three
    # rounds of each workload with short turns have new ones.
    assert Noting.processes == sides * (2 + 2 * 2)
    assert [each.name for each in found.workloads] == ["expiry", "filtered-pull", "offsets"]
    lacking, filtered, offsets = found.workloads
    assert "newest is never deleted" in lacking.not_measured
    assert (lacking.what, lacking.item, lacking.rounds) == (
        "Delete the oldest log file, and the units of its records.", "files", []
    )  # fmt: skip
    assert [each for each, _ in said[:3]] == [f"building {name}" for name in (*names, twin)]
    assert {share for _, share in said[:3]} == {0.02}
    first = 0.05
    assert said[3] == ("expiry", first)
    assert said[4:8] == [("filtered-pull", pytest.approx(first + 0.3))] * 4
    assert said[8:] == [("offsets", pytest.approx(first + 0.6))] * 4
    for each in (filtered, offsets):
        assert each.answers.different == 0 < each.answers.compared
        assert set(each.service) == {*names, twin}
        assert len(each.rounds) == 3 * (2 + 3 + 3)
        assert all(turn.operations > 0 < turn.seconds for turn in each.rounds)
        assert not each.not_measured
    assert found.command == ["cqstore", "ab"]
    assert (found.kind, found.points, found.project_to, found.not_measured) == ("run", [], None, [])
    assert found.seconds > sum(side.build_seconds for side in found.sides)
    assert found.store.root == str(root)
    assert {name.split(":")[0] for name in found.machine.versions} <= {*names, "python", "cqstore"}
    assert found.trace is not None
    assert (found.trace.origin, found.trace.loop, found.trace.rate) == ("derived", "closed", None)
    assert found.trace.operations == 2 * running.DERIVED
    assert (found.method.rounds, found.method.seed, found.method.cache) == (3, 1, Cache.WARM)


def test_what_is_run_is_in_the_result_by_its_digest(
    root: Path, tmp_path: Path, near: list[Noting], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace"
    lines = [operation_line(StoreOp.MAX_OFFSET, ("hot", at % 3), at / 100) for at in range(5)]
    path.write_bytes(b"".join(lines))
    kept: list[bytes] = []
    leaving = ScratchFolder.__exit__

    def leave(space: ScratchFolder, *how: Any) -> None:
        kept.append((space.folder / "trace.jsonl").read_bytes())
        leaving(space, *how)

    monkeypatch.setattr(ScratchFolder, "__exit__", leave)
    found, _ = compared(root, "trace", trace=path, rate=2e4, cache=Cache.DROPPED)
    assert found.trace is not None
    assert (found.trace.origin, found.trace.operations, found.trace.loop, found.trace.rate) == (
        "given", 5, "open", 2e4
    )  # fmt: skip
    assert found.trace.digest == sha256(kept[0]).hexdigest()
    assert [json.loads(line) for line in kept[0].splitlines()] == [
        json.loads(line) | {"op": "maxOffset"} for line in lines
    ]
    (one,) = found.workloads
    assert one.mode == "open"
    assert one.offered == pytest.approx(2e4, rel=0.01)
    assert found.method.cache is Cache.DROPPED
    assert set(one.intended) == {side.name for side in found.sides}


def test_a_workload_whose_answers_differ_is_the_last(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lying(Noting):
        def request(self, request: str, /, **arguments: object) -> Any:
            if request == "turn" and self.spec.name != "file":
                self.worker._side.store.put_message(Message("hot", b"x", 1))
            return super().request(request, **arguments)

    monkeypatch.setattr(building, "SideProcess", Lying)
    found, said = compared(root, "list-all", "offsets", project=2)
    assert [each.name for each in found.workloads] == ["offsets"]
    assert found.workloads[0].answers.different > 0
    assert found.points == []
    assert said[-1][0] == "offsets"


# ---- sides that do not hold the same


class Changed(Noting):
    """The second side changes what it has built."""

    @staticmethod
    def change(root: Path) -> None:
        """Do it."""

    def request(self, request: str, /, **arguments: object) -> Any:
        reported = super().request(request, **arguments)
        if request == "build" and self.root.name == "side-1":
            type(self).change(self.root)
        return reported


def _change_unit(root: Path) -> None:
    """Write another tags code to the fifth unit of a queue."""
    (path, *_) = sorted((root / "consumequeue" / "hot" / "1").iterdir())
    data = bytearray(path.read_bytes())
    data[4 * 20 + 19] ^= 1
    path.write_bytes(data)


def _put_one(root: Path) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_message(Message("hot", b"x", 1))


def _put_topic(root: Path) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_message(Message("hou", b"x", 7))


def differing(root: Path, monkeypatch: pytest.MonkeyPatch, change: Any) -> Any:
    monkeypatch.setattr(Changed, "change", staticmethod(change))
    monkeypatch.setattr(building, "SideProcess", Changed)
    found, said = compared(root, "offsets", project=2)
    assert found.proof is None
    assert (found.points, found.trace) == ([], None)
    assert len(said) == 3, "nothing is measured"
    (one,) = found.workloads
    assert one.not_measured == "the queues that the sides built from the log differ"
    assert (one.name, one.item, one.rounds) == ("queues", "units", [])
    assert (one.answers.compared, one.answers.different) == (1, 1)
    (first,) = one.answers.first
    assert first.workload == "queues"
    return first


def test_a_unit_that_differs_is_named_with_what_each_side_has(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = differing(root, monkeypatch, _change_unit)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        rows = list(unit_rows(store, QueueKey("hot", 1)))
        low = store.min_offset("hot", 1)
    assert low == 0
    assert first.operation == {"op": "unit", "topic": "hot", "queueId": 1, "offset": 4}
    right, wrong = first.answers["file"], first.answers["file, queue_files_max=99"]
    assert right == rows[4]
    assert wrong.rpartition(" ")[0] == right.rpartition(" ")[0]
    assert wrong != right


def test_a_queue_of_another_length_is_named_with_both(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = differing(root, monkeypatch, _put_one)
    assert first.operation == {"op": "queue", "topic": "hot", "queueId": 1}
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        end = store.max_offset("hot", 1)
    assert first.answers == {
        "file": f"offsets 0 to {end - 1}, {end} units",
        "file, queue_files_max=99": f"offsets 0 to {end}, {end + 1} units",
    }


def test_a_queue_that_one_side_lacks_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = differing(root, monkeypatch, _put_topic)
    assert first.operation == {"op": "queue", "topic": "hou", "queueId": 7}
    assert first.answers == {
        "file": "queue does not exist", "file, queue_files_max=99": "offsets 0 to 0, 1 units",
    }  # fmt: skip


def test_the_first_difference_is_the_first_queue_by_name() -> None:
    def digest(topic: str, queue_id: int, text: str = "") -> QueueDigest:
        return QueueDigest(topic, queue_id, 2, 9, 7, text)

    one, two, three = digest("a", 1), digest("b", 0), digest("c", 0)
    assert first_difference(iter([one, two]), iter([one, two])) is None
    reported = "offsets 2 to 8, 7 units"
    none = "queue does not exist"
    cases = [
        ([one, three], [one, two, three], ("b", 0), none, reported),
        ([one, two, three], [one, three], ("b", 0), reported, none),
        ([one, two], [one], ("b", 0), reported, none),
        ([one], [one, two], ("b", 0), none, reported),
        ([one, two], [one, digest("b", 0, "x")], ("b", 0), reported, reported),
        ([digest("a", 2)], [one], ("a", 1), none, reported),
    ]
    for mine, its, key, left, right in cases:
        assert first_difference(iter(mine), iter(its)) == (QueueKey(*key), left, right)


def test_a_log_that_gives_other_queues_is_named_with_both_numbers(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(options(root, "offsets", sides=SIDES))
    run.prepare()
    shape = run._found.shape
    run._found.shape = shape.model_copy(update={"units": shape.units + 1})
    with pytest.raises(CorruptionError) as caught:
        run.measure()
    assert caught.value.path == root
    assert caught.value.expected == f"{shape.units + 1} units in {shape.queues} queues"
    assert caught.value.got == f"{shape.units} units in {shape.queues} queues"


# ---- points


def test_points_are_stores_of_so_many_queues(root: Path, near: list[Noting]) -> None:
    found, said = compared(root, "offsets", project=16)
    names = ["file", "file, queue_files_max=99"]
    assert [(each.side, each.queues) for each in found.points] == [(name, 16) for name in names]
    each = min(max(found.store.units // found.store.queues, 1), 16)
    assert {point.units for point in found.points} == {16 * each}
    for point in found.points:
        assert point.footprint.files == 16
    assert said[-2:] == [(f"{name}: 16 queues", 0.98) for name in names]
    assert [side.root.name for side in near[3:]] == ["point"] * 4
    assert {side.spec.config.mapped_file_size_commit_log for side in near[3:]} == {64 << 20}
    assert found.project_to == 16


# ---- what is asked for


def test_a_given_trace_is_put_in_order_to_be_replayed_by_its_times(
    root: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    at = [3.0, None, 1.0, None, 2.0]
    operations: list[Operation] = [
        MaxOffset(topic="hot", queue_id=number, at=moment) for number, moment in enumerate(at)
    ]
    lines = [json.dumps(each.model_dump(by_alias=True, exclude_none=True)) for each in operations]
    query = operation_line(StoreOp.QUERY, ("hot", "key", None, None, None), 3.0).decode()
    path.write_text("\n".join([*lines, query]))
    for speed, order in ((2.0, [2, 3, 4, 0, 1]), (None, [0, 1, 2, 3, 4])):
        run = Run(options(root, sides=SIDES, trace=path, speed=speed))
        run.prepare()
        given = [each.queue_id for each in run._given if isinstance(each, MaxOffset)]
        assert given == order
        assert run._not_measured == [
            "1 queries by key in the trace: the index answers them, the same on every side."
        ]
    assert running._trace_rate(operations) == 3 / 2.0
    assert running._trace_rate(operations[:2]) == 0.0
    assert running._trace_rate([MinOffset(topic="hot")]) == 0.0
    path.write_text('{"op":"minOffset","topic":"t"}\n' * 2)
    with pytest.raises(
        StoreConfigError, match="cannot replay the times of the trace: it has none"
    ) as caught:
        Run(options(root, sides=SIDES, trace=path, speed=1.0)).prepare()
    assert caught.value.path == path


def test_of_a_long_trace_the_first_lines_are_run(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace"
    path.write_text('{"op":"minOffset","topic":"t"}\n' * 3)
    monkeypatch.setattr(running, "MAX_OPERATIONS", 3)
    run = Run(options(root, sides=SIDES, trace=path))
    run.prepare()
    assert run._not_measured == ["Operations after the first 3 of the trace."]
    monkeypatch.setattr(running, "MAX_OPERATIONS", 4)
    run = Run(options(root, sides=SIDES, trace=path))
    run.prepare()
    assert run._not_measured == []
    assert len(read_trace(path, 2)[0]) == 2


def test_a_side_has_the_files_size_of_the_store_unless_it_says_its_own(root: Path) -> None:
    given = ["file", "file,mappedFileSizeConsumeQueue=2000"]
    run = Run(options(root, "offsets", sides=given))
    plan = run.prepare()
    assert [spec.config.units_per_file for spec in run._specs] == [500, 100, 500]
    assert plan.room_bytes > 0
    assert (
        Run(options(root, "offsets", sides=(), config=StoreConfig())).prepare().sides[0] == "file"
    )
