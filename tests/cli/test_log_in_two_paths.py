"""A log in two folders outside of the store: every verb takes them from the broker's file."""

import json
import shutil
from pathlib import Path

import pytest

from cqstore.store.files import file_name
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import cqstore
from tests.kit.migrations import NO_SPARK
from tests.kit.tree import tree_digest, unchanged

FILE = 65536
SIZES = {
    "mappedFileSizeCommitLog": FILE, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50,
    "maxIndexNum": 100,
}  # fmt: skip
COUNT = 900
ALONE = ["--master", NO_SPARK]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    given = {
        **SIZES, "storePathRootDir": tmp_path / "s",
        "storePathCommitLog": f"{tmp_path}/d1/log,{tmp_path}/d2/log",
    }  # fmt: skip
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return path


def made(tmp_path: Path, backend: str) -> Path:
    root = tmp_path / "s"
    config = StoreConfig.from_mapping({
        **SIZES, "storePathRootDir": str(root),
        "storePathCommitLog": f"{tmp_path}/d1/log,{tmp_path}/d2/log",
    })  # fmt: skip
    with MessageStore.open(root, config, backend=backend) as store:
        for number in range(COUNT):
            assert store.put_message(Message("t", b"x" * 300, number % 3, {"KEYS": "k"})).ok
    return root


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(tmp_path, request.param)


def test_reading_verbs_take_the_folders_of_the_file_and_change_nothing(
    root: Path, conf: Path, tmp_path: Path
) -> None:
    before = tree_digest(tmp_path)
    found = json.loads(cqstore("info", root, "--config", conf, "--output", "json").stdout)
    assert found["commit_log_folders"] == [f"{tmp_path}/d1/log", f"{tmp_path}/d2/log"]
    assert found["warnings"] == []
    assert found["commit_log_files"] > 4
    counted = f"{COUNT} records, {COUNT} units checked; 0 damaged\n"
    assert cqstore("check", root, "--config", conf).stderr == f"cqstore: {counted}"
    both = f"{tmp_path}/d1/log,{tmp_path}/d2/log"
    assert cqstore("check", root, "--commitlog", both).stderr == f"cqstore: {counted}"
    for verb, *words in (("usage",), ("topics",), ("query", "--topic", "t", "--key", "k")):
        cqstore(verb, root, *words, "--config", conf)
    assert tree_digest(tmp_path) == before


def test_a_backup_has_the_log_in_one_folder(root: Path, conf: Path, tmp_path: Path) -> None:
    cqstore("backup", root, tmp_path / "to", "--config", conf)
    whole = [path for name in ("d1", "d2") for path in log_file_paths([tmp_path / name / "log"])]
    copied = log_file_paths([tmp_path / "to" / "commitlog"])
    assert [path.name for path in copied] == sorted(path.name for path in whole)
    reported = cqstore("check", tmp_path / "to").stderr
    assert f"{COUNT} records, {COUNT} units checked; 0 damaged" in reported
    cqstore("recover", tmp_path / "to")


def test_writing_verbs_need_the_file(root: Path, conf: Path, tmp_path: Path) -> None:
    with unchanged(tmp_path):
        for words in (("recover",), ("put", "--topic", "t", "--body", "b"), ("rebuild",)):
            refused = cqstore(words[0], root, *words[1:], code=2).stderr
            assert "which the settings do not name" in refused
    cqstore("put", root, "--topic", "t", "--body", "b", "--config", conf)
    cqstore("recover", root, "--config", conf)
    cqstore("rebuild", root, "--config", conf)
    assert f"{COUNT + 1} units" in cqstore("check", root, "--config", conf).stderr


def test_the_settings_of_the_original_do_not_write_to_its_log(
    root: Path, conf: Path, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "copy")
    before = [tree_digest(tmp_path / name) for name in ("d1", "d2", "s")]
    refused = cqstore("recover", tmp_path / "copy", "--config", conf, code=2).stderr
    assert f"and storePathRootDir is {tmp_path}/s" in refused
    assert [tree_digest(tmp_path / name) for name in ("d1", "d2", "s")] == before


def cut_short(tmp_path: Path) -> Path:
    path = tmp_path / "d2" / "log" / file_name(FILE)
    with path.open("r+b") as file:
        file.truncate(FILE - 5000)
    return path


def test_a_truncated_file_is_mended_in_a_copy_with_its_own_log(
    root: Path, conf: Path, tmp_path: Path
) -> None:
    path = cut_short(tmp_path)
    before = [tree_digest(tmp_path / name) for name in ("d1", "d2", "s")]
    found = cqstore("check", root, "--config", conf, "--output", "json", code=1)
    assert str(path) in found.stdout
    done = cqstore("check", root, "--repair", "--cut-at", cut_at(root, conf), "--config", conf)
    assert f"{path}: extend the file with zeros" in done.stderr
    assert [tree_digest(tmp_path / name) for name in ("d1", "d2", "s")] == before
    copy = tmp_path / "s.repaired"
    assert log_file_paths([copy / "commitlog"])
    assert "0 damaged" in cqstore("check", copy).stderr


def test_a_truncated_file_is_mended_in_place(root: Path, conf: Path, tmp_path: Path) -> None:
    path = cut_short(tmp_path)
    words = ("--repair", "--in-place", "--cut-at", cut_at(root, conf), "--config", conf)
    cqstore("check", root, *words)
    assert path.stat().st_size == FILE
    assert "0 damaged" in cqstore("check", root, "--config", conf).stderr


def cut_at(root: Path, conf: Path) -> str:
    """Return the phy offset that a repair asks for."""
    asked = cqstore("check", root, "--repair", "--config", conf, code=2).stderr
    return asked.rpartition("--cut-at ")[2].split()[0].strip(").,;")


def test_queues_are_moved_and_the_log_stays(conf: Path, tmp_path: Path) -> None:
    root = made(tmp_path, "file")
    logs = [tree_digest(tmp_path / name) for name in ("d1", "d2")]
    cqstore("migrate", "plan", root, "--to", "rocksdb", "--config", conf)
    cqstore("migrate", "run", root, *ALONE)
    cqstore("migrate", "verify", root, "--config", conf, *ALONE)
    assert "do not name" in cqstore("migrate", "switch", root, code=2).stderr
    cqstore("migrate", "switch", root, "--config", conf)
    assert [tree_digest(tmp_path / name) for name in ("d1", "d2")] == logs
    assert f"{COUNT} units" in cqstore("check", root, "--config", conf).stderr
    cqstore("migrate", "rollback", root, "--config", conf)
    assert f"{COUNT} units" in cqstore("check", root, "--config", conf).stderr


def test_queues_are_built_from_such_a_log(conf: Path, tmp_path: Path) -> None:
    root = made(tmp_path, "file")
    (root / "consumequeue").rename(tmp_path / "former")
    cqstore("migrate", "plan", root, "--from", "log", "--to", "rocksdb", "--config", conf, *ALONE)
    cqstore("migrate", "run", root, *ALONE)
    cqstore("migrate", "verify", root, "--config", conf, *ALONE)
    cqstore("migrate", "switch", root, "--config", conf)
    assert f"{COUNT} units" in cqstore("check", root, "--config", conf).stderr
