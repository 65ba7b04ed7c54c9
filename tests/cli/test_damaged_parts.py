"""Damage in queues and index: a check lists it with its place and goes on, the advice mends it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.command_page import PAGE
from tests.kit.commands import COMMAND, run
from tests.kit.engines import ENGINES
from tests.kit.tree import unchanged

COUNT, TOPICS, FILE_SIZE = 30, 3, 2000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=FILE_SIZE,
    max_hash_slot_num=50, max_index_num=1000, rocksdb_memory_bytes=16 << 20,
)  # fmt: skip
REBUILD = "cqstore rebuild creates new queues from the commit log"
REBUILD_INDEX = "run cqstore rebuild --index to rebuild the index from the commit log"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store of either backend."""
    folder = tmp_path_factory.mktemp("made")
    for backend in ("file", "rocksdb"):
        with MessageStore.open(folder / backend, CONFIG, backend=backend) as store:
            for number in range(COUNT):
                message = Message(f"t{number % TOPICS}", b"x" * 50, 0, {"KEYS": f"k{number}"})
                assert store.put_message(message).ok
    return folder


@pytest.fixture
def files(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "file", tmp_path / "files"))


@pytest.fixture
def database(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "rocksdb", tmp_path / "database"))


def checked(root: Path, *words: object, damaged: bool = True) -> list[dict[str, object]]:
    """Return the findings of a check that changes no byte and has seen the whole log."""
    with unchanged(root):
        done = run(["check", root, "--output", "json", *words])
        assert (done.returncode, "Traceback" in done.stderr) == (int(damaged), False), done.stderr
        assert f"{COUNT} records, " in done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def spoil_record(root: Path, number: int = 5) -> int:
    """Spoil a record of the log, the sixth if not said; return where it starts."""
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        at = [record.phy_offset for record in components_of(store).log.scan(0)][number]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(at + 4)
        log.write(b"\xff" * 20)
    return at


def of(finding: dict[str, object], *names: str) -> tuple[object, ...]:
    return tuple(finding[name] for name in names)


# ---- a block of RocksDB


def flip(root: Path, family: Family) -> Path:
    """Flip a bit of the first block of the table of ``family``; return the table."""
    holds = {
        path: queue_prefix("t0", 0)[:-1] in path.read_bytes()
        for path in (root / "consumequeue").glob("*.sst")
    }
    (path,) = [path for path, units in holds.items() if units == (family is Family.DEFAULT)]
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("family", "engine"),
    [(Family.OFFSET, ENGINES[-1]), *[(Family.DEFAULT, one) for one in ENGINES]],
)
def test_a_block_that_cannot_be_read_is_found_and_the_log_is_checked_all_the_same(
    database: Path, tmp_path: Path, family: Family, engine: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"rocksdbEngine={engine}\n")
    table = flip(database, family)
    first, *rest = checked(database, "--config", conf)
    assert of(first, "severity", "path", "position") == ("damage", str(table), 0)
    assert "Corruption: block checksum mismatch" in str(first["problem"])
    assert REBUILD in str(first["problem"])
    assert {str(one["topic"]) for one in rest} == (
        {f"t{number}" for number in range(TOPICS)} if family is Family.DEFAULT else set()
    )
    done = run(["recover", database, "--config", conf])
    assert (done.returncode, REBUILD in done.stderr) == (1, True)
    assert str(table) in done.stderr


@pytest.mark.parametrize("family", list(Family))
def test_a_rebuild_mends_it_and_so_does_a_repair(database: Path, family: Family) -> None:
    flip(database, family)
    assert run(["check", database, "--repair"]).returncode == 0
    assert checked(database.with_name("database.repaired"), damaged=False) == []
    assert run(["rebuild", database]).returncode == 0
    assert checked(database, damaged=False) == []
    assert run(["recover", database]).returncode == 0


def test_what_else_is_wrong_beside_such_a_block_is_found_too(database: Path) -> None:
    at, table = spoil_record(database), flip(database, Family.OFFSET)
    (index,) = (database / "index").iterdir()
    os.truncate(index, 555)
    with unchanged(database):
        done = run(["check", database, "--output", "json"])
        found = [of(row, "severity", "path", "position") for row in json.loads(done.stdout)]
        log = database / "commitlog" / f"{0:020d}"
        places = [(table, 0), (log, at), (index, 555)]
        assert found == [("damage", str(path), position) for path, position in places]
        assert f"{COUNT - 1} records" in done.stderr


