"""Slots and entries are found from the files alone: files made by hand, whole and damaged."""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, TruncatedRecordError, UnsupportedFormatError
from cqstore.store.index import geometry
from cqstore.store.index.geometry import common_size, find_geometry
from cqstore.store.index.layout import IndexGeometry
from tests.kit.descriptors import descriptors_of

HEADER, SLOT, ENTRY = struct.Struct(">qqqqii"), struct.Struct(">i"), struct.Struct(">iqii")
SLOTS, ENTRIES = 7, 40
SIZE = HEADER.size + SLOT.size * SLOTS + ENTRY.size * ENTRIES


class Made:
    """The bytes of an index file, written as RocketMQ's ``IndexFile.putKey`` does."""

    def __init__(self, slots: int, entries: int, keys: int) -> None:
        draw = random.Random(keys)
        self.slots = slots
        self.data = bytearray(HEADER.size + SLOT.size * slots + ENTRY.size * entries)
        self.hashes = [draw.randrange(1, 1 << 31) for _ in range(keys)]
        self.hashes[1:2] = [0][: keys - 1]  # a hash may be 0
        for number, key_hash in enumerate(self.hashes, 1):
            slot = key_hash % slots
            self.set_entry(number, key_hash, 1000 + 50 * number, 3 * number, self.slot(slot))
            self.set_slot(slot, number)
        if keys:
            used = len({key_hash % slots for key_hash in self.hashes})
            times = (10_000, 10_000 + 3000 * keys)
            HEADER.pack_into(self.data, 0, *times, 1050, 1000 + 50 * keys, used, keys + 1)

    def slot(self, slot: int) -> int:
        found: int = SLOT.unpack_from(self.data, HEADER.size + SLOT.size * slot)[0]
        return found

    def set_slot(self, slot: int, newest: int) -> None:
        SLOT.pack_into(self.data, HEADER.size + SLOT.size * slot, newest)

    def entry(self, number: int) -> list[int]:
        return list(ENTRY.unpack_from(self.data, self._at(number)))

    def set_entry(self, number: int, *fields: int) -> None:
        ENTRY.pack_into(self.data, self._at(number), *fields)

    def change(self, number: int, field: int, value: int) -> None:
        fields = self.entry(number)
        fields[field] = value
        self.set_entry(number, *fields)

    def _at(self, number: int) -> int:
        return HEADER.size + SLOT.size * self.slots + ENTRY.size * number

    def write(self, path: Path) -> Path:
        path.write_bytes(self.data)
        return path


@pytest.mark.parametrize("rows_at_once", [1 << 19, 3])
@pytest.mark.parametrize(("slots", "entries"), [(7, 40), (1, 9), (33, 12), (5, 200)])
def test_every_used_file_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, entries: int, rows_at_once: int
) -> None:
    monkeypatch.setattr(geometry, "_SCAN_ROWS", rows_at_once)
    path = tmp_path / "i"
    for keys in (1, 2, entries // 2, entries - 2, entries - 1):
        Made(slots, entries, keys).write(path)
        assert find_geometry([path], None, None) == (slots, entries), keys
    none = Made(slots, entries, 0)
    assert find_geometry([none.write(path)], None, None) is None
    assert descriptors_of(tmp_path) == []
    HEADER.pack_into(none.data, 0, 0, 0, 0, 0, 0, 1)  # RocketMQ counts from one
    assert find_geometry([none.write(path)], None, None) is None


def test_slots_that_are_far_apart_are_read_one_by_one(tmp_path: Path) -> None:
    made = Made(400_000, 40, 30)
    assert find_geometry([made.write(tmp_path / "i")], None, None) == (400_000, 40)
    made.set_slot(made.hashes[20] % made.slots, 3)
    with pytest.raises(CorruptionError):
        find_geometry([made.write(tmp_path / "i")], None, None)


def second(made: Made) -> int:
    """Return an entry with another one before it in its chain."""
    return next(number for number in range(2, 31) if made.entry(number)[3])


def other_slot(made: Made, number: int) -> int:
    """Return an earlier entry that is in another chain than ``number`` is."""
    slot = made.hashes[number - 1] % SLOTS
    return next(n for n in range(1, number) if made.hashes[n - 1] % SLOTS != slot)


def header(made: Made, field: int, value: int) -> None:
    fields = list(HEADER.unpack_from(made.data))
    fields[field] = value
    HEADER.pack_into(made.data, 0, *fields)


DAMAGES: dict[str, Callable[[Made], object]] = {
    "a negative hash": lambda made: made.change(20, 0, -1),
    "an offset before the one before": lambda made: made.change(20, 1, 1000 + 50 * 19 - 1),
    "a chain that goes below 0": lambda made: made.change(second(made), 3, -1),
    "a chain that leads to itself": lambda made: made.change(20, 3, 20),
    "a chain that leads on": lambda made: made.change(20, 3, 21),
    "a chain that changes its slot": lambda made: made.change(20, 3, other_slot(made, 20)),
    "a slot below 0": lambda made: made.set_slot(made.hashes[0] % SLOTS, -1),
    "a slot beyond the entries": lambda made: made.set_slot(made.hashes[0] % SLOTS, ENTRIES),
    "a slot that leads elsewhere": lambda made: made.set_slot(
        made.hashes[29] % SLOTS, other_slot(made, 30)
    ),
    "no slot at all": lambda made: [*map(made.set_slot, range(SLOTS), [0] * SLOTS)],
    "another first record": lambda made: header(made, 2, 1051),
    "more entries than there are": lambda made: header(made, 5, ENTRIES + 1),
}


@pytest.mark.parametrize("default", [IndexGeometry(SLOTS, ENTRIES), IndexGeometry(9, 99)])
@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_file_tells_nothing_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, default: IndexGeometry
) -> None:
    monkeypatch.setattr(geometry, "default_geometry", lambda: default)
    damaged = Made(SLOTS, ENTRIES, 30)
    DAMAGES[what](damaged)
    path = damaged.write(tmp_path / "1")
    with pytest.raises(CorruptionError) as raised:
        find_geometry([path], None, None)
    assert raised.value.path == path
    assert raised.value.reason == (
        "the index file is corrupted: no numbers of slots and entries fit it"
    )
    whole = Made(SLOTS, ENTRIES, 12).write(tmp_path / "2")
    for paths in ([path, whole], [whole, path], [path, path, whole]):
        assert find_geometry(paths, None, None) == (SLOTS, ENTRIES)


