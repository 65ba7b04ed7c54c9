"""Commands beside files that are named as packages of ours, or as what those need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.store.concurrency.processes import worker_environment
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

COMMAND = Path(sys.executable).parent / "cqstore"
NAMES = [
    "cqstore", "store", "cq_file", "cq_rocksdb", "migration", "replication", "analysis", "spark",
    "ab", "metadata", "broker", "cli", "embedded", "tools",
    "cqstore_rocksdb", "numpy", "pandas", "pyarrow", "pydantic", "typer", "rich", "rocksdict",
    "pyspark", "json",
    "queue", "signal", "base64", "pickle",
]  # fmt: skip
CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store, and a folder of files that no process may import."""
    with MessageStore.open(tmp_path / "s", CONFIG, backend="file") as store:
        store.put_messages([Message("orders", b"%d" % n, n % 4) for n in range(200)])
    made = tmp_path / "user"
    made.mkdir()
    for name in NAMES:
        (made / f"{name}.py").write_text(f"raise SystemExit('{name} of the user was imported')\n")
    (made / "broker.conf").write_text(
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n"
    )
    return made


def environment() -> dict[str, str]:
    """Return that of a user: Spark in this process may have set ``PYTHONSAFEPATH``."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


def run(folder: Path, *words: object) -> str:
    done = subprocess.run(
        [COMMAND, *map(str, words)], cwd=folder, env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of the user was imported" not in done.stdout + done.stderr
    return done.stdout


VERBS = [
    ["info"], ["get", "--topic", "orders"], ["migrate", "preflight"], ["follow", "--help"],
    ["sql", "--help"], ["ab", "run", "--help"],
]  # fmt: skip
"""A verb of ours, one that prints rows, and one of each package that is imported beside it."""
OTHERS = [
    ["check"], ["dump", "--queues"], ["topics"], ["query", "--help"], ["top", "--once"], ["mode"],
    ["ha", "check", "--help"], ["feed", "--help"], ["rocksdb", "stats", "--help"],
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [*VERBS, *(pytest.param(words, marks=pytest.mark.long) for words in OTHERS)],
    ids=" ".join,
)
@pytest.mark.slow
def test_a_verb_imports_nothing_from_the_current_folder(folder: Path, words: list[str]) -> None:
    rest = [] if "--help" in words else [folder.parent / "s"]
    at = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    run(folder, *words[:at], *rest, *words[at:])


@pytest.mark.slow
def test_processes_of_a_move_import_nothing_from_it(folder: Path) -> None:
    root = folder.parent / "s"
    run(folder, "migrate", "plan", root, "--master", "none", "--config", "broker.conf")
    for verb in ("run", "verify"):
        run(folder, "migrate", verb, root, "--master", "none")
    assert "rocksdb" in run(folder, "migrate", "status", root)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.long
def test_spark_s_workers_import_nothing_from_it(folder: Path) -> None:
    root = folder.parent / "s"
    run(folder, "migrate", "plan", root, "--config", "broker.conf")
    run(folder, "migrate", "run", root, "--master", "local[1]")
    assert "200" in run(
        folder, "sql", root, "select count(*) from commitlog", "--master", "local[1]"
    )
    run(folder, "archive", root, "--to", folder.parent / "archive", "--master", "local[1]")
    assert [*(folder.parent / "archive").rglob("*.parquet")]


PROGRAM = """
import sys
from pathlib import Path
import ab, analysis, embedded, metadata, migration, operating, replication, store  # the user's own
from cqstore import Message, MessageStore
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.verify import verify_migration

root, master = Path(sys.argv[1]), sys.argv[2]
if __name__ == "__main__":
    with MessageStore.open(root, backend="file") as opened:
        opened.put_message(Message("orders", b"one more", 0))
    make_plan(root, opened.config, target="rocksdb", source=None)
    run_plan(root, master=master)
    print(verify_migration(root, master=master).equal, store.OWN, metadata.OWN, analysis.OWN)
"""
OWN = ("ab", "analysis", "embedded", "metadata", "migration", "operating", "replication", "store")


@pytest.mark.parametrize(
    "master",
    [
        "none",
        pytest.param("local[1]", marks=[pytest.mark.long, pytest.mark.xdist_group("spark")]),
    ],
)
@pytest.mark.slow
def test_a_program_with_modules_of_its_own_moves_a_store(tmp_path: Path, master: str) -> None:
    """Each name was a package of ours once; the user's are modules here, or packages."""
    with MessageStore.open(tmp_path / "s", CONFIG, backend="file") as opened:
        opened.put_messages([Message("orders", b"%d" % n, n % 4) for n in range(200)])
    for name in OWN:
        own = tmp_path / "user" / (name if name in {"analysis", "store"} else f"{name}.py")
        own = own if own.suffix else own / "__init__.py"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(f"OWN = 'own {name}'\n")
    program = tmp_path / "user" / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "s", master], cwd=program.parent,
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "True own store own metadata own analysis\n", done.stderr


@pytest.mark.parametrize("entry", ["", "."])
def test_a_worker_has_the_current_folder_on_no_path_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry, str(tmp_path), *sys.path])
    environment = worker_environment()
    assert environment["PYTHONSAFEPATH"] == "1"
    paths = environment["PYTHONPATH"].split(os.pathsep)
    assert str(tmp_path) not in paths
    assert paths
    assert all(Path(path).is_absolute() for path in paths)
