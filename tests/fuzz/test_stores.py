"""Whole stores with damaged files, through open, check, get, query, put and close.

RocketMQ's golden stores and our own, closed well and not. ``tests/crash/test_random_damage.py``
says what a damaged store must still answer; here it only has to answer with our errors, in bounded
time and memory.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.settings.config import StoreConfig
from tests.kit.corpus import record_fields
from tests.kit.golden import NAMES
from tests.kit.long_too import long_too
from tests.kit.mutations import in_time, mutated, resident

QUICK, LONG = range(50), range(50, 2050)
CONFIG = StoreConfig(
    mapped_file_size_commit_log=16_384, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=200, enable_lmq=True, enable_multi_dispatch=True, rocksdb_memory_bytes=16 << 20,
)  # fmt: skip
OWN = len(backend_names())
SECONDS, BYTES = 60, 256 << 20
LONG_MAX = (1 << 63) - 1


@pytest.fixture(scope="module")
def stores(golden_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every golden store, and our own of each backend."""
    own = tmp_path_factory.mktemp("own")
    made = [golden_folder / name for name in NAMES]
    for name in backend_names():
        with MessageStore.open(own / name, CONFIG, backend=name) as store:
            fill(store)
        made.append(own / name)
    return made


def fill(store: MessageStore) -> None:
    """Put messages of several kinds, delete a topic, expire a file."""
    light = {MessageProperty.INNER_MULTI_DISPATCH: "%LMQ%a"}
    put = store.put_message
    for number in range(150):
        properties = {"TAGS": f"t{number % 3}", "KEYS": f"k{number}"}
        assert put(Message("t", b"%d " % number * 40, number % 3, properties)).ok
        assert put(Message("gone", b"x", 0, light if number % 10 == 0 else {})).ok
        assert put(Message("SCHEDULE_TOPIC_XXXX", b"late", 2, {"DELAY": "3"})).ok
    store.delete_topic("gone")
    store.delete_expired_files(16_384)
    assert put(Message("gone", b"again")).ok


def damaged(draw: random.Random, root: Path) -> list[tuple[Path, str]]:
    """Damage one file or two of the store in ``root``; return which, and how."""
    done = []
    for _ in range(draw.choice((1, 1, 2))):
        files = sorted(path for path in root.rglob("*") if path.is_file())
        kinds = sorted({path.relative_to(root).parts[0] for path in files})
        kind = draw.choice(kinds)
        path = draw.choice([p for p in files if p.relative_to(root).parts[0] == kind])
        how = draw.randrange(10)
        if how == 0:
            path.unlink()
        elif how == 1:
            path.rename(path.with_name(odd_name(draw, path.name)))
        elif how == 2:
            path.write_bytes(draw.choice(files).read_bytes())
        else:
            path.write_bytes(damaged_bytes(draw, path, draw.choice(files).read_bytes()[:65_536]))
        done.append((path, str(how)))
    return done


def damaged_bytes(draw: random.Random, path: Path, other: bytes) -> bytes:
    """Damage the part of a file that holds data; mostly keep the file's size."""
    data = path.read_bytes()
    used = len(data.rstrip(b"\0")) + 64
    since = draw.randrange(used) if used > 512 else 0
    fields = [range(at, at + 8) for at in range(0, 256, 20)]
    if path.parent.name == "commitlog":  # the start of a record, if one is in reach
        start = data.find(b"\xda\xa3\x20\xa7", since)
        since, fields = max(start - 4, 0), record_fields()
    part = data[since : since + 4096]
    new = mutated(draw, part, other, fields)
    if draw.random() < 0.8:
        new = new[: len(part)].ljust(len(part), b"\0")
    return data[:since] + new + data[since + 4096 :]


def odd_name(draw: random.Random, name: str) -> str:
    if name.isdecimal():
        moved = int(name) + draw.choice((1, -1, 400, 16_384, 1 << 40, 1 << 62))
        return draw.choice((f"{max(moved, 0):0{len(name)}d}", name + "0", "\u0661" * len(name)))
    return name + ".old"


def use(root: Path, *, read_only: bool) -> None:
    """Open, check, pull, query, put, flush and close; each may be refused with our errors."""
    store = MessageStore.open(root, read_only=read_only)
    try:
        for act in acts(store):
            with suppress(StoreError):
                act()
    finally:
        with suppress(StoreError):
            store.close()


def acts(store: MessageStore) -> Iterator[Callable[[], object]]:
    """Yield what to do with a store."""
    yield lambda: list(islice(store.check(), 1000))
    keys = [QueueKey("t", 0)]
    with suppress(StoreError):
        keys += islice(store.queue_keys(), 12)
    for key in keys:
        yield partial(pull, store, *key)
        yield partial(store.offset_by_time, *key, 1_700_000_000_000)
        yield partial(store.estimate_message_count, *key, 0, LONG_MAX, TagFilter("t1"))
    yield lambda: [message.body for message in store.query_message("t", "k7")]
    yield lambda: store.message_by_offset(0).properties
    if store.read_only:
        return
    for topic, queue_id in keys:
        message = Message(topic, b"new", queue_id, {"KEYS": "k7", "TAGS": "t1"})
        yield partial(store.put_message, message)
    yield lambda: store.get_message(*keys[-1], store.max_offset(*keys[-1]) - 1)
    yield store.flush
    yield lambda: store.delete_expired_files(1 << 40)
    yield lambda: store.delete_topic("t")


def pull(store: MessageStore, topic: str, queue_id: int) -> None:
    offset = store.min_offset(topic, queue_id)
    for tags in (None, TagFilter("t1 || TagA")):
        for _ in range(5):
            result = store.get_message(topic, queue_id, offset, 32, tags)
            with suppress(StoreError):
                _ = [(message.topic, message.properties) for message in result.messages()]
            offset = result.next_begin_offset


def check_one(stores: list[Path], folder: Path, seed: int) -> None:
    draw = random.Random(f"store {seed}")
    source = draw.choice(stores if draw.random() < 0.4 else stores[-OWN:])
    root = Path(shutil.copytree(source, folder / "store"))
    if draw.random() < 0.5:
        (root / "abort").write_bytes(b"1")
    done = damaged(draw, root)
    for read_only in (True, False):
        try:
            with in_time(SECONDS), resident(BYTES):
                use(root, read_only=read_only)
        except StoreError:
            continue
        except BaseException as exc:
            exc.add_note(f"seed {seed}, {source.name}, read_only={read_only}: {done}")
            raise


@pytest.mark.parametrize("seed", [*QUICK, *long_too(LONG)])
def test_a_damaged_store_answers_with_our_errors(
    stores: list[Path], tmp_path: Path, seed: int
) -> None:
    check_one(stores, tmp_path, seed)
