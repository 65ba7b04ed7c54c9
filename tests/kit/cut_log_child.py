"""A process whose log file is cut under its open store: ``python -m tests.kit.cut_log_child``.

It cuts the file, asks, and says on its standard output, a JSON line, how often the answer was right
and which errors there were. A wrong answer ends it with a traceback, a signal as signals do.
"""

import json
import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.errors import StoreError
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.settings.config import FlushDiskType, StoreConfig

COUNT = 300
LOG_FILE = 1 << 18
PAGE = 4096
CUTS: dict[str, Callable[[int], int]] = {
    "nothing is left": lambda end: 0,
    "at a page": lambda end: 2 * PAGE,
    "inside a page": lambda end: 2 * PAGE + 1000,
    "inside the last record": lambda end: end - 10,
}
"""What the file is cut to, by where the log ends."""


class Wrong(Exception):  # noqa: N818 - it is what the answer is
    """An answer that is neither the right one nor an error."""


def body_of(number: int) -> bytes:
    return b"body %03d." % number * 8


def filled(root: Path, backend: str, *, sync: bool = False) -> MessageStore:
    flush = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
    config = StoreConfig(
        mapped_file_size_commit_log=LOG_FILE, max_hash_slot_num=2000, max_index_num=2000,
        mapped_file_size_consume_queue=20 * 2000, flush_disk_type=flush,
        rocksdb_memory_bytes=16 << 20,
    )  # fmt: skip
    store = MessageStore.open(root, config, backend=backend, housekeeping=False)
    for number in range(COUNT):
        properties = {"KEYS": f"k{number}", "TAGS": "T"} if number % 3 else {}
        assert store.put_message(Message("t", body_of(number), 0, properties)).ok
    store.flush()
    return store


