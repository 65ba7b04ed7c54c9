"""What is wrong in the files of queues, apart from the units themselves."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from cq_file.batch_queue import BatchConsumeQueue
from cq_file.consume_queue import UNIT_SIZE, FileConsumeQueue
from cq_file.layout import file_name, parse_file_name
from store.errors import StoreError
from store.queue.consume_queue_store import QueueFinding
from store.queue.units import QueueKey


def check_queue(key: QueueKey, queue: FileConsumeQueue, file_bytes: int) -> Iterator[QueueFinding]:
    """Yield odd names, sizes, gaps between files, and bytes behind the end."""
    sound = True
    with os.scandir(queue.folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            start = parse_file_name(entry.name)
            size = entry.stat().st_size
            if start is None or start % file_bytes:
                yield QueueFinding("the name is not a queue file's", entry.path, key)
            elif size not in {file_bytes, 0}:
                sound = False
                problem = f"the file has {size} bytes, not {file_bytes}"
                yield QueueFinding(problem, entry.path, key)
    if not sound:
        return
    try:
        queue.open()
    except StoreError as exc:
        yield QueueFinding(str(exc), queue.folder, key)
        return
    files = queue.files()
    for before, after in pairwise(files):
        if after != before + file_bytes:
            path = f"{queue.folder}/{file_name(after)}"
            yield QueueFinding("the file before this one is missing", path, key, after // UNIT_SIZE)
    yield from _bytes_behind(key, queue, file_bytes)


def _bytes_behind(
    key: QueueKey, queue: FileConsumeQueue, file_bytes: int
) -> Iterator[QueueFinding]:
    at = queue.end * UNIT_SIZE
    for start in queue.files():
        position = max(at - start, 0)
        if position >= file_bytes:
            continue
        path = f"{queue.folder}/{file_name(start)}"
        data = Path(path).read_bytes()[position:]
        if data.count(0) != len(data):
            first = position + len(data) - len(data.lstrip(b"\0"))
            problem = "bytes lie behind the end of the queue"
            yield QueueFinding(problem, path, key, queue.end, first)


def check_batch_queue(key: QueueKey, batch: BatchConsumeQueue) -> Iterator[QueueFinding]:
    """Yield a batch queue that cannot be read."""
    try:
        batch.rows()
    except StoreError as exc:
        yield QueueFinding(str(exc), str(batch.folder), key)
