"""The workloads. Each measures itself and its raw baseline in one run, since machines are noisy.

Baselines: *put* a checksum and a copy of the same bytes; *replay* a bare struct scan of the same
log; *get* a bare read of 32 units of a queue file; *time search* as many reads of eight bytes as a
binary search makes; *lag estimate* a bare read of the units; *open* an empty store.
"""

import atexit
import os
import random
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
from cqstore.store.queue.time_search import BoundaryType
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


def put_list(backend: str, queues: int, body: int, count: int) -> Reached:
    """Lists of 32 messages, until they are in their queues."""
    with folder() as root:
        seconds = fill(root, backend, queues, count, body)
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


def replay(backend: str, queues: int, body: int, count: int) -> Reached:
    """Queues rebuilt from the log: the store is opened without them.

    They are moved away, as a rebuild does it; see ``folder`` on what a removal would cost.
    """
    with folder() as root:
        fill(root, backend, queues, count, body)
        (root / "consumequeue").rename(root / "queues before")
        report, seconds = _open_after_kill(root, CONFIG, backend)
        if report.dispatched_units != count:
            raise RuntimeError(f"{report.dispatched_units} units, not {count}")
        raw = raw_scan(first_log_file(root), count)
    return Reached(count / seconds, count / raw, "messages/s")


def _open_after_kill(
    root: Path, config: StoreConfig, backend: str | None = None
) -> tuple[RecoveryReport, float]:
    """Open as after a kill before the first checkpoint; return what was done, and seconds."""
    paths = StorePaths(root)
    paths.abort.write_bytes(b"1")
    paths.checkpoint.unlink()
    started = time.perf_counter()
    store = MessageStore.open(root, config, backend=backend)
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


def get(backend: str, queues: int, count: int, calls: int) -> Reached:
    """Pulls of 32 messages at random places."""
    draw = random.Random(1)
    with folder() as root:
        fill(root, backend, queues, count, 128)
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            last = count // queues - 32
            places = [(draw.randrange(queues), draw.randrange(last)) for _ in range(calls)]
            started = time.perf_counter()
            for queue_id, offset in places:
                result = store.get_message("topic_of_17_chars", queue_id, offset, 32)
                if len(result.records) != 32:
                    raise RuntimeError(result.status.name)
            seconds = time.perf_counter() - started
        raw = raw_pull(first_log_file(root), calls)
    return Reached(calls / seconds, calls / raw, "pulls/s")


def raw_pull(path: Path, calls: int) -> float:
    """Return seconds to read 640 bytes and unpack 32 units, ``calls`` times."""
    unit = struct.Struct(">qiq")
    started = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        for _ in range(calls):
            file.seek(0)
            for _row in unit.iter_unpack(file.read(640)):
                pass
    return time.perf_counter() - started


