"""The units of a log in batches, against the oracle that reads record by record."""

import struct
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.migration.from_log.log_scan import LogScan
from cqstore.store.errors import CorruptionError
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.bulk import UNIT_ROWS
from cqstore.store.queue.facts import QueueType
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.recovering.find_log_end import whole_records
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import NAMES
from tests.kit.oracle.scan import OracleScan
from tests.kit.plain_record import PlainRecord

Row = tuple[str, int, int, int, int, int, int]
RULES = [ScanRules(), ScanRules(check_crc=False), ScanRules(property_crc=True)]
SIZE = 16384
BLOCK_BYTES = "cqstore.store.log.log_blocks._SCAN_BYTES"
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


def in_batches(
    folder: Path, size: int, rules: ScanRules, *, whole_only: bool
) -> tuple[list[Row], int | None]:
    """Return rows in log order, and where the log is at fault."""
    log = opened(folder, size)
    scan = LogScan(log, record_units(folder), rules, whole_only=whole_only)
    rows: list[Row] = []
    fault = None
    try:
        for batch in scan.scan(max(log.min_phy_offset(), 0), log.files.end_offset()):
            units = np.frombuffer(memoryview(batch.units), UNIT_ROWS).tolist()
            assert len(units) == len(batch) > 0
            for number, offset, unit in zip(
                batch.queue_index, batch.queue_offset, units, strict=True
            ):
                rows.append((*batch.queues[number], offset, *unit))
    except CorruptionError as exc:
        fault = exc.phy_offset
    log.close()
    return rows, fault


def one_by_one(
    folder: Path, size: int, rules: ScanRules, *, whole_only: bool
) -> tuple[list[Row], int | None]:
    """Return the same, read by the oracle."""
    log, units = opened(folder, size), record_units(folder)
    rows: list[Row] = []
    fault = None

    def add(key: tuple[str, int], *unit: int) -> None:
        rows.append((*key, *unit))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.store.log.log_blocks.scan_block", OracleScan)
        blocks = log.scan_blocks(max(log.min_phy_offset(), 0), rules=rules)
        try:
            for record in chain.from_iterable(whole_records(log, blocks) if whole_only else blocks):
                units.add(add, record, dispatch_properties(record.properties))
        except CorruptionError as exc:
            fault = exc.phy_offset
    log.close()
    return rows, fault


@pytest.mark.parametrize("rules", RULES, ids=["crc", "no crc", "property crc"])
@pytest.mark.parametrize("name", NAMES)
def test_golden_logs_give_the_units_that_the_oracle_gives(
    golden_folder: Path, name: str, rules: ScanRules
) -> None:
    folder = golden_folder / name / "commitlog"
    size = max(path.stat().st_size for path in folder.iterdir())
    wanted, fault = one_by_one(folder, size, rules, whole_only=False)
    assert wanted or rules.property_crc
    assert in_batches(folder, size, rules, whole_only=False) == (wanted, fault)


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


@pytest.mark.parametrize(("block_bytes", "batch_units"), [(300, 1), (300, 3), (SIZE, 1 << 20)])
@given(records=RECORDS, damage=DAMAGE, rules=st.sampled_from(RULES), whole_only=st.booleans())
def test_made_records_give_the_units_that_the_oracle_gives(
    tmp_path_factory: pytest.TempPathFactory,
    block_bytes: int,
    batch_units: int,
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
        patched.setattr(BLOCK_BYTES, block_bytes)
        patched.setattr("cqstore.migration.from_log.log_scan.BATCH_UNITS", batch_units)
        found, fault = in_batches(folder, SIZE, rules, whole_only=whole_only)
    assert (found, fault) == one_by_one(folder, SIZE, rules, whole_only=whole_only)


def test_a_record_longer_than_a_block_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [PlainRecord(body=b"x" * size, queue_offset=at) for at, size in enumerate((9, 999))]
    write_log(tmp_path / "commitlog", records, None)
    monkeypatch.setattr(BLOCK_BYTES, 200)
    found, fault = in_batches(tmp_path / "commitlog", SIZE, ScanRules(), whole_only=False)
    assert ([row[2] for row in found], fault) == ([0, 1], None)


@pytest.mark.parametrize("block_bytes", [50, 200, SIZE])
@pytest.mark.parametrize("left", [0, 1, 7, 8, 9])
def test_a_file_ends_as_the_oracle_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int, block_bytes: int
) -> None:
    """So many bytes behind its last record: from eight on there is room for a blank one."""
    monkeypatch.setattr(BLOCK_BYTES, block_bytes)
    records = [PlainRecord(queue_offset=at) for at in range(3)]
    length = len(records[0].encode())
    size = 3 * length + left
    folder = tmp_path / "commitlog"
    write_log(folder, records, None, size)
    path = folder / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:size])
    found, fault = in_batches(folder, size, RULES[0], whole_only=False)
    assert (found, fault) == one_by_one(folder, size, RULES[0], whole_only=False)
    assert (len(found), fault) == ((3, None) if left > 7 else (2, 2 * length))
