"""``tools.bench.migration [UNITS] [QUEUES …]``: what moving queues costs, beside raw baselines.

Everything is warm: the store has just been written, Spark has run a job, and what the pipelines
took to start is not counted (it is a line of its own). The baselines, in the same run:

* *unit by unit*: one process that asks the store's interface for each unit and puts it in batches,
  on a part of the store;
* *numpy + SST*: the queue files read by numpy, store timestamps gathered from a map of the log,
  RocksDB's table writer; two processes, no Spark, no plan, no checks.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import finish
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.tasks import NO_SPARK, ready, run_tasks
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.queue.bulk import key_order
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tools.bench.raw_tables import PARTS, raw_part
from tools.bench.sample_store import make_store

MASTER = "local[2]"
ROCKETMQ = "141,000 to 195,000"
"""Units a second that RocketMQ's own re-dispatch reaches on two cores."""
_ONE_BY_ONE = 400_000
_BATCH = 16_384


def main(words: list[str]) -> None:
    """Measure each number of queues and print one table for it."""
    units = int(words[0]) if words else 10_000_000
    console = Console(width=None if sys.stdout.isatty() else 120)
    for queues in [int(word) for word in words[1:]] or [1_000, 100_000]:
        with tempfile.TemporaryDirectory() as folder:
            console.print(measure(Path(folder), units, queues))


def measure(folder: Path, units: int, queues: int) -> Table:
    """Return a table of all pipelines over one store."""
    root = folder / "store"
    config = make_store(root, units, queues)
    table = Table("what", "seconds", "units/s", title=f"{units:,} units over {queues:,} queues")

    def row(what: str, seconds: float, count: int = units) -> float:
        table.add_row(what, f"{seconds:,.1f}", f"{count / seconds:,.0f}")
        return seconds

    single = row("unit by unit (a part)", *_unit_by_unit(root, config, folder / "one"))
    single *= units / min(units, _ONE_BY_ONE)
    started = time.monotonic()
    with ready(MASTER):
        run_tasks(_nothing, ["", ""], MASTER)
        row("Spark's start and first job", time.monotonic() - started, 0)
        raw = row("numpy + SST, 2 processes", _raw(root, folder, units, queues))
        row("plan", _timed(lambda: make_plan(root, config)))
        untimed = row("run without store timestamps", _run(root, timestamps=False))
        _again(root)
        spark = row("run on Spark", _run(root))
        size = _bytes(Workspace.of(root).made.consume_queue)
        row("verify", _timed(lambda: verify_migration(root, master=MASTER)))
        _again(root)
        row("run in 2 processes, no Spark", run_plan(root, master=NO_SPARK).seconds)
        row("verify before the switch", _timed(lambda: verify_migration(root, master=MASTER)))
        row("switch", _timed(lambda: switch(root, config)))
        row("finish", _timed(lambda: finish(root, config)))
        row("plan to files", _timed(lambda: make_plan(root, config, target="file")))
        row("run to files", _run(root))
        row("verify files", _timed(lambda: verify_migration(root, master=MASTER)))
    _forget(root)
    shutil.rmtree(root / "consumequeue")
    for name in ("mode", "kept"):
        (root / "cqstore" / name).unlink(missing_ok=True)
    with ready(MASTER):
        made = _timed(lambda: make_log_plan(root, config, target="rocksdb", master=MASTER))
        row("rebuild from the log: scan and plan", made)
        row("rebuild from the log: run", rebuilt := _run(root))
        row("rebuild from the log: both", made + rebuilt)
    table.caption = (
        f"on disk {size / units:.1f} bytes a unit; Spark / numpy + SST {spark / raw:.2f}"
        f" (without timestamps {untimed / raw:.2f}); unit by unit / Spark {single / spark:.1f};"
        f" RocketMQ's re-dispatch: {ROCKETMQ} units/s"
    )
    return table


def _timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _run(root: Path, *, timestamps: bool = True) -> float:
    return run_plan(root, master=MASTER, timestamps=timestamps).seconds


def _again(root: Path) -> None:
    space = Workspace.of(root)
    for path in (space.segments, space.made.root):
        shutil.rmtree(path)


def _forget(root: Path) -> None:
    shutil.rmtree(Workspace.of(root).root)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.sst"))


def _nothing(item: str) -> str:
    return item


# ---- baselines


def _unit_by_unit(root: Path, config: StoreConfig, target: Path) -> tuple[float, int]:
    """Move a part through the interfaces, a unit at a time; return seconds and units."""
    count = 0
    with (
        MessageStore.open(root, config, read_only=True, housekeeping=False) as source,
        MessageStore.open(target, backend="rocksdb", housekeeping=False) as copy,
    ):
        started = time.monotonic()
        batch = UnitBatch()
        for queue in sorted(source.queue_keys(), key=key_order):
            units = components_of(source).queues.queue(*queue)
            for unit in units.iterate(0):
                stamp = units.unit_timestamp(unit.queue_offset)
                batch.add(
                    queue, unit.queue_offset, unit.phy_offset, unit.size, unit.tags_code or 0, stamp
                )
                count += 1
                if len(batch) == _BATCH:
                    components_of(copy).queues.put_batch(batch)
                    batch = UnitBatch()
            if count >= _ONE_BY_ONE:
                break
        components_of(copy).queues.put_batch(batch)
        components_of(copy).queues.flush()
        seconds = time.monotonic() - started
    shutil.rmtree(target)
    return seconds, count


def _raw(root: Path, folder: Path, units: int, queues: int) -> float:
    """Time the work of all parts in two processes that are warm."""
    spare = folder / "raw"
    spare.mkdir()
    whole = [
        json.dumps(
            {
                "root": str(root),
                "to": str(spare / str(part)),
                "part": part,
                "queues": queues,
                "max_units": -(-units // queues),
            }
        )
        for part in range(PARTS)
    ]
    seconds = [json.loads(text) for text in run_tasks(raw_part, whole, NO_SPARK)]
    shutil.rmtree(spare)
    return float(max(end for _, end in seconds) - min(start for start, _ in seconds))


if __name__ == "__main__":
    main(sys.argv[1:])
