"""Damaged index files, checkpoints and journals."""

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError
from cqstore.store.index.index_service import IndexService, open_index_file
from cqstore.store.index.layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    IndexGeometry,
    slot_position,
)
from cqstore.store.journals.backend_state import (
    BackendState,
    read_backend_state,
    write_backend_state,
)
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.journals.journal import _crc32c
from cqstore.store.journals.store_mode import StoreMode, store_modes
from cqstore.store.log.checkpoint import CHECKPOINT, StoreCheckpoint
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from tests.kit.index_records import index_record
from tests.kit.mutations import fuzz, mutated

SLOTS, ENTRIES = 7, 40
GEOMETRY = IndexGeometry(SLOTS, ENTRIES)
LONG_MAX = (1 << 63) - 1


def index_files(folder: Path) -> list[bytes]:
    """Return a full file, the one begun behind it, and one with few keys."""
    found = []
    for keys in (60, 5):
        index = IndexService(folder / str(keys), SLOTS, ENTRIES, read_only=False)
        index.load(True, 0)  # noqa: FBT003
        for number in range(keys):
            index_record(index, "T", None, f"k{number % 9}", 100 * number, 10_000 + 900 * number)
        index.close()
        found += [path.read_bytes() for path in sorted((folder / str(keys)).iterdir())]
    return found


def numbers_in(data_at: int, layout_size: int, widths: Sequence[int]) -> list[range]:
    assert sum(widths) == layout_size
    starts = [data_at + sum(widths[:at]) for at in range(len(widths))]
    return [range(start, start + width) for start, width in zip(starts, widths, strict=True)]


def put_many(index: IndexService) -> None:
    for at in range(50):
        index_record(index, "T", None, "k5", 8_000 + at, LONG_MAX - at)


def use_index(folder: Path, *, read_only: bool, last_exit_ok: bool) -> None:
    """Load, query, check; read-write also put, cut, delete and flush."""
    given = (SLOTS, ENTRIES) if last_exit_ok else (None, None)
    index = IndexService(folder, *given, read_only=read_only)
    index.load(last_exit_ok, 12_000)
    requested = [
        lambda: index.query("T", "k3", 10, 0, LONG_MAX),
        lambda: index.query("T", "k3", 1, 11_000, 20_000),
        lambda: list(index.check(2_000)),
        index.resume_phy_offset,
    ]
    if not read_only:
        requested += [
            lambda: index.truncate_dirty(3_000),
            lambda: index_record(index, "T", "u", "k3 k4", 7_000, 90_000),
            lambda: put_many(index),
            lambda: index.query("T", "k5", 10, 0, LONG_MAX),
            index.flush,
            lambda: index.delete_expired(5_000),
            lambda: list(index.check()),
        ]
    for ask in requested:
        with suppress(StoreError):
            ask()
    index.close()


def with_crcs(draw: random.Random, data: bytes, other: bytes, fields: Sequence[range]) -> bytes:
    """Damage a journal, and mostly let the CRC of each line be right again."""
    damaged = mutated(draw, data, other, fields)
    if draw.random() < 0.3:
        return damaged
    lines = []
    for line in damaged.split(b"\n")[:-1]:
        text = line.partition(b" ")[2]
        if draw.random() < 0.3:
            text = odd_entry(draw, text)
        lines.append(b"%08x %s\n" % (_crc32c(text), text))
    return b"".join(lines)


