"""``put --new`` and ``import --new`` where nothing comes into the store: nothing of it stays."""

import signal
import socket
import subprocess
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from tests.kit.commands import COMMAND
from tests.kit.faults import ENOSPC, Faults
from tests.kit.verbs import call

CONF = "mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=50\n"
REFUSALS = [("write", "/s/lock"), ("write", "/s/abort"), ("write", "/cqstore/synced"),
            ("mkdir", "/s/consumequeue"), ("fallocate", "/s/commitlog/")]  # fmt: skip


def put(root: Path, folder: Path, *words: object) -> int:
    (folder / "broker.conf").write_text(CONF)
    words = ("--config", folder / "broker.conf", "--backend", "file", *words)
    done = call("put", root, "--new", *words, "--topic", "t", "--body", "b")
    assert done.exception is None or isinstance(done.exception, StoreError | SystemExit)
    return 2 if isinstance(done.exception, StoreError) else done.exit_code


@pytest.mark.parametrize(("kind", "part"), REFUSALS)
@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_nothing_of_a_new_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, part: str, *, there: bool
) -> None:
    root = tmp_path / "deep" / "s"
    if there:
        root.mkdir(parents=True)
    faults = Faults(monkeypatch)
    faults.fail(kind, ENOSPC, part)
    assert put(root, tmp_path) in {1, 2}
    assert faults.refused
    left = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.suffix != ".conf"}
    assert left == ({Path("deep"), Path("deep/s")} if there else set())
    faults.heal()
    assert put(root, tmp_path) == 0
    assert (root / "commitlog" / f"{0:020d}").exists()


def test_what_was_put_or_was_there_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, faults = tmp_path / "s", Faults(monkeypatch)
    faults.fail("write", ENOSPC, "/s/consumequeue/")
    assert put(root, tmp_path) == 2
    assert (root / "commitlog" / f"{0:020d}").exists(), "the message is in the log"
    faults.fail("write", ENOSPC, "/other/lock")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    assert put(tmp_path / "other", tmp_path) == 2
    assert (tmp_path / "other" / "mine").exists()


def test_an_import_that_puts_nothing_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("no message\n")
    assert call("import", tmp_path / "s", source, "--new").exit_code
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    for nothing in ("", "\n\n"):
        source.write_text(nothing)
        done = call("import", tmp_path / "deep" / "s", source, "--new")
        assert done.exit_code == 0
        assert "no message was stored, so the new store was removed" in done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_import_goes_on_with_a_position_of_nothing(tmp_path: Path) -> None:
    """The position of an empty input is kept: the rows that come later go into a new store."""
    source, conf = tmp_path / "in.jsonl", tmp_path / "broker.conf"
    conf.write_text(CONF)
    words = ["import", tmp_path / "s", source, "--new", "--config", conf]
    for rows in (0, 2):
        source.write_text('{"topic":"t","body":"b"}\n' * rows)
        assert call(*words, "--position", tmp_path / "pos").exit_code == 0
        assert (tmp_path / "s").exists() == bool(rows)
    assert len(call("get", tmp_path / "s", "--topic", "t").stdout.splitlines()) == 2


def test_an_import_of_nothing_keeps_a_store_that_was_there(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.touch()
    assert put(tmp_path / "s", tmp_path) == 0
    assert call("import", tmp_path / "s", source, "--new").exit_code == 0
    assert len(call("get", tmp_path / "s", "--topic", "t").stdout.splitlines()) == 1


def test_a_put_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for root in (tmp_path / "deep" / "s", tmp_path / "there"):
        done = subprocess.run(
            [*COMMAND, "put", root, "--new"],
            check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        assert "no message was stored, so the new store was removed" in done.stderr
    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]


def test_following_a_closed_port_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    root = tmp_path / "deep" / "s"
    words = [*COMMAND, "follow", f"127.0.0.1:{port}", str(root)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        said = ""
        while "retrying" not in said:
            line = child.stderr.readline()
            assert line, said
            said += line
        child.send_signal(signal.SIGINT)
        said = child.stderr.read()
    assert child.returncode == 0
    assert "no message was stored, so the new store was removed" in said
    assert not [*tmp_path.iterdir()]
