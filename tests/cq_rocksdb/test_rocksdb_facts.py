"""What ``cqstore rocksdb`` tells of a database: against what lies in its folder and was put in."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from cqstore.cli.output import OutputFormat
from cqstore.cq_rocksdb.commands.audit import audit
from cqstore.cq_rocksdb.commands.compact import compact
from cqstore.cq_rocksdb.commands.stats import stats
from cqstore.cq_rocksdb.engine.compaction import CompactionRun
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.keys import max_key, queue_prefix, unit_key
from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.engines import ENGINES, engine_in_use, hold_compactions, using
from tests.kit.golden import load_dump
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of, put

Printed = tuple[list[dict[str, object]], str]
Facts = dict[tuple[str, str], object]
CONFIG = StoreConfig(mapped_file_size_commit_log=65536)
NAME = "basic-defaultRocksDB"


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Printed]:
    """Run a command here; return its rows and its notes."""

    def run(command: Callable[..., None], root: Path, *words: object) -> Printed:
        config = tmp_path / "conf"
        config.write_text(f"rocksdbEngine={engine_in_use().value}\n")
        command(root, *words, config, OutputFormat.JSONL)
        printed, notes = capsys.readouterr()
        return [json.loads(line) for line in printed.splitlines()], notes

    return run


def facts(reported: Printed) -> Facts:
    return {(str(row["part"]), str(row["fact"])): row["value"] for row in reported[0]}


def made(root: Path, change: Callable[[RocksEngine], None] | None = None) -> None:
    """Make a store of two queues of six units, and change its database behind its back."""
    with MessageStore.open(root, CONFIG, backend="rocksdb") as store:
        for topic in ("t", "u"):
            for _ in range(6):
                assert store.put_message(Message(topic, b"x")).ok
    if change is not None:
        queues = RocksDBQueues(root).open()
        change(engine_of(queues))
        queues.close()


def lost(engine: RocksEngine) -> None:
    """Units 2 and 3 of ``t``, and the end of ``u``."""
    bounds = unit_key(queue_prefix("t", 0), 2), unit_key(queue_prefix("t", 0), 4)
    end = Family.OFFSET, max_key(queue_prefix("u", 0))
    engine.write(EngineBatch(delete_ranges=[(Family.DEFAULT, *bounds)], deletes=[end]))


def test_an_audit_lists_damage_row_by_row_and_ends_with_1(
    report: Callable[..., Printed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "store")
    rows, notes = report(audit, tmp_path / "store")
    assert rows == []
    assert "2 queues, 12 units; 0 units below" in notes
    assert "; 0 errors" in notes
    made(tmp_path / "damaged", lost)
    with pytest.raises(typer.Exit) as ended:
        report(audit, tmp_path / "damaged")
    assert ended.value.exit_code == 1
    printed, notes = capsys.readouterr()
    folder = str(tmp_path / "damaged" / "consumequeue")
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"severity": "damage", "problem": "units 2 to 3 are missing", "path": folder,
         "keyText": "t/0/2", "expected": "unit 2", "found": "unit 4", "topic": "t", "queueId": 0,
         "queueOffset": 2, "queues": None, "units": None},
        {"severity": "damage", "problem": "the queue has units but no max entry", "path": folder,
         "keyText": "u/0 max", "expected": "a max entry", "found": "none", "topic": "u",
         "queueId": 0, "queueOffset": None, "queues": None, "units": None},
    ]  # fmt: skip
    assert "1 queues, 10 units; 0 units below" in notes
    assert "; 2 errors" in notes


def test_by_a_file_that_is_no_table_of_topics_no_topic_is_an_orphan(
    report: Callable[..., Printed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    made(root)
    table = root / "config" / "topics.json"
    table.parent.mkdir(exist_ok=True)
    table.write_text('{"topicConfigTable": {"t": {}, "nobodys": {}}}')
    assert [row["topic"] for row in report(audit, root)[0]] == ["u"]
    table.write_text("{}")  # to a broker an empty table
    assert [row["topic"] for row in report(audit, root)[0]] == ["t", "u"]
    for broken in ("[]", "{", '{"topicConfigTable": 5}', "\xff", None):
        if broken is None:
            table.unlink()
            table.mkdir()
        else:
            table.write_text(broken, encoding="latin-1")
        with pytest.raises(StoreError, match="cannot be read from the form json") as caught:
            report(audit, root)
        assert caught.value.path == table
        assert not capsys.readouterr().out


@pytest.mark.parametrize("engine", ENGINES)
def test_stats_sum_up_the_tables_of_each_level(
    golden: Callable[[str], Path], report: Callable[..., Printed], engine: object
) -> None:
    root, dump = golden(NAME), load_dump(NAME)
    (raw,) = [raw for path, raw in dump["rocksdbRaw"].items() if path.startswith("consume")]
    own = [path.stat() for path in (root / "consumequeue").iterdir() if path.is_file()]
    tables = [path.stat().st_size for path in (root / "consumequeue").glob("*.sst")]
    with using(engine):  # type: ignore[arg-type] # of the kit's list
        reported = facts(report(stats, root, 0))
        native = engine_in_use().value == "native"
    levels = {key: value for key, value in reported.items() if ", level " in key[0]}
    families = {part.partition(",")[0] for part, _ in levels}
    assert families == ({"default", "offset"} if native else {"both"})
    sums = {
        name: sum(int(str(value)) for (_, fact), value in levels.items() if fact == name)
        for name in ("tables", "bytes", "entries", "tombstones")
    }
    assert len(levels) == 4 * len({part for part, _ in levels})
    assert (sums["tables"], sums["bytes"]) == (len(tables), sum(tables))
    assert sums["entries"] >= sum(map(len, raw.values()))
    if native:
        for family, rows in raw.items():
            there = [value for (part, fact), value in levels.items()
                     if part.startswith(family) and fact == "entries"]  # fmt: skip
            assert sum(int(str(value)) for value in there) >= len(rows)
    assert reported["database", "on disk, bytes"] == sum(each.st_blocks for each in own) * 512
    assert 0 < int(str(reported["database", "block cache in use, bytes"])) < 16 << 20
    assert reported["default", "background errors"] == reported["offset", "background errors"] == 0
    assert reported["default", "keys (estimate)"] == len(raw["default"])
    assert not [part for part, _ in reported if part.startswith("topic")]


def test_tombstones_are_counted_apart(report: Callable[..., Printed], tmp_path: Path) -> None:
    def delete(engine: RocksEngine) -> None:
        hold_compactions(engine)  # else one may take the tombstones away
        lost(engine)

    made(tmp_path / "store", delete)
    reported = facts(report(stats, tmp_path / "store", 0))
    counted = {part: value for (part, fact), value in reported.items() if fact == "tombstones"}
    there = {part: value for part, value in counted.items() if value}
    assert there == {"default, level 0": 1, "offset, level 0": 1}
    wanted = Counter[tuple[str, str]]()
    queues = RocksDBQueues(tmp_path / "store").open(read_only=True)
    for file in engine_of(queues).live_files():
        assert file.family is not None
        part = f"{file.family}, level {file.level}"
        sums = {"tables": 1, "bytes": file.size_bytes, "entries": file.entries}
        for fact, value in (sums | {"tombstones": file.deletions}).items():
            wanted[part, fact] += value
    queues.close()
    assert {key: value for key, value in reported.items() if ", level " in key[0]} == wanted


def test_the_largest_of_many_topics_are_found(
    report: Callable[..., Printed], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    made(root)
    counts = {"a": 300, "b": 9_000, "c": 200, "d": 4_000, "e": 100, "f": 2_000, "g": 6_000}
    queues = RocksDBQueues(root).open()
    for topic, count in counts.items():
        put(queues, topic, 0, range(count), 0, end=0)
    queues.close()
    for most, wanted in ((1, ["b"]), (2, ["b", "g"]), (3, ["b", "g", "d"])):
        rows, _ = report(stats, root, most)
        found = [row["part"] for row in rows if row["fact"] == "bytes in tables (estimate)"]
        assert found == [f"topic {topic}" for topic in wanted]
    with using(ENGINES[0]):
        assert engine_in_use().value == "rocksdict"
        rows, notes = report(stats, root, 2)
    assert notes.count("does not report topic sizes") == 1
    assert not [row for row in rows if "topic" in str(row["part"])]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_compaction_tells_what_it_has_made_of_the_folder(
    report: Callable[..., Printed], tmp_path: Path, engine: object
) -> None:
    root = tmp_path / "store"
    made(root, lost)
    folder = root / "consumequeue"
    with using(engine):  # type: ignore[arg-type] # of the kit's list
        ((reported,), _) = report(compact, root)
        native = engine_in_use().value == "native"
    assert reported["ended"] == "done"
    assert reported["droppedUnits"] == (0 if native else None)
    assert int(str(reported["bytesBefore"])) > 0
    assert int(str(reported["bytesAfter"])) > 0
    assert sum(path.stat().st_size for path in folder.glob("*.sst")) > 0
    after = facts(report(stats, root, 0))
    assert not [part for part, _ in after if part.endswith(", level 0")]
    assert sum(int(str(value)) for (_, fact), value in after.items() if fact == "tombstones") == 0


def test_a_compaction_that_is_interrupted_is_cancelled_and_one_that_fails_says_so(
    report: Callable[..., Printed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "store"
    made(root)
    waits: list[object] = []
    real = CompactionRun.wait

    def interrupted(run: CompactionRun, timeout: float | None = None) -> bool:
        waits.append(timeout)
        if len(waits) == 1:
            raise KeyboardInterrupt
        return real(run, timeout)

    with monkeypatch.context() as patched:
        patched.setattr(CompactionRun, "wait", interrupted)
        patched.setattr(CompactionRun, "is_running", True)
        with using(ENGINES[0]), pytest.raises(typer.Exit) as ended:
            report(compact, root)
    assert ended.value.exit_code == 1
    printed, notes = capsys.readouterr()
    assert json.loads(printed)["ended"] == "cancelled"
    assert "cannot cancel a compaction" in notes
    assert waits[:2] == [0.2, None]
    for path in (root / "consumequeue").glob("*.sst"):
        with path.open("r+b") as file:
            file.seek(20)
            file.write(b"\xa5" * 16)
    with pytest.raises(StoreError, match="Corruption"):
        report(compact, root)
