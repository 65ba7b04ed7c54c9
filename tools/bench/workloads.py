"""The workloads. Each measures itself and its raw baseline in one run, since machines are noisy.

Baselines: *put* a checksum and a copy of the same bytes; *recover* and *scan* a bare struct scan of
the same log; *lag estimate* a bare read of the units. ``tools.bench.peer`` has all other rows.
"""

import atexit
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cqstore.store.files import file_name
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.settings.config import CQ_UNIT_SIZE, StoreConfig

STRIDE = 7919
LOG_FILE = 1 << 30
CONFIG = StoreConfig(mapped_file_size_commit_log=LOG_FILE)
_HEAD = struct.Struct(">iIiiiqqiq8sq8siqi")


@dataclass(frozen=True)
class Reached:
    """What was reached, and what the machine reaches with nothing in between."""

    here: float
    raw: float
    unit: str


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a folder whose logs are gone afterwards, and all of it at the end of the process.

    Where many files were removed ext4 makes new ones ten times slower for some minutes: it skips
    recently freed inodes one by one.
    """
    path = Path(tempfile.mkdtemp(prefix="cqstore-bench-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    try:
        yield path
    finally:
        for log in path.rglob("commitlog"):
            shutil.rmtree(log)


def first_log_file(root: Path) -> Path:
    """Return the file that holds the log of a store, which is short."""
    return StorePaths(root).commit_log / file_name(0)


def fill(root: Path, backend: str, queues: int, count: int, body: int) -> float:
    """Put ``count`` messages in lists of 32 and close; return seconds until dispatched."""
    payload = bytes(body)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        started = time.perf_counter()
        for first in range(0, count, 32):
            store.put_messages(
                [_message(number, queues, payload) for number in range(first, first + 32)]
            )
        store.max_offset("topic_of_17_chars", 0)
        return time.perf_counter() - started


def _message(number: int, queues: int, payload: bytes) -> Message:
    return Message("topic_of_17_chars", payload, number * STRIDE % queues, {"TAGS": "TagA"})


def put(backend: str, queues: int, body: int, count: int) -> Reached:
    """One message a call, until it is in its queue; the queues are there."""
    payload = bytes(body)
    with folder() as root, MessageStore.open(root, CONFIG, backend=backend) as store:
        store.put_messages([_message(number, queues, payload) for number in range(queues)])
        store.max_offset("topic_of_17_chars", 0)
        started = time.perf_counter()
        for number in range(count):
            store.put_message(_message(number, queues, payload))
        store.max_offset("topic_of_17_chars", 0)
        seconds = time.perf_counter() - started
    return Reached(count / seconds, count / raw_put(body, count), "messages/s")


def put_topics(backend: str, topics: int, body: int, count: int) -> Reached:
    """One message a call to each topic in turn; the topics are there."""
    payload = bytes(body)
    with folder() as root, MessageStore.open(root, CONFIG, backend=backend) as store:
        messages = [Message(f"topic_of_17_{number:05d}", payload) for number in range(topics)]
        store.put_messages(messages)
        store.max_offset(messages[-1].topic, 0)
        started = time.perf_counter()
        for number in range(count):
            store.put_message(messages[number % topics])
        store.max_offset(messages[-1].topic, 0)
        seconds = time.perf_counter() - started
    return Reached(count / seconds, count / raw_put(body, count), "messages/s")


def raw_put(body: int, count: int) -> float:
    """Return seconds for a checksum and a copy of as many bytes as a record has."""
    payload, record = bytes(body), bytes(body + 118)
    target = bytearray(1 << 20)
    room, at = len(target) - len(record), 0
    started = time.perf_counter()
    for _ in range(count):
        zlib.crc32(payload)
        target[at : at + len(record)] = record
        at = at + len(record) if at < room - len(record) else 0
    return time.perf_counter() - started


def _open_after_kill(root: Path, config: StoreConfig) -> tuple[RecoveryReport, float]:
    """Open as after a kill before the first checkpoint; return what was done, and seconds."""
    paths = StorePaths(root)
    paths.abort.write_bytes(b"1")
    paths.checkpoint.unlink()
    started = time.perf_counter()
    store = MessageStore.open(root, config)
    seconds = time.perf_counter() - started
    store.close()
    return store.report, seconds


def raw_scan(path: Path, count: int) -> float:
    """Return seconds to unpack and checksum ``count`` records with nothing around it."""
    started = time.perf_counter()
    with path.open("rb") as file:
        data, at = file.read(count * path_record(path)), 0
        for _ in range(count):
            head = _HEAD.unpack_from(data, at)
            zlib.crc32(data[at + 88 : at + 88 + head[14]])
            at += head[0]
    return time.perf_counter() - started


def path_record(path: Path) -> int:
    """Return the size of the first record; all of a bench's are alike but for a few bytes."""
    with path.open("rb") as file:
        return int(_HEAD.unpack(file.read(_HEAD.size))[0])


