"""RocksDB and file queues by themselves: many queues, expiry, opening, disk, memory.

Units are ready columns, as a dispatcher or a migration hands them over. Each measurement runs in a
process of its own, so that memory is that of the backend alone.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cqstore.cq_rocksdb.engine.compaction import CompactionRun
from cqstore.cq_rocksdb.engine.database_options import MIB, DatabaseOptions, database_options
from cqstore.cq_rocksdb.engine.native_engine import NativeEngine
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import queue_prefix
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey, UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tools.bench.no_log import NoCheckpoint, NoLogFiles
from tools.bench.workloads import folder

RECORD = 200
"""Bytes from one record of the imagined log to the next."""


@dataclass
class Log(NoLogFiles):
    """Facts of a log that is not there."""

    low: int = 0
    high: int = 1 << 60

    def min_phy_offset(self) -> int:
        return self.low

    def max_phy_offset(self) -> int:
        return self.high

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        _ = size
        return phy_offset

    def file_offset_by_timestamp(self, timestamp: int) -> int:
        _ = timestamp
        return 0


@dataclass
class Queues:
    """The queues of one backend in a folder, without a log or a message store."""

    root: Path
    name: str
    engine: RocksDBEngine = RocksDBEngine.AUTO
    log: Log = field(default_factory=Log)

    def open(self) -> ConsumeQueueStore:
        """Open the backend, its queues recovered."""
        config = StoreConfig(rocksdb_engine=self.engine, mapped_file_size_consume_queue=6000)
        context = QueueStoreContext(
            StorePaths(self.root), config, self.log, NoCheckpoint(),
            last_exit_ok=True, read_only=False,
        )  # fmt: skip
        store = backend(self.name)(context).load()
        store.recover()
        return store


def key(number: int) -> QueueKey:
    """Return the queue with this number: eight of them make a topic."""
    return QueueKey(f"topic_{number // 8:013d}", number % 8)


def batches(queues: int, units: int, size: int) -> Iterator[UnitBatch]:
    """Yield units round robin over the queues, ``size`` a batch."""
    for first in range(0, units, size):
        numbers = np.arange(first, min(first + size, units))
        used, index = np.unique(numbers % queues, return_inverse=True)
        batch = UnitBatch()
        rows = np.zeros(len(numbers), QUEUE_UNIT.dtype)
        rows["phy_offset"], rows["size"] = numbers * RECORD, RECORD
        rows["store_timestamp"] = numbers
        batch.take(
            [key(number) for number in used.tolist()],
            index.astype(np.int32).tobytes(),
            (numbers // queues).astype(np.int64).tobytes(),
            rows.tobytes(),
        )
        batch.end_phy_offset = int(numbers[-1] + 1) * RECORD
        yield batch


def written_bytes() -> int:
    """Return what this process has sent to the disk."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["write_bytes"])


