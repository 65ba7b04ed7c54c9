"""``cqstore backup`` and ``check --against``: what they say and how they end."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(mapped_file_size_commit_log=65536)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return commands.run(words)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        assert store.put_message(Message("t", b"body")).ok
    return tmp_path / "s"


def test_a_backup_is_made_and_proved(root: Path, tmp_path: Path) -> None:
    before = tree_digest(root)
    done = run("backup", root, tmp_path / "to")
    assert (done.returncode, done.stdout) == (0, "")
    manifest = tmp_path / "to" / "cqstore" / "backup.json"
    assert "log 0 to " in done.stderr
    assert str(manifest) in done.stderr
    assert "after a crash" not in done.stderr
    files = [path for path in (tmp_path / "to").rglob("*") if path.is_file()]
    on_disk = sum(path.stat().st_blocks * 512 for path in files)
    assert f"{len(files) - 1} files, {on_disk} bytes on disk" in done.stderr
    assert on_disk < sum(path.stat().st_size for path in files)
    assert tree_digest(root) == before
    proved = run("check", tmp_path / "to", "--against", manifest, "--output", "json")
    assert (proved.returncode, json.loads(proved.stdout)) == (0, [])
    assert "0 differ" in proved.stderr
    shutil.copytree(tmp_path / "to", tmp_path / "restored")
    (tmp_path / "restored" / "checkpoint").unlink()
    wrong = run("check", tmp_path / "restored", "--against", manifest, "--output", "json")
    assert wrong.returncode == 1
    assert [(row["problem"], row["path"]) for row in json.loads(wrong.stdout)] == [
        ("missing", str(tmp_path / "restored" / "checkpoint"))
    ]


def test_a_manifest_may_be_named_by_its_name_or_its_folder(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    assert run("backup", root, to).returncode == 0
    own = to / "cqstore" / "backup.json"
    for given in ("backup.json", "cqstore/backup.json", "cqstore", to, to / "cqstore"):
        done = run("check", to, "--against", given)
        assert done.returncode == 0
        assert f"the manifest {own} compared; 0 differ" in done.stderr
    elsewhere = Path(shutil.copy(own, tmp_path / "kept.json"))
    done = run("check", to, "--against", elsewhere)
    assert f"the manifest {elsewhere} compared; 0 differ" in done.stderr


def test_an_open_store_is_said_to_be_one(root: Path, tmp_path: Path) -> None:
    with MessageStore.open(root, CONFIG, housekeeping=False):
        done = run("backup", root, tmp_path / "to")
    assert done.returncode == 0
    assert "of an open store: it opens like a store after a crash" in done.stderr


def test_foreign_files_of_the_log_are_named_as_left_out(root: Path, tmp_path: Path) -> None:
    names = [".DS_Store", ".nfs0000000000a1", "a~", "b~"]
    for name in names:
        (root / "commitlog" / name).write_bytes(b"x")
    before = tree_digest(root)
    done = run("backup", root, tmp_path / "to")
    assert done.returncode == 0
    paths = [str(root / "commitlog" / name) for name in names]
    said = f"cqstore: 4 files are not commit log files and are left out: {', '.join(paths[:3])}"
    assert f"{said} and 1 more\n" in done.stderr
    manifest = json.loads((tmp_path / "to" / "cqstore" / "backup.json").read_bytes())
    assert manifest["left_out"] == paths
    assert [path.name for path in (tmp_path / "to" / "commitlog").iterdir()] == ["0" * 20]
    assert run("check", tmp_path / "to", "--against", "backup.json").returncode == 0
    assert tree_digest(root) == before


def test_a_backup_without_foreign_files_names_none(root: Path, tmp_path: Path) -> None:
    assert "left out" not in run("backup", root, tmp_path / "to").stderr
    manifest = json.loads((tmp_path / "to" / "cqstore" / "backup.json").read_bytes())
    assert manifest["left_out"] == []
