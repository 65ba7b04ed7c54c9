"""Migrations of golden stores, made and compared in this process; and damage to what they made."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.folders import log_folder
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, queue_prefix, unit_key
from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.verify import VerifyReport, verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.queue.units import QueueKey

UNIT = 20


def in_this_process(
    task: Callable[[str], str],
    items: Sequence[str],
    master: str,
    tick: object = None,
    *,
    alone: bool = False,
) -> list[str]:
    """Run tasks one after the other: what ``run_tasks`` does without its processes."""
    _ = master, tick, alone
    return [task(item) for item in items]


@dataclass
class Made:
    """One migration whose run has ended."""

    root: Path
    space: Workspace
    plan: Plan

    def verify(self, **options: Any) -> VerifyReport:
        return verify_migration(self.root, **{"master": "none", **options})

    def log_place(self, phy_offset: int) -> tuple[Path, int]:
        """Return the log file that has a record, and where in it."""
        held = sorted((self.root / "commitlog").iterdir())
        path = next(each for each in reversed(held) if int(each.name) <= phy_offset)
        return path, phy_offset - int(path.name)

    # ---- damage to RocksDB queues

    @contextmanager
    def engine(self) -> Iterator[RocksEngine]:
        made = self.space.made
        engine, _ = open_engine(
            made.consume_queue, self.plan.config, log_folder(made), read_only=False
        )
        yield engine
        engine.close()

    def delete_units(self, queue: QueueKey, offsets: range) -> None:
        prefix = queue_prefix(*queue)
        first, last = unit_key(prefix, offsets.start), unit_key(prefix, offsets.stop)
        with self.engine() as engine:
            engine.write(EngineBatch(delete_ranges=[(Family.DEFAULT, first, last)]))

    def put_unit(self, queue: QueueKey, offset: int, unit: bytes) -> None:
        batch = EngineBatch(
            prefixes=[queue_prefix(*queue)], prefix_index=np.zeros(1, np.int64),
            queue_offset=np.array([offset], np.int64),
            units=np.frombuffer(unit, np.uint8).reshape(1, -1),
        )  # fmt: skip
        with self.engine() as engine:
            engine.write(batch)

    def put_end(self, queue: QueueKey, phy_offset: int, next_offset: int) -> None:
        entry = OFFSET_ENTRY.pack(OffsetEntry(phy_offset, next_offset - 1))
        with self.engine() as engine:
            engine.write(EngineBatch(puts=[(max_key(queue_prefix(*queue)), entry)]))

    def delete_end(self, queue: QueueKey) -> None:
        key = max_key(queue_prefix(*queue))
        with self.engine() as engine:
            engine.write(EngineBatch(deletes=[(Family.OFFSET, key)]))

    def unit(self, queue: QueueKey, offset: int) -> bytes:
        with self.engine() as engine:
            value = engine.get(Family.DEFAULT, unit_key(queue_prefix(*queue), offset))
        assert value is not None
        return value

    # ---- damage to file queues

    def queue_file(self, queue: QueueKey) -> Path:
        return self.space.made.consume_queue / queue.topic / str(queue.queue_id) / ("0" * 20)

    def write_file(self, queue: QueueKey, offset: int, data: bytes, at: int = 0) -> None:
        with self.queue_file(queue).open("r+b") as file:
            file.seek(offset * UNIT + at)
            file.write(data)

    def file_unit(self, queue: QueueKey, offset: int) -> bytes:
        return self.queue_file(queue).read_bytes()[offset * UNIT :][:UNIT]


def migrate(root: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Plan and run; later comparisons run in this process as well."""
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    plan = make_plan(root, target=target, segment_units=700)
    run_plan(root, master="none")
    return Made(root, Workspace.of(root), plan)