def resident_mib() -> float:
    """Return the memory that this process has, mapped files among it, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def dispatch(name: str, engine: str, queues: int, units: int, size: int) -> dict[str, float]:
    """Put ready columns, flush, reopen: units/s, bytes a unit and a queue, seconds, memory."""
    with folder() as root:
        where = Queues(root, name, RocksDBEngine(engine))
        store = where.open()
        before, written, spent = resident_mib(), written_bytes(), 0.0
        for batch in batches(queues, units, size):
            started = time.perf_counter()
            store.put_batch(batch)
            spent += time.perf_counter() - started
        memory = resident_mib() - before
        started = time.perf_counter()
        store.flush()
        spent += time.perf_counter() - started
        written = written_bytes() - written
        disk = store.total_size_bytes()
        store.close()
    return {
        "units/s": units / spent, "written B/unit": written / units, "disk B/queue": disk / queues,
        "memory MiB": memory, "raw units/s": raw_dispatch(name, queues, units, size),
    }  # fmt: skip


def raw_dispatch(name: str, queues: int, units: int, size: int) -> float:
    """The same units with nothing around them: RocksDB through its C API, or one file."""
    spent = 0.0
    with folder() as root:
        engine = NativeEngine(root / "db", database_options(512 * MIB), root, read_only=False)
        with (root / "file").open("wb") as file:
            for batch in batches(queues, units, size):
                write = engine_batch(batch)
                started = time.perf_counter()
                if name == "rocksdb":
                    engine.write(write)
                else:
                    file.write(batch.units)
                spent += time.perf_counter() - started
            started = time.perf_counter()
            engine.flush()
            os.fsync(file.fileno())
            spent += time.perf_counter() - started
        engine.close()
    return units / spent


def engine_batch(batch: UnitBatch) -> EngineBatch:
    """Return the units of ``batch`` as a write of the engine."""
    return EngineBatch(
        [queue_prefix(*queue) for queue in batch.queues],
        np.frombuffer(memoryview(batch.queue_index), np.int32).astype(np.int64),
        np.frombuffer(memoryview(batch.queue_offset), np.int64),
        np.frombuffer(memoryview(batch.units), np.uint8).reshape(-1, QUEUE_UNIT.size),
    )


def reopen(name: str, queues: int) -> dict[str, float]:
    """A whole store of ``queues`` queues with three messages each, after a clean stop."""
    with folder() as root, folder() as empty:
        config = StoreConfig(mapped_file_size_commit_log=256 * MIB)
        with MessageStore.open(root, config, backend=name) as store:
            for _ in range(3):
                for first in range(0, queues, 1000):
                    numbers = range(first, min(first + 1000, queues))
                    store.put_messages([Message(*_place(number)) for number in numbers])
        MessageStore.open(empty, config, backend=name).close()
        times, before, memory, disk = list[float](), 0.0, 0.0, 0
        for where in (root, empty):
            best = 1e9
            for _ in range(3):
                before = before or resident_mib()
                started = time.perf_counter()
                store = MessageStore.open(where, config)
                best = min(best, time.perf_counter() - started)
                memory = max(memory, resident_mib() - before)
                disk = max(disk, components_of(store).queues.total_size_bytes())
                store.close()
            times.append(best)
    return {
        "open ms": times[0] * 1000, "empty store, ms": times[1] * 1000,
        "disk B/queue": disk / queues, "memory MiB": memory,
    }  # fmt: skip


def puts(queues: int, count: int) -> dict[str, float]:
    """Put one message a call, round robin over RocksDB queues, until each has its unit.

    The baseline makes as many messages. Memory is what the process has of its own, without the
    mapped files of the log.
    """
    payload, tags = bytes(128), {"TAGS": "TagA"}

    def message(number: int) -> Message:
        topic, queue_id = key(number % queues)
        return Message(topic, payload, queue_id, tags)

    with folder() as root:
        config = StoreConfig(clean_file_forcibly_enable=False)
        with MessageStore.open(root, config, backend="rocksdb") as store:
            before = _own_mib()
            for first in range(0, queues, 1000):
                numbers = range(first, min(first + 1000, queues))
                store.put_messages([message(number) for number in numbers])
            store.max_offset(*key(0))
            slow = store.metrics.snapshot().put_fallbacks
            spent, cpu = time.perf_counter(), time.process_time()
            for number in range(count):
                store.put_message(message(number))
            store.max_offset(*key(0))
            spent, cpu = time.perf_counter() - spent, time.process_time() - cpu
            memory = _own_mib() - before
            slow = store.metrics.snapshot().put_fallbacks - slow
    started = time.process_time()
    for number in range(count):
        message(number)
    made = time.process_time() - started
    return {
        "puts/s": count / spent, "CPU us": cpu / count * 1e6,
        "making the message, us": made / count * 1e6,
        "memory MiB": memory, "slow path": slow,
    }  # fmt: skip


def _own_mib() -> float:
    """Return the memory that this process has without mapped files, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon")]
    return int(line.split()[1]) / 1024


def _place(number: int) -> tuple[str, bytes, int]:
    """Return topic, body and queue id of a message for the queue with this number."""
    topic, queue_id = key(number)
    return topic, b"x" * 32, queue_id


