"""The scan of the log and the noting of its records: the core finds what the oracle finds."""

import gc
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.store.errors import CorruptionError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.queue.facts import QueueRestart, QueueType
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Host, Message
from cqstore.store.record.record_layout import BLANK, MAGIC_BLANK, MAX_QUEUE_OFFSET, BlankRecord
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules, TopicCache, scan_block
from cqstore.store.service.dispatching.record_batcher import RecordBatcher
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.dispatching.replay import Replay, ReplayResult
from cqstore.store.settings.config import StoreConfig
from tests.kit.given_memory import given_memory
from tests.kit.oracle.encoder import EncodedRecord, MessageEncoder, assemble
from tests.kit.oracle.replay import replay_by_oracle
from tests.kit.oracle.scan import OracleScan
from tests.kit.shim.memory import without_memory

FILE = 1 << 14
AT = 5 * FILE + 64
ENCODER = MessageEncoder(StoreConfig(), lambda _: None)
V6 = Host.of("::1", 7)


def record_bytes(message: Message, queue_offset: int, phy_offset: int) -> bytes:
    encoded: EncodedRecord = ENCODER.encode(message)
    return encoded.start + assemble(encoded, queue_offset, phy_offset, 1_700_000_000_000)


messages = st.builds(
    Message,
    st.sampled_from(["t", "é" * 60, "%RETRY%" + "r" * 130]),
    st.one_of(st.binary(max_size=40), st.just(b"x" * 5000)),
    st.integers(0, (1 << 31) - 1),
    st.dictionaries(st.sampled_from(["TAGS", "k"]), st.text("ab", min_size=1), max_size=2),
    sys_flag=st.sampled_from([0, 4, 8, 12, 0x80]),
    born_host=st.sampled_from([V6, *[Host.of("10.0.0.1", 1)] * 4]),
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, int]:
    """Bytes of a log from AT on, and how many the file has from there."""
    data = b""
    for message in draw(st.lists(messages, max_size=5)):
        data += record_bytes(message, draw(st.integers(0, 9)), AT + len(data))
    left = FILE - AT % FILE
    if draw(st.booleans()) and len(data) + 8 <= left:
        data += BLANK.pack(BlankRecord(left - len(data), MAGIC_BLANK))
    changed = bytearray(data)
    for at in draw(st.lists(st.integers(0, max(len(data) - 1, 0)), max_size=2)):
        if data:
            changed[at] = draw(st.sampled_from([0, 1, 127, 128, 255]))
    cut = draw(st.sampled_from([None, -1, -8, -90, 88, 89, 90]))
    return bytes(changed[:cut]), draw(st.sampled_from([left, len(data) + 8, len(data) + 7]))


def found(scan: RecordScan) -> list[object]:
    records: list[object] = []
    try:
        for record in scan:
            assert scan.behind == record.phy_offset + record.size
            records.append(record)
    except CorruptionError as exc:
        records.append((type(exc), str(exc)))
    return [*records, scan.behind]


@settings(max_examples=400)
@given(block=blocks(), check_crc=st.booleans(), property_crc=st.booleans())
def test_a_block_is_scanned_alike(
    block: tuple[bytes, int], *, check_crc: bool, property_crc: bool
) -> None:
    data, left = block
    rules = ScanRules(check_crc, property_crc)
    known = TopicCache()
    for topics in (TopicCache(), known, known):
        assert found(scan_block(data, AT, left, rules, topics)) == found(
            OracleScan(data, AT, left, rules, TopicCache())
        )


@pytest.mark.parametrize("value", [0, 1, 0x7F, 0x80, 0xFF])
def test_every_byte_of_a_record_is_looked_at_alike(value: int) -> None:
    record = record_bytes(Message("topic", b"body", 3, {"TAGS": "a"}), 7, AT)
    further = record_bytes(Message("t", b""), 0, AT + len(record))
    assert len(record) > 100
    for field in range(len(record)):
        data = record[:field] + bytes([value]) + record[field + 1 :] + further
        args = data, AT, len(data) + 8, ScanRules()
        core, oracle = (found(scan(*args, TopicCache())) for scan in (scan_block, OracleScan))
        assert core == oracle, f"byte {field} is {value}"


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_only_offsets_that_a_queue_can_have_are_scanned(beyond: int) -> None:
    """No checksum covers a record's head."""
    data = record_bytes(Message("t", b"x"), MAX_QUEUE_OFFSET + beyond, AT)
    args = data, AT, len(data) + 8, ScanRules()
    records = found(scan_block(*args, TopicCache()))
    assert records == found(OracleScan(*args, TopicCache()))
    assert isinstance(records[0], ScannedRecord) == (beyond < 0)


def test_long_bodies_are_summed_too() -> None:
    for size in (4095, 4096, 4097, 100_000):
        data = record_bytes(Message("t", b"x" * size), 0, AT)
        (record,) = scan_block(data, AT, 1 << 20, ScanRules(), TopicCache())
        assert record.size == len(data)
        broken = bytearray(data)
        broken[100] ^= 1
        with pytest.raises(CorruptionError):
            list(scan_block(bytes(broken), AT, 1 << 20, ScanRules(), TopicCache()))
        assert zlib.crc32(data[88 : 88 + size]) & 0x7FFFFFFF == int.from_bytes(data[8:12], "big")