@pytest.mark.parametrize("size", [1, 39, 40 + 4 + 20 * 31 - 1])
def test_a_file_that_has_no_room_for_what_it_counts_was_cut_short(
    tmp_path: Path, size: int
) -> None:
    path = Made(SLOTS, ENTRIES, 30).write(tmp_path / "1")
    os.truncate(path, size)
    with pytest.raises(TruncatedRecordError, match="the index file is truncated") as raised:
        find_geometry([path], None, None)
    least = 40 + 4 + 20 * (31 if size >= 40 else 1)
    assert (raised.value.path, raised.value.position) == (path, size)
    assert raised.value.expected == f"at least {least} bytes"
    assert raised.value.got == f"{size} bytes"
    Made(SLOTS, ENTRIES, 30).write(path)
    os.truncate(path, 40 + 4 + 20 * 31)  # as much as a file of one slot has
    with pytest.raises(CorruptionError, match="no numbers of slots and entries fit"):
        find_geometry([path], None, None)


def test_a_file_whose_last_record_differs_fits_only_what_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, bad = Made(SLOTS, ENTRIES, 30), Made(SLOTS, ENTRIES, 30)
    header(odd, 3, 1000 + 50 * 29)
    DAMAGES["a negative hash"](bad)
    paths = [bad.write(tmp_path / "1"), odd.write(tmp_path / "2")]
    with pytest.raises(CorruptionError, match="no numbers of slots and entries fit"):
        find_geometry(paths, None, None)
    default = IndexGeometry(SLOTS, ENTRIES)
    monkeypatch.setattr(geometry, "default_geometry", lambda: default)
    assert find_geometry(paths, None, None) == default, "one file that fits is enough"


def test_what_a_killed_process_left_is_not_taken_for_damage(tmp_path: Path) -> None:
    """The newest entries lack their slots; the least offset and the largest slot are used."""
    made = Made(SLOTS, ENTRIES, 30)
    slot = made.hashes[29] % SLOTS
    made.set_slot(slot, made.entry(30)[3])
    made.change(2, 1, made.entry(1)[1])  # two keys of one record
    assert find_geometry([made.write(tmp_path / "i")], None, None) == (SLOTS, ENTRIES)
    made.set_slot(slot, 0)
    assert find_geometry([made.write(tmp_path / "i")], None, None) == (SLOTS, ENTRIES)
    made.set_slot(slot, ENTRIES - 1)  # written before the header counted it
    assert find_geometry([made.write(tmp_path / "i")], None, None) == (SLOTS, ENTRIES)


def test_files_that_contradict_each_other_tell_nothing(tmp_path: Path) -> None:
    one = Made(SLOTS, ENTRIES, 30).write(tmp_path / "1")
    other = Made(SLOTS + 5, ENTRIES - 1, 30).write(tmp_path / "2")
    assert one.stat().st_size == other.stat().st_size
    with pytest.raises(UnsupportedFormatError, match="no numbers fit"):
        find_geometry([one, other], None, None)


def test_one_number_and_the_size_give_the_other(tmp_path: Path) -> None:
    path = Made(SLOTS, ENTRIES, 0).write(tmp_path / "i")
    assert find_geometry([path], SLOTS, None) == (SLOTS, ENTRIES)
    assert find_geometry([path], None, ENTRIES) == (SLOTS, ENTRIES)
    assert find_geometry([path], 3, 4) == (3, 4), "the caller compares the sizes"


def test_the_default_is_asked_first_where_the_size_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(geometry, "default_geometry", lambda: IndexGeometry(SLOTS, ENTRIES))
    made = Made(SLOTS, ENTRIES, 0)
    path = made.write(tmp_path / "i")
    assert find_geometry([path], None, None) == (SLOTS, ENTRIES), "no key contradicts it"
    other = Made(SLOTS + 5, ENTRIES - 1, 30).write(tmp_path / "2")
    assert find_geometry([other], None, None) == (SLOTS + 5, ENTRIES - 1)


def test_most_files_have_the_common_size(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(6)]
    for path, size in zip(paths, (0, 0, 0, 40, 60, 60), strict=True):
        path.write_bytes(bytes(size))
    assert common_size(paths) == 60
    assert common_size(paths[:4]) == 40
    assert common_size(paths[:5]) == 60, "the other one may have been cut short"
    assert common_size(paths[:3]) == common_size([]) == 0
