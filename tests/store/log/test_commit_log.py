"""The commit log: where records go, the blank rule, scans, and the end."""

import struct
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, IllegalMessageError, MagicCodeError
from cqstore.store.log.checkpoint import CheckpointFields, StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.oracle.encoder import EncodedRecord, MessageEncoder
from tests.kit.oracle.log_records import append, append_list
from tests.kit.plain_record import PlainRecord

SIZE = 4096
CONFIG = StoreConfig(mapped_file_size_commit_log=SIZE)
FIXED = 91 + 1


def open_log(folder: Path) -> CommitLog:
    log = CommitLog([folder], CONFIG, read_only=False)
    log.load()
    return log


def record(size: int, topic: str = "t") -> EncodedRecord:
    """Return a record of exactly ``size`` bytes."""
    encoder = MessageEncoder(CONFIG, lambda _: None)
    return encoder.encode(Message(topic, b"x" * (size - FIXED)))


@pytest.mark.parametrize(
    ("left", "fits"), [(7, False), (8, True), (9, True), (0, False), (1000, True)]
)
def test_a_record_fits_if_eight_bytes_are_left_behind_it(
    tmp_path: Path, left: int, *, fits: bool
) -> None:
    log = open_log(tmp_path)
    append(log, record(1000), 0)
    size = SIZE - 1000 - left
    if size + 8 > SIZE:
        pytest.fail("the case cannot be made")
    placed = append(log, record(size), 1)
    log.flush()
    assert placed.phy_offset == (1000 if fits else SIZE)
    data = (tmp_path / f"{0:020d}").read_bytes()
    if not fits:
        assert data[1000:1008].hex() == f"{SIZE - 1000:08x}cbd43194"
    blanks: list[tuple[int, int]] = []
    assert [r.phy_offset for r in log.scan(0, blanks=blanks)] == [0, placed.phy_offset]
    assert blanks == ([] if fits else [(1000, SIZE - 1000)])
    log.close()


def test_the_bytes_of_an_appended_record_are_those_of_the_format(tmp_path: Path) -> None:
    message = Message("T", b"hi", 1, {"TAGS": "A"}, born_timestamp=1700000000000)
    loopback = bytes([127, 0, 0, 1, 0, 0, 0, 0])
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        log = components_of(store).log
        for queue_offset in range(3):  # the first of its queue, and two that one call takes
            placed = store.put_message(message).appended
            assert placed is not None
            plain = PlainRecord(
                phy_offset=placed.phy_offset, queue_offset=queue_offset,
                store_timestamp=placed.store_timestamp, born_host=loopback, store_host=loopback,
            )  # fmt: skip
            assert bytes(log.view(placed.phy_offset, placed.size)) == plain.encode()
            assert log.store_timestamp(placed.phy_offset, placed.size) == placed.store_timestamp
            assert log.store_timestamp(placed.phy_offset + 1, placed.size) == -1
        assert log.store_timestamp(-1, 101) == -1


def test_a_list_lies_as_its_records_would_one_by_one(tmp_path: Path) -> None:
    records = [record(92 + 37 * number) for number in range(30)]
    one, many = open_log(tmp_path / "one"), open_log(tmp_path / "many")
    single = [append(one, item, number) for number, item in enumerate(records)]
    together = append_list(many, records, 0)
    assert [a[:2] for a in single] == [a[:2] for a in together]
    assert [r[:5] for r in one.scan(0)] == [r[:5] for r in many.scan(0)]
    one.close()
    many.close()


@pytest.mark.parametrize("left", [0, 1, 7, 8, 9, 16, 17, 1000])
@pytest.mark.parametrize("before", [0, 500])
def test_a_list_ends_a_file_as_its_records_would_one_by_one(
    tmp_path: Path, left: int, before: int
) -> None:
    sizes = [1000, SIZE - before - 1000 - left, 200, 300]
    one, many = open_log(tmp_path / "one"), open_log(tmp_path / "many")
    for log in (one, many):
        if before:
            append(log, record(before), 0)
    single = [append(one, record(size), number) for number, size in enumerate(sizes, 1)]
    together = append_list(many, [record(size) for size in sizes], 1)
    assert [a[:2] for a in single] == [a[:2] for a in together]
    second = before + 1000 if left >= 8 else SIZE
    assert together[1].phy_offset == second
    assert one.blank_bytes == many.blank_bytes
    assert one.appended_records == many.appended_records == 4 + bool(before)
    found: list[list[tuple[int, int]]] = [[], []]
    for log, blanks in zip((one, many), found, strict=True):
        assert [r.phy_offset for r in log.scan(0, blanks=blanks)][-4:] == [a[0] for a in together]
        log.close()
    assert found[0] == found[1]


def test_a_whole_list_goes_into_one_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, record(3000), 0)
    placed = append_list(log, [record(600), record(600)], 1, whole=True)
    assert [a.phy_offset for a in placed] == [SIZE, SIZE + 600]
    with pytest.raises(IllegalMessageError):
        append_list(log, [record(3000), record(3000)], 3, whole=True)
    assert log.max_phy_offset() == SIZE + 1200
    log.close()


