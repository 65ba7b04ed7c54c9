"""``cqstore ab live --client-command``: real runs of a client, and how they fail or are stopped."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.live.client_costs import RUN, WHAT
from cqstore.ab.live.client_run import ClientPlan, ClientRun
from cqstore.ab.results.result import Result
from cqstore.ab.results.result_file import read_result
from cqstore.ab.sides.side import parse_sides
from cqstore.serve.client_command import ClientCommand
from cqstore.serve.store_writer import WriteSettings
from cqstore.store.errors import StoreError
from tests.kit import commands
from tests.kit.long_too import long_too
from tests.kit.running import descendants, gone, until
from tests.serve.conftest import CONFIG

pytestmark = pytest.mark.slow
COUNT = 40
SENT = COUNT + 3 + 3
"""With a batch, and what is sent one way."""


def client(what: str, *more: object) -> str:
    words = [sys.executable, "-m", "tests.ab.load_client", what, "{address}", *map(str, more)]
    return shlex.join(words)


def measured(
    tmp_path: Path, command: str, *sides: str, rounds: int = 1, seconds: float = 120,
    creates_topics: bool = True,
) -> Result:  # fmt: skip
    """Return the result of so many rounds, without a twin; nothing is left of them."""
    specs = parse_sides(sides or ("file", "file"), CONFIG)[: len(sides) or 1]
    folder = tmp_path / "work"
    settings = WriteSettings(creates_topics=creates_topics)
    plan = ClientPlan(ClientCommand(command, seconds), specs, folder, rounds, settings)
    before = descendants(os.getpid())
    try:
        return ClientRun(plan).measure(lambda *_: None)
    finally:
        assert not folder.exists()
        gone(descendants(os.getpid()) - before)


def test_each_side_serves_the_same_client_and_its_costs_are_measured(tmp_path: Path) -> None:
    found = measured(tmp_path, client("load", COUNT), "file", "rocksdb", rounds=2)
    assert (found.kind, [side.name for side in found.sides]) == ("clients", ["file", "rocksdb"])
    assert [each.name for each in found.workloads] == [*WHAT]
    works = {each.name: each.rounds for each in found.workloads}
    for rounds in works.values():
        assert [turn.number for turn in rounds] == [0, 0, 1, 1]
        first, second, third, fourth = (turn.side for turn in rounds)
        assert (third, fourth) == (second, first), "the reverse order"
        assert [turn.warm_up for turn in rounds] == [True, True, False, False]
    assert {turn.operations for turn in works[RUN]} == {SENT + COUNT + 3}
    assert {turn.items for turn in works["disk"]} == {SENT}
    assert all(turn.seconds > 0 for turn in works[RUN])
    assert all(turn.cpu_seconds > 0 for turn in works["cpu"])
    assert all(turn.pss_bytes > 1 << 20 for turn in works["memory"])
    assert all(turn.disk_bytes >= 4096 for turn in works["disk"])
    for turn in works["written"]:
        counted = turn.backend_written
        assert (counted["flush"] > 0) if turn.side == "rocksdb" else not counted
    answers = found.workloads[0].answers
    assert (answers.compared, answers.different) == (2 * (SENT + COUNT + 3), 0)
    assert (found.store.topics, found.store.queues, found.store.units) == (2, 5, SENT)
    assert all(side.footprint is not None and side.footprint.files for side in found.sides)
    assert f"{SENT} messages sent, {COUNT + 3} received" in found.not_measured[0]
    assert "4 sends of clients in 4 runs were refused" in found.not_measured[1]


def test_another_load_is_no_comparison(tmp_path: Path) -> None:
    command = client("grow", tmp_path / "runs")
    found = measured(tmp_path, command, "file", "rocksdb")
    answers = judge(found).answers
    assert (answers.status, answers.different) == ("different", 1)
    assert answers.first[0].answers["file"] != answers.first[0].answers["rocksdb"]


FAILURES: dict[str, tuple[Callable[[Path], str], float]] = {
    r"client of side file ended with exit code 3: .*; its output ends with 'no such topic'": (
        lambda _: client("fail"),
        120,
    ),
    r"has ended; it has not connected to 127\.0\.0\.1:\d+, the address for {address}": (
        lambda _: "true",
        120,
    ),
    r"has not ended after 0\.2 s: sleep 600; it has not connected to 127\.0\.0\.1:\d+": (
        lambda _: "sleep 600",
        0.2,
    ),
    "exit code 1: false; it has not connected": (lambda _: "false", 120),
    "cannot run the client: .*none": (lambda path: f"{path}/none", 120),
    "sent and received no message at the server of side file": (lambda _: client("idle"), 120),
    r"the process of side file ended \(exit code -9\)": (
        lambda path: client("kill", path / "pid"),
        120,
    ),
}


@pytest.mark.parametrize("sentence", FAILURES)
def test_a_run_that_fails_is_one_sentence_and_nothing_is_left(
    tmp_path: Path, sentence: str
) -> None:
    make, seconds = FAILURES[sentence]
    with pytest.raises(StoreError, match=sentence):
        measured(tmp_path, make(tmp_path), seconds=seconds)
    if (tmp_path / "pid").exists():
        gone({int((tmp_path / "pid").read_text())})


def test_settings_of_a_broker_are_those_of_the_servers(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="exit code 1"):
        measured(tmp_path, client("load", 1), creates_topics=False)


@pytest.mark.parametrize("number", [signal.SIGINT, *long_too([signal.SIGTERM])])
def test_stopped_it_takes_away_servers_clients_and_folder(
    tmp_path: Path, number: signal.Signals
) -> None:
    pid, result = tmp_path / "pid", tmp_path / "result.json"
    own = f"sh -c {shlex.quote(client('wait', pid) + ' & wait')}"
    words = ["ab", "live", "--client-command", own, "--result", str(result)]
    with subprocess.Popen(
        [*commands.COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until(process, lambda: pid.exists() and bool(pid.read_text()))
        below = descendants(process.pid)
        assert int(pid.read_text()) in below
        assert (tmp_path / "result.json.ab" / "side-0").exists() or len(below) > 1
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + number, stderr
    assert "stopped; temporary files were removed" in stderr
    assert "Traceback" not in stderr
    gone(below)
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


@pytest.mark.long
def test_the_command_names_the_backend_for_these_clients(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    (tmp_path / "broker.conf").write_text(
        "mappedFileSizeCommitLog=262144\nmaxHashSlotNum=100\nmaxIndexNum=4000\n"
        "flushDiskType=SYNC_FLUSH\ndefaultTopicQueueNums=4\n"
    )
    words = [
        "ab", "live", "--client-command", client("load", 90), "--rounds", "6", "--result",
        str(result), "--config", str(tmp_path / "broker.conf"), "--matters", "memory,disk",
        "--side", "file", "--side", "rocksdb", "--output", "json",
    ]  # fmt: skip
    done = commands.run(words)
    assert done.returncode == 0, done.stderr
    judged = json.loads(done.stdout)
    assert judged["answers"]["status"] == "same"
    assert judged["banner"]["matters"] == ["memory", "disk"]
    found = read_result(result)
    assert [side.twin_of for side in found.sides] == [None, None, "file"]
    assert len(found.workloads[0].rounds) == 18
    assert "these clients" in (tmp_path / "result.html").read_text()
    assert "3 sides (file; rocksdb; file (twin)), 6 rounds: 18 runs of the client" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "broker.conf", "result.html", "result.json",
    ]  # fmt: skip