class Cut:
    """One store, and what became of each question."""

    def __init__(self, root: Path, backend: str, ask: str, cut: str) -> None:
        self.store = filled(root, backend, sync=ask == "put_sync")
        self.log = components_of(self.store).log
        self.path = root / "commitlog" / f"{0:020d}"
        self.size = CUTS[cut](self.log.max_phy_offset())
        self.right = 0
        self.errors: list[str] = []

    def cut(self) -> None:
        os.truncate(self.path, self.size)

    def expect(self, wanted: object, ask: Callable[[], object]) -> None:
        """Count an answer, which is right or an error."""
        try:
            found = ask()
        except StoreError as exc:
            self.errors.append(f"{type(exc).__name__}: {exc}")
            return
        if found != wanted:
            raise Wrong(f"expected {wanted!r}, found {found!r}")
        self.right += 1

    # ---- pulls

    def _check_pulls(self, tags: TagFilter | None = None) -> None:
        for first in range(0, COUNT, 32):
            result = self.store.get_message("t", 0, first, 32, tags)
            for message in result.messages():
                self._expect_own_body(message)
            self.errors += [each.reason for each in result.damaged]

    def _expect_own_body(self, message: StoredMessage) -> None:
        self.expect(True, lambda: message.body == body_of(message.queue_offset))  # noqa: FBT003

    def pull(self) -> None:
        self.cut()
        self._check_pulls()

    def pull_filtered(self) -> None:
        self.cut()
        self._check_pulls(TagFilter("T"))

    def pulled_before(self) -> None:
        """Fields of messages that were pulled before the cut."""
        results = [self.store.get_message("t", 0, at, 32) for at in range(0, COUNT, 32)]
        decoded = [message for result in results for message in result.messages()]
        late = [self.store.get_message("t", 0, at, 32) for at in range(0, COUNT, 32)]
        fields: dict[str, Callable[[int], object]] = {
            "body": body_of, "queue_offset": int, "topic": lambda _: "t",
            "properties": lambda at: {"KEYS": f"k{at}", "TAGS": "T"} if at % 3 else {},
        }  # fmt: skip
        self.cut()
        for at, message in enumerate(decoded):
            for name, wanted in fields.items():
                self.expect(wanted(at), partial(getattr, message, name))
        for result in late:
            for message in result.messages():
                self._expect_own_body(message)
            self.errors += [each.reason for each in result.damaged]

    def gathered_before(self) -> None:
        """The bytes of results that were pulled before the cut."""
        results = [self.store.get_message("t", 0, at, 32) for at in range(0, COUNT, 32)]
        wanted = [result.raw for result in results]
        self.cut()
        for result, raw in zip(results, wanted, strict=True):
            self.expect(raw, partial(getattr, result, "raw"))

    # ---- other questions

    def query(self) -> None:
        self.cut()
        for number in range(COUNT):
            found = [number] if number % 3 else []
            self.expect(found, partial(self._keyed, number))

    def _keyed(self, number: int) -> list[int]:
        return [message.queue_offset for message in self.store.query_message("t", f"k{number}")]

    def offset_by_time(self) -> None:
        results = [self.store.get_message("t", 0, at, 32) for at in range(0, COUNT, 32)]
        times = [each.store_timestamp for result in results for each in result.messages()]
        self.cut()
        for time in [times[0] - 1, *sorted(set(times)), times[-1] + 1]:
            wanted = bisect_left(times, time)  # a search before the cut would keep times
            self.expect(wanted, partial(self.store.offset_by_time, "t", 0, time))

    def times_of_many(self) -> None:
        phys, sizes = self._places()
        wanted = self.log.store_timestamps(phys, sizes).tolist()
        self.cut()
        self.expect(wanted, lambda: self.log.store_timestamps(phys, sizes).tolist())
        for at in range(COUNT):
            self.expect(
                wanted[at], partial(self.log.store_timestamp, int(phys[at]), int(sizes[at]))
            )

    def scan(self) -> None:
        wanted = [record.phy_offset for record in self.log.scan(0)]
        self.cut()
        self.expect(wanted, lambda: [record.phy_offset for record in self.log.scan(0)])
        for number, at in enumerate(wanted):
            self.expect(body_of(number), partial(self._body_at, at))

    def _body_at(self, phy_offset: int) -> bytes:
        return self.store.message_by_offset(phy_offset).body

    def dispatch(self) -> None:
        self._put()
        self.cut()
        self.expect(COUNT + 1, partial(self.store.max_offset, "t", 0))

    def check(self) -> None:
        self.cut()
        self.expect([], self._findings)

    def _findings(self) -> list[str]:
        found = [str(finding) for finding in self.store.check()]
        self.errors += found
        return []

    def log_heads(self) -> None:
        phys, sizes = self._places()
        heads = LogHeads([self.path.parent])
        wanted = [column.tolist() for column in heads.read_heads(phys, sizes)]
        self.cut()
        self.expect(wanted, lambda: [column.tolist() for column in heads.read_heads(phys, sizes)])

    def _places(self) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
        records = list(self.log.scan(0))
        return (
            np.array([record.phy_offset for record in records], np.int64),
            np.array([record.size for record in records], np.int64),
        )

    # ---- puts

    def _put(self, size: int = 100) -> object:
        return self.store.put_message(Message("t", b"y" * size)).ok

    def put_sync(self) -> None:
        """Nothing is acknowledged that the file has not."""
        self.cut()
        self._refused(self._put)
        self._refused(self._put)

    def put_list_sync(self) -> None:
        self.cut()
        messages = [Message("t", b"y" * 100) for _ in range(40)]
        self._refused(partial(self._flushed, partial(self.store.put_messages, messages)))
        self._refused(self._put)

    def put_long(self) -> None:
        """A body that is written while others run."""
        self.cut()
        self._refused(partial(self._flushed, partial(self._put, 70_000)))
        self._refused(self._put)

    def put_and_flush(self) -> None:
        """An asynchronous put may be acknowledged, but the flush behind it is not."""
        self.cut()
        self._refused(partial(self._flushed, self._put))
        self._refused(self._put)

    def _flushed(self, put: Callable[[], object]) -> object:
        found = put()
        self.store.flush()
        return found

    def _refused(self, ask: Callable[[], object]) -> None:
        try:
            found = ask()
        except StoreError as exc:
            self.errors.append(f"{type(exc).__name__}: {exc}")
            return
        raise Wrong(f"acknowledged: {found!r}")


def questions() -> Iterator[str]:
    """Yield what can be asked."""
    for name in vars(Cut):
        if not name.startswith("_") and name not in {"cut", "expect"}:
            yield name


def main(root: str, backend: str, ask: str, cut: str) -> None:
    requested = Cut(Path(root), backend, ask, cut)
    getattr(requested, ask)()
    print(json.dumps({"right": requested.right, "errors": requested.errors}), flush=True)  # noqa: T201
    os._exit(0)  # a close would flush what is not there


if __name__ == "__main__":
    main(*sys.argv[1:])
