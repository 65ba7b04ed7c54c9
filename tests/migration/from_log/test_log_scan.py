"""The scan in columns against the exact decoder, record by record."""

import struct
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.migration.from_log.log_scan import LogScan, queue_of
from cqstore.migration.from_log.record_tails import Tails
from cqstore.store.errors import CorruptionError
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.facts import QueueType
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.recovering.find_log_end import whole_records
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import NAMES
from tests.kit.plain_record import PlainRecord

Row = tuple[str, int, int, int, int, int, int]
RULES = [ScanRules(), ScanRules(check_crc=False), ScanRules(property_crc=True)]
SIZE = 16384
GONE, GONE_BELOW = "gone", 3000


def opened(folder: Path, size: int) -> CommitLog:
    log = CommitLog([folder], StoreConfig(mapped_file_size_commit_log=size), read_only=True)
    log.load()
    return log


def record_units(folder: Path) -> RecordUnits:
    deleted = DeletedTopics(folder.parent / "deleted")
    deleted.load()
    return RecordUnits(
        StoreConfig(), deleted, lambda _: QueueType.SIMPLE,
        check_topic=lambda _: None, lmq_needs_multi_dispatch=False,
    )  # fmt: skip


def by_columns(
    folder: Path, size: int, rules: ScanRules, *, whole_only: bool
) -> tuple[list[Row], int | None, int]:
    """Return rows in log order, where the log is at fault, how many records were read exactly."""
    log = opened(folder, size)
    scan = LogScan(log, record_units(folder), rules, whole_only=whole_only)
    rows: list[Row] = []
    fault = None
    try:
        for file in log.files:
            for part in scan.scan(file):
                assert len(part.queues) == len(part.queue_offsets) == len(part.rows)
                for queue, offset, unit in zip(
                    part.queues.tolist(), part.queue_offsets.tolist(), part.rows.tolist(),
                    strict=True,
                ):  # fmt: skip
                    topic, queue_id = queue_of(queue)
                    rows.append((scan.topics[topic], queue_id, offset, *unit))
    except CorruptionError as exc:
        fault = exc.phy_offset
    log.close()
    return rows, fault, scan.exact_records


def one_by_one(
    folder: Path, size: int, rules: ScanRules, *, whole_only: bool
) -> tuple[list[Row], int | None]:
    log, units = opened(folder, size), record_units(folder)
    rows: list[Row] = []
    fault = None

    def add(key: tuple[str, int], *unit: int) -> None:
        rows.append((*key, *unit))  # type: ignore[arg-type]

    blocks = log.scan_blocks(max(log.min_phy_offset(), 0), rules=rules)
    try:
        for record in chain.from_iterable(whole_records(log, blocks) if whole_only else blocks):
            units.add(
                add, record.topic, record.queue_id, record.queue_offset, record.phy_offset,
                record.size, record.store_timestamp, record.sys_flag,
                dispatch_properties(record.properties),
            )  # fmt: skip
    except CorruptionError as exc:
        fault = exc.phy_offset
    log.close()
    return rows, fault


@pytest.mark.parametrize("rules", RULES, ids=["crc", "no crc", "property crc"])
@pytest.mark.parametrize("name", NAMES)
def test_golden_logs_give_the_units_that_the_exact_decoder_gives(
    golden_folder: Path, name: str, rules: ScanRules
) -> None:
    folder = golden_folder / name / "commitlog"
    size = max(path.stat().st_size for path in folder.iterdir())
    wanted, fault = one_by_one(folder, size, rules, whole_only=False)
    found, found_fault, exact = by_columns(folder, size, rules, whole_only=False)
    assert (found, found_fault) == (wanted, fault)
    if not rules.property_crc:
        assert len(found) > 10 * exact, "nearly all records go by columns"


# ---- made records

PAIRS = st.sampled_from([
    b"TAGS\x01A\x02", b"TAGS\x01", b"TAGS\x01\x02", b"TAGS\x01b\x01c\x02", b"XTAGS\x01A\x02",
    b"TAGS\x01\xe4\xb8\x02", "TAGS\x01主\x02".encode(), b"TAGS\x01last", b"KEYS\x01TAGS\x02",
    b"UNIQ_KEY\x01TAGS\x01\x02", b"DELAY\x013\x02", b"\x02", b"\0", b"k\x01v\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x013,4\x02",
    b"INNER_BASE\x013\x02",
])  # fmt: skip
TOPICS = st.sampled_from([
    b"T", b"orders", b"SCHEDULE_TOPIC_XXXX", GONE.encode(), b"", b"t" * 127,
    "主题".encode(), b"z\0z", b"t" * 128,
])  # fmt: skip
NUMBERS = st.sampled_from([0, 0, 0, 0, 1, -1, 1 << 57, 1 << 58])
BODIES = st.sampled_from([b"", b"body", b"TAGS\x01in the body\x02", b"INNER_", b"x" * 700])


