"""The two sides of ``tools.bench.peer`` do the same work and come to the same."""

import shutil
from pathlib import Path

import pytest

from cqstore import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.interop.rocketmq import RocketMQ
from tools.bench.peer.replicas import Follows, Replicated
from tools.bench.peer.served import ServedPulls
from tools.bench.peer.sessions import Openings, Replays, Row
from tools.bench.peer.sides import OURS, SIDES, THEIRS, Sides, Window

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.long, pytest.mark.disk]
QUEUES = 40
both_backends = pytest.mark.parametrize("backend", ["file", "rocksdb"])


@pytest.fixture
def sides(tmp_path: Path, rocketmq: RocketMQ) -> Sides:
    _ = rocketmq  # it can be had
    return Sides(tmp_path)


def done(sides: Sides, side: str, settings: dict[str, str], lines: list[str]) -> list[Window]:
    with sides.running(side, settings) as running:
        return [running.do(line) for line in lines]


@both_backends
def test_both_put_the_same_and_give_the_same_answers(sides: Sides, backend: str) -> None:
    settings = {"backend": backend, "queues": str(QUEUES), "keys": "1"}
    lines = ["open", "put 4000 threads=2", "totals", "close"]
    totals = {side: done(sides, side, settings, lines)[2] for side in SIDES}
    for name in ("units", "log_end"):
        assert totals[OURS][name] == totals[THEIRS][name]
    assert totals[OURS]["units"] == 4000
    with (
        MessageStore.open(sides.store(OURS), read_only=True) as ours,
        MessageStore.open(sides.store(THEIRS), read_only=True) as theirs,
    ):
        assert components_of(theirs).queues.name == components_of(ours).queues.name == backend
        assert set(theirs.queue_spans()) == set(ours.queue_spans())
        assert [finding for finding in theirs.check() if finding.damage] == []
    # The same store for both: so searches by time can be compared too.
    shutil.rmtree(sides.store(OURS))
    shutil.copytree(sides.store(THEIRS), sides.store(OURS))
    asks = ["open", "pull 60", "decode 60", "time 60", "query 60"]
    answers = {
        side: [window["answer"] for window in done(sides, side, settings, asks)[1:]]
        for side in SIDES
    }
    assert answers[OURS] == answers[THEIRS]
    assert all(answers[OURS])


@both_backends
def test_both_serve_the_same_bytes_to_a_java_client(sides: Sides, backend: str) -> None:
    rows = tuple(
        Row({"rate": f"pulls {threads}"}, f"pull 60 threads={threads}", same_answers=True)
        for threads in (1, 4)
    )
    served = ServedPulls(backend, rows, {"queues": "8", "body": "1024"}, 4000)
    found = list(served.run(sides, 1, {"pulls 1", "pulls 4"}))
    for each in found:
        ours, theirs = (each.windows[side][0] for side in SIDES)
        assert ours["answer"] == theirs["answer"]
        assert float(ours["answer"]) > 60 * 32 * 1024
        assert each.ratio() is not None
    assert len(found) == 2


@both_backends
def test_both_put_as_many_together_at_a_pace_and_delete_all(sides: Sides, backend: str) -> None:
    settings = {"backend": backend, "queues": str(QUEUES)}
    lines = [
        "open", "list 1280", "batch 1280", "paced 500", "totals", "delete", "totals", "put 80",
        "totals",
    ]  # fmt: skip
    found = {side: done(sides, side, settings, lines) for side in SIDES}
    for at, units in ((4, 1280 + 1280 + 500), (6, 0), (8, 80)):
        assert [found[side][at]["units"] for side in SIDES] == [units, units]
        assert found[OURS][at]["log_end"] == found[THEIRS][at]["log_end"]
    counts = [window.get("count") for window in found[OURS]]
    assert counts == [window.get("count") for window in found[THEIRS]]


@both_backends
def test_both_rebuild_and_open_as_many_queues(sides: Sides, backend: str) -> None:
    replays = Replays(
        backend=backend, queues=QUEUES, messages=4000, row=Row({"rate": "replay"}, "open")
    )
    (replayed,) = replays.run(sides, 1, {"replay"})
    assert [len(replayed.windows[side]) for side in SIDES] == [1, 1]
    openings = Openings(
        backend=backend, queues=QUEUES, row=Row({"each": "open", "disk": "disk"}, "open")
    )
    opened, disk = openings.run(sides, 1, {"open", "disk"})
    assert opened.ratio() is not None
    assert all(value > 0 for side in SIDES for value in disk.values(side))
    assert not sides.store(OURS).exists()


def test_what_rocketmq_cannot_do_is_done_by_us_alone_and_told(sides: Sides) -> None:
    opening = Openings(
        backend="file", queues=QUEUES, row=Row({"each": "open"}, "open"),
        ours_alone="cannot open so many",
    )  # fmt: skip
    (opened,) = opening.run(sides, 1, {"open"})
    assert (len(opened.windows[OURS]), opened.windows[THEIRS]) == (1, [])
    assert opened.failed == {THEIRS: "cannot open so many"}
    replay = Replays(
        backend="rocksdb", queues=QUEUES, messages=400, row=Row({"rate": "replay"}, "open"),
        ours_alone="cannot either",
    )  # fmt: skip
    (replayed,) = replay.run(sides, 1, {"replay"})
    assert (len(replayed.windows[OURS]), replayed.windows[THEIRS]) == (1, [])
    assert replayed.ratio() is None


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_both_put_to_a_slave_of_their_own_that_has_all_in_the_end(sides: Sides, role: str) -> None:
    settings = {"role": role, "replicas": "2", "wait": "60000", "queues": str(QUEUES)}
    row = Row({"rate": "put", "level": "level"}, "put 400 threads=4", ("put 40",))
    put, level = Replicated("file", (row,), settings).run(sides, 2, {"put", "level"})
    for side in SIDES:
        assert [window["count"] for window in put.windows[side]] == [400, 400]
        pairs = zip(level.values(side), put.values(side), strict=True)
        assert all(0 < until_level <= here for until_level, here in pairs)
    assert not any(sides.slave(side).exists() for side in SIDES)


@both_backends
def test_both_follow_a_master_of_rocketmq_beside_a_bare_copy(sides: Sides, backend: str) -> None:
    follows = Follows(
        backend=backend, row=Row({"flow": "followed"}, ""), settings={"queues": str(QUEUES)},
        messages=3000,
    )  # fmt: skip
    (followed,) = follows.run(sides, 1, {"followed"})
    ours, theirs = (followed.windows[side][0] for side in SIDES)
    assert ours["bytes"] == theirs["bytes"]
    assert float(ours["bytes"]) > 3000 * 128
    stored_in = {"file": "files", "rocksdb": "RocksDB"}[backend]
    assert followed.note.startswith(f"bare copy, queues in {stored_in}: ")
