"""How a comparison ends before its end: killed, stopped, refused; nothing is left behind."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.ab import wrong_backends
from tests.ab.made_store import CONFIG, make_varied_store
from tests.ab.running import COMMAND, command, compare, forked
from tests.kit.running import descendants, gone, until
from tests.kit.tree import tree_digest

WORDS = ["--side", "file", "--side", "rocksdb", "--rounds", "4", "--turn-seconds", "0.01"]
LONG = [*WORDS, "--workload", "dispatch", "--workload", "restart-after-kill"]
SHORT = [*WORDS, "--workload", "offsets"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_varied_store(tmp_path / "store", 400)
    return tmp_path / "store"


def start(root: Path) -> "subprocess.Popen[bytes]":
    words = [*COMMAND, str(root), *LONG, "--result", str(root.with_name("result.json"))]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


INSTANTS: dict[str, Callable[[Path], bool]] = {
    "the folder is made": lambda work: work.exists(),
    "a side is built": lambda work: (work / "side-0" / "commitlog").exists(),
    "the twin is built": lambda work: (work / "side-2" / "checkpoint").exists(),
    "the log is replayed": lambda work: (work / "side-1.scratch" / "checkpoint").exists(),
    "a store is being killed": lambda work: any(work.glob("side-*/*/cqstore-ab-killed")),
}


@pytest.mark.long
@pytest.mark.parametrize("instant", INSTANTS)
def test_killed_and_run_again_it_begins_anew_and_leaves_nothing(root: Path, instant: str) -> None:
    before, work = tree_digest(root), root.with_name("store.ab")
    below: set[int] = set()
    with start(root) as process:
        until(process, lambda: INSTANTS[instant](work))
        below = descendants(process.pid)
        process.kill()
    gone(below)
    assert work.exists()
    assert not root.with_name("result.json").exists()
    command(root, *SHORT)
    made = ["result.html", "result.json", "store"]
    assert sorted(path.name for path in root.parent.iterdir()) == made
    assert tree_digest(root) == before


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_takes_away_what_it_has_made(root: Path, number: signal.Signals) -> None:
    work = root.with_name("store.ab")
    with start(root) as process:
        until(process, (work / "side-1" / "commitlog").exists)
        below = descendants(process.pid)
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == 128 + number
    assert b"stopped; temporary files were removed" in said
    assert b"Traceback" not in said
    gone(below)
    assert [path.name for path in root.parent.iterdir()] == ["store"]


@pytest.mark.long
def test_a_process_of_a_side_that_dies_ends_it_with_a_sentence(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_backends.install(tmp_path / "installed", monkeypatch)
    trace = tmp_path / "trace"
    trace.write_text(json.dumps({"op": "maxOffset", "topic": ""}) + "\n")
    with pytest.raises(StoreError, match=r"the process of side dying ended \(exit code 3\)"):
        compare(root, trace=trace, sides=["other", "dying"])
    assert not root.with_name("store.ab").exists()


def _bad_trace(root: Path) -> list[str]:
    path = root.with_name("trace")
    path.write_text('{"op":"minOffset","topic":"t"}\n{"op":"jump"}\n')
    return ["--trace", str(path)]


def _taken(root: Path) -> list[str]:
    work = root.with_name("work")
    work.mkdir()
    (work / "letter").touch()
    return ["--work", str(work)]


def _timeless(root: Path) -> list[str]:
    path = root.with_name("timeless")
    path.write_text('{"op":"minOffset","topic":"t"}\n')
    return ["--trace", str(path), "--rate", "real"]


BAD: dict[str, Callable[[Path], list[str]]] = {
    "line 2 is not a valid operation": _bad_trace,
    "cannot replay the times of the trace: it has none": _timeless,
    "contains other files": _taken,
}


@pytest.mark.slow
@pytest.mark.parametrize("sentence", BAD)
def test_what_makes_no_sense_is_one_sentence_and_nothing_is_made(root: Path, sentence: str) -> None:
    words = BAD[sentence](root)
    before = sorted(path.name for path in root.parent.iterdir())
    done = forked(root, *words, code=2)
    output = [line for line in done.stderr.splitlines() if line.startswith("cqstore:")]
    assert len(output) == 1
    assert sentence in output[0]
    assert sorted(path.name for path in root.parent.iterdir()) == before


@pytest.mark.slow
def test_a_store_that_is_open_or_not_there_is_not_compared(root: Path) -> None:
    def reported(place: Path) -> Any:
        return forked(place, code=2).stderr

    with MessageStore.open(root, CONFIG):
        assert f"process {os.getpid()} has the store open" in reported(root)
    assert "no such folder" in reported(root.with_name("nowhere"))
    root.with_name("empty").mkdir()
    assert "no store here" in reported(root.with_name("empty"))


def test_a_log_that_gives_other_queues_than_those_there_is_refused(root: Path) -> None:
    with MessageStore.open(root, StoreConfig()) as store:
        components_of(store).queues.delete_queue("hot", 1)  # behind the store's back
    with pytest.raises(
        StoreError, match="the queues built from the log differ from those of the store"
    ):
        compare(root, "offsets")
    assert not root.with_name("store.ab").exists()
