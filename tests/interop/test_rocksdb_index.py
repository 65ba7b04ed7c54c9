"""The index of keys that RocketMQ keeps in RocksDB: written by 5.5.1, asked by it and by us."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cqstore.cli.app import app
from tests.interop.started import JVM
from tests.kit.rocksdb_index import SETTINGS, requested_words
from tools.bench.peer.maven import JavaProgram, UnavailableError

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def program() -> JavaProgram:
    try:
        return JavaProgram.build(Path(__file__).parent, "interop.Index", "5.5.1")
    except UnavailableError as exc:
        pytest.skip(f"RocketMQ 5.5.1 cannot be had: {exc}")


def called(program: JavaProgram, *words: object) -> str:
    root = Path(str(words[1]))
    command = [*program.command(root.parent, JVM), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, check=True, timeout=120, env=JavaProgram.environment()
    )
    return done.stdout.decode()


def answers(program: JavaProgram, root: Path, count: int) -> list[dict[str, Any]]:
    words = root.parent / "words"
    words.write_text("".join(f"{topic},{key}\n" for topic, key in requested_words(count)), "utf-8")
    settings = [*SETTINGS, "indexFileReadEnable=false"]
    found: list[dict[str, Any]] = json.loads(called(program, "query", root, words, *settings))
    return found


def test_what_rocketmq_finds_by_its_index_is_found(program: JavaProgram, tmp_path: Path) -> None:
    root = tmp_path / "store"
    called(program, "write", root, 120, *SETTINGS)
    runner, found = CliRunner(), 0
    for row in answers(program, root, 120):
        if not row["phyOffsets"] and row["key"] != "none":
            continue
        words = ["query", str(root), "--topic", row["topic"], "--key", row["key"], "--max", "64"]
        done = runner.invoke(app, words)
        assert done.exit_code == 0, done.output
        mine = [json.loads(line)["phy"] for line in done.stdout.splitlines()]
        assert set(mine) <= set(row["phyOffsets"])
        if row["key"] != "a":  # RocketMQ takes a key that goes on with @ for this one
            assert mine == row["phyOffsets"]
        found += len(mine)
    assert found > 100
