"""A broker that has released its store may write its tables: what is copied is what it left."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.broker_process import BrokerProcess
from cqstore.broker.conversion.conversion import NextBroker
from cqstore.migration.follow.beside import copy_tables
from cqstore.migration.preflight.obstacles import Step, obstacles, refuse
from cqstore.migration.preflight.preflight_report import PreflightFinding
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.service.offline.store_copy import copy_file
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.waiting import until
from tests.migration.follow.test_move import moving, put_more
from tests.replication.feed.conftest import leading

_BROKER = """
import sys
from pathlib import Path
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
root = Path(sys.argv[1])
lock = StoreLock(StorePaths(root))
print("open", flush=True)
for line in sys.stdin:
    if line == "release\\n":
        lock.release()
    else:
        (root / "config" / "delayOffset.json").write_text(line)
        break
"""
DELAYS = '{"offsetTable":{"3":11}}'


class OtherBroker:
    """A process that has a store open, lets it go, and writes a table later, if it is told so."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def do(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@contextmanager
def running(root: Path) -> Iterator[OtherBroker]:
    command = [sys.executable, "-c", _BROKER, str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            yield OtherBroker(process)
        finally:
            process.kill()


def test_tables_are_taken_when_the_process_has_ended(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{"3":0}}')
    with running(root) as broker:
        move = moving(master, own).start()
        move.wait_for("opening the new store")
        broker.do("release")
        move.wait_for("to exit: it may still write its tables")
        assert not (own / "config").exists()
        broker.do(DELAYS)
        assert move.end().stopped
    assert json.loads((own / "config" / "delayOffset.json").read_text()) == json.loads(DELAYS)


def test_a_process_that_does_not_end_is_named(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        watch = BrokerProcess(StorePaths(tmp_path), max_wait_seconds=0.1)
        assert watch.has_store()
        broker.do("release")
        until(lambda: not watch.has_store())
        with pytest.raises(RefusedStoreError, match=f"process {broker.process.pid} has released"):
            asyncio.run(watch.ended(print))
        broker.process.kill()  # and its end was not asked for yet
        asyncio.run(BrokerProcess.ended(watch, print))


def test_tables_of_a_process_that_is_not_known_settle(tmp_path: Path) -> None:
    paths, reported = StorePaths(tmp_path), list[str]()
    paths.config.mkdir()
    paths.topics.write_text("{}")
    began = time.monotonic()
    asyncio.run(BrokerProcess(paths, settle_seconds=0.3).ended(reported.append))
    assert time.monotonic() - began >= 0.3
    assert (
        [each for each in reported if "the process that had the store open is unknown" in each]
        == reported
        != []
    )
    os.utime(paths.topics, (1, 1))
    asyncio.run(BrokerProcess(paths, settle_seconds=30.0).ended(reported.append))
    assert len(reported) == 1


def test_tables_that_changed_while_this_process_stood_still_have_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0

    def pause(_: float) -> None:
        nonlocal now
        now += 60

    clock = SimpleNamespace(time=lambda: now, monotonic=lambda: now, sleep=pause)
    monkeypatch.setattr("cqstore.broker.conversion.broker_process.time", clock)
    newest = lambda _: 1000.0 if now < 1060 else 1050.0  # noqa: E731
    monkeypatch.setattr("cqstore.broker.conversion.broker_process.newest_table", newest)
    BrokerProcess(StorePaths(tmp_path), settle_seconds=30).wait(print)
    assert now == 1120


def test_tables_that_never_settle_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, times = StorePaths(tmp_path), iter(range(1 << 40, 1 << 41))
    monkeypatch.setattr(
        "cqstore.broker.conversion.broker_process.newest_table", lambda _: float(next(times))
    )
    watch = BrokerProcess(paths, settle_seconds=0.2, max_wait_seconds=0.3)
    with pytest.raises(RefusedStoreError, match="still change after"):
        asyncio.run(watch.ended(print))


def test_what_changes_while_it_is_copied_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, own = StorePaths(tmp_path / "broker"), StorePaths(tmp_path / "own")
    (broker.root / "config").mkdir(parents=True)
    (broker.root / "timerwheel").write_bytes(b"wheel")
    own.own.mkdir(parents=True)
    changes = list(range(9))

    def copy(source: str, target: str) -> str:
        done = copy_file(source, target)
        if source.endswith("delayOffset.json") and len(changes) > 6:
            (broker.root / "config" / "delayOffset.json").write_text(f"{changes.pop(0):09d}")
        return done

    monkeypatch.setattr("cqstore.migration.follow.beside.copy_file", copy)
    (broker.root / "config" / "delayOffset.json").write_text("at first")
    copy_tables(broker, own, NextBroker(["file"], StoreConfig()))
    assert (own.root / "config" / "delayOffset.json").read_text() == "000000002"
    changes[:] = range(100)
    with pytest.raises(RefusedStoreError, match="they changed during each of 5 attempts"):
        copy_tables(broker, own, NextBroker(["file"], StoreConfig()))


BESIDE = {
    "config/consumerOrderInfo.json": b'{"table":{"t@g":{0:{"l":1}}}}',
    "config/consumerFilter.json": b'{"filterDataByTopic":{}}',
    "config/transactionMetrics": b'{"transactionCount":{"t":{"count":2}}}',
    "config/timercheck": bytes(4096),
    "config/delayOffset.json": b'{"offsetTable":{3:120}}',
    "timerwheel": b"wheel", "timerlog/00000000000000000000": b"log",
    "rocksdbstore/CURRENT": b"MANIFEST-000001", "rocksdbstore/000004.log": b"timer and half",
    "kvStore/CURRENT": b"MANIFEST-000001", "kvStore/000004.log": b"pop",
}  # fmt: skip


def beside(root: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name in BESIDE if (path := root / name).exists()}


@pytest.mark.parametrize("to", ["file", "rocksdb"])
def test_all_that_a_broker_keeps_beside_its_queues_comes_along(tmp_path: Path, to: str) -> None:
    """Byte for byte: what these name, offsets of log and queues, is the same in both folders."""
    broker, own = StorePaths(tmp_path / "broker"), StorePaths(tmp_path / "own")
    for name, data in BESIDE.items():
        path = broker.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    own.own.mkdir(parents=True)
    order = CallOrder(own.root)
    with order.watching():
        copy_tables(broker, own, NextBroker([to], StoreConfig()))
    here = [at for at in order.renamed if "/" not in order.made[at][1]]
    assert order.made[max(here) + 1] == ("sync", ".")  # before what they came from is removed
    assert beside(own.root) == BESIDE
    copy_tables(broker, own, NextBroker([to], StoreConfig(), [AcceptedLoss.ROCKSDBSTORE]))
    left = {name for name in BESIDE if name.startswith("rocksdbstore/")}
    assert beside(own.root).keys() == BESIDE.keys() - left
    assert beside(broker.root) == BESIDE


def test_messages_of_compacted_topics_are_not_left_behind_unasked(tmp_path: Path) -> None:
    broker = StorePaths(tmp_path / "broker")
    folder = broker.root / "compaction" / "compactionLog" / "t" / "0"
    folder.mkdir(parents=True)
    (broker.root / "commitlog").mkdir()
    (broker.root / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))

    def found(*without: AcceptedLoss) -> list[PreflightFinding]:
        following = NextBroker(["rocksdb"], StoreConfig(), without)
        return obstacles(broker.root, StoreConfig(), "rocksdb", Step.FOLLOW, broker=following)

    assert found() == []  # every broker of today makes the folders
    (folder / f"{0:020d}").write_bytes(b"x")
    with pytest.raises(RefusedStoreError, match=r"--without compaction.*broker/compaction"):
        refuse(found(AcceptedLoss.ROCKSDBSTORE), "follow", broker.root)
    assert found(AcceptedLoss.COMPACTION) == []