def plain(
    topic: bytes, pairs: list[bytes], key: bytes, body: bytes, flag: int, offset: int, id_: int
) -> PlainRecord:
    """Return a record; bits 4 and 5 of ``flag`` ask for IPv6 hosts."""
    v6 = bytes(range(20))
    hosts = {}
    if flag & 0x10:
        hosts["born_host"] = v6
    if flag & 0x20:
        hosts["store_host"] = v6
    properties = b"".join([*pairs, key])
    return PlainRecord(
        topic, body, properties, id_, queue_offset=offset, sys_flag=flag, **hosts,  # type: ignore[arg-type]
    )  # fmt: skip


RECORDS = st.lists(
    st.builds(
        plain, TOPICS, st.lists(PAIRS, max_size=3),
        st.sampled_from([b"", b""]) | st.binary(min_size=4, max_size=8).map(
            lambda key: b"KEYS\x01" + key.hex().encode() + b"\x02"
        ),
        BODIES, st.sampled_from([0, 0, 0, 0, 4, 8, 12, 0x10, 0x20, 0x30, 1]), NUMBERS,
        st.sampled_from([0, 3, -1, -(1 << 31), (1 << 31) - 1]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip
DAMAGE = st.none() | st.tuples(st.integers(0, 4000), st.integers(0, 255))


def write_log(
    folder: Path, records: list[PlainRecord], damage: tuple[int, int] | None, size: int = SIZE
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = bytearray()
    for record in records:
        made = bytearray(record.encode())
        struct.pack_into(">q", made, 28, len(data))  # its own place
        data += made
    if damage is not None and damage[0] < len(data):
        data[damage[0]] = damage[1]
    data += struct.pack(">iI", size - len(data), 0xCBD43194)
    (folder / f"{0:020d}").write_bytes(bytes(data).ljust(size, b"\0"))


@pytest.mark.parametrize("block_bytes", [300, SIZE])
@given(records=RECORDS, damage=DAMAGE, rules=st.sampled_from(RULES), whole_only=st.booleans())
def test_made_records_give_the_units_that_the_exact_decoder_gives(
    tmp_path_factory: pytest.TempPathFactory,
    block_bytes: int,
    *,
    records: list[PlainRecord],
    damage: tuple[int, int] | None,
    rules: ScanRules,
    whole_only: bool,
) -> None:
    folder = tmp_path_factory.getbasetemp() / f"made{block_bytes}" / "commitlog"
    folder.parent.mkdir(exist_ok=True)
    journal = DeletedTopics(folder.parent / "deleted")
    if not journal.path.exists():
        journal.begin([GONE], GONE_BELOW)
    write_log(folder, records, damage)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.migration.from_log.log_scan.BLOCK_BYTES", block_bytes)
        found, fault, _ = by_columns(folder, SIZE, rules, whole_only=whole_only)
    assert (found, fault) == one_by_one(folder, SIZE, rules, whole_only=whole_only)


def test_a_record_longer_than_a_block_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [PlainRecord(body=b"x" * size, queue_offset=at) for at, size in enumerate((9, 999))]
    write_log(tmp_path / "commitlog", records, None)
    monkeypatch.setattr("cqstore.migration.from_log.log_scan.BLOCK_BYTES", 200)
    found, fault, exact = by_columns(tmp_path / "commitlog", SIZE, ScanRules(), whole_only=False)
    assert ([row[2] for row in found], fault, exact) == ([0, 1], None, 0)


@pytest.mark.parametrize("block_bytes", [50, 200, SIZE])
@pytest.mark.parametrize("left", [0, 1, 7, 8, 9])
def test_a_file_ends_as_the_exact_decoder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, block_bytes: int
) -> None:
    """So many bytes behind its last record: from eight on there is room for a blank one."""
    monkeypatch.setattr("cqstore.migration.from_log.log_scan.BLOCK_BYTES", block_bytes)
    records = [PlainRecord(queue_offset=at) for at in range(3)]
    length = len(records[0].encode())
    size = 3 * length + left
    folder = tmp_path / "commitlog"
    write_log(folder, records, None, size)
    path = folder / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:size])
    found, fault, _ = by_columns(folder, size, RULES[0], whole_only=False)
    assert (found, fault) == one_by_one(folder, size, RULES[0], whole_only=False)
    assert (len(found), fault) == ((3, None) if left > 7 else (2, 2 * length))


# ---- every kind of properties, every byte of a head

ODD = [
    b"", b"TAGS\x01A\x02", b"TAGS\x01", b"TAGS\x01\x02", b"TAGS\x01b\x01c\x02", b"XTAGS\x01A\x02",
    b"TAGS\x01\xe4\xb8\x02", b"TAGS\x01last", b"KEYS\x01TAGS\x02", b"DELAY\x013\x02", b"\0",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x013,4\x02",
    b"INNER_BASE\x013\x02", b"x\x01" + bytes(1600),
]  # fmt: skip
NAMED = [b"T", b"SCHEDULE_TOPIC_XXXX", b"", b"t" * 127, b"t" * 128, b"z\0z"]


@pytest.mark.parametrize("whole_only", [False, True])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("body", [b"body", b"TAGS\x01in the body\x02"])
def test_every_two_properties_are_read_as_the_exact_decoder_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, body: bytes, inner: bool, whole_only: bool
) -> None:
    """Each record has a key of its own, so that no tail is met twice."""
    pairs = [pair for pair in ODD if inner or b"INNER" not in pair]
    made = [(topic, one, two) for topic in NAMED for one in pairs for two in pairs]
    records = [
        PlainRecord(topic, body, one + two + b"UNIQ_KEY\x01%06d\x02" % at, queue_offset=at)
        for at, (topic, one, two) in enumerate(made)
    ]
    monkeypatch.setattr("cqstore.migration.from_log.log_scan.BLOCK_BYTES", 20_000)
    size = 1 << 20
    write_log(tmp_path / "commitlog", records, None, size)
    found, fault, exact = by_columns(tmp_path / "commitlog", size, RULES[0], whole_only=whole_only)
    assert (found, fault) == one_by_one(
        tmp_path / "commitlog", size, RULES[0], whole_only=whole_only
    )
    assert (fault is not None) == whole_only, "a sector of nothing counts where a crash was"
    assert 0 < exact < len(records)


