"""Keys that compiled code writes, against an index file that is made key by key in Python."""

import ctypes
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from errno import EBADF, EINTR, EIO, ENOSPC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.store.errors import (
    DiskFullError,
    StoreFailedError,
    StoreIOError,
    TruncatedRecordError,
)
from cqstore.store.files import Descriptor
from cqstore.store.index._writer import KeyWriter, UnreadSlotsError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_service import IndexService
from cqstore.store.index.layout import IndexGeometry, slot_position, time_diff
from tests.kit.given_memory import given_memory
from tests.kit.oracle.index_file import HEADER, SLOT, Key, OracleFile
from tests.kit.oracle.java_hash import java_hash
from tests.kit.shim import SHORT, Shim

NO_HEADER = bytes(HEADER.size)
SECOND = 1000
TIMES = st.sampled_from([0, 1, 500, 999, 1000, 1700, 3_000_000])
KEYS = st.sampled_from(["a", "b", "Aa", "BB", "polygenelubricants"]) | st.integers(0, 500).map(str)


def key_of(row: tuple[str, str, int, int]) -> Key:
    """Return what the file is to have of a row of a batch."""
    topic, key, phy_offset, stored = row
    hashed = abs(java_hash(f"{topic}#{key}"))
    return Key(0 if hashed == 1 << 31 else hashed, phy_offset, stored)


def batch_of(rows: list[tuple[str, str, int, int]]) -> IndexBatch:
    batch = IndexBatch()
    for row in rows:
        batch.add(*row)
    return batch


def opened(folder: Path, slots: int, entries: int) -> IndexService:
    index = IndexService(folder, slots, entries, read_only=False)
    index.load(last_exit_ok=True, index_timestamp=0)
    return index


