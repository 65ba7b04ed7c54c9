"""A put of an inner batch is interrupted at any instant: its offsets count whole records."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.interrupts import IGNORED, Interrupted, first_places, run_interrupted
from tests.kit.long_too import long_too

SHARE = 6
"""Places of a step that the normal run takes."""
CONFIG = StoreConfig(
    mapped_file_size_commit_log=2048, mapped_file_size_consume_queue=200,
    mapper_file_size_batch_consume_queue=92, max_hash_slot_num=20, max_index_num=400,
)  # fmt: skip
SYNC = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})


class Case:
    """An open store, and the offsets of what it has acknowledged, with the numbers of messages."""

    def __init__(self, root: Path, config: StoreConfig) -> None:
        self.config = config
        self.store = self.opened(root)
        self.store.create_batch_topic("b")
        self.acknowledged: dict[int, int] = {}
        for size in (3, 1, 2):
            self.put(size)

    def opened(self, root: Path) -> MessageStore:
        return MessageStore.open(root, self.config, backend="file", housekeeping=False)

    def put(self, size: int = 4) -> None:
        properties = {"INNER_NUM": str(size), "KEYS": "k"}
        flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
        done = self.store.put_message(Message("b", b"x" * 300, 0, properties, sys_flag=flag))
        assert done.ok
        self.acknowledged[done.queue_offset] = size

    def create(self) -> None:
        self.store.create_batch_topic("other")

    def pull(self) -> None:
        self.store.get_message("b", 0, 0)

    def flush(self) -> None:
        self.store.flush()

    def end(self) -> None:
        """Go on, if the store lets it, and close it."""
        for _ in range(2):
            with suppress(StoreError):
                self.put(2)
        with suppress(StoreError):
            self.store.close()
        self.store.close()

    def check(self) -> None:
        """Compare the store that is opened again."""
        with self.opened(self.store.root) as store:
            following, found = 0, {}
            while following < store.max_offset("b", 0):
                for record in store.get_message("b", 0, following, 32).messages():
                    assert record.queue_offset == following == int(record.properties["INNER_BASE"])
                    found[following] = int(record.properties["INNER_NUM"])
                    following += found[following]
            assert self.acknowledged.items() <= found.items()
            assert [finding for finding in store.check() if finding.damage] == []


STEPS: dict[str, Callable[[Case], None]] = {
    "put": Case.put, "create": Case.create, "pull": Case.pull, "flush": Case.flush,
}  # fmt: skip


CONFIGS = pytest.mark.parametrize("config", [CONFIG, SYNC], ids=["async", "sync"])


def places_of(folder: Path, step: str, config: StoreConfig) -> list[int]:
    """Return the places of a step that is not interrupted."""
    case = Case(folder / "whole", config)
    places = first_places(lambda: STEPS[step](case))
    case.end()
    case.check()
    return places


def interrupt(folder: Path, step: str, config: StoreConfig, number: int) -> None:
    case = Case(folder / str(number), config)
    with suppress(Interrupted):
        run_interrupted(lambda: STEPS[step](case), number)
    case.end()
    case.check()


@IGNORED
@CONFIGS
@pytest.mark.parametrize("most", [SHARE, *long_too([1 << 30])])
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_loses_and_repeats_nothing(
    tmp_path: Path, step: str, config: StoreConfig, most: int
) -> None:
    places = places_of(tmp_path, step, config)
    for number in random.Random(step).sample(places, min(most, len(places))):
        interrupt(tmp_path, step, config, number)