@pytest.mark.parametrize("block_bytes", [150, SIZE])
def test_a_damaged_byte_of_a_record_is_judged_as_the_exact_decoder_judges_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """In small blocks the record is not the first one, and met where tails seem not to repeat."""
    monkeypatch.setattr("cqstore.migration.from_log.log_scan.BLOCK_BYTES", block_bytes)
    records = [PlainRecord(queue_offset=at, body=b"b" * (at % 2)) for at in range(3)]
    start, size = len(records[0].encode()), len(records[1].encode())
    folder, faults = tmp_path / "commitlog", 0
    for at in range(size):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            write_log(folder, records, (start + at, value))
            found, fault, _ = by_columns(folder, SIZE, RULES[0], whole_only=False)
            assert (found, fault) == one_by_one(folder, SIZE, RULES[0], whole_only=False)
            faults += fault is not None
    assert 100 < faults < 4 * size


@pytest.mark.parametrize("no_zeros", [True, False])
def test_tails_that_never_come_again_are_forgotten(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_zeros: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr("cqstore.migration.from_log.record_tails._MAX_ENTRIES", 50)
    tails = Tails(record_units(tmp_path), no_zeros=no_zeros)
    for first in range(0, 1000, 10):
        texts = [f"TAGS\x01tag{number}\x02".encode() for number in range(first, first + 10)]
        parts = [b"\x01t" + len(text).to_bytes(2, "big") + text for text in texts]
        ends = np.cumsum([len(part) for part in parts])
        starts = ends - [len(part) for part in parts]
        plain, topics, codes = tails.parse(b"".join(parts), starts, ends)
        assert plain.all()
        assert {tails.topics[topic] for topic in topics.tolist()} == {"t"}
        expected = [java_hash(f"tag{number}") for number in range(first, first + 10)]
        assert codes.tolist() == expected
        assert len(tails._whole) <= 60
        assert len(tails._whole._numbers) <= 60


@pytest.mark.parametrize("no_zeros", [True, False])
def test_a_tail_is_plain_if_its_lengths_are_right_however_long(
    tmp_path: Path,
    no_zeros: bool,  # noqa: FBT001
) -> None:
    tails = Tails(record_units(tmp_path), no_zeros=no_zeros)
    sizes = [0, 1, 255, 256, 257, 511, 512, 0x7FFF]
    for beside in (0, 1, -1, 256, -256, 0x4000):
        parts, wanted = [], []
        for size in sizes:
            said = size + beside
            if 0 <= said <= 0x7FFF:
                parts.append(b"\x01t" + said.to_bytes(2, "big") + b"x" * size)
                wanted.append(beside == 0)
        names = [b"\x7f" + b"t" * 127, b"\x80" + b"t" * 128, b"\x01\xff"]
        parts += [name + b"\0\1x" for name in names] + [b"\1t\0", b"\x7ft\0", b"\2tt"]
        wanted += [True] + [False] * 5
        ends = np.cumsum([len(part) for part in parts])
        starts = ends - [len(part) for part in parts]
        for _ in range(3):  # by the dictionary, and apart where they do not repeat
            plain, topics, codes = tails.parse(b"".join(parts), starts, ends)
            assert plain.tolist() == wanted
            names_of = {tails.topics[topic] for topic in topics[plain].tolist()}
            assert names_of <= {"t", "t" * 127}
            assert not codes[plain].any()
            tails._repeat = False
        tails._repeat = True
