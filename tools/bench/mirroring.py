"""What the mirror costs readers: pulls with it beside the same pulls without, turn by turn.

Both are measured in CPU time, in many short turns of one run, since the machine is never quiet. The
reader's own thread says what a pull takes longer; the whole process says what the mirror's thread
takes beside it, and waits for the interpreter are in neither.
"""

# ruff: noqa: SLF001 - the mirror of one store is taken away and put back

import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from cqstore.ab.mirror.mirror import Mirror
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tools.bench.workloads import Reached, folder

_QUEUES, _MESSAGES = 50, 100_000
_CALLS, _TURNS = 2_000, 100
_TYPES = {"file": "default", "rocksdb": "defaultRocksDB"}
Place = tuple[int, int]


def mirrored(read: str, share: float, *, whole: bool = False) -> Reached:
    """Pulls of 32 messages that are mirrored by ``share``, beside the same without a mirror."""
    config = _config(read, share)
    with folder() as root, MessageStore.open(root, config, housekeeping=False) as store:
        places = _fill(store)
        interceptor, clock = store._interceptor, time.process_time if whole else time.thread_time

        def turn(*, on: bool) -> float:
            store._interceptor = interceptor if on else None
            began = clock()
            _pull(store, places)
            if whole and on and isinstance(interceptor, Mirror):
                while interceptor._waiting:
                    time.sleep(0.05)  # costs no CPU time
            return clock() - began

        return _pairs(partial(turn, on=True), partial(turn, on=False))


def off(read: str) -> Reached:
    """Pulls of a store without a mirror, beside its puller by itself."""
    with folder() as root, MessageStore.open(root, _config(read, 0)) as store:
        places = _fill(store)

        def beneath() -> float:
            began = time.thread_time()
            ready, get = store._ready, store._puller.get
            for queue_id, offset in places:
                ready()
                get("topic", queue_id, offset, 32, None, 1 << 27)
            return time.thread_time() - began

        def pulls() -> float:
            began = time.thread_time()
            _pull(store, places)
            return time.thread_time() - began

        return _pairs(pulls, beneath)


def _config(read: str, share: float) -> StoreConfig:
    return StoreConfig(
        mapped_file_size_commit_log=1 << 26, rocksdb_cq_double_write_enable=True,
        combine_cq_prefer_cq_type=_TYPES[read], ab_share=share,
    )  # fmt: skip


def _fill(store: MessageStore) -> list[Place]:
    for first in range(0, _MESSAGES, 100):
        numbers = range(first, first + 100)
        store.put_messages([Message("topic", bytes(128), n % _QUEUES) for n in numbers])
    draw, last = random.Random(1), _MESSAGES // _QUEUES - 32
    return [(draw.randrange(_QUEUES), draw.randrange(last)) for _ in range(_CALLS)]


def _pull(store: MessageStore, places: list[Place]) -> None:
    for queue_id, offset in places:
        store.get_message("topic", queue_id, offset, 32)


def _pairs(first: Callable[[], float], second: Callable[[], float]) -> Reached:
    """Return the rates of both: the second's median, and the first's by the median of ratios."""
    draw, seconds, ratios = random.Random(2), list[float](), list[float]()
    for number in range(_TURNS):
        if draw.random() < 1 / 2:
            mine, other = first(), second()
        else:
            other, mine = second(), first()
        if number >= _TURNS // 10:
            seconds.append(other)
            ratios.append(other / mine)
    raw = _CALLS / statistics.median(seconds)
    return Reached(raw * statistics.median(ratios), raw, "pulls a CPU second")


MIRRORING: dict[str, Callable[[], Reached]] = {}
for _read in _TYPES:
    MIRRORING[f"get {_read} without a mirror, its puller by itself"] = partial(off, _read)
    MIRRORING[f"get {_read} mirrored 1 %, reader"] = partial(mirrored, _read, 0.01)
    MIRRORING[f"get {_read} mirrored 1 %, process"] = partial(mirrored, _read, 0.01, whole=True)
