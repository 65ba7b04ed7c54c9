"""What the log says of the records that units lead to, and what is told where there is none."""

import struct
from pathlib import Path

import numpy as np
import pytest

from cqstore.migration.run.log_records import LogRecords
from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows
from tests.kit.plain_record import PlainRecord

V6 = bytes(range(20))
FILE = 1024
COUNT = 24


class Log:
    """Files of five records and a blank; every third record has IPv6 hosts, some a long topic."""

    def __init__(self, root: Path) -> None:
        self.folders = [root / "one", root / "two"]
        self.places: list[tuple[int, int]] = []
        for number in range(0, COUNT, 4):
            start = number // 4 * FILE + FILE
            data = b""
            for at in range(number, number + 4):
                made = self.record(at, start + len(data))
                self.places.append((start + len(data), len(made)))
                data += made
            data += struct.pack(">iI", FILE - len(data), 0xCBD43194)
            folder = self.folders[number // 4 % 2]
            folder.mkdir(exist_ok=True)
            (folder / f"{start:020d}").write_bytes(data.ljust(FILE, b"\0"))

    @staticmethod
    def record(at: int, phy_offset: int) -> bytes:
        v6 = at % 3 == 0
        return PlainRecord(
            b"t" * (128 if at % 5 == 0 else 1), b"b" * (at % 4), queue_offset=at,
            phy_offset=phy_offset, sys_flag=0x30 if v6 else 0, store_timestamp=5000 + at,
            **({"born_host": V6, "store_host": V6} if v6 else {}),  # type: ignore[arg-type]
        ).encode()  # fmt: skip

    def rows(self, numbers: list[int]) -> UnitRows:
        return np.array([(*self.places[at], at, -1) for at in numbers], UNIT_ROWS)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_every_record_gives_its_time_in_any_order(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.store.log.log_file_maps._MAPS", 2)
    (log.folders[0] / "notes").write_text("no file of the log")
    (log.folders[1] / "0").write_text("nor this")
    (log.folders[1] / ("\u0660" * 20)).write_text("nor this")
    records = LogRecords(log.folders)
    orders = [list(range(COUNT)), list(range(COUNT))[::-1], [*range(0, COUNT, 5)] * 2, [7], []]
    for numbers in orders:
        rows = log.rows(numbers)
        assert records.gather(rows) == 0
        assert rows.tolist() == [(*log.places[at], at, 5000 + at) for at in numbers]
        assert len(records._heads._files._files) <= 2


def test_units_in_another_place_than_their_record_names_are_counted(log: Log) -> None:
    """A light queue's place, -1, is not the record's to tell."""
    records, numbers = LogRecords(log.folders), list(range(COUNT))[::-1]
    for moved, light in [(0, 0), (0, 3), (5, 0), (1, 9), (COUNT, 0), (0, COUNT)]:
        places = np.array(numbers)
        places[:moved] += 1
        places[COUNT - light :] = -1
        assert records.gather(log.rows(numbers), places) == moved
    assert records.gather(log.rows([0, 1]), np.array([0, 0])) == 1, "place 0 counts"


@pytest.mark.parametrize(
    ("phy_offset", "size", "found"),
    [
        (0, 91, "a phy offset before the start of the log"),
        (FILE - 1, 91, "a phy offset before the start of the log"),
        (7 * FILE - 90, 90, "too few bytes before the end of its log file"),
        (99 * FILE, 91, "too few bytes before the end of its log file"),
    ],
)  # fmt: skip
def test_a_place_outside_the_log_is_told(log: Log, phy_offset: int, size: int, found: str) -> None:
    rows = np.concatenate([log.rows([3, 4]), np.array([(phy_offset, size, 0, 0)], UNIT_ROWS)])
    with pytest.raises(
        CorruptionError, match="a unit does not point to a record of the commit log"
    ) as caught:
        LogRecords(log.folders).gather(rows)
    assert caught.value.phy_offset == phy_offset
    assert (caught.value.expected, caught.value.got) == (f"a record of {size} bytes", found)


@pytest.mark.parametrize("at", [1, 6])
@pytest.mark.parametrize(("place", "what"), [(0, "size"), (4, "magic"), (28, "phy offset")])
def test_a_record_that_is_not_the_units_is_told_with_what_is_there(
    log: Log, at: int, place: int, what: str
) -> None:
    phy_offset, size = log.places[at]
    path = next(path for folder in log.folders for path in folder.iterdir()
                if 0 <= phy_offset - int(path.name) < FILE)  # fmt: skip
    data = bytearray(path.read_bytes())
    where = phy_offset - int(path.name) + place
    wide = 8 if place == 28 else 4
    value = int.from_bytes(data[where : where + wide], "big") ^ 1
    data[where : where + wide] = value.to_bytes(wide, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptionError) as caught:
        LogRecords(log.folders).gather(log.rows([at + 1, at, 0, at + 5]))
    assert caught.value.phy_offset == phy_offset
    assert caught.value.expected == f"a record of {size} bytes"
    said = value - (1 << 32) if what == "magic" else value
    assert f"{what} {said}" in str(caught.value.got)


def test_a_file_of_the_log_that_is_empty_or_none_is_told(log: Log) -> None:
    row = np.array([(20 * FILE, 91, 0, 0)], UNIT_ROWS)
    path = log.folders[0] / f"{20 * FILE:020d}"
    path.touch()
    with pytest.raises(CorruptionError, match="does not point to a record"):
        LogRecords(log.folders).gather(row)
    path.unlink()
    path.mkdir()
    with pytest.raises(CorruptionError, match="a folder"):
        LogRecords(log.folders).gather(row)


def test_the_least_record_may_end_with_its_file(tmp_path: Path) -> None:
    record = PlainRecord(b"", b"", b"", store_timestamp=77).encode()
    (tmp_path / f"{0:020d}").write_bytes(record)
    rows = np.array([(0, len(record), 0, -1)], UNIT_ROWS)
    assert LogRecords([tmp_path]).gather(rows) == 0
    assert rows["store_timestamp"].tolist() == [77]
    with pytest.raises(StoreIOError, match="gone") as caught:
        LogRecords([tmp_path / "gone"])
    assert caught.value.path == tmp_path / "gone"
