"""Files that a broken copy has cut: ``check`` lists all and goes on, a repair mends a copy."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.obstacles import Obstacle, ObstacleKind, clear
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import run
from tests.kit.tree import tree_digest, unchanged
from tests.kit.verbs import call

FILE_SIZE = 1 << 13
COUNT = 200
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=2000,
    rocksdb_memory_bytes=16 << 20,
)  # fmt: skip
Cut = Callable[[Path], Path]


@pytest.fixture(scope="module", params=["file", "rocksdb"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("made") / "store", str(request.param))


def made(root: Path, backend: str) -> Path:
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        for number in range(COUNT):
            message = Message(f"t{number % 2}", b"%03d" % number * 20, 0)
            assert store.put_message(message).ok
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def cut(path: Path, length: int) -> Path:
    with path.open("r+b") as file:
        file.truncate(length)
    return path


def log_file(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def checked(root: Path, *words: object) -> tuple[int, list[dict[str, object]], str]:
    done = run(["check", root, "--output", "jsonl", *words])
    assert "Traceback" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def bodies(root: Path) -> list[str]:
    """Return what the queues of the store have, in order of the log."""
    found = []
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        for topic in ("t0", "t1"):
            at, end = store.min_offset(topic, 0), store.max_offset(topic, 0)
            while at < end:
                result = store.get_message(topic, 0, at, 32)
                found += [(one.phy_offset, bytes(one.body)[:3]) for one in result.messages()]
                at = result.next_begin_offset
    return [body.decode() for _, body in sorted(found)]


ALL = [f"{number:03d}" for number in range(COUNT)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "too short"), (b"\0" * 7, "too short"), (b"\x01" * 47, "invalid times or offsets"),
        (b"\0" * 4608, "too long"), (b"\x7f" * 4096, "invalid times or offsets"),
        (b"\xff" * 48, "invalid times or offsets"), (b"\0" * 48, ""), (b"\0" * 4095, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("crashed", [False, True])
def test_a_checkpoint_of_any_content_keeps_no_store_from_being_opened(
    root: Path, content: bytes, problem: str, *, crashed: bool
) -> None:
    path = root / "checkpoint"
    path.write_bytes(content)
    if crashed:
        (root / "abort").touch()
    before = tree_digest(root)
    code, rows, notes = checked(root)
    assert code == int(crashed), rows
    assert [(row["severity"], row["path"]) for row in rows] == [("note", str(path))] * bool(problem)
    assert problem in str(rows)
    assert f"{COUNT} records, {COUNT} units checked; 0 damaged" in notes
    for words in (["info"], ["get", "--topic", "t0"], ["topics"]):
        looked = call(words[0], root, *words[1:])
        assert (looked.exit_code, str(path) in looked.stderr) == (0, bool(problem)), words
    assert bodies(root) == ALL
    assert tree_digest(root) == before
    done = run(["recover", root])
    assert done.returncode == 0, done.stderr
    assert bodies(root) == ALL
    assert checked(root)[:2] == (0, [])
    assert path.stat().st_size == 4096


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_cut_log_file_does_not_hide_what_is_behind(root: Path, number: int) -> None:
    path = cut(log_file(root, number), 700)
    start = int(path.name) + 700
    if number != -1:  # another damage, in a later file
        last = log_file(root, -1)
        data = bytearray(last.read_bytes())
        data[100] ^= 1
        last.write_bytes(data)
    before = tree_digest(root)
    code, rows, notes = checked(root)
    assert code == 1
    assert rows[0]["path"] == str(path)
    assert rows[0]["phyOffset"] == start
    assert f"expected {FILE_SIZE} bytes, found 700 bytes" in str(rows[0]["problem"])
    in_log = [row for row in rows[1:] if row["topic"] is None]
    for row in in_log:
        begin = int(str(row["phyOffset"])) // FILE_SIZE * FILE_SIZE
        assert row["path"] == str(root / "commitlog" / f"{begin:020d}")
    assert len(in_log) == (1 if number == -1 else 2)
    assert "cqstore-check-" not in json.dumps(rows) + notes
    assert tree_digest(root) == before


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_cut_log_file_is_given_up_only_as_far_as_is_said(
    root: Path, number: int, *, in_place: bool
) -> None:
    path = cut(log_file(root, number), 700)
    place = ["--in-place"] if in_place else []
    _, rows, _ = checked(root)
    bad = next(int(str(row["phyOffset"])) for row in rows[1:] if row["topic"] is None)
    with unchanged(root.parent):
        code, _, notes = checked(root, "--repair", *place)
        assert (code, f"--cut-at {bad}" in notes) == (2, True)
    code, _, notes = checked(root, "--repair", *place, "--cut-at", bad)
    assert code == 0, notes
    assert f"{path}: extend the file with zeros" in notes
    kept = bodies(root if in_place else root.with_name("store.repaired"))
    assert kept == ALL[: len(kept)]
    with (
        MessageStore.open(root, CONFIG, read_only=True)
        if in_place
        else MessageStore.open(root.with_name("store.repaired"), CONFIG, read_only=True) as store
    ):
        assert store.max_phy_offset() == bad


def test_files_that_are_shorter_than_the_settings_say_are_not_taken_for_cut(
    root: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\n")
    with unchanged(root):
        done = run(["check", root, "--config", conf, "--repair"])
        assert (done.returncode, done.stdout) == (2, "")
        assert "mappedFileSizeCommitLog=1048576 is a wrong setting" in done.stderr
        assert "damage" not in done.stderr
    assert not root.with_name("store.repaired").exists()


@pytest.mark.parametrize("what", ["*.sst", "MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("length", [0, 20])
def test_a_database_that_is_cut_is_one_finding_and_built_anew(
    tmp_path: Path, what: str, length: int
) -> None:
    root = made(tmp_path / "store", "rocksdb")
    path = cut(
        next((root / "consumequeue").glob(what)), min(length, 5) if what == "CURRENT" else length
    )
    cut(root / "checkpoint", 7)  # which is no damage
    before = tree_digest(root)
    code, rows, notes = checked(root)
    assert code == 1
    assert [row["path"] for row in rows] == [str(path.parent), str(root / "checkpoint")]
    assert "Corruption" in str(rows[0]["problem"])
    assert f"{COUNT} records, 0 units checked; 1 damaged" in notes
    said = json.dumps(rows) + notes
    assert "cqstore-check-" not in said
    assert "cqstore-read-only-" not in said
    code, _, notes = checked(root, "--repair")
    assert code == 0, notes
    assert "rebuild all queues from the log" in notes
    assert tree_digest(root) == before
    assert bodies(root.with_name("store.repaired")) == ALL


def test_a_store_counts_as_crashed_before_it_is_mended_and_once(tmp_path: Path) -> None:
    file, abort = tmp_path / "log", tmp_path / "abort"
    layout = detect(tmp_path, StoreConfig())
    file.write_bytes(b"short")
    clear(layout, FILE_SIZE, [])
    assert not abort.exists()
    obstacle = Obstacle(ObstacleKind.LOG_FILE, "short", file)
    clear(layout, FILE_SIZE, [obstacle])
    assert abort.read_text() == str(os.getpid())
    assert (tmp_path / "abort.bak").read_bytes() == b""
    assert file.read_bytes() == b"short".ljust(FILE_SIZE, b"\0")
    abort.write_bytes(b"17")  # of a process that crashed
    clear(layout, FILE_SIZE, [obstacle])
    assert (abort.read_bytes(), (tmp_path / "abort.bak").read_bytes()) == (b"17", b"")