def files_of(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


@settings(max_examples=60)
@given(
    slots=st.sampled_from([1, 2, 3, 7, 256, 257, 1500, 70_000]),
    entries=st.sampled_from([2, 3, 10, 120, 5000]),
    batches=st.lists(st.lists(st.tuples(KEYS, TIMES), max_size=40) | st.just([]), max_size=12),
    large=st.sampled_from([0, 0, 1030, 3500, 7000]),
    begin=st.sampled_from([0, 1, 1_700_000_000_000, -5000]),
    is_drained=st.booleans(),
)
def test_files_are_those_that_keys_one_by_one_make(
    tmp_path_factory: pytest.TempPathFactory, slots: int, entries: int,
    batches: list[list[tuple[str, int]]], large: int, begin: int, is_drained: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    folder, draw = tmp_path_factory.mktemp("index"), random.Random(large)
    batches.append([(str(draw.randrange(2500)), 1) for _ in range(large if entries > 99 else 0)])
    index, files, phy, now = opened(folder, slots, entries), list[OracleFile](), 0, begin
    for batch in batches:
        rows = []
        for key, step in batch:
            phy, now = phy + 100, now + step - 400
            rows.append(("t", key, phy, now))
        index.put_batch(batch_of(rows))
        for row in rows:
            if not files or files[-1].is_full:
                files.append(OracleFile(slots, entries, files[-1] if files else None))
            files[-1].put(key_of(row))
        if is_drained:
            index.drain()
    index.close()
    assert files_of(folder) == [bytes(file.data) for file in files]


def file_of(path: Path, slots: int, entries: int, rows: int) -> tuple[OracleFile, random.Random]:
    """Write a file with ``rows`` entries; return it, and what to draw more from."""
    model, draw = OracleFile(slots, entries), random.Random(slots)
    for number in range(rows):
        model.put(Key(draw.randrange(1 << 31), 100 * number, 1000 + number))
    path.write_bytes(model.data)
    return model, draw


@pytest.mark.parametrize("slots", [5, 2000, 300_000, 17_000_000])
def test_slots_between_stay_as_they_are(tmp_path: Path, slots: int) -> None:
    """Over many pages, a single slot or many in one; the last file is too large to be kept."""
    model, draw = file_of(tmp_path / "file", slots, 5000, 1000)
    writer = KeyWriter(slots, 5000)
    with (tmp_path / "file").open("r+b") as file:
        for count in (3, 400, 2500):
            first = model.next_index
            phys = range(first * 100, (first + count) * 100, 100)
            rows = [("t", f"k{draw.randrange(2000)}", phy, 5000 + phy) for phy in phys]
            for row in rows:
                model.put(key_of(row))
            header = HEADER.pack(*model.header[:4], 0, model.next_index)
            writer.write(file.fileno(), batch_of(rows), 0, count, first, 1000, 0, header)
            model.data[32:36] = os.pread(file.fileno(), 4, 32)  # counted from 0 here
            assert (tmp_path / "file").read_bytes() == model.data
            writer.forget_heads()


@pytest.mark.parametrize("head", [-1, 7, 8, 1 << 30])
@pytest.mark.parametrize("slots", [1, 17_000_000])
def test_a_slot_that_leads_to_no_entry_counts_as_empty(
    tmp_path: Path, slots: int, head: int
) -> None:
    """As a batch leaves it that was cut short; 6 keys are there, and 6 leads to the last one."""
    path, row = tmp_path / "file", ("t", "k", 700, 5000)
    at = slot_position(key_of(row).key_hash % slots)
    with path.open("w+b") as file:
        file.truncate(IndexGeometry(slots, 20).file_size)
        for slot, previous, used in ((head, 0, 4), (6, 6, 3)):
            os.pwrite(file.fileno(), SLOT.pack(slot), at)
            header = HEADER.pack(0, 0, 0, 0, 3, 0)
            writer = KeyWriter(slots, 20)
            counted = writer.write(file.fileno(), batch_of([row]), 0, 1, 7, 1, 0, header)
            assert counted == min(used, slots)
            entry = os.pread(file.fileno(), 20, IndexGeometry(slots, 20).entry_position(7))
            assert SLOT.unpack_from(entry, 16) == (previous,)
            assert SLOT.unpack(os.pread(file.fileno(), 4, at)) == (7,)


@given(begin=st.integers(-(1 << 63), (1 << 63) - 1), stored=st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_time_is_that_of_the_layout(
    tmp_path_factory: pytest.TempPathFactory, begin: int, stored: int
) -> None:
    path = tmp_path_factory.mktemp("time") / "file"
    path.write_bytes(bytes(IndexGeometry(1, 9).file_size))
    with path.open("r+b") as file:
        rows = batch_of([("t", "k", 0, stored)])
        for first, expected in ((1, 77), (2, time_diff(stored, begin))):
            KeyWriter(1, 9).write(file.fileno(), rows, 0, 1, first, begin, 77, NO_HEADER)
            place = IndexGeometry(1, 9).entry_position(first) + 12
            assert SLOT.unpack(os.pread(file.fileno(), 4, place)) == (expected,)


# ---- what is refused

SLOTS, ENTRIES = 200_000, 60
ROWS = [("t", f"{number % 23 * 987_654_321_987}", number, 1000) for number in range(40)]
"""Their slots lie far apart."""


@pytest.fixture
def shim() -> Iterator[Shim]:
    with Shim() as shim:
        yield shim


def expected_file(rows: list[tuple[str, str, int, int]]) -> bytes:
    model = OracleFile(SLOTS, ENTRIES)
    for row in rows:
        model.put(key_of(row))
    return bytes(model.data)


def begun(folder: Path) -> tuple[IndexService, int]:
    """Return an index with 10 keys, of which 20 more wait, and how many writes they take."""
    with Shim() as shim:
        index = opened(folder / "counted", SLOTS, ENTRIES)
        index.put_batch(batch_of(ROWS[:10]))
        index.drain()
        index.put_batch(batch_of(ROWS[10:30]))
        shim.watch(folder)
        index.drain()
        writes = shim.counts["pwrite"]
        index.close()
    index = opened(folder / "index", SLOTS, ENTRIES)
    index.put_batch(batch_of(ROWS[:10]))
    index.drain()
    index.put_batch(batch_of(ROWS[10:30]))
    return index, writes


def test_a_full_disk_at_any_write_delays_the_keys(tmp_path: Path, shim: Shim) -> None:
    """A reader finds what was written before meanwhile, and the writer's own all keys."""
    _, writes = begun(tmp_path / "count")
    assert writes > 10
    for number in range(1, writes + 1):
        index, _ = begun(tmp_path / str(number))
        for _ in range(3):
            shim.arm(tmp_path, ["pwrite"], ENOSPC, first=number)
            with pytest.raises(DiskFullError):
                index.drain()
            shim.off()
            assert index.files[0].is_cut_short
            check_queries(index, ROWS[:30])
            reader = IndexService(tmp_path / str(number) / "index", SLOTS, ENTRIES, read_only=True)
            reader.load(last_exit_ok=True, index_timestamp=0)
            check_queries(reader, ROWS[:10])
            reader.close()
        index.put_batch(batch_of(ROWS[10:40]))  # the same and more
        assert not index.files[0].is_cut_short
        index.close()
        assert files_of(tmp_path / str(number) / "index") == [expected_file(ROWS)]


def test_a_full_disk_delays_a_batch_that_is_written_at_once(tmp_path: Path, shim: Shim) -> None:
    """The first of a file is; it waits for room as it came."""
    number = refused = 1
    while refused:
        index, batch = opened(tmp_path / str(number), SLOTS, ENTRIES), batch_of(ROWS[:30])
        shim.arm(tmp_path, ["pwrite"], ENOSPC, first=number)
        for _ in range(2):
            with suppress(DiskFullError):
                index.put_batch(batch)
            check_queries(index, ROWS[:30])
        refused = shim.refused
        shim.off()
        index.put_batch(batch)
        index.put_batch(batch_of(ROWS[30:]))
        check_queries(index, ROWS)
        index.close()
        assert files_of(tmp_path / str(number)) == [expected_file(ROWS)]
        number += 1
    assert number > 10


def test_entries_are_written_before_the_header_and_that_before_slots(
    tmp_path: Path, shim: Shim
) -> None:
    index, _ = begun(tmp_path)
    path, slots_end = index.files[0].path, slot_position(SLOTS)
    seen = [path.read_bytes()]
    for number in (1, 2, 3):
        shim.arm(tmp_path, ["pwrite"], ENOSPC, first=number)
        with pytest.raises(DiskFullError):
            index.drain()
        shim.off()
        seen.append(path.read_bytes())
    index.close()
    seen.append(path.read_bytes())
    assert seen[-1] == expected_file(ROWS[:30])
    headers = [data[: HEADER.size] for data in seen]
    slots, entries = (
        [data[HEADER.size : slots_end] for data in seen],
        [data[slots_end:] for data in seen],
    )
    assert entries[0] == entries[1] != entries[2] == entries[4]
    assert headers[0] == headers[2] != headers[3] == headers[4]
    assert slots[0] == slots[3] != slots[4]


def check_queries(index: IndexService, rows: list[tuple[str, str, int, int]]) -> None:
    """All of ``rows`` are found, newest first; what was written behind them may be, too."""
    for _, key, *_ in rows:
        known = [row[2] for row in rows if row[1] == key][::-1]
        assert index.query("t", key, 64, 0, 1 << 62)[-len(known) :] == known


@pytest.mark.parametrize("code", [SHORT, EINTR])
def test_a_write_that_is_cut_short_is_gone_on_with(tmp_path: Path, shim: Shim, code: int) -> None:
    index, writes = begun(tmp_path)
    shim.arm(tmp_path, ["pwrite"], code, times=writes)
    index.drain()
    assert shim.refused == writes
    shim.off()
    index.close()
    assert files_of(tmp_path / "index") == [expected_file(ROWS[:30])]


def test_a_refused_write_ends_it(tmp_path: Path, shim: Shim) -> None:
    index, writes = begun(tmp_path)
    shim.arm(tmp_path, ["pwrite"], EIO, first=writes)
    with pytest.raises(StoreIOError, match="cannot write an index file") as caught:
        index.drain()
    assert caught.value.path == index.files[0].path
    shim.off()
    with pytest.raises(StoreFailedError):
        index.drain()
    check_queries(index, ROWS[:30])
    index.close(flush=False)


def test_slots_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    index, _ = begun(tmp_path)
    file = index.files[0]
    before = file.path.read_bytes()
    file.opened = Descriptor(file.path, os.O_WRONLY)
    with pytest.raises(StoreIOError, match="cannot read the index file: Bad file desc") as caught:
        index.drain()
    assert caught.value.path == file.path
    with pytest.raises(StoreFailedError):
        index.drain()
    assert file.path.read_bytes() == before
    index.close(flush=False)


@pytest.mark.parametrize("size", [0, slot_position(1), IndexGeometry(SLOTS, ENTRIES).file_size - 1])
def test_a_file_that_was_cut_meanwhile_takes_no_more(tmp_path: Path, size: int) -> None:
    index, _ = begun(tmp_path)
    path = index.files[0].path
    os.truncate(path, size)
    with pytest.raises(TruncatedRecordError) as caught:
        index.drain()
    assert caught.value.path == path
    assert f"{size} bytes" in str(caught.value)
    assert path.stat().st_size == size
    index.close(flush=False)


@pytest.mark.parametrize("given", [(1, 1, 1), (0, 3, 1), (-1, 1, 1), (2, 1, 1)])
def test_rows_that_are_not_there_are_refused(given: tuple[int, int, int]) -> None:
    batch = batch_of(ROWS[:2])
    with pytest.raises(IndexError, match="rows"):
        KeyWriter(5, 9).write(-1, batch, *given, 0, 0, NO_HEADER)


@pytest.mark.parametrize("first", [0, -1, 8, (1 << 31) - 1, 1 << 40, (1 << 63) - 1])
def test_entries_that_no_file_has_are_refused(first: int) -> None:
    with pytest.raises(IndexError, match="entries"):
        KeyWriter(5, 9).write(-1, batch_of(ROWS[:2]), 0, 2, first, 0, 0, NO_HEADER)


def test_what_is_no_file_and_no_header_is_refused() -> None:
    for slots, entries in ((0, 5), (5, 0), (-1, 5), (5, -1), (1 << 57, 5), (5, 1 << 57)):
        with pytest.raises(ValueError, match="slots or entries"):
            KeyWriter(slots, entries)
    with pytest.raises(ValueError, match="header"):
        KeyWriter(5, 9).write(-1, batch_of(ROWS[:1]), 0, 1, 1, 0, 0, NO_HEADER + b"\0")
    with pytest.raises(UnreadSlotsError) as caught:
        KeyWriter(5, 9).write(-1, batch_of(ROWS[:1]), 0, 1, 1, 0, 0, NO_HEADER)
    assert caught.value.args == (0, IndexGeometry(5, 9).file_size, 0, EBADF)


def test_full_files_keep_no_slots_in_memory(tmp_path: Path) -> None:
    slots, entries, files = 2_000_000, 4000, 8
    index, draw = opened(tmp_path, slots, entries), random.Random(1)
    before = given_memory()
    for number in range(files):
        batch = IndexBatch()
        for key in range(entries - 1):
            batch.add("t", str(draw.randrange(1 << 60)), number * entries + key, 1)
        index.put_batch(batch)
    assert len(index.files) == files
    assert given_memory() - before < 4 * slots * files // 3
    index.close()


def test_keys_are_written_without_the_interpreters_lock(tmp_path: Path, shim: Shim) -> None:
    index, writes = begun(tmp_path)
    path = index.files[0].path
    shim.watch(tmp_path)
    index.drain()
    assert (shim.foreign["pwrite"], shim.locked) == (writes, 0)
    with path.open("r+b") as file:  # a call that holds it is one that counts
        ctypes.PyDLL(None).pwrite(file.fileno(), b"", 0, 0)
    assert shim.locked == 1
    shim.off()
    index.close()