# ---- noting

parts = st.sampled_from([
    b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_BASE", b"INNER_MULTI_DISPATCH", b"a", b"",
    b"\x01", b"\x02", b"\xff", "é".encode(), b"k  l", b"1", b"\x01\x02", b"x\x01y",
])  # fmt: skip
properties = st.lists(parts, max_size=8).map(b"\x01".join) | st.lists(
    st.tuples(parts, parts).map(b"\x01".join), max_size=4
).map(b"\x02".join)
scanned = st.builds(
    ScannedRecord, st.integers(0, 1 << 40), st.integers(91, 1 << 20),
    st.sampled_from(["t", "u", "SCHEDULE_TOPIC_XXXX", "%RETRY%g"]), st.integers(-1, 3),
    st.integers(0, 1 << 50), st.sampled_from([0, 4, 8, 12, 0x80]), st.integers(-1, 1 << 60),
    properties,
)  # fmt: skip


class TornError(Exception):
    """What a scan may raise."""


def noted(
    prepare: Callable[[Replay], object], records: list[ScannedRecord], deleted: dict[str, int],
    queues_from: int, index_from: int | None, full_at: int, *, tags: bool, wanted: bool, torn: bool,
) -> list[object]:  # fmt: skip
    topics = DeletedTopics(Path("nowhere"))
    topics._below.update(deleted)
    units = RecordUnits(
        StoreConfig(enable_lmq=True, enable_multi_dispatch=True), topics,
        lambda topic: QueueType.SIMPLE, check_topic=lambda _: None, lmq_needs_multi_dispatch=False,
    )  # fmt: skip
    replay = Replay(lambda *_: [], units, RecordKeys(wanted=wanted, tags=tags))
    prepare(replay)
    result, batch, keys = ReplayResult(), UnitBatch(), IndexBatch()

    def scan() -> Iterator[ScannedRecord]:
        yield from records
        if torn:
            raise TornError

    stops: list[object] = []
    waiting = scan()
    try:
        for _ in range(len(records) + 1):
            more = replay._fill(waiting, result, batch, keys, queues_from, index_from, full_at)
            stops.append((more, len(batch)))
    except TornError:
        stops.append("broken")
    return [
        stops, batch.queues, bytes(batch.queue_index), bytes(batch.queue_offset),
        bytes(batch.units),
        batch.end_phy_offset, dict(batch.index_of), list(keys.rows(0, len(keys))), result.records,
        result.first_phy_offset, result.last,
    ]  # fmt: skip


@settings(max_examples=300)
@given(
    records=st.lists(scanned, max_size=8),
    deleted=st.sampled_from([{}, {}, {"t": 1 << 39}]),
    queues_from=st.sampled_from([0, 1 << 39]),
    index_from=st.sampled_from([None, 0, 1 << 39]),
    full_at=st.integers(1, 5),
    tags=st.booleans(), wanted=st.booleans(), torn=st.booleans(),
)  # fmt: skip
def test_records_are_noted_alike(
    records: list[ScannedRecord], deleted: dict[str, int], queues_from: int,
    index_from: int | None, full_at: int, *, tags: bool, wanted: bool, torn: bool,
) -> None:  # fmt: skip
    given_all = (records, deleted, queues_from, index_from, full_at)
    ways = (lambda _: None, replay_by_oracle)
    core, oracle = (noted(way, *given_all, tags=tags, wanted=wanted, torn=torn) for way in ways)
    assert core == oracle


# ---- whole blocks

messages_in_blocks = st.lists(
    st.builds(
        Message, st.sampled_from(["t", "u", "SCHEDULE_TOPIC_XXXX", "a\0b", "é" * 60]),
        st.sampled_from([b"", b"x", b"y" * 300]), st.integers(0, 3),
        st.dictionaries(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "INNER_BASE", "a"]),
            st.sampled_from(["1", "k  l", "é", "\0", "x" * 300, "y" * 300]), max_size=4,
        ) | st.just({"DELAY": "1", "TAGS": "a"}),
        sys_flag=st.sampled_from([0, 0, 0, 4, 12]),
    ),
    max_size=6,
)  # fmt: skip


class LostEndError(Exception):
    """What is raised of a record that has lost its end."""


def lost(record: ScannedRecord) -> None:
    if b"y" in record.properties:
        raise LostEndError