def test_a_damaged_first_record_is_damage_where_no_queue_can_be_read(database: Path) -> None:
    """Nothing tells that the log went on but the valid records behind: no mark, no checkpoint."""
    spoil_record(database, 0)
    (database / "cqstore" / "synced").unlink()
    (database / "checkpoint").unlink()
    (database / "consumequeue" / "CURRENT").write_text("?")
    done = run(["check", database, "--output", "json"])
    found = [of(row, "severity", "path", "phyOffset") for row in json.loads(done.stdout)]
    assert found[:2] == [
        ("damage", str(database / "consumequeue"), None),
        ("damage", str(database / "commitlog" / f"{0:020d}"), 0),
    ]
    assert f"{COUNT - 1} records, 0 units checked" in done.stderr
    shutil.rmtree(database / "consumequeue")
    done = run(["recover", database])
    assert (done.returncode, "a valid record follows at " in done.stderr) == (2, True)
    assert not (database / "cqstore" / "cut").exists()


# ---- files of queues


def queue_file(root: Path, topic: str) -> Path:
    return root / "consumequeue" / topic / "0" / f"{0:020d}"


@pytest.mark.parametrize(("cut", "known"), [(1, True), (2, False), (3, False)])
def test_queue_files_that_were_cut_short_are_found_and_the_others_are_checked(
    files: Path, cut: int, *, known: bool
) -> None:
    """Where a clean stop has not written down what there was, most sizes could be the right one."""
    if not known:
        (files / "cqstore" / "file-queue-ends.npz").unlink()
    paths = [queue_file(files, f"t{number}") for number in range(cut)]
    for path in paths:
        os.truncate(path, 1003)
    found = checked(files)
    sizes = [of(one, "path", "position", "found") for one in found if one["found"]]
    assert sizes == [(str(path), 1003, 1003) for path in paths]
    whole = "a multiple of 20 bytes" if cut == TOPICS and not known else FILE_SIZE
    assert {one["expected"] for one in found if one["found"]} == {whole}
    assert {one["topic"] for one in found if one["topic"]} == {f"t{at}" for at in range(cut)}
    if cut == 2:
        assert run(["check", files, "--repair", "--in-place"]).returncode == 0
    elif cut == 3:
        assert run(["rebuild", files]).returncode == 0
    else:  # the others, and what a clean stop knew, tell what is missing
        assert run(["recover", files]).returncode == 0
    assert checked(files, damaged=False) == []


def test_files_that_are_smaller_than_the_settings_say_are_not_taken_for_cut(
    files: Path, tmp_path: Path
) -> None:
    (tmp_path / "broker.conf").write_text(f"mappedFileSizeConsumeQueue={2 * FILE_SIZE}\n")
    done = run(["check", files, "--config", tmp_path / "broker.conf", "--repair"])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"mappedFileSizeConsumeQueue={2 * FILE_SIZE} is a wrong setting" in done.stderr
    assert f"queue files here have {FILE_SIZE} bytes" in done.stderr
    assert "damage" not in done.stderr
    assert not files.with_name("files.repaired").exists()


