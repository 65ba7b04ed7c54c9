"""A side's process: what is asked and answered, how it ends, and whose signals it heeds."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.ab import parent
from cqstore.ab.commands import run as command
from cqstore.ab.sides.side import parse_sides
from cqstore.ab.sides.side_process import SideProcess
from cqstore.ab.trace.derived import DEFAULT_MIX
from cqstore.store.errors import CorruptionError, StoreError
from tests.ab.made_store import CONFIG, make_varied_store

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_varied_store(tmp_path / "s", 100)
    return tmp_path / "s"


@pytest.fixture
def side(root: Path) -> Iterator[SideProcess]:
    found = SideProcess(parse_sides(["file", "file"], CONFIG)[0], str(root), DEFAULT_MIX)
    yield found
    found.stop()


def test_a_process_answers_until_it_is_ended_and_its_end_is_a_sentence(
    side: SideProcess, root: Path
) -> None:
    assert side.pid != os.getpid()
    os.kill(side.pid, 0)
    digest, queues, units = side.request("whole_digest")
    assert len(digest) == 32
    assert 0 < queues < units
    versions = side.request("versions")
    assert all(isinstance(text, str) and not text.isdecimal() for text in versions.values())
    os.kill(side.pid, signal.SIGINT)  # the parent's to handle
    assert side.request("whole_digest") == [digest, queues, units]
    assert (root / "abort").exists()
    side.finish()
    assert not (root / "abort").exists(), "the store was closed"
    with pytest.raises(ProcessLookupError):
        os.kill(side.pid, 0)
    with pytest.raises((StoreError, ValueError)):
        side.request("whole_digest")


def test_an_error_of_the_store_comes_back_and_the_process_goes_on(
    side: SideProcess, root: Path
) -> None:
    (root / "lock").unlink()
    (root / "lock").mkdir()
    with pytest.raises(CorruptionError) as caught:
        side.request("whole_digest")
    assert caught.value.path == root / "lock"
    (root / "lock").rmdir()
    assert side.request("whole_digest")[1] > 0
    os.kill(side.pid, signal.SIGKILL)
    with pytest.raises(
        StoreError, match=r"the process of side file ended \(exit code -9\), see above"
    ):
        side.request("whole_digest")
    side.stop()


def test_requests_are_lines_and_what_is_printed_is_no_answer(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    lines: list[tuple[str, dict[str, object]]] = [
        ("begin", {"root": str(root), "backend": "file", "config": {}, "mix": DEFAULT_MIX}),
        ("whole_digest", {}),
        ("queue_digests", {"path": str(path)}),
        ("unit_rows", {"topic": "hot", "queue_id": 1, "path": str(path) + "2"}),
        ("footprint", {}),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "cqstore.ab.sides.side_worker", str(os.getpid())],
        text=True, check=True,
        input="".join(json.dumps(each) + "\n" for each in lines), capture_output=True,
    )  # fmt: skip
    output = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kind for kind, _ in output] == ["ok"] * 5
    _, queues, units = output[1][1]
    digests = [json.loads(line) for line in path.read_text().splitlines()]
    assert (len(digests), sum(each[4] for each in digests)) == (queues, units)
    rows = Path(f"{path}2").read_text().splitlines()
    (hot,) = [each for each in digests if each[:2] == ["hot", 1]]
    assert [int(row.split(":")[0]) for row in rows] == list(range(hot[2], hot[3]))
    assert output[4][1]["files"] > 0
    assert not (root / "abort").exists(), "the store is closed when the input ends"


def test_a_process_whose_parent_has_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[tuple[int, int]] = []
    requested: list[tuple[int, int]] = []

    class Library:
        def __init__(self, name: None) -> None:
            self.prctl = lambda *words: requested.append(words)

    monkeypatch.setattr("ctypes.CDLL", Library)
    monkeypatch.setattr("os.kill", lambda *words: kills.append(words))
    parent.die_with_parent(os.getppid())
    assert kills == []
    parent.die_with_parent(os.getppid() + 1)
    assert kills == [(os.getpid(), signal.SIGKILL)]
    assert requested == [(1, signal.SIGKILL)] * 2  # PR_SET_PDEATHSIG
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    parent.die_with_parent(os.getppid() + 1)
    assert len(kills) == 1, "where the system cannot do that nothing happens"


def test_a_stop_is_said_and_signals_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(BaseException) as caught, command.interruptible():  # noqa: PT011, PT012
        assert signal.getsignal(signal.SIGTERM) is not before
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert getattr(caught.value, "exit_code", None) == 143
    assert signal.getsignal(signal.SIGTERM) is before
    with command.interruptible():
        pass
    assert signal.getsignal(signal.SIGTERM) is before
