"""Numbers of record layouts in compiled code are those of the layouts, and stand in one place."""

import re
from pathlib import Path

from cqstore.cq_file.layout import FILE_UNIT
from cqstore.cq_rocksdb.keys import (
    CTRL_1,
    KEY_HEAD,
    LONGEST_PREFIX,
    OFFSET_ENTRY,
    OFFSET_TAIL,
    QUEUE_TAIL,
    UNIT_PLACE,
)
from cqstore.store.index.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT
from cqstore.store.queue.units import QUEUE_UNIT
from cqstore.store.record import record_layout as record
from cqstore.store.record.client_batch import CLIENT_BATCH_HEAD
from cqstore.store.record.encoding_rules import MAX_V1_TOPIC_CHARS
from cqstore.store.record.message import TRANSACTION_MASK, SysFlag
from cqstore.store.record.properties import CRC_PROPERTY_SIZE, MAX_PROPERTIES
from tests.kit.compiled_sources import sources
from tests.kit.pages import ROOT

NUMBERS = Path("store/core/_layout.pxd")
ROCKSDB = ROOT / "cq_rocksdb" / "engine"
V4_TAIL = record.FIXED_V4.size - record.TAIL.size

LAYOUTS = {
    "HEAD_BYTES": record.HEAD.size,
    "HOST_V4": record.HOST_V4_SIZE,
    "HOST_V6": record.HOST_V6_SIZE,
    "STAMP_BYTES": record.STORED.size,
    "TAIL_BYTES": record.TAIL.size,
    "FIXED_BYTES": record.FIXED_V4.size,
    "MIN_RECORD": record.MIN_RECORD_SIZE,
    "MAGIC_V1": record.MAGIC_V1,
    "MAGIC_V2": record.MAGIC_V2,
    "BLANK_BYTES": record.BLANK_SIZE,
    "STAMP_SPAN": record.HEAD.size + record.HOST_V6_SIZE + record.STORED.size,
    "AT_MAGIC": record.HEAD.offset("magic_code"),
    "AT_CRC": record.HEAD.offset("body_crc"),
    "AT_QUEUE_ID": record.HEAD.offset("queue_id"),
    "AT_FLAG": record.HEAD.offset("flag"),
    "AT_QUEUE_OFFSET": record.HEAD.offset("queue_offset"),
    "AT_PHY_OFFSET": record.HEAD.offset("phy_offset"),
    "AT_SYS_FLAG": record.HEAD.offset("sys_flag"),
    "AT_BORN": record.HEAD.offset("born_timestamp"),
    "AT_STAMP_V4": record.store_timestamp_position(0),
    "AT_BODY_SIZE_V4": V4_TAIL + record.TAIL.offset("body_size"),
    "AT_PREPARED_OF_TAIL": record.TAIL.offset("prepared_transaction_offset"),
    "AT_BODY_SIZE_OF_TAIL": record.TAIL.offset("body_size"),
    "CRC_PROPERTY_BYTES": CRC_PROPERTY_SIZE,
    "CRC_DIGITS": len(str(1 << 31)),
    "BATCHED_BYTES": CLIENT_BATCH_HEAD.size,
    "AT_FLAG_OF_BATCHED": CLIENT_BATCH_HEAD.offset("flag"),
    "AT_BODY_SIZE_OF_BATCHED": CLIENT_BATCH_HEAD.offset("body_size"),
    "UNIT_BYTES": QUEUE_UNIT.size,
    "UNIT_OF_FILES": FILE_UNIT.size,
    "AT_SIZE_OF_UNIT": QUEUE_UNIT.offset("size"),
    "AT_TAGS_CODE_OF_UNIT": QUEUE_UNIT.offset("tags_code"),
    "INDEX_HEADER": INDEX_HEADER.size,
    "INDEX_SLOT": INDEX_SLOT.size,
    "INDEX_ENTRY": INDEX_ENTRY.size,
    "AT_INDEX_SLOTS_USED": INDEX_HEADER.offset("hash_slot_count"),
    "AT_INDEX_COUNT": INDEX_HEADER.offset("index_count"),
    "AT_PHY_OF_ENTRY": INDEX_ENTRY.offset("phy_offset"),
    "AT_TIME_OF_ENTRY": INDEX_ENTRY.offset("time_diff"),
    "AT_PREVIOUS_OF_ENTRY": INDEX_ENTRY.offset("previous_index"),
    "COMPRESSED": SysFlag.COMPRESSED,
    "PREPARED": SysFlag.TRANSACTION_PREPARED,
    "ROLLBACK": SysFlag.TRANSACTION_ROLLBACK,
    "TRANSACTION": TRANSACTION_MASK,
    "BORN_V6": SysFlag.BORN_HOST_V6,
    "STORE_V6": SysFlag.STORE_HOST_V6,
    "INNER_BATCH": SysFlag.INNER_BATCH,
    "PASSED_OVER": SysFlag.PASSED_OVER,
    "MAX_PROPERTIES": MAX_PROPERTIES,
    "MAX_V1_TOPIC": MAX_V1_TOPIC_CHARS,
}
KEYS = {
    "UNIT_BYTES": QUEUE_UNIT.size,
    "PLACE_BYTES": UNIT_PLACE.size,
    "ENTRY_BYTES": OFFSET_ENTRY.size,
    "KEY_HEAD_BYTES": KEY_HEAD.size,
    "QUEUE_TAIL_BYTES": QUEUE_TAIL.size,
    "CTRL": CTRL_1,
    "MAX_MORE": OFFSET_TAIL.size - QUEUE_TAIL.size,
}
"""Of the keys and values in RocksDB."""
BARE = re.compile(r"\b(?:load|get)(?:16|32|64)\([^()]*[+] ?\d+\)")
"""A field of a record that is read at a number."""


def numbers(page: Path) -> dict[str, int]:
    """Return the names that an enumeration gives a number."""
    found = re.findall(r"\b([A-Z][A-Z_0-9]+) = (-?(?:0x[0-9A-F]+|\d+))\b", page.read_text("utf-8"))
    return {name: int(value, 0) for name, value in found}


def compiled(folder: Path) -> list[Path]:
    """Return what compiled modules of a package are made of."""
    return sorted(path for path in folder.iterdir() if path.suffix in {".pyx", ".pxi", ".pxd"})


def test_the_core_has_the_numbers_of_the_layouts() -> None:
    assert numbers(ROOT / NUMBERS) == LAYOUTS


def test_they_stand_nowhere_else() -> None:
    others = [each for each in sources() if each.parts[0] != "cq_rocksdb" and each != NUMBERS]
    assert len(others) > 40
    for path in others:
        assert not set(numbers(ROOT / path)) & set(LAYOUTS), path
        assert BARE.findall((ROOT / path).read_text("utf-8")) == [], path


def test_the_engine_has_the_numbers_of_the_layouts() -> None:
    found = numbers(ROCKSDB / "_keys.pxd")
    assert found.pop("MAX_PREFIX") >= LONGEST_PREFIX
    assert found == KEYS


def test_those_of_the_engine_stand_nowhere_else() -> None:
    others = [path for path in compiled(ROCKSDB) if path.name != "_keys.pxd"]
    assert len(others) > 10
    for path in others:
        assert not set(numbers(path)) & {*KEYS, "MAX_PREFIX"}, path.name