def time_search(backend: str, queues: int, count: int, calls: int) -> Reached:
    """Searches for random times in random queues."""
    draw = random.Random(2)
    with folder() as root:
        fill(root, backend, queues, count, 128)
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            topic = "topic_of_17_chars"
            queue = components_of(store).queues.queue(topic, 0)
            low, high = queue.unit_timestamp(0), queue.unit_timestamp(count // queues - 1)
            searches = [(draw.randrange(queues), draw.randint(low, high)) for _ in range(calls)]
            started = time.perf_counter()
            for queue_id, moment in searches:
                store.offset_by_time(topic, queue_id, moment, BoundaryType.LOWER)
            seconds = time.perf_counter() - started
        raw = raw_search(first_log_file(root), calls, count // queues)
    return Reached(calls / seconds, calls / raw, "searches/s")


def raw_search(path: Path, calls: int, units: int) -> float:
    """Return seconds for as many reads of eight bytes as binary searches of ``units`` make."""
    number = struct.Struct(">q")
    with path.open("rb", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(calls * units.bit_length()):
            file.seek(56)
            number.unpack(file.read(8))
        return time.perf_counter() - started


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


def query(backend: str, count: int, calls: int) -> Reached:
    """Queries by key, one message each; the index holds a tag and two keys a message."""
    draw = random.Random(3)
    payload = bytes(128)
    with folder() as root:
        with MessageStore.open(root, CONFIG, backend=backend) as store:
            for first in range(0, count, 32):
                store.put_messages([
                    Message("topic_of_17_chars", payload, number % 8, {
                        "TAGS": "TagA", "KEYS": f"order-{number}", "UNIQ_KEY": f"{number:032X}",
                    })
                    for number in range(first, first + 32)
                ])  # fmt: skip
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            keys = [f"order-{draw.randrange(count)}" for _ in range(calls)]
            for key in keys[: calls // 10]:
                store.query_message("topic_of_17_chars", key)
            started = time.perf_counter()
            for key in keys:
                if len(store.query_message("topic_of_17_chars", key)) != 1:
                    raise RuntimeError(f"{key} was not found once")
            seconds = time.perf_counter() - started
        (index,) = (root / "index").iterdir()
        raw = raw_query(index, calls, count)
    return Reached(calls / seconds, calls / raw, "queries/s")


def raw_query(path: Path, calls: int, count: int) -> float:
    """Return seconds to read a slot, an entry and 256 bytes, ``calls`` times, at random places."""
    draw = random.Random(4)
    places = [draw.randrange(count) for _ in range(calls)]
    slot, entry = struct.Struct(">i"), struct.Struct(">iqii")
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        started = time.perf_counter()
        for place in places:
            slot.unpack(os.pread(fd, 4, 40 + 4 * place))
            entry.unpack(os.pread(fd, 20, 20_000_040 + 20 * place))
            os.pread(fd, 256, 256 * place)
        return time.perf_counter() - started


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


def open_store(backend: str, queues: int) -> Reached:
    """Opening after a clean stop, in ms, beside opening an empty store."""
    with folder() as root:
        fill(root / "full", backend, queues, max(2 * queues, 32), 128)
        fill(root / "empty", backend, 1, 32, 128)
        return Reached(_open_ms(root / "full"), _open_ms(root / "empty"), "ms")


def _open_ms(root: Path) -> float:
    started = time.perf_counter()
    store = MessageStore.open(root, CONFIG)
    milliseconds = (time.perf_counter() - started) * 1000
    store.close()
    return milliseconds


BACKENDS = ("file", "rocksdb")
WORKLOADS: dict[str, Callable[[], Reached]] = {}
for _backend in BACKENDS:
    for _body in (128, 1024):
        _count = 400_000 if _body == 128 else 200_000
        WORKLOADS[f"put {_backend} 8 queues {_body} B"] = partial(put, _backend, 8, _body, _count)
        WORKLOADS[f"put list of 32 {_backend} 8 queues {_body} B"] = partial(
            put_list, _backend, 8, _body, _count
        )
    WORKLOADS[f"put {_backend} 10,000 queues 128 B"] = partial(put, _backend, 10_000, 128, 400_000)
    WORKLOADS[f"put list of 32 {_backend} 10,000 queues 128 B"] = partial(
        put_list, _backend, 10_000, 128, 400_000
    )
    for _queues in (1_000, 10_000):
        WORKLOADS[f"replay {_backend} {_queues:,} queues 128 B"] = partial(
            replay, _backend, _queues, 128, 1_000_000
        )
    if _backend == "rocksdb":
        WORKLOADS["put rocksdb 1,000,000 queues 128 B"] = partial(
            put, _backend, 1_000_000, 128, 400_000
        )
        WORKLOADS["put rocksdb 20,000 topics 128 B"] = partial(
            put_topics, _backend, 20_000, 128, 400_000
        )
        WORKLOADS["replay rocksdb 100,000 queues 128 B"] = partial(
            replay, _backend, 100_000, 128, 2_000_000
        )
    WORKLOADS[f"get {_backend} 32 of 1,000 queues"] = partial(get, _backend, 1_000, 400_000, 40_000)
    WORKLOADS[f"time search {_backend} 1,000 queues"] = partial(
        time_search, _backend, 1_000, 400_000, 20_000
    )
    WORKLOADS[f"lag estimate {_backend}"] = partial(lag, _backend, 20_000, 500)
    for _queues in (1_000, 10_000):
        WORKLOADS[f"open {_backend} {_queues:,} queues"] = partial(open_store, _backend, _queues)
WORKLOADS["query by key file"] = partial(query, "file", 200_000, 20_000)
WORKLOADS["recover 1024 B, MB/s"] = partial(recover, 400_000, 1024)
WORKLOADS["scan 128 B"] = partial(scan, 1_000_000, 128)
WORKLOADS["scan 1024 B"] = partial(scan, 400_000, 1024)