def test_a_damaged_unit_has_its_file_and_position(files: Path) -> None:
    path = queue_file(files, "t1")
    data = bytearray(path.read_bytes())
    data[5 * 20 : 5 * 20 + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    found = checked(files)
    assert [of(one, "path", "position", "key", "queueOffset") for one in found] == [
        (str(path), 5 * 20, None, 5), (str(path), 6 * 20, None, 6),
    ]  # fmt: skip
    assert f"{path}  {5 * 20}" in run(["check", files]).stdout


def test_a_missing_unit_of_rocksdb_has_its_key(database: Path) -> None:
    prefix = queue_prefix("t1", 0)
    with MessageStore.open(database) as store:
        queues = components_of(store).queues
        assert isinstance(queues, RocksDBConsumeQueueStore)
        span = (Family.DEFAULT, unit_key(prefix, 4), unit_key(prefix, 6))
        queues.engine.write(EngineBatch(delete_ranges=[span]))
    found = checked(database)
    assert {of(one, "path", "position", "key", "queueOffset") for one in found} == {
        (str(database / "consumequeue"), None, unit_key(prefix, 4).hex(), 4)
    }


# ---- the index


@pytest.mark.parametrize("size", [30, 555])
def test_a_cut_index_file_is_damage_and_has_one_advice_that_mends_it(
    files: Path, size: int
) -> None:
    (path,) = (files / "index").iterdir()
    os.truncate(path, size)
    (found,) = checked(files)
    assert of(found, "path", "position", "found") == (str(path), size, f"{size} bytes")
    assert str(found["problem"]).endswith(REBUILD_INDEX)
    requested = run(["query", files, "--topic", "t0", "--key", "k0"])
    assert (requested.returncode, REBUILD_INDEX in requested.stderr) == (1, True)
    printed_output = json.loads(run(["info", files, "--output", "json"]).stdout)
    assert [REBUILD_INDEX in one for one in printed_output["warnings"]] == [True]
    fault = f"the index file is truncated ({path}, position {size}): expected "
    assert (printed_output["index_files"], str(printed_output["index_fault"])[: len(fault)]) == (
        None,
        fault,
    )
    shown = "".join(run(["info", files]).stdout.split())
    assert "indexfilescannotberead:seewarnings" in shown
    assert f"warnings the index cannot be read: {fault}".replace(" ", "") in shown
    assert run(["rebuild", files, "--index"]).returncode == 0
    assert checked(files, damaged=False) == []
    assert run(["query", files, "--topic", "t0", "--key", "k0"]).returncode == 0


def test_an_index_file_that_is_left_out_is_told_by_who_asks_the_others(files: Path) -> None:
    (path,) = (files / "index").iterdir()
    cut = Path(shutil.copy(path, path.with_name(f"{int(path.name) - 1}")))
    os.truncate(cut, 555)
    (found,) = checked(files)
    assert of(found, "path", "position") == (str(cut), 555)
    requested = run(["query", files, "--topic", "t0", "--key", "k0"])
    assert (requested.returncode, requested.stdout.count("\n")) == (1, 1)
    assert f"{REBUILD_INDEX} ({cut})" in requested.stderr
    assert REBUILD_INDEX in run(["info", files]).stdout.replace("\n", " ").replace("  ", "")


# ---- how recover ends


def test_recover_ends_as_its_page_says(files: Path, database: Path) -> None:
    """0: whole now; 1: damaged and not mended; 2: refused, nothing is changed."""
    (files / "abort").touch()
    assert run(["recover", files]).returncode == 0
    mode = files / "cqstore" / "mode"
    mode.write_text("none of ours\n")
    assert run(["recover", files]).returncode == 1
    mode.unlink()
    flip(database, Family.DEFAULT)
    assert run(["recover", database]).returncode == 1
    at = spoil_record(files)
    (files / "abort").touch()
    done = run(["recover", files])
    assert (done.returncode, f"--cut-at {at}" in done.stderr) == (2, True)
    assert run(["recover", files, "--pass-over", at]).returncode == 0
    assert run(["recover", files.with_name("none")]).returncode == 2
    page = " ".join(PAGE.read_text(encoding="utf-8").partition("## cqstore recover")[2].split())
    said = [
        "The exit code is 0 if the store is sound, and 1 if damage remains",
        "It is 2 if recovery is refused, for example because the log is damaged",
    ]
    assert all(sentence in page for sentence in said)


# ---- where the copy goes


@pytest.mark.parametrize(("where", "named"), [("", "."), ("config", "..")])
def test_a_store_that_is_named_from_inside_is_mended_beside_it(
    files: Path, where: str, named: str
) -> None:
    """A queue file that was cut is an obstacle: what is behind it is checked elsewhere."""
    (files / "config").mkdir()
    os.truncate(files / "consumequeue" / "t0" / "0" / f"{0:020d}", 1999)
    with unchanged(files):
        done = run(["check", named, "--repair"], cwd=files / where)
        assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in files.parent.iterdir()) == ["files", "files.repaired"]
    assert checked(files.with_name("files.repaired"), damaged=False) == []


def test_a_copy_that_cannot_be_made_is_refused_before_the_check(files: Path) -> None:
    os.truncate(files / "checkpoint", 7)
    for place, why in {
        files / "copy": "would be inside the store itself",
        files / "index" / "copy": "would be inside the store itself",
        files.with_name("none") / "copy": "the parent folder of the copy does not exist",
        files: "already exists",
    }.items():
        done = run(["check", files, "--repair", "--copy-to", place])
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{why} ({place})" in done.stderr
    assert sorted(path.name for path in files.parent.iterdir()) == ["files"]


def test_a_folder_that_is_gone_is_said_to_be(files: Path) -> None:
    (gone := files.with_name("gone")).mkdir()
    words = f"cd {gone} && rmdir {gone} && exec {COMMAND[0]} check ."
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert done.stderr == "cqstore: the current folder no longer exists\n"
    assert done.returncode == 2
