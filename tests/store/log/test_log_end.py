"""Where a log ends and what lies behind: files made by hand, record by record."""

import random
import struct
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from cqstore.store.errors import TruncatedRecordError
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.paths import StorePaths
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.recovering import find_log_end as log_end
from cqstore.store.service.recovering.find_log_end import (
    data_behind,
    end_behind,
    is_boundary,
    lacks_a_sector,
    last_on_disk,
    save_record,
    save_tail,
    scan_start,
    valid_record_behind,
    was_on_disk,
    whole_records,
)
from cqstore.store.settings.config import StoreConfig
from tests.kit.plain_record import PlainRecord

FILE = 8192
RULES = ScanRules()
BLANK = 0xCBD43194


def record(phy_offset: int, number: int = 0, **fields: bytes) -> bytes:
    made = PlainRecord(phy_offset=phy_offset, queue_offset=number, body=b"x" * (number * 7 % 90))
    return replace(made, **fields).encode()  # type: ignore[arg-type]


class Log:
    """Files of records, each ended by a blank one but the last."""

    def __init__(self, folder: Path, files: int, records_in_last: int = 20) -> None:
        self.folder = folder
        self.places: list[int] = []
        self.data = [bytearray() for _ in range(files)]
        number = 0
        for at in range(files):
            number = self._fill(at, number, None if at < files - 1 else records_in_last)

    def _fill(self, at: int, number: int, most: int | None) -> int:
        """Fill a file, or put so many records into it; return the number of the next one."""
        data, begun = self.data[at], number
        while most is None or number < begun + most:
            made = record(at * FILE + len(data), number)
            if len(data) + len(made) + 8 > FILE:
                data += struct.pack(">iI", FILE - len(data), BLANK)
                break
            self.places.append(at * FILE + len(data))
            data += made
            number += 1
        self.end = at * FILE + len(data)
        data += bytes(FILE - len(data))
        return number

    def write(self, phy_offset: int, data: bytes) -> None:
        file, at = divmod(phy_offset, FILE)
        self.data[file][at : at + len(data)] = data

    def open(self) -> CommitLog:
        self.folder.mkdir(exist_ok=True)
        for at, data in enumerate(self.data):
            (self.folder / f"{at * FILE:020d}").write_bytes(data)
        log = CommitLog(
            [self.folder], StoreConfig(mapped_file_size_commit_log=FILE), read_only=True
        )
        log.load()
        return log


@pytest.fixture
def made(tmp_path: Path) -> Log:
    return Log(tmp_path / "log", 3)


def spans(log: CommitLog, phy_offset: int) -> list[tuple[int, int]]:
    return [
        (file.file_from_offset + first, file.file_from_offset + last)
        for file, first, last in data_behind(log, phy_offset)
    ]


