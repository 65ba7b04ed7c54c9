"""The process of a run on Spark is killed as files are written: nothing of them is ever seen."""

import random
import subprocess
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.archived import archive, archived
from tests.kit.commands import COMMAND
from tests.kit.running import descendants, gone, until

TOPICS, MESSAGES = 40, 4000
CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)


def put(root: Path, first: int) -> None:
    with MessageStore.open(root, CONFIG) as store:
        numbers = range(first, first + MESSAGES)
        found = store.put_messages([Message(f"t{at % TOPICS}", b"%d" % at) for at in numbers])
        assert all(each.ok for each in found)


def numbers(folder: Path) -> list[int]:
    return sorted(int(row["body"]) for row in archived(folder))


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_on_spark_adds_nothing_and_the_next_goes_on(tmp_path: Path, seed: int) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, 0)
    archive(folder, s=root)
    put(root, MESSAGES)
    wanted = random.Random(seed).randint(1, TOPICS - 1)
    words = ["archive", root, "--source", "s", "--to", folder, "--master", "local[2]"]
    with subprocess.Popen([*COMMAND, *map(str, words)], stderr=subprocess.PIPE) as process:
        until(process, lambda: len(list(folder.glob("_writing-*/files/*"))) >= wanted)
        below = descendants(process.pid)
        process.kill()
    assert process.returncode == -9
    assert numbers(folder) == [*range(MESSAGES)]
    assert archive(folder, s=root).sources[0].messages == MESSAGES
    assert numbers(folder) == [*range(2 * MESSAGES)]
    gone(below)
    assert sorted(each.name for each in folder.iterdir()) == ["batch=00000001", "batch=00000002"]
