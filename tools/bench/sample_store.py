"""A large store on files, made in seconds: records from one template, columns filled in by numpy.

The log is RocketMQ's, byte for byte as ``put_message`` would have written it, and so are the queue
files; there is no index. ``python -m tools.bench.sample_store DIR [UNITS [QUEUES]]`` makes one.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UNIT_ROWS, bulk_backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import Message
from cqstore.store.record.record_layout import BLANK, BLANK_SIZE, HEAD, MAGIC_BLANK, BlankRecord
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

QUEUES_A_TOPIC = 8
LOG_FILE_BYTES = 1 << 28
_TOPIC = "topic_{:06d}"
_DIGITS = 6
_BODY = b"a body of a message, sixty-four bytes of it, no more and no less."[:64]
_TAG = "sample"
_FIRST_TIMESTAMP = 1_700_000_000_000
_CHUNK = 1 << 19


def make_store(root: Path, units: int, queues: int, seed: int = 1, **keys: int) -> StoreConfig:
    """Write ``units`` records, spread evenly over ``queues`` in random order; return the settings.

    One message a tenth of a millisecond. The store was closed cleanly. ``keys`` are settings.
    """
    own = {"mapped_file_size_commit_log": LOG_FILE_BYTES, "message_index_enable": False}
    config = StoreConfig(**own | keys)
    paths = StorePaths(root)
    paths.commit_log.mkdir(parents=True)
    template = _template()
    queue_of = np.random.default_rng(seed).permutation(np.arange(units, dtype=np.int64) % queues)
    order = np.argsort(queue_of, kind="stable")
    sorted_queues = queue_of[order]
    first = np.searchsorted(sorted_queues, np.arange(queues))
    offset_of = np.empty(units, np.int64)
    offset_of[order] = np.arange(units) - first[sorted_queues]
    per_file = (LOG_FILE_BYTES - BLANK_SIZE) // len(template)
    number = np.arange(units, dtype=np.int64)
    phy = number // per_file * LOG_FILE_BYTES + number % per_file * len(template)
    _write_log(paths, template, phy, queue_of, offset_of, per_file)
    _write_queues(paths, config, order, phy, len(template), np.append(first, units))
    checkpoint = StoreCheckpoint(paths.checkpoint)
    last = _timestamps(np.array([units - 1]))[0]
    checkpoint.update(physic_msg_timestamp=int(last), logics_msg_timestamp=int(last))
    checkpoint.flush()
    return config


def topic_and_queue(queue: int) -> QueueKey:
    """Return the queue with number ``queue``."""
    return QueueKey(_TOPIC.format(queue // QUEUES_A_TOPIC), queue % QUEUES_A_TOPIC)


def _template() -> NDArray[np.uint8]:
    """Return a record as a put writes it; its places, numbers and times are still to be set."""
    message = Message(
        topic=_TOPIC.format(0), body=_BODY, properties={"TAGS": _TAG}, born_timestamp=1
    )
    config = StoreConfig(mapped_file_size_commit_log=1 << 16, message_index_enable=False)
    with (
        tempfile.TemporaryDirectory() as folder,
        MessageStore.open(folder, config, housekeeping=False) as store,
    ):
        store.put_message(message)
        return np.frombuffer(bytes(components_of(store).log.message(0).record), np.uint8)


def _timestamps(number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the store times of records, ten of them a ms."""
    return _FIRST_TIMESTAMP + number // 10


def _put(table: NDArray[np.uint8], at: int, column: NDArray[np.int64], kind: str) -> None:
    """Set a field of each record: a column of numbers at byte ``at``."""
    width = np.dtype(kind).itemsize
    table[:, at : at + width] = column.astype(kind).view(np.uint8).reshape(-1, width)


def _write_log(
    paths: StorePaths,
    template: NDArray[np.uint8],
    phy: NDArray[np.int64],
    queue_of: NDArray[np.int64],
    offset_of: NDArray[np.int64],
    per_file: int,
) -> None:
    """Write the log files: the template over and over, with the fields that differ."""
    size, units = len(template), len(phy)
    topic_at = bytes(template).index(_TOPIC.format(0).encode()) + len(_TOPIC.format(0)) - _DIGITS
    stamp_at = HEAD.size + 8
    blank = BLANK.pack(BlankRecord(LOG_FILE_BYTES - per_file * size, MAGIC_BLANK))
    for start in range(0, units, per_file):
        path = paths.commit_log / f"{start // per_file * LOG_FILE_BYTES:020d}"
        with path.open("wb") as file:
            for low in range(start, min(start + per_file, units), _CHUNK):
                at = np.arange(low, min(low + _CHUNK, start + per_file, units))
                table = np.tile(template, (len(at), 1))
                _put(table, HEAD.offset("queue_id"), queue_of[at] % QUEUES_A_TOPIC, ">i4")
                _put(table, HEAD.offset("queue_offset"), offset_of[at], ">i8")
                _put(table, HEAD.offset("phy_offset"), phy[at], ">i8")
                _put(table, stamp_at, _timestamps(at), ">i8")
                topics = queue_of[at] // QUEUES_A_TOPIC
                for digit in range(_DIGITS):
                    column = topics // 10 ** (_DIGITS - 1 - digit) % 10 + ord("0")
                    table[:, topic_at + digit] = column
                file.write(table.tobytes())
            if start + per_file < units:
                file.write(blank)
            file.truncate(LOG_FILE_BYTES)


def _write_queues(
    paths: StorePaths,
    config: StoreConfig,
    order: NDArray[np.int64],
    phy: NDArray[np.int64],
    size: int,
    bounds: NDArray[np.int64],
) -> None:
    """Write the queue files that lead to these records."""
    paths.consume_queue.mkdir()
    sink = bulk_backend("file").sink(paths.consume_queue, config)
    rows = np.empty(len(order), UNIT_ROWS)
    rows["phy_offset"] = phy[order]
    rows["size"] = size
    rows["tags_code"] = java_hash(_TAG)
    for queue in range(len(bounds) - 1):
        low, high = int(bounds[queue]), int(bounds[queue + 1])
        sink.add(topic_and_queue(queue), 0, rows[low:high])
    sink.finish()


if __name__ == "__main__":
    words = sys.argv[1:]
    make_store(
        Path(words[0]),
        int(words[1]) if len(words) > 1 else 1_000_000,
        int(words[2]) if len(words) > 2 else 10_000,
    )
