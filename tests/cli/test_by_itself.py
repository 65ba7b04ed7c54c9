"""What verbs do and say unasked: no old file goes, and what is odd about a store is told."""

import json
import struct
import threading
from pathlib import Path

import pytest

from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.double_write import StoredOffsets, open_store
from tests.kit.verbs import call, rows

CONFIG = StoreConfig(mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", CONFIG, backend="file", housekeeping=False) as store:
        for number in range(50):
            assert store.put_message(Message("t", b"x" * 500, number % 3)).ok
    return tmp_path / "s"


def spoil_queue(root: Path) -> None:
    (root / "consumequeue" / "t" / "1" / f"{0:020d}").write_bytes(bytes(range(200)) * 2)


def spoil_log(root: Path) -> int:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        at = [record.phy_offset for record in components_of(store).log.scan(0)][-1]
    with max((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(at % 16384)
        file.write(b"\xff" * 4)
    return at


def record_starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of threads, as they are started from now on."""
    started: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return started


def test_a_long_queue_is_dumped_to_its_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqstore.cli.message_files.dump_rows._UNITS", 4)
    units = rows("dump", root, "--topic", "t", "--queue-id", 1, "--count", 100)
    assert [unit["queueOffset"] for unit in units] == list(range(17))


@pytest.mark.parametrize(
    ("verb", "more"),
    [("recover", ""), ("rebuild", ""), ("rebuild", "--topic t")],
)
def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path, verb: str, more: str) -> None:
    reported = call(*verb.split(), tmp_path / "none", *more.split())
    assert reported.exit_code != 0
    assert "no such folder" in f"{reported.output}{reported.exception}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_verb_starts_what_deletes_old_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = record_starts(monkeypatch)
    for words in (
        ["put", root, "--topic", "t", "--body", "b"],
        ["recover", root],
        ["rebuild", root],
    ):
        assert call(*words).exit_code == 0
    with open_store(both := root.with_name("both")) as store:
        StoredOffsets().put(store, 5)
    assert call("mode", both, "--verify").exit_code == 0
    assert call("mode", both, "--to", "file").exit_code == 0
    assert "cqstore-expiry" not in started
    MessageStore.open(root).close()
    assert "cqstore-expiry" in started


def test_a_repair_starts_it_neither(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_queue(root)
    started = record_starts(monkeypatch)
    assert call("check", root, "--repair", "--in-place").exit_code == 0
    assert started
    assert "cqstore-expiry" not in started
    assert call("check", root).exit_code == 0


def test_a_rebuild_tells_what_it_has_built(root: Path) -> None:
    (one,) = rows("rebuild", root, "--topic", "t", "--queue-id", 1)
    assert one == {"backend": "file", "topic": "t", "queues": 1, "units": 17}
    assert not (root / "cqstore" / "replaced").exists()
    done = call("rebuild", root, "--output", "json")
    whole = {"backend": "file", "scannedRecords": 50, "units": 50}
    assert json.loads(done.stdout) == whole
    before = root / "cqstore" / "replaced"
    assert f"the previous files are in {before}; remove them" in done.stderr


def test_a_damaged_log_is_said_by_every_look(root: Path) -> None:
    at = spoil_log(root)
    for verb in ("info", "topics"):
        done = call(verb, root)
        assert f"cqstore: {root}: the log is damaged: " in done.stderr
        assert f"phy_offset {at}" in done.stderr
        assert "needs recovery" not in done.stderr


def test_queues_that_were_written_to_after_they_were_left_are_told(tmp_path: Path) -> None:
    """As a broker does that is started with the storeType of before: its checkpoint tells."""
    root = tmp_path / "s"
    with open_store(root) as store:
        StoredOffsets().put(store, 20)
        line = store.max_phy_offset()
    for state in ("double-write-rocksdb", "rocksdb"):
        assert call("mode", root, "--to", state).exit_code == 0
    checkpoint = root / "checkpoint"
    place = StoreCheckpoint(checkpoint).fields._fields.index("logics_phy_offset") * 8
    for end in (line, line + 1):
        data = bytearray(checkpoint.read_bytes())
        struct.pack_into(">q", data, place, end)
        checkpoint.write_bytes(data)
        (facts,) = rows("info", root)
        left = f"the file queues are left behind: complete up to phy offset {line}"
        assert left in facts["warnings"]
        said = (
            f"the file queues, left behind at phy offset {line}, were written afterwards, up to at"
            f" least {end}"
        )
        assert any(each.startswith(said) for each in facts["warnings"]) is (end > line)
        assert (
            "from which they are dispatched to the rocksdb queues" in str(facts["warnings"])
        ) is (end > line)


def test_queues_that_were_left_need_not_be_readable(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with open_store(root) as store:
        StoredOffsets().put(store, 20)
    assert call("mode", root, "--to", "file").exit_code == 0
    (current,) = root.glob("consumequeue*/CURRENT")
    current.write_bytes(b"MANIFEST-999999\n")
    (facts,) = rows("info", root)
    assert "written afterwards" not in str(facts["warnings"])
    with MessageStore.open(root, housekeeping=False) as store:
        assert store.report.written_since == {}
        assert store.put_message(Message("t", b"x")).ok


def test_double_write_tells_what_a_backend_gets_only(tmp_path: Path) -> None:
    with open_store(tmp_path / "s") as store:
        StoredOffsets().put(store, 5)
    assert not [fact for fact in rows("info", tmp_path / "s")[0] if "gets only" in fact]
