"""Made-up folders of a commit log, loaded by RocketMQ's ``MappedFileQueue`` and by ours."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.log.log_files import list_log_files
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.rocketmq import FOLDER, RocketMQ
from tools.bench.peer.maven import JavaProgram

pytestmark = pytest.mark.interop
FOLDERS, SIZE = 400, 4096
CONFIG = StoreConfig(mapped_file_size_commit_log=SIZE)
OTHERS = [
    ".DS_Store", ".nfs0000000000a1", "notes.txt", f"{0:020d}.bak", f"{SIZE:020d}.tmp", "0x10", "-1",
    "lost+found", f"{0:020d} ", f"{SIZE}", f"{SIZE:019d}", f"{SIZE:021d}", "\u0661" * 20,
]  # fmt: skip
"""What other programs leave, and names that are nearly those of log files."""


def make(folder: Path, seeded: random.Random) -> None:
    """Make a log of a few files without records, and what lies among them."""
    folder.mkdir(parents=True)
    first = seeded.randrange(3)
    count = seeded.randrange(4)
    for number in range(first, first + count):
        (folder / f"{number * SIZE:020d}").write_bytes(bytes(SIZE))
    if count and seeded.random() < 0.2:  # as a killed process leaves the next one
        (folder / f"{(first + count) * SIZE:020d}").touch()
    # RocketMQ removes that one only if it is the last: a folder after it stops a broker.
    elif seeded.random() < 0.7:
        name = seeded.choice(OTHERS)
        if seeded.random() < 0.3:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(bytes(seeded.choice([0, 1, SIZE - 1, SIZE, SIZE + 1])))


def ours(root: Path) -> list[int] | None:
    """Return where the files of a log begin that can be opened to be written; ``None``: refused."""
    begins = [*list_log_files([root / "commitlog"])]
    try:  # removes files without a record behind the end
        MessageStore.open(root, CONFIG, housekeeping=False).close()
    except StoreError:
        return None
    return begins


def loaded(
    program: JavaProgram, home: Path, roots: list[Path], folder: str = "/commitlog"
) -> list[dict[str, Any]]:
    """Return what RocketMQ makes of the log in ``folder`` of each root."""
    requested = "".join(f"{root}{folder}\t{SIZE}\n" for root in roots)
    done = subprocess.run(
        program.command(home, ["-Xmx256m"]), input=requested, capture_output=True, text=True,
        check=True, timeout=300, env=program.environment(),
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_opened_here_is_loaded_by_rocketmq_too(rocketmq: RocketMQ, tmp_path: Path) -> None:
    program = JavaProgram(FOLDER, "interop.LogFolders", rocketmq.program.version)
    roots = {whose: [tmp_path / whose / str(at) for at in range(FOLDERS)] for whose in ("a", "b")}
    for places in roots.values():
        seeded = random.Random(42)
        for root in places:
            make(root / "commitlog", seeded)
    before = loaded(program, tmp_path, roots["a"])
    found = [*map(ours, roots["b"])]
    after = loaded(program, tmp_path, roots["b"])
    refused = opened = 0
    for root, begins, was, now in zip(roots["b"], found, before, after, strict=True):
        names = sorted(path.name for path in (root / "commitlog").iterdir())
        refused += not was["loaded"]
        if begins is not None:
            opened += 1
            assert now["loaded"], names
            assert (was["loaded"], was["begins"]) == (True, begins), names
    assert FOLDERS // 8 < refused < FOLDERS // 2
    assert opened > FOLDERS // 4
