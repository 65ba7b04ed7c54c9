"""The verbs that ask a store at rest, and stores with the metadata of a broker."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict
from typer.testing import CliRunner, Result

from cqstore.broker import commands
from cqstore.store.settings.config import StoreConfig

SMALL = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_index_num=20,
    max_hash_slot_num=5,
)  # fmt: skip


def call(verb: str, *words: object) -> Result:
    return CliRunner().invoke(getattr(commands, f"{verb}_app"), [*map(str, words)])


def rows(verb: str, *words: object, code: int = 0) -> list[dict[str, Any]]:
    """Return the rows that a verb prints; it must end with exit code ``code``."""
    done = call(verb, *words, "--output", "jsonl")
    assert done.exit_code == code, (done.output, done.exception)
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_config(root: Path, name: str, content: Mapping[str, object]) -> Path:
    """Write a file of a broker's below ``config``."""
    path = root / "config" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def write_offsets(root: Path, table: Mapping[str, Mapping[int, int]]) -> Path:
    """Write ``consumerOffset.json`` as RocketMQ has it: ``topic@group`` → queue id → offset."""
    return write_config(
        root, "consumerOffset.json", {"dataVersion": {"counter": 9}, "offsetTable": table}
    )


def write_database(folder: Path, family: str, entries: dict[bytes, bytes]) -> None:
    """Write a family of ``rocksdbstore``."""
    options = Options(raw_mode=True)
    with Rdict(str(folder), options) as database:
        for name in ("timer", "trans"):
            database.create_column_family(name, Options(raw_mode=True))
        column = database.get_column_family(family)
        for key, value in entries.items():
            column[key] = value
