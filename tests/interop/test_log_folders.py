"""Made-up folders of a commit log, loaded by RocketMQ's ``MappedFileQueue`` and by ours."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
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
    if seeded.random() < 0.6:
        name = seeded.choice(OTHERS)
        if seeded.random() < 0.3:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(bytes(seeded.choice([0, 1, SIZE - 1, SIZE, SIZE + 1])))


def ours(root: Path) -> list[int] | None:
    """Return where the files of a log begin that is opened to be written; ``None``: refused."""
    try:
        with MessageStore.open(root, CONFIG, housekeeping=False) as store:
            return [each.file_from_offset for each in components_of(store).log.files.files()]
    except StoreError:
        return None


def test_what_is_opened_here_is_loaded_by_rocketmq_too(rocketmq: RocketMQ, tmp_path: Path) -> None:
    program = JavaProgram(FOLDER, "interop.LogFolders", rocketmq.program.version)
    seeded = random.Random(42)
    copies: list[tuple[Path, Path]] = []
    for number in range(FOLDERS):
        state = seeded.getstate()
        for whose in ("ours", "theirs"):  # RocketMQ deletes an empty last file
            seeded.setstate(state)
            make(tmp_path / whose / str(number) / "commitlog", seeded)
        copies.append((tmp_path / "ours" / str(number), tmp_path / "theirs" / str(number)))
    asked = "".join(f"{theirs}/commitlog\t{SIZE}\n" for _, theirs in copies)
    done = subprocess.run(
        program.command(tmp_path, ["-Xmx256m"]), input=asked, capture_output=True, text=True,
        check=True, timeout=300, env=program.environment(),
    )  # fmt: skip
    refused = 0
    for (root, _), line in zip(copies, done.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        names = sorted(path.name for path in (root / "commitlog").iterdir())
        found = ours(root)
        if not answer["loaded"]:
            refused += 1
            assert found is None, names
        elif found is not None and found:
            assert found[: len(answer["begins"])] == answer["begins"], names
    assert FOLDERS // 8 < refused < FOLDERS // 2