@pytest.mark.parametrize("chunk", [4 << 20, 100])
def test_what_lies_behind_is_all_but_zeros(
    made: Log, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(log_end, "_CHUNK", chunk)
    last = made.end
    assert spans(made.open(), last) == []
    made.write(last + 300, b"\0a\0\0b\0")
    log = made.open()
    assert spans(log, last) == [(last + 301, last + 305)]
    assert spans(log, last + 301) == [(last + 301, last + 305)]
    assert spans(log, last + 302) == [(last + 304, last + 305)]
    assert spans(log, last + 305) == []
    both = spans(log, FILE + 10)
    assert [span[0] // FILE for span in both] == [1, 2]
    assert both[0][0] >= FILE + 10
    assert both[1] == (2 * FILE + 3, last + 305)  # its size is less than 256
    made.write(2 * FILE, b"a")
    assert spans(made.open(), FILE + 10)[1] == (2 * FILE, last + 305)
    made.write(3 * FILE - 1, b"z")
    assert spans(made.open(), 3 * FILE - 1) == [(3 * FILE - 1, 3 * FILE)]
    assert spans(made.open(), 3 * FILE) == []


@pytest.mark.parametrize("chunk", [4 << 20, 64])
def test_a_valid_record_says_itself_where_it_lies(
    made: Log, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(log_end, "_CHUNK", chunk)
    log = made.open()
    for before, after in zip(made.places, made.places[1:], strict=False):
        assert valid_record_behind(log, before) == after
        assert valid_record_behind(log, after - 1) == after
    assert valid_record_behind(log, made.places[-1]) is None
    at = made.end + 50
    made.write(at, record(at + 1))  # of another place
    made.write(at + 200, record(at + 200)[:-1] + b"\0")
    damaged = bytearray(record(at + 400, 5))
    damaged[90] ^= 1  # in the body
    made.write(at + 400, bytes(damaged))
    assert valid_record_behind(made.open(), made.end) == at + 200, "properties have no checksum"
    made.write(at + 200, bytes(200))
    assert valid_record_behind(made.open(), made.end) is None
    made.write(3 * FILE - 8 - 40, record(3 * FILE - 48)[:40])
    assert valid_record_behind(made.open(), made.end) is None


def test_the_end_behind_damage_is_that_of_the_last_valid_record(made: Log) -> None:
    places = [place for place in made.places if place > 2 * FILE]
    assert end_behind(made.open(), made.end, RULES) == made.end
    for damaged in (places[3], places[7], places[-1]):
        made.write(damaged + 4, b"????")
    log = made.open()
    assert end_behind(log, places[3], RULES) == places[-1]
    assert end_behind(log, places[7], RULES) == places[-1]
    assert end_behind(log, places[-1], RULES) == places[-1]


def test_boundaries_are_records_blanks_and_files(made: Log) -> None:
    log = made.open()
    blanks = {max(place for place in made.places if place < end) for end in (FILE, 2 * FILE)}
    ends = {
        place + int.from_bytes(made.data[place // FILE][place % FILE :][:4]) for place in blanks
    }
    expected = {*made.places, *ends, 0, FILE, 2 * FILE}
    assert {at for at in range(3 * FILE) if is_boundary(log, at, RULES)} == expected
    assert not is_boundary(log, 3 * FILE, RULES)
    assert not is_boundary(log, -1, RULES)


def test_a_scan_begins_where_it_is_proven(made: Log) -> None:
    log = made.open()
    middle = next(place for place in made.places if place > 2 * FILE + 500)
    for trust in (False, True):
        assert scan_start(log, middle, 0, RULES, trust_wanted=trust) == middle
        assert scan_start(log, 0, 0, RULES, trust_wanted=trust) == 0
        assert scan_start(log, -1, 0, RULES, trust_wanted=trust) == 0
        assert scan_start(log, middle + 1, 0, RULES, trust_wanted=trust) == 2 * FILE
        assert scan_start(log, middle + 1, middle, RULES, trust_wanted=trust) == middle
        assert scan_start(log, middle + 1, middle + 2, RULES, trust_wanted=trust) == 2 * FILE
    assert scan_start(log, made.end, 0, RULES, trust_wanted=True) == made.end
    assert scan_start(log, made.end, 0, RULES, trust_wanted=False) == 2 * FILE
    assert scan_start(log, made.end + 1, 0, RULES, trust_wanted=True) == 2 * FILE
    made.write(2 * FILE + 4, b"????")
    made.write(FILE + 4, b"????")
    assert scan_start(made.open(), middle, 0, RULES, trust_wanted=True) == 0


def test_what_was_on_disk_is_told_by_mark_and_checkpoint(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    mark, checkpoint = SyncedMark(paths), StoreCheckpoint(paths.checkpoint)
    assert last_on_disk(checkpoint, controlled=False) == 0
    assert not was_on_disk(0, mark, 0)
    mark.phy_offset = 100
    assert [was_on_disk(at, mark, 0) for at in (0, 99, 100)] == [True, True, False]
    mark.phy_offset = 0
    checkpoint.update(confirm_phy_offset=100)
    assert last_on_disk(checkpoint, controlled=False) == 100
    found = [was_on_disk(at, mark, 100) for at in (0, 1, 100, 101)]
    assert found == [True, True, True, False]
    assert last_on_disk(checkpoint, controlled=True) == 0  # such a broker writes another offset


def test_a_lost_sector_is_zeros_from_the_end_on_or_to_its_end(made: Log) -> None:
    end = made.end
    assert lacks_a_sector(made.open(), end), "nothing was written"
    assert not lacks_a_sector(made.open(), 3 * FILE)
    draw = random.Random(1)
    long = record(end, body=bytes(draw.randrange(1, 256) for _ in range(2000)))
    made.write(end, long)
    assert not lacks_a_sector(made.open(), end)
    first = 512 - end % 512
    for at in (end, *range(end + first, end + len(long), 512)):
        size = min(512 - at % 512, end + len(long) - at)
        made.write(at, bytes(size))
        if at + size == end + len(long):  # what follows the record is of its last sector
            made.write(at + size, b"next")
        expected = at + size != end + len(long)
        assert lacks_a_sector(made.open(), end) is expected, at - end
        made.write(at + size, bytes(4))
        made.write(end, long)


def whole(log: CommitLog, start: int, size: int) -> list[ScannedRecord]:
    blocks = log.scan_blocks(start, start + size, RULES)
    return [*chain.from_iterable(whole_records(log, blocks))]


def test_a_record_that_lost_its_end_is_none(made: Log) -> None:
    topic_at = made.end + 88 + 20
    sector = topic_at - topic_at % -512
    lost = record(made.end, body=b"x" * 20, properties=b"a\x01" + b"b" * 1400 + b"\x02")
    data = bytearray(made.data[2])
    made.write(made.end, lost)
    log = made.open()
    assert len(whole(log, made.end, len(lost))) == 1
    for at in (sector, sector + 512):
        made.data[2][:] = data
        made.write(made.end, lost)
        made.write(at, bytes(512))
        log = made.open()
        with pytest.raises(TruncatedRecordError, match="never written") as raised:
            whole(log, made.end, len(lost))
        assert raised.value.phy_offset == made.end
        assert raised.value.position == at % FILE
    made.data[2][:] = data
    made.write(made.end, lost)
    made.write(sector + 1, bytes(511))  # zeros, but not all of a sector
    log = made.open()
    assert len(whole(log, made.end, len(lost))) == 1


def test_what_is_cut_is_saved_file_by_file(made: Log, tmp_path: Path) -> None:
    log, cut = made.open(), made.places[5]
    saved = save_tail(log, cut, tmp_path / "cut")
    assert [tail.phy_offset for tail in saved] == [cut, FILE, 2 * FILE]
    whole = b"".join(bytes(data) for data in made.data)
    for tail in saved:
        data = tail.path.read_bytes()
        assert data == whole[tail.phy_offset : tail.phy_offset + tail.size]
        assert tail.path.name.startswith(f"{tail.phy_offset:020d}-")
    assert saved[-1].phy_offset + saved[-1].size == made.end
    again = save_tail(log, cut, tmp_path / "cut")
    assert len({tail.path for tail in [*saved, *again]}) == 6
    one = save_record(log, FILE + 40, 60, tmp_path / "cut")
    assert one.path.read_bytes() == whole[FILE + 40 : FILE + 100]
    with pytest.raises(TruncatedRecordError) as raised:
        save_record(log, 3 * FILE, 1, tmp_path / "cut")
    assert raised.value.phy_offset == 3 * FILE