def noted_in_blocks(data: list[bytes], *, by_core: bool, refusing: bool) -> list[object]:
    units = RecordUnits(
        StoreConfig(), DeletedTopics(Path("nowhere")), lambda topic: QueueType.SIMPLE,
        check_topic=lambda _: None, lmq_needs_multi_dispatch=False,
    )  # fmt: skip
    seen: list[object] = []

    def put(batch: UnitBatch, keys: IndexBatch) -> list[QueueRestart]:
        seen.append([
            batch.queues, bytes(batch.queue_index), bytes(batch.queue_offset), bytes(batch.units),
            batch.end_phy_offset, dict(batch.index_of), list(keys.rows(0, len(keys))),
        ])  # fmt: skip
        return []

    replay = Replay(put, units, RecordKeys(wanted=True, tags=True))
    scan_one = scan_block if by_core else OracleScan
    if not by_core:
        replay_by_oracle(replay)

    def scan() -> Iterator[RecordScan]:
        at, topics = AT, TopicCache()
        for block in data:
            found = scan_one(block, at, 1 << 30, ScanRules(), topics)
            yield found.refusing(lost) if refusing else found
            seen.append(found.behind)
            at += len(block)

    try:
        result = replay.run(scan(), 0, 0)
    except LostEndError:
        return [*seen, "lost"]
    return [*seen, result.records, result.units, result.first_phy_offset, result.last,
            type(result.fault), str(result.fault)]  # fmt: skip


@settings(max_examples=300)
@given(
    blocks=st.lists(messages_in_blocks, max_size=3), full_at=st.integers(1, 5),
    cut=st.integers(0, 40), refusing=st.booleans(),
)  # fmt: skip
def test_blocks_are_noted_alike(
    blocks: list[list[Message]], full_at: int, cut: int, *, refusing: bool
) -> None:
    data, at = [], AT
    for number, block in enumerate(blocks):
        records = b""
        for message in block:
            records += record_bytes(message, number, at + len(records))
        data.append(records)
        at += len(records)
    if cut and data and cut < len(data[-1]):
        data[-1] = data[-1][:-cut] + bytes(cut)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cqstore.store.service.dispatching.replay.REPLAY_UNITS", full_at)
        patched.setattr("cqstore.store.service.dispatching.replay.SLICE_PER_QUEUE", 1)
        core, oracle = (
            noted_in_blocks(data, by_core=by_core, refusing=refusing) for by_core in (True, False)
        )
    assert core == oracle


def test_tags_that_begin_alike_are_not_taken_for_each_other() -> None:
    """What was read of tags last is found by their hash: of these it is the same in its end."""
    data, tags = b"", ["ab", "a", "ab", "a" * 300, "a"]
    for text in tags:
        data += record_bytes(Message("t", b"", 0, {"TAGS": text}), 0, AT + len(data))
    core, oracle = (noted_in_blocks([data], by_core=way, refusing=False) for way in (True, False))
    assert core == oracle
    assert [key for _, key, *_ in core[1][-1]] == [f"T#{text}" for text in tags]  # type: ignore[index]


@pytest.mark.parametrize("uniq_key", [b"u\xff" * 9, b"u", "é".encode(), b""])
@pytest.mark.parametrize("words", [b"k\xfe l\xff" * 9, b"k l", b"\xc3 \xa9", "é ü".encode(), b""])
def test_both_keys_of_a_record_may_be_no_text(uniq_key: bytes, words: bytes) -> None:
    """Java replaces what is invalid, in each of them."""
    given_values = {b"UNIQ_KEY": uniq_key, b"KEYS": words}
    properties = b"\x02".join(b"\x01".join(pair) for pair in given_values.items() if pair[1])
    records = [
        ScannedRecord(AT + 100 * at, 100, "t", 0, at, 0, 1_700_000_000_000, properties)
        for at in range(3)
    ]
    given_all = (records, dict[str, int](), 0, 0, 9)
    ways = (lambda _: None, replay_by_oracle)
    core, oracle = (noted(way, *given_all, tags=True, wanted=True, torn=False) for way in ways)
    assert core == oracle
    texts = [text.decode(errors="replace") for text in (uniq_key, *words.split(b" ")) if text]
    assert [key for _, key, *_ in core[7]] == texts * 3  # type: ignore[attr-defined]


def make_batcher() -> RecordBatcher:
    units = RecordUnits(
        StoreConfig(), DeletedTopics(Path("nowhere")), lambda topic: QueueType.SIMPLE,
        check_topic=lambda _: None, lmq_needs_multi_dispatch=False,
    )  # fmt: skip
    return RecordBatcher(units, RecordKeys(wanted=True, tags=True))


def take_one(batcher: RecordBatcher) -> None:
    record = ScannedRecord(AT, 100, "t", 0, 0, 0, 1_700_000_000_000, b"")
    batches = batcher.batches_of([record])  # type: ignore[list-item]
    assert len(batches.units) == 1


def test_memory_of_a_batcher_is_given_back() -> None:
    """It has room for 2^18 queues, which is 8 MB."""
    gc.collect()  # batchers of other tests
    before = given_memory()
    for _ in range(5):
        made = make_batcher()
        assert given_memory() - before < 1 << 22
        take_one(made)
        assert given_memory() - before > 1 << 22
        del made
        gc.collect()
    assert given_memory() - before < 1 << 22


def test_a_batcher_for_which_there_is_no_memory_takes_its_records_later() -> None:
    made = make_batcher()
    assert without_memory("_replay", partial(take_one, made), partial(take_one, made)) == 1
