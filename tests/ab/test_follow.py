"""``cqstore ab follow``: sides that follow one master, and what is made of their costs."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.ab.live import followed_broker as module
from cqstore.ab.live.follow_costs import WHAT
from cqstore.ab.live.followed_broker import FollowedBroker, FollowPlan
from cqstore.ab.live.follower_worker import FollowerWorker
from cqstore.ab.results.result_file import read_result
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.ab.record.conftest import CONFIG, put
from tests.ab.test_follow_costs import usage
from tests.kit import commands
from tests.kit.log_bytes import log_of
from tests.kit.waiting import until
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import serving

CONF = "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=400\n"


@contextmanager
def followed(tmp_path: Path, master: WireMaster, *more: str) -> Iterator["subprocess.Popen[str]"]:
    (tmp_path / "broker.conf").write_text(CONF)
    words = [
        f"127.0.0.1:{master.port}", str(tmp_path / "work"), "--result",
        str(tmp_path / "result.json"), "--config", str(tmp_path / "broker.conf"), *more,
    ]  # fmt: skip
    with subprocess.Popen(
        [*commands.COMMAND, "ab", "follow", *words], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_sides_of_one_stream_are_compared(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 90)
        with serving(WireMaster(log_of(store), file_size=1 << 20)) as master, followed(
            tmp_path, master, "--for", "2s", "--rounds", "9", "--no-repeat", "--output", "json"
        ) as process:  # fmt: skip
            sent, number = len(master.log), 90
            while process.poll() is None:
                put(store, 1, number % 200)
                more = log_of(store)[sent:]
                sent, number = sent + len(more), number + 1
                master.loop.call_soon_threadsafe(master.append, more)
                until(lambda: process.poll() is not None or not _waits(master))
            stdout, stderr = process.communicate(timeout=60)
    assert process.returncode in {0, 1}, stderr
    result = read_result(tmp_path / "result.json")
    assert result.kind == "follow"
    assert [side.name for side in result.sides] == ["file", "rocksdb"]
    assert result.proof is not None, "the same queues"
    assert [each.name for each in result.workloads] == [*WHAT]
    assert json.loads(stdout)["answers"]["different"] == 0
    assert {each.side for each in result.samples} == {"file", "rocksdb"}
    assert (tmp_path / "result.html").exists()
    assert not (tmp_path / "work").exists()


def _waits(master: WireMaster) -> bool:
    return not master.reports or max(master.reports) < master.end - 4096


@pytest.mark.slow
@pytest.mark.long
def test_a_signal_ends_the_run_with_a_result(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 90)
        with serving(WireMaster(log_of(store), file_size=1 << 20)) as master, followed(
            tmp_path, master, "--for", "1h", "--no-repeat"
        ) as process:  # fmt: skip
            until(lambda: len(master.requests) == 3 and max(master.reports) == master.end)
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "No verdict: too few answers were compared" in stdout
    assert "stopped by a signal" in stderr
    assert "Traceback" not in stdout + stderr
    result = read_result(tmp_path / "result.json")
    assert result.proof is not None
    assert result.proof.units == 90
    assert not (tmp_path / "work").exists()


def test_a_side_gets_the_end_of_another_sides_log(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 60)
        data = log_of(store)
        cut = [each.phy_offset for each in components_of(store).log.scan(0)][20]
    worker = FollowerWorker()
    root = tmp_path / "side"
    worker.begin(str(root), "file", CONFIG.model_dump(mode="json", exclude_unset=True), {})
    with MessageStore.open(root, CONFIG) as side:
        assert side.append_to_commit_log(0, data[:cut]) == cut
    worker._side.open()
    worker.catch_up(str(tmp_path / "store"), len(data))
    assert log_of(worker._side.store) == data
    worker.close()


def test_a_log_that_ends_before_is_no_end_for_another_side(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 60)
        end = store.max_phy_offset()
    last = max((tmp_path / "store" / "commitlog").iterdir())
    last.unlink()
    worker = FollowerWorker()
    config = CONFIG.model_dump(mode="json", exclude_unset=True)
    worker.begin(str(tmp_path / "side"), "file", config, {})
    worker._side.open()
    with pytest.raises(StoreError, match=f"it ends at {int(last.name)}, not {end}"):
        worker.catch_up(str(tmp_path / "store"), end)
    worker.close()


@dataclass
class _Side:
    begin: int

    def request(self, name: str) -> dict[str, object]:
        assert name == "usage"
        return usage(5, begin=self.begin).model_dump()


def test_logs_that_begin_at_different_files_are_refused(tmp_path: Path) -> None:
    run = FollowedBroker(FollowPlan("a", 1, [], tmp_path, 1.0, 9))
    run._sides = {"file": _Side(-1), "rocksdb": _Side(4096)}  # type: ignore[dict-item]
    assert run._usages()["rocksdb"].begin == 4096
    run._sides["file"] = _Side(0)  # type: ignore[assignment]
    with pytest.raises(StoreError, match="the master began a new log file while they connected"):
        run._usages()


def test_the_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = FollowPlan("a", 1, [], tmp_path, 3600.0, 9)
    run = FollowedBroker(plan)
    monkeypatch.setattr(module, "_MAX_SPACING", 0.01)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4, total=100))
    assert "of the disk was free" in run._follow(lambda *_: None, lambda: False)
    assert run._follow(lambda *_: None, lambda: True) == "stopped by a signal"
