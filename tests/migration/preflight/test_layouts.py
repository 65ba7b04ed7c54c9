"""Every kind of folder has a verdict of its own, and is refused before it is opened if it must."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.migration.preflight import Severity, preflight
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import CRASHED, NAMES, each_kind, load_dump
from tests.kit.tree import tree_digest
from tests.migration.preflight.kit import FakeMachine, Golden, codes, the

HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def expected_layout(name: str) -> str:
    if name.endswith("combine"):
        return "file and rocksdb inside consumequeue"
    if name.endswith("-default"):
        return "file"
    beside = name.startswith("separate")
    return f"rocksdb {'beside' if beside else 'inside'} consumequeue"


@pytest.mark.parametrize("name", each_kind(NAMES))
def test_golden_stores_are_told_apart_and_keep_every_byte(golden_folder: Path, name: str) -> None:
    root, dump = golden_folder / name, load_dump(name)
    before = tree_digest(root)
    to = "rocksdb" if "-default" in name and "RocksDB" not in name else "file"
    report = preflight(root, to=to, machine=FakeMachine())
    assert tree_digest(root) == before
    assert report.layout == expected_layout(name)
    refusals = {"needs-recovery"} if name in CRASHED else set()
    if name == "special-default":
        refusals = {"batch-queues"}
    if name == "torn-default":
        refusals |= {"units-outside-log"}
    assert set(codes(report.refusals)) == refusals
    assert report.may_go_on is not bool(refusals)
    assert report.queues == len(dump["queues"])
    assert report.topics == len({queue["topic"] for queue in dump["queues"]})
    if name not in CRASHED:
        messages = [
            sum(unit[5] if len(unit) > 5 else 1 for unit in queue["units"])
            for queue in dump["queues"]
        ]
        assert report.units == sum(messages)


def test_four_layouts_have_four_verdicts(golden: Golden) -> None:
    files, inside = golden("basic-default"), golden("basic-defaultRocksDB")
    beside = golden("separate-defaultRocksDB")
    both = Path(shutil.copytree(inside, inside.with_name("both")))
    shutil.copytree(inside / "consumequeue", both / "consumequeue_rocksdb")
    verdicts = [preflight(root).layout for root in (files, inside, beside, both)]
    assert len(set(verdicts)) == 4
    report = preflight(both)
    assert codes(report.refusals) == ["two-rocksdb-databases"]
    assert report.surveyed is None


def test_a_database_beside_file_queues_is_combined(golden: Golden) -> None:
    root = golden("basic-combine")
    folder, beside = root / "consumequeue", root / "consumequeue_rocksdb"
    beside.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(beside / path.name)
    report = preflight(root, machine=FakeMachine())
    assert report.layout == "file and rocksdb beside consumequeue"
    assert the(report, "already-combined").severity is Severity.WARN


@pytest.mark.parametrize("name", ["basic-default", "separate-defaultRocksDB"])
def test_queues_that_are_there_already_need_no_move(golden_folder: Path, name: str) -> None:
    to = "file" if name == "basic-default" else "rocksdb"
    report = preflight(golden_folder / name, to=to, machine=FakeMachine())
    assert codes(report.refusals) == ["nothing-to-move"]
    assert report.queues == 20


def test_halves_of_a_store_are_refused(golden: Golden, tmp_path: Path) -> None:
    queues_only = golden("propcrc-default")
    shutil.rmtree(queues_only / "commitlog")
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert codes(preflight(queues_only).refusals) == ["queues-without-log"]
    assert codes(preflight(nothing).refusals) == ["not-a-store"]
    assert codes(preflight(tmp_path / "missing").refusals) == ["not-a-store"]
    assert codes(preflight(Path(__file__)).refusals) == ["not-a-store"]
    assert list(nothing.iterdir()) == []
    assert not (tmp_path / "missing").exists()


def test_a_log_without_queues_is_sent_to_the_plan_from_the_log(golden: Golden) -> None:
    root = golden("basic-default")
    shutil.rmtree(root / "consumequeue")
    report = preflight(root)
    assert report.may_go_on
    assert report.surveyed is None
    finding = the(report, "log-without-queues")
    assert finding.severity is Severity.WARN
    assert "plan --from log --to rocksdb" in finding.sentence


def test_stores_of_other_masters_are_refused(golden: Golden) -> None:
    root = golden("basic-default")
    config = StoreConfig.from_mapping({
        "storePathCommitLog": f"{root / 'commitlog'},{root}.more", "duplicationEnable": "true",
    })  # fmt: skip
    report = preflight(root, config, machine=FakeMachine())
    assert codes(report.refusals) == ["not-readable-as-a-store"]
    assert f"mkdir -p {root}.more" in report.refusals[0].sentence
    root.with_name(f"{root.name}.more").mkdir()
    report = preflight(root, config, machine=FakeMachine())
    sentences = " ".join(finding.sentence for finding in report.refusals)
    assert codes(report.refusals) == ["only-readable", "only-readable"]
    assert f"its commit log is in another folder, {root}.more, and storePathRootDir" in sentences
    assert "duplication" in sentences


@pytest.mark.parametrize("epochs", [True, False])
def test_queues_of_a_replica_may_move(golden: Golden, *, epochs: bool) -> None:
    root = golden("basic-default")
    if epochs:
        (root / "epochFileCheckpoint").write_bytes(b"")
    config = StoreConfig() if epochs else StoreConfig.from_mapping({"brokerRole": "SLAVE"})
    assert codes(preflight(root, config, machine=FakeMachine()).refusals) == []


def test_a_log_of_dledger_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    (root / "commitlog").rename(root / "dledger-n0")
    report = preflight(root)
    assert report.layout == "not readable as a store"
    assert "DLedger" in the(report, "not-readable-as-a-store").sentence


def test_a_rebuild_that_was_cut_short_is_refused(golden: Golden) -> None:
    root = golden("basic-default")
    (root / "cqstore").mkdir()
    (root / "cqstore" / "rebuilding").write_bytes(b"")
    assert "unfinished-rebuild" in codes(preflight(root, machine=FakeMachine()).refusals)


def test_a_store_in_use_is_refused_and_not_looked_at(golden: Golden) -> None:
    root = golden("basic-default")
    before = tree_digest(root)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, root / "lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        report = preflight(root)
        assert the(report, "in-use").figures == {"pid": holder.pid}
        assert report.surveyed is None
        assert not report.may_go_on
        holder.stdin.close()
    assert preflight(root, machine=FakeMachine()).may_go_on
    assert tree_digest(root) == before


def test_a_log_that_cannot_be_read_is_one_sentence(golden: Golden) -> None:
    root = golden("basic-default")
    newest = max((root / "commitlog").iterdir())
    newest.rename(newest.with_name("00000000000009999999"))
    assert "cannot-be-opened" in codes(preflight(root, machine=FakeMachine()).refusals)


def test_bytes_behind_the_end_of_a_log_are_told(golden: Golden) -> None:
    root = golden("basic-default")
    last = [path for path in sorted((root / "commitlog").iterdir()) if any(path.read_bytes())][-1]
    with last.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\1")
    report = preflight(root, machine=FakeMachine())
    finding = the(report, "log-tail")
    assert finding.severity is Severity.WARN
    end = load_dump("basic-default")["messages"][-1]
    assert finding.figures["logEnd"] == end["phy"] + end["storeSize"]


def test_a_database_among_folders_of_topics_is_told_to_those_who_make_them(golden: Golden) -> None:
    inside, beside = golden("basic-defaultRocksDB"), golden("separate-defaultRocksDB")
    shared = "shared-folder"
    assert the(preflight(inside, to="file", machine=FakeMachine()), shared).severity == "info"
    assert preflight(inside, to="rocksdb", machine=FakeMachine()).find(shared) is None
    assert preflight(beside, to="file", machine=FakeMachine()).find(shared) is None


def test_a_lock_that_cannot_be_asked_is_a_warning(golden: Golden) -> None:
    root = golden("basic-default")
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()
    report = preflight(root, machine=FakeMachine())
    assert the(report, "lock-unknown").severity is Severity.WARN
    assert report.find("in-use") is None


@pytest.mark.parametrize("queues", [True, False])
def test_foreign_files_of_the_log_forbid_a_move(golden: Golden, *, queues: bool) -> None:
    root = golden("basic-default")
    assert preflight(root, machine=FakeMachine()).find("foreign-files") is None
    if not queues:
        shutil.rmtree(root / "consumequeue")
    paths = [root / "commitlog" / name for name in (".DS_Store", ".nfs01", "foo~")]
    for path in paths:
        path.write_bytes(b"x")
    (root / "commitlog" / "a folder").mkdir()  # a broker passes over it
    before = tree_digest(root)
    report = preflight(root, machine=FakeMachine())
    finding = the(report, "foreign-files")
    assert finding.severity is Severity.REFUSE
    assert finding.where == str(root / "commitlog")
    assert [each.name for each in finding.affected] == [str(path) for path in paths]
    assert finding.affected_total == 3
    assert tree_digest(root) == before