def odd_entry(draw: random.Random, text: bytes) -> bytes:
    """Return an entry whose values, though JSON, are none that was ever written."""
    try:
        entry = json.loads(text)
    except ValueError:
        return draw.choice((b"[" * 100_000, b"9" * 5_000, b"nul", b"{}", b'"\xff"'))
    values: list[object] = [
        -1, True, None, 1.5, 1 << 70, 10**4000, LONG_MAX, "", "..", "a/b", "\ud800", [], {},
        ["T", 1 << 40], ["T", True], ["T" * 300, 0], ["../x", 0],
    ]  # fmt: skip
    if isinstance(entry, dict) and entry:
        entry[draw.choice(list(entry))] = draw.choice(values)
    return json.dumps(entry).encode()


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)])
class TestDamaged:
    def test_index_files(self, tmp_path: Path, *, long: bool) -> None:
        seeds = index_files(tmp_path)
        entry = [4, 8, 4, 4]
        fields = numbers_in(0, INDEX_HEADER.size, [8, 8, 8, 8, 4, 4])
        fields += [range(at, at + 4) for at in range(slot_position(0), slot_position(SLOTS), 4)]
        for number in (1, 2, 5, 39):
            fields += numbers_in(GEOMETRY.entry_position(number), INDEX_ENTRY.size, entry)
        assert INDEX_SLOT.size == 4
        folder = tmp_path / "index"
        folder.mkdir()
        path = folder / "20260101000000000"

        def run(data: bytes) -> None:
            for read_only, last_exit_ok in ((True, True), (True, False), (False, True)):
                for old in folder.iterdir():
                    old.unlink()
                path.write_bytes(data.ljust(GEOMETRY.file_size, b"\0")[: GEOMETRY.file_size])
                with suppress(StoreError):
                    use_index(folder, read_only=read_only, last_exit_ok=last_exit_ok)
            path.write_bytes(data)
            list(islice(open_index_file(path).rows(), 100))

        fuzz("index file", seeds, run, 300, long=long, fields=fields)

    def test_checkpoints(self, tmp_path: Path, *, long: bool) -> None:
        seeds = [CHECKPOINT.struct.pack(1, 2, 3, 4, 5, 6).ljust(4096, b"\0"), b"\x01" * 48]
        fields = [range(at, at + 8) for at in range(0, CHECKPOINT.size, 8)]
        path = tmp_path / "checkpoint"

        def run(data: bytes) -> None:
            path.write_bytes(data)
            checkpoint = StoreCheckpoint(path)
            assert checkpoint.min_timestamp >= 0
            checkpoint.flush()
            assert StoreCheckpoint(path).fields == checkpoint.fields

        fuzz("checkpoint", seeds, run, 200, long=long, fields=fields)

    def test_journals(self, tmp_path: Path, *, long: bool) -> None:
        deleted, expired = DeletedTopics(tmp_path / "deleted"), ExpiredQueues(tmp_path / "expired")
        for number in range(4):
            deleted.begin([f"topic {number}", "both"], 1000 * number)
            if number != 2:
                deleted.finish([f"topic {number}", "both"])
        deleted.begin(["\u00e4"], 5)
        expired.add((QueueKey(f"T{number}", number), 10 * number) for number in range(4))
        expired.forget(["T2", "T"])
        seeds = [deleted.path.read_bytes(), expired.path.read_bytes()]
        path = tmp_path / "journal"

        def run(data: bytes) -> None:
            path.write_bytes(data)
            for end in ExpiredQueues(path).ends().items() if b"queue" in data else ():
                assert 0 <= end[1] <= LONG_MAX
            topics = DeletedTopics(path)
            topics.load()
            topics.has_record("topic 1", 10)
            topics.unfinished()
            topics.fit(500, 2500)
            topics.begin(["T"], 2000)
            topics.finish(["T"])
            again = DeletedTopics(path)
            again.load()
            assert again.has_record("T", 1999)

        fuzz("journal", seeds, run, 500, long=long, mutate=with_crcs)

    def test_the_record_of_the_backends(self, tmp_path: Path, *, long: bool) -> None:
        paths = StorePaths(tmp_path)
        backend_state = BackendState(StoreMode("file"), {"rocksdb": 5}, {"rocksdb": "a*;b"}, 7)
        seeds = []
        chosen = BackendState(StoreMode("rocksdb"), {}, {"rocksdb": "!b"}, 7, {"rocksdb": "!b"})
        for each in (backend_state, chosen, BackendState()):
            write_backend_state(paths, each)
            seeds.append(paths.mode.read_bytes())

        def run(data: bytes) -> None:
            paths.mode.write_bytes(data)
            found = read_backend_state(paths)
            for at in (*found.lagging.values(), found.alike):
                assert 0 <= at <= LONG_MAX
            assert found.mode is None or found.mode in store_modes()

        fuzz("record of the backends", seeds, run, 300, long=long, mutate=with_crcs)
