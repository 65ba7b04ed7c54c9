"""A worker is asked to stop at any instant: what was acknowledged is there after reopening, once.

Every step that writes or hands on is interrupted at every place where Python looks for signals
(the normal run takes a share), the store is closed, as well as that goes, and opened again.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import FlushDiskType, RocksDBEngine, StoreConfig
from tests.kit.acknowledged import TOPIC, Acknowledged
from tests.kit.engines import ENGINES
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.reput import SMALL_BATCHES
from tests.kit.share import SomePlaces

SHARE = 3
"""Places a step and backend that the normal run takes."""
MOST = 1500
"""As many at most the long run takes; a quarter where a share of it is drawn."""
SECONDS = 60
GONE = "gone"
BASE = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=200,
    max_hash_slot_num=20, max_index_num=400, enable_lmq=True, enable_multi_dispatch=True,
    **SMALL_BATCHES,
)  # fmt: skip
SYNC = BASE.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
CONFIGS = {"async": BASE, "sync": SYNC}


@dataclass
class Case:
    """An open store with messages that wait for dispatch, and what it has acknowledged."""

    store: MessageStore
    known: Acknowledged
    followed: Acknowledged
    """What another store has that went on as this one did, and then further."""
    further: bytes
    """Its log from there on."""
    deleted: bool = False

    def put(self) -> None:
        self.known.put(self.store)

    def put_odd(self) -> None:
        self.known.put(self.store, is_odd=True)

    def put_list(self, *, is_odd: bool = False) -> None:
        first = self.known.requested
        numbers = range(first, first + 40)  # over two files of the log
        self.known.requested += len(numbers)
        bodies = [b"%d " % number * 60 for number in numbers]
        messages = [
            Message(TOPIC, body, number % 2, {"KEYS": f"k{number}"}, flag=is_odd or 0)
            for number, body in zip(numbers, bodies, strict=True)
        ]
        for number, body, done in zip(
            numbers, bodies, self.store.put_messages(messages), strict=True
        ):
            if done.ok:
                self.known.bodies[number % 2, done.queue_offset] = done.phy_offset, body

    def put_odd_list(self) -> None:
        self.put_list(is_odd=True)

    def put_light(self) -> None:
        names = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
        assert self.store.put_message(Message("other", b"light", 0, names)).ok

    def follow(self) -> None:
        self.known.requested = self.followed.requested
        end = self.store.max_phy_offset()
        assert self.store.append_to_commit_log(end, self.further) == end + len(self.further)
        self.known.bodies.update(self.followed.bodies)

    def pull(self) -> None:
        self.store.get_message(TOPIC, 0, 0)

    def query(self) -> None:
        self.store.query_message(TOPIC, "k1")

    def flush(self) -> None:
        self.store.flush()

    def close(self) -> None:
        self.store.close()

    def rebuild(self) -> None:
        self.store.rebuild_queues(TOPIC)

    def delete(self) -> None:
        self.store.delete_topic(GONE)
        self.deleted = True

    def expire(self) -> None:
        self.store.delete_expired_files(self.store.max_phy_offset())


STEPS: dict[str, Callable[[Case], None]] = {
    "put": Case.put, "list": Case.put_list,
    "odd-put": Case.put_odd, "odd-list": Case.put_odd_list,
    "follow": Case.follow, "light": Case.put_light,
    "pull": Case.pull, "query": Case.query, "flush": Case.flush, "close": Case.close,
    "rebuild": Case.rebuild, "delete": Case.delete, "expire": Case.expire,
}  # fmt: skip
IN_THE_CORE = {"put", "list", "pull", "query"}
"""Of their steps a few are left for the interpreter."""
VARIANTS = [
    "file--async", "file--sync", "both--async",
    *[f"rocksdb-{engine.value}-async" for engine in ENGINES],
]  # fmt: skip
"""Backend, engine and flush; both: double write with a mirror."""


def bytes_of_log(store: MessageStore, start: int) -> bytes:
    """Return the bytes of the log from ``start`` to its end."""
    log, found = components_of(store).log, b""
    for file in log.files:
        first = max(start - file.file_from_offset, 0)
        last = min(log.max_phy_offset() - file.file_from_offset, file.file_size)
        found += file.read(first, last - first) if first < last else b""
    return found


class Bench:
    """Makes cases: copies of one store, opened alike."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder = folder
        backend, engine, flush = variant.split("-")
        self.backend = None if backend == "both" else backend
        self.config = config = CONFIGS[flush]
        if self.backend is None:
            double = {"rocksdb_cq_double_write_enable": True, "ab_share": 1.0}
            self.config = config.model_copy(update=double)
        if engine:
            self.config = config.model_copy(update={"rocksdb_engine": RocksDBEngine(engine)})
        self.known = Acknowledged()
        with self.opened(folder / "first") as store:
            for number in range(30):
                self.known.put(store)
                store.put_message(Message(GONE, b"g%d" % number, number % 3))

        shutil.copytree(folder / "first", folder / "other")
        followed = Acknowledged(requested=self.known.requested)
        with self.opened(folder / "other") as store:
            for _ in range(6):
                followed.put(store)
            end, followed.bodies = store.max_phy_offset(), {}
            for _ in range(20):
                followed.put(store)
            self.further = followed, bytes_of_log(store, end)

    def opened(self, root: Path) -> MessageStore:
        return MessageStore.open(root, self.config, backend=self.backend, housekeeping=False)

    def run(self, step: str, number: int) -> int:
        """Interrupt ``step`` at place ``number``; return how many places there were until then."""
        root = self.folder / "case"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.folder / "first", root)
        known = Acknowledged(dict(self.known.bodies), self.known.requested)
        case = Case(self.opened(root), known, *self.further)
        for _ in range(6):
            case.put()
        places = 0
        with suppress(Interrupted):  # one in a generator that is being closed goes no further
            places = run_interrupted(lambda: STEPS[step](case), number)
        for _ in range(3):  # it goes on, if the store lets it
            with suppress(StoreError):
                case.put()
        with suppress(StoreError):
            case.store.close()
        case.store.close()
        self.check(root, case)
        return places

    def check(self, root: Path, case: Case) -> None:
        with self.opened(root) as store:
            case.known.check(store)
            for number in range(case.known.requested):
                found = store.query_message(TOPIC, f"k{number}")
                places = [message.phy_offset for message in found]
                assert len(places) == len(set(places))
                body = b"%d " % number * 60
                expected = [
                    at for at, held in case.known.bodies.values() if held == body
                    and at >= store.min_phy_offset()
                ]  # fmt: skip
                assert set(places) >= set(expected), f"k{number}"
            gone = sum(store.max_offset(GONE, queue_id) for queue_id in range(3))
            assert gone == 0 if case.deleted else gone in {0, 30}
            damage = [finding for finding in store.check() if finding.damage]
            assert damage == []
            assert store.put_message(Message(TOPIC, b"more")).ok


@pytest.fixture(scope="module", params=VARIANTS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    with in_time(SECONDS):
        return Bench(tmp_path_factory.mktemp("bench"), request.param)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_loses_nothing(bench: Bench, step: str, some_places: SomePlaces) -> None:
    places = bench.run(step, 0)
    assert places > (20 if step not in IN_THE_CORE else 5)
    for number in some_places(places, SHARE, MOST):
        with in_time(SECONDS):
            bench.run(step, number)