def test_a_record_longer_than_a_file_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(IllegalMessageError):
        append(log, record(SIZE - 7), 0)
    assert log.max_phy_offset() == 0
    assert append(log, record(SIZE - 8), 0).phy_offset == 0
    log.close()


def test_a_message_is_found_only_where_one_starts(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    starts = [append(log, record(700), number).phy_offset for number in range(8)]
    for start in starts:
        assert log.message(start).phy_offset == start
    blank = starts[4] + 700
    for wrong in (-1, 1, starts[1] + 4, blank, log.max_phy_offset(), 10**12):
        with pytest.raises(CorruptionError):
            log.message(wrong)
    for start in starts:
        assert [r.phy_offset for r in log.scan(start)] == [s for s in starts if s >= start]
    with pytest.raises(CorruptionError):
        list(log.scan(1))
    log.close()


def test_a_cut_log_is_zero_behind_its_end_and_goes_on_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    starts = [append(log, record(700), number).phy_offset for number in range(12)]
    log.truncate(starts[7])
    assert log.max_phy_offset() == starts[7]
    data = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert not any(data[starts[7] :])
    assert append(log, record(900), 7).phy_offset == starts[7]
    log.flush()
    assert log.flushed_phy_offset() == log.max_phy_offset() == starts[7] + 900
    log.close()
    again = open_log(tmp_path)
    with pytest.raises(MagicCodeError) as caught:
        list(again.scan(0))
    assert caught.value.phy_offset == starts[7] + 900
    assert [r.phy_offset for r in again.scan(0, starts[7] + 900)] == starts[:8]
    again.close()


def test_the_checkpoint_has_its_fields_where_rocketmq_has_them(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"".join(n.to_bytes(8, "big") for n in (5000, 9000, 3, 4, 5, 6)) + b"z" * 4048)
    checkpoint = StoreCheckpoint(path)
    assert checkpoint.fields == CheckpointFields(5000, 9000, 3, 4, 5, 6)
    assert (checkpoint.min_timestamp, checkpoint.logics_phy_offset) == (2000, 6)
    checkpoint.update(confirm_phy_offset=77)
    checkpoint.flush()
    data = path.read_bytes()
    assert len(data) == 4096
    assert data[32:40] == (77).to_bytes(8, "big")
    assert data[48:] == b"z" * 4048
    assert [child.name for child in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    ("data", "fields", "problem"),
    [
        (None, (0, 0, 0, 0, 0, 0), None),
        (b"", (0, 0, 0, 0, 0, 0), "too short"),
        (struct.pack(">qq", 5, 6) + b"\0\0\x01", (5, 6, 1 << 40, 0, 0, 0), "too short"),
        (struct.pack(">6q", 1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6), None),
        (struct.pack(">6q", 1, 2, 3, -1, -1, -1), (1, 2, 3, -1, -1, -1), None),
        (struct.pack(">6q", 1, 2, 3, 4, 5, 6).ljust(4097, b"\0"), (1, 2, 3, 4, 5, 6), "too long"),
        (struct.pack(">6q", 1, -2, 3, 4, 5, 6), (0, 0, 0, 0, 0, 0), "invalid times or offsets"),
        (
            struct.pack(">6q", 1 << 43, 2, 3, 4, 5, 6),
            (0, 0, 0, 0, 0, 0),
            "invalid times or offsets",
        ),
        (struct.pack(">6q", 1, 2, 3, 4, -5, 6), (0, 0, 0, 0, 0, 0), "invalid times or offsets"),
    ],
)
def test_a_checkpoint_is_read_as_a_map_of_4096_bytes(
    tmp_path: Path, data: bytes | None, fields: tuple[int, ...], problem: str | None
) -> None:
    path = tmp_path / "checkpoint"
    if data is not None:
        path.write_bytes(data)
    found = StoreCheckpoint(path)
    assert found.fields == fields
    assert (found.fault is None) == (problem is None)
    assert (problem or "") in str(found.fault)
    found.flush()
    again = StoreCheckpoint(path)
    assert (again.fields, again.fault, path.stat().st_size) == (fields, None, 4096)


def test_of_an_old_sparse_file_all_is_reserved_before_its_blank_is_written(tmp_path: Path) -> None:
    """Else a full disk kills the process at the write through the map."""
    old = tmp_path / f"{0:020d}"
    with old.open("wb") as sparse:
        sparse.truncate(16 * SIZE)
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": 16 * SIZE})
    log = CommitLog([tmp_path], config, read_only=False)
    log.load()
    log.set_end(100)
    append(log, record(16 * SIZE - 50), 0)
    assert old.stat().st_blocks * 512 >= 15 * SIZE
    with pytest.raises(MagicCodeError, match="blank") as raised:
        log.message(100)
    assert raised.value.phy_offset == 100
    log.close()