def lag(backend: str, count: int, calls: int) -> Reached:
    """Estimates of a consumer's lag, each of all units of a queue, beside bare reads of them."""
    with folder() as root:
        config = CONFIG.model_copy(update={"mapped_file_size_consume_queue": CQ_UNIT_SIZE * count})
        with MessageStore.open(root, config, backend=backend) as store:
            batch = UnitBatch()
            for number in range(count):
                batch.add(("t", 0), number, 100 * number, 100, number % 3, number)
            components_of(store).queues.put_batch(batch)
            queue, tags = components_of(store).queues.queue("t", 0), TagFilter("TagA")
            started = time.perf_counter()
            for _ in range(calls):
                queue.estimate_message_count(0, count, tags.may_match, tags.fast)
            seconds = time.perf_counter() - started
        path = root / "units"
        path.write_bytes(bytes(CQ_UNIT_SIZE * count))
        began = time.perf_counter()
        for _ in range(calls):
            path.read_bytes()
        raw = time.perf_counter() - began
    return Reached(calls * count / seconds, calls * count / raw, "units/s")


def recover(count: int, body: int) -> Reached:
    """Opening after a crash without a checkpoint, queues there, no index: MB/s of the log."""
    config = CONFIG.model_copy(update={"message_index_enable": False})
    with folder() as root:
        fill(root, "file", 8, count, body)
        size = count * path_record(first_log_file(root)) / 1e6
        report, seconds = _open_after_kill(root, config)
        if report.scanned_records != count:
            raise RuntimeError(f"{report.scanned_records} records, not {count}")
        raw = raw_scan(first_log_file(root), count)
    return Reached(size / seconds, size / raw, "MB/s")


def scan(count: int, body: int) -> Reached:
    """Every record of a log, checked."""
    with folder() as root:
        fill(root, "file", 8, count, body)
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            started = time.perf_counter()
            records = sum(1 for _ in components_of(store).log.scan(0))
            seconds = time.perf_counter() - started
        if records != count:
            raise RuntimeError(f"{records} records, not {count}")
        raw = raw_scan(first_log_file(root), count)
    return Reached(count / seconds, count / raw, "records/s")


BACKENDS = ("file", "rocksdb")
WORKLOADS: dict[str, Callable[[], Reached]] = {
    "put rocksdb 1,000,000 queues 128 B": partial(put, "rocksdb", 1_000_000, 128, 400_000),
    "put rocksdb 20,000 topics 128 B": partial(put_topics, "rocksdb", 20_000, 128, 400_000),
    **{f"lag estimate {backend}": partial(lag, backend, 20_000, 500) for backend in BACKENDS},
    "recover 1024 B, MB/s": partial(recover, 400_000, 1024),
    "scan 128 B": partial(scan, 1_000_000, 128),
    "scan 1024 B": partial(scan, 400_000, 1024),
}