def scans(name: str, engine: str, queues: int, units: int, rounds: int) -> dict[str, float]:
    """32-unit scans at random places; compacted, read before, and the memory budget holds all."""
    with folder() as root:
        store = Queues(root, name, RocksDBEngine(engine)).open()
        for batch in batches(queues, units, 1 << 16):
            store.put_batch(batch)
        store.flush()
        rnd, depth = random.Random(1), units // queues
        places = [(key(rnd.randrange(queues)), rnd.randrange(depth - 32)) for _ in range(rounds)]
        if isinstance(store, RocksDBConsumeQueueStore):
            store.compact().wait()
        for number in range(queues):
            store.queue(*key(number)).read_units(0, depth)
        started = time.perf_counter()
        for (topic, queue_id), at in places:
            if store.queue(topic, queue_id).read_units(at, 32).count != 32:
                raise RuntimeError("a scan came back short")
        spent = time.perf_counter() - started
        store.close()
    return {"scans/s": rounds / spent}


def expiry(universal: int, queues: int, units: int) -> dict[str, float]:
    """Half of the units expire: the filter's rate, space, bytes written, reads meanwhile."""
    options = database_options(512 * MIB)
    tuned = options.families[Family.DEFAULT]._replace(universal_compaction=bool(universal))
    families = {**options.families, Family.DEFAULT: tuned}
    free = options._replace(families=families, rate_limit_bytes_per_second=1 << 40)
    limited = options._replace(families=families)
    result: dict[str, float] = {}
    with folder() as root:
        written = written_bytes()
        _fill(root, free, queues, units)
        result["written B/unit"] = (written_bytes() - written) / units
        engine = NativeEngine(root / "db", free, root / "log", read_only=False)
        result["before B/unit"] = sum(file.size_bytes for file in engine.live_files()) / units
        _reads(engine, queues, units, lambda: False)  # warms the cache
        idle = _reads(engine, queues, units, lambda: False)
        engine.expire_below(units // 2 * RECORD)
        started = time.perf_counter()
        engine.compact(Family.DEFAULT)
        result["expiry units/s"] = units / (time.perf_counter() - started)
        result["dropped"] = engine.dropped_units
        result["after B/unit"] = sum(file.size_bytes for file in engine.live_files()) / units
        engine.close()
        engine = NativeEngine(root / "db", limited, root / "log", read_only=False)
        engine.expire_below(units // 4 * 3 * RECORD)
        result["idle p99 us"] = idle
        result["limited p99 us"] = _reads_while_compacting(engine, queues, units)
        engine.close()
    return result


def _fill(root: Path, options: DatabaseOptions, queues: int, units: int) -> None:
    """Make a database with ``units`` units, round robin over ``queues`` queues."""
    engine = NativeEngine(root / "db", options, root / "log", read_only=False)
    for batch in batches(queues, units, 1 << 17):
        engine.write(engine_batch(batch))
    engine.flush()
    engine.close()


def _reads(engine: NativeEngine, queues: int, units: int, done: Callable[[], bool]) -> float:
    """Return the 99th percentile of 32-unit scans in the newest quarter, microseconds."""
    rnd, depth, spent = random.Random(1), units // queues, list[float]()
    while len(spent) < 20_000 and not (spent and done()):
        prefix = queue_prefix(*key(rnd.randrange(queues)))
        at = rnd.randrange(depth * 3 // 4, depth - 32)
        started = time.perf_counter()
        engine.scan_units(prefix, at, 32)
        spent.append(time.perf_counter() - started)
    return float(np.percentile(spent, 99)) * 1e6


def _reads_while_compacting(engine: NativeEngine, queues: int, units: int) -> float:
    """Return what ``_reads`` does while the engine compacts, microseconds."""
    run = CompactionRun(engine, [Family.DEFAULT])
    p99 = _reads(engine, queues, units, lambda: not run.is_running)
    run.wait()
    return p99


MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "dispatch": dispatch,
    "puts": puts,
    "reopen": reopen,
    "scans": scans,
    "expiry": expiry,
}


def measured(name: str, *arguments: object) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", "tools.bench.queues", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    words = [int(word) if word.isdecimal() else word for word in sys.argv[2:]]
    print(json.dumps(MEASURES[sys.argv[1]](*words)))
