"""Turns of the workloads that write: what they do to a side, what they answer and leave behind."""

import io
import json
import os
import shutil
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from cqstore.ab.stores import killed_writer
from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.stores.store_survey import StoreSurvey, survey
from cqstore.ab.trace.operations import MaxOffset, MinOffset, Operation, Put, trace_lines
from cqstore.ab.workloads import lifecycle, workloads
from cqstore.ab.workloads.base import Setting, Turn
from cqstore.store.errors import StoreError
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.ab.made_store import CONFIG, FILE, make_varied_store
from tests.kit.tree import tree_digest, unchanged


@pytest.fixture(scope="module", params=["file", "rocksdb"])
def made(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    root = tmp_path_factory.mktemp("made") / str(request.param)
    make_varied_store(root, 1_600, request.param)  # of two log files
    return root


@pytest.fixture
def side(made: Path, tmp_path: Path) -> Iterator[SideStore]:
    shutil.copytree(made, tmp_path / "s")
    found = SideStore(tmp_path / "s", made.name, CONFIG)
    yield found
    found.close()


def messages(store: MessageStore, phy_offset: int) -> list[StoredMessage]:
    """What the log holds from there on."""
    log = components_of(store).log
    return [log.message(found.phy_offset) for found in log.scan(phy_offset)]


def setting_of(found: StoreSurvey, **more: object) -> Setting:
    given: dict[str, object] = {
        "keys": found.keys, "lengths": (found.high - found.low).tolist(), "body_bytes": 9,
        "file_size": FILE, "min_phy_offset": found.min_phy_offset,
        "max_phy_offset": found.max_phy_offset,
    }  # fmt: skip
    return Setting.model_validate(given | more)


def surveyed(side: SideStore) -> Setting:
    return setting_of(survey(side.root, CONFIG, 1))


def ends_of(store: MessageStore, setting: Setting) -> str:
    """How a store answers for the queues of a setting."""
    ends = [(store.min_offset(*key), store.max_offset(*key)) for key in setting.keys]
    lows, highs = sum(low for low, _ in ends), sum(high for _, high in ends)
    digest = zlib.crc32(repr(ends).encode())
    return f"{len(ends)} queues: sum of min {lows}, of max {highs}, digest {digest:08x}"


def test_a_restart_opens_and_closes_and_answers_for_the_queues(side: SideStore) -> None:
    setting = surveyed(side)
    with side.open_at(side.root) as store:
        expected = ends_of(store, setting)
    restart = workloads()["restart"]
    done = restart.turn(side, setting, Turn(3, 2))
    assert (done.operations, done.items, done.answers) == (2, 2, [expected] * 2)
    assert done.requests == [{"op": "restart", "opening": at} for at in range(2)]
    assert len(done.service) == 2
    assert min(done.service) > 0
    assert sum(done.service) == pytest.approx(done.spent.seconds * 1e9, abs=10)
    assert not side.is_open
    assert (restart.needs_open, restart.scales, restart.passes) == (False, False, 1)


@pytest.mark.slow
def test_replay_makes_the_queues_of_a_log_like_the_stores(side: SideStore) -> None:
    setting = surveyed(side)
    dispatch = workloads()["dispatch"]
    side.scratch.mkdir()
    (side.scratch / "left").touch()
    before = tree_digest(side.root)
    dispatch.begin(side, setting)
    assert not (side.scratch / "left").exists()
    put = sum(setting.lengths)
    for number in range(2):
        done = dispatch.turn(side, setting, Turn(number, 1))
        assert (done.operations, done.items) == (put, put)
        assert done.answers[0].startswith(f"{put} units in {len(setting.keys)} queues, digest ")
        assert done.requests == [{"op": "dispatch", "turn": number}]
        assert done.spent.seconds > 0
    own = StoreConfig(mapped_file_size_commit_log=FILE)
    with MessageStore.open(side.scratch, own, backend=side.backend, read_only=True) as store:
        lengths = {}
        for (topic, queue_id), length in zip(setting.keys, setting.lengths, strict=True):
            name = f"cqstore-ab-{zlib.crc32(topic.encode()):08x}"
            lengths[name, queue_id] = length
            (message,) = store.get_message(name, queue_id, 0, 1).messages()
            assert (message.body, message.properties["TAGS"]) == (bytes(9), "a")
            assert message.head.born_timestamp == 1
        assert {tuple(key): high - low for key, low, high in store.queue_spans()} == lengths
        assert components_of(store).log.files.file_size == FILE
        order = [message.topic for message in messages(store, 0)]
        assert order != sorted(order), "queues are beside each other as they are in the store"
    dispatch.end(side, setting)
    assert not side.scratch.exists()
    assert tree_digest(side.root) == before


def test_a_long_log_is_replayed_in_part() -> None:
    counts = np.bincount(lifecycle._like([600_000, 290_000, 1]))
    assert counts.tolist() == [40_449, 19_551, 1]
    assert sorted(lifecycle._like([3, 1, 0])) == [0, 0, 0, 1, 2]
    assert lifecycle._like([]) == []


def test_expiry_lets_the_oldest_file_of_a_copy_go(side: SideStore) -> None:
    setting = surveyed(side)
    with unchanged(side.root):
        side.scratch.mkdir()
        (side.scratch / "left").touch()
        expiry = workloads()["expiry"]
        done = expiry.turn(side, setting, Turn(5, 1))
    (answer,) = done.answers
    with side.open_at(side.scratch) as store:
        assert answer == f"1 files, {FILE} bytes deleted; {ends_of(store, setting)}"
        assert store.min_phy_offset() == setting.min_phy_offset + FILE
    assert (done.operations, done.items) == (1, 1)
    assert done.requests == [{"op": "expiry", "turn": 5}]
    assert done.service == [int(done.spent.seconds * 1e9)]
    assert done.service[0] > 1000


def test_a_log_of_one_file_has_none_to_let_go(side: SideStore) -> None:
    found = survey(side.root, CONFIG, 1)
    expiry = workloads()["expiry"]
    found.max_phy_offset = found.min_phy_offset + FILE
    assert "the newest is never deleted" in expiry.unsupported_reason(found)
    found.max_phy_offset += 1
    assert expiry.unsupported_reason(found) == ""


# ---- a process that is killed


class Killed(BaseException):
    """Where the process would be."""


@pytest.mark.slow
def test_a_killed_writer_has_put_messages_durably_and_others_not(
    side: SideStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = surveyed(side)
    reported = {"root": str(side.root), "backend": side.backend, "body_bytes": 0, "config": {}}
    kills: list[object] = []

    def kill(pid: int, number: int) -> NoReturn:
        kills.append((pid, number))
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(killed_writer, "die_with_parent", kills.append)
        patched.setattr(os, "kill", kill)
        patched.setattr(sys, "argv", ["killed_writer", "77"])
        patched.setattr(sys, "stdin", io.StringIO(json.dumps(reported)))
        with pytest.raises(Killed) as caught:
            killed_writer.main()
    assert kills == [77, (os.getpid(), signal.SIGKILL)]
    store: MessageStore = caught.traceback[-2].frame.f_locals["store"]
    durable = store.flushed_phy_offset()
    ends = [store.max_offset("cqstore-ab-killed", at) for at in range(65)]
    assert ends == [63] * 40 + [62] * 16 + [61] * 8 + [0]
    put = messages(store, setting.max_phy_offset)
    assert len(put) == 4_000
    assert {(each.topic, each.body, each.head.born_timestamp) for each in put} == {
        ("cqstore-ab-killed", b"\0", 1)
    }
    assert sum(each.phy_offset < durable for each in put) == 1_000
    assert [each.queue_id for each in put[:65]] == [*range(64), 0]
    store.close()


@pytest.mark.slow
def test_after_a_kill_the_store_opens_with_what_was_put_and_loses_it_again(side: SideStore) -> None:
    setting = surveyed(side)
    with side.open_at(side.root) as store:
        expected = ends_of(store, setting)
    workload = workloads()["restart-after-kill"]
    done = workload.turn(side, setting, Turn(4, 1))
    assert done.answers == [f"4000 messages recovered; {expected}"]
    assert (done.operations, done.items) == (1, 1)
    assert done.requests == [{"op": "restart-after-kill", "turn": 4}]
    assert 0 < done.service[0] == int(done.spent.seconds * 1e9)
    assert not side.is_open
    with side.open_at(side.root) as store:
        assert store.max_offset("cqstore-ab-killed", 0) == 0
        assert store.max_phy_offset() > setting.max_phy_offset
    bad = SideStore(side.root.with_name("s"), "no such backend", CONFIG)
    with pytest.raises(
        StoreError, match=r"before it killed itself \(exit code 1\): (.|\n)*no such backend"
    ):
        workload.turn(bad, setting, Turn(0, 1))


# ---- topics


def test_topics_are_created_seen_and_gone_when_the_turn_ends(side: SideStore) -> None:
    side.open()
    before = set(side.store.queue_keys())
    create = workloads()["topic-create"]
    done = create.turn(side, Setting(), Turn(7, 3))
    assert done.answers == ["PUT_OK, offset 0, then max 1"] * 3
    assert done.requests == [
        {"op": "createTopic", "topic": f"cqstore-ab-7-{at}"} for at in range(3)
    ]
    assert (done.operations, done.items, len(done.service)) == (3, 3, 3)
    assert done.spent.seconds * 1e9 >= sum(done.service) > 0
    assert set(side.store.queue_keys()) == before
    again = create.turn(side, Setting(body_bytes=5), Turn(7, 3))
    assert again.answers == done.answers, "they are new each time"


def test_topics_of_eight_queues_are_deleted_one_by_one(side: SideStore) -> None:
    side.open()
    before, end = set(side.store.queue_keys()), side.store.max_phy_offset()
    delete = workloads()["topic-delete"]
    done = delete.turn(side, Setting(body_bytes=5), Turn(7, 2))
    assert done.answers == [f"deleted, then max {[0] * 8}"] * 2
    assert done.requests == [
        {"op": "deleteTopic", "topic": f"cqstore-ab-7-{at}"} for at in range(2)
    ]
    assert (done.operations, done.items, len(done.service)) == (2, 2, 2)
    assert done.spent.seconds * 1e9 >= sum(done.service) > 0
    assert set(side.store.queue_keys()) == before
    put = messages(side.store, end)
    assert [(each.topic, each.queue_id) for each in put] == [
        (f"cqstore-ab-7-{topic}", at % 8) for topic in range(2) for at in range(32)
    ]
    assert {(each.body, each.properties["TAGS"], each.head.born_timestamp) for each in put} == {
        (bytes(5), "a", 1)
    }


# ---- traces


def trace(tmp_path: Path, *operations: Operation) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"".join(trace_lines(operations)))
    return path


def questions(count: int) -> list[Operation]:
    return [MaxOffset(topic="hot", queue_id=at, at=at / 1000) for at in range(count)]


def test_a_trace_goes_on_where_the_last_turn_ended_and_begins_again(
    side: SideStore, tmp_path: Path
) -> None:
    side.open()
    setting = Setting(trace=trace(tmp_path, *questions(5)))
    read = workloads()["offsets"]
    read.begin(side, setting)
    requested = []
    for number in range(4):
        done = read.turn(side, setting, Turn(number, 3))
        assert [str(side.store.max_offset("hot", each.queue_id)) for each in done.requests
                if isinstance(each, MaxOffset)] == done.answers  # fmt: skip
        assert (done.operations, done.items, done.intended) == (3, 3, [])
        requested += [each.queue_id for each in done.requests if isinstance(each, MaxOffset)]
    assert requested == [*range(5)] * 2 + [0, 1]
    read.end(side, setting)
    with pytest.raises(ZeroDivisionError):
        read.turn(side, setting, Turn(0, 1))


@pytest.mark.parametrize(
    ("more", "due_seconds"), [({"rate": 1000.0}, 0.004), ({"speed": 2.0, "trace_rate": 1e3}, 0.002)]
)
def test_an_open_loop_asks_when_an_operation_is_due(
    side: SideStore, tmp_path: Path, more: dict[str, float], due_seconds: float
) -> None:
    side.open()
    setting = Setting.model_validate({"trace": trace(tmp_path, *questions(5)), **more})
    read = workloads()["trace"]
    read.begin(side, setting)
    done = read.turn(side, setting, Turn(0, 4))
    assert done.due_seconds == pytest.approx(due_seconds)
    assert len(done.intended) == len(done.service) == 4
    assert done.spent.seconds >= due_seconds * 3 / 4
    assert all(late >= took for late, took in zip(done.intended, done.service, strict=True))
    assert read.turn(side, setting, Turn(0, 1)).due_seconds == 0.0


def test_a_mixture_answers_in_the_order_of_its_trace_and_loses_what_it_put(
    side: SideStore, tmp_path: Path
) -> None:
    side.open()
    low, high = side.store.min_offset("hot", 1), side.store.max_offset("hot", 1)
    puts: list[Operation] = [Put(topic="cqstore-ab-put", queue_id=at, size=3) for at in (0, 0, 1)]
    asks: list[Operation] = [MinOffset(topic="hot", queue_id=1), MaxOffset(topic="hot", queue_id=1)]
    operations = [puts[0], *asks, puts[1], *asks, puts[2], *asks]
    setting = Setting(trace=trace(tmp_path, *operations), readers=2)
    mixed = workloads()["mixed"]
    mixed.begin(side, setting)
    answers = [str(low), str(high)]
    for number in range(2):
        done = mixed.turn(side, setting, Turn(number, 9))
        assert done.answers == [
            "PUT_OK, offset 0", *answers, "PUT_OK, offset 1", *answers, "PUT_OK, offset 0",
            *answers,
        ]  # fmt: skip
        assert (done.operations, done.items, len(done.service)) == (9, 9, 9)
        assert done.requests == operations
        assert done.spent.seconds > 0
        assert side.store.max_offset("cqstore-ab-put", 0) == 0
    only = Setting(trace=trace(tmp_path, *asks), readers=9)
    mixed.begin(side, only)
    assert mixed.turn(side, only, Turn(0, 2)).answers == answers
