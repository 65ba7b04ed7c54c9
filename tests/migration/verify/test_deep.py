"""What a record says of the units that lead to it: its queue, its light queues, its tags code."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from cqstore.migration.verify.deep import RecordCheck
from cqstore.store.comparing.log_heads import LogHeads
from cqstore.store.comparing.queue_findings import QueueFindings
from cqstore.store.comparing.tally import DifferenceKind
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.java_hash import java_hash
from cqstore.store.settings.config import StoreConfig
from tests.kit.plain_record import PlainRecord

TAG = java_hash("A")
RECORD = PlainRecord(b"orders", b"body", queue_id=3, queue_offset=7)
LIGHT = replace(
    RECORD,
    properties=b"TAGS\x01A\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"
    b"INNER_MULTI_QUEUE_OFFSET\x013,4\x02",
)
DELAYED = replace(RECORD, topic=b"SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01A\x02DELAY\x013\x02")
STORED = RECORD.store_timestamp
Wrong = DifferenceKind | None


def problem(
    folder: Path, data: bytes, queue: QueueKey, offset: int, code: int, **settings: object
) -> Wrong:
    """Ask for a unit that leads to ``data``, the second record of a log."""
    first = RECORD.encode()
    place = len(first)
    made = bytearray(data)
    struct.pack_into(">q", made, 28, place)
    folder.mkdir(exist_ok=True)
    (folder / f"{0:020d}").write_bytes(first + made + bytes(100))
    config = StoreConfig.from_mapping(settings)
    check = RecordCheck(LogHeads([folder]), config)
    return check.problem(QueueFindings(queue), offset, place, len(data), code)


@pytest.mark.parametrize(
    ("record", "queue", "offset", "code", "wrong"),
    [
        (RECORD, ("orders", 3), 7, TAG, None),
        (RECORD, ("orders", 3), 99, TAG, None),  # a shifted unit is told by others
        (RECORD, ("orders", 3), 7, TAG + 1, DifferenceKind.OTHER_TAGS),
        (RECORD, ("orders", 3), 7, 0, DifferenceKind.OTHER_TAGS),
        (RECORD, ("orders", 2), 7, TAG, DifferenceKind.OTHER_QUEUE),
        (RECORD, ("others", 3), 7, TAG, DifferenceKind.OTHER_QUEUE),
        (RECORD, ("%LMQ%a", 0), 3, TAG, DifferenceKind.OTHER_QUEUE),
        (replace(RECORD, sys_flag=4), ("orders", 3), 7, TAG, DifferenceKind.OTHER_QUEUE),
        (replace(RECORD, sys_flag=12), ("orders", 3), 7, TAG, DifferenceKind.OTHER_QUEUE),
        (replace(RECORD, sys_flag=8), ("orders", 3), 7, TAG, None),
        (replace(RECORD, properties=b""), ("orders", 3), 7, 0, None),
        (LIGHT, ("orders", 3), 7, TAG, None),
        (LIGHT, ("%LMQ%a", 0), 3, TAG, None),
        (LIGHT, ("%LMQ%b", 0), 4, TAG, None),
        (LIGHT, ("%LMQ%b", 0), 3, TAG, DifferenceKind.OTHER_QUEUE),
        (LIGHT, ("%LMQ%c", 0), 3, TAG, DifferenceKind.OTHER_QUEUE),
        (LIGHT, ("%LMQ%a", 0), 3, 1, DifferenceKind.OTHER_TAGS),
        (LIGHT, ("a", 0), 3, TAG, DifferenceKind.OTHER_QUEUE),
        (DELAYED, ("SCHEDULE_TOPIC_XXXX", 3), 7, STORED + 10_000, None),
        (DELAYED, ("SCHEDULE_TOPIC_XXXX", 3), 7, TAG, DifferenceKind.OTHER_TAGS),
        (replace(DELAYED, topic=b"orders"), ("orders", 3), 7, TAG, None),
        (replace(DELAYED, properties=b"TAGS\x01A\x02"), ("SCHEDULE_TOPIC_XXXX", 3), 7, TAG, None),
    ],
)  # fmt: skip
def test_a_unit_is_held_against_its_record(
    tmp_path: Path, record: PlainRecord, queue: tuple[str, int], offset: int, code: int,
    wrong: Wrong,
) -> None:  # fmt: skip
    found = problem(tmp_path / "log", record.encode(), QueueKey(*queue), offset, code)
    assert found is wrong


def test_levels_of_delay_are_those_of_the_settings(tmp_path: Path) -> None:
    queue, levels = QueueKey("SCHEDULE_TOPIC_XXXX", 3), {"messageDelayLevel": "1s 2s 7s"}
    data = DELAYED.encode()
    assert problem(tmp_path / "log", data, queue, 7, STORED + 7_000, **levels) is None
    wrong = problem(tmp_path / "log", data, queue, 7, STORED + 10_000, **levels)
    assert wrong is DifferenceKind.OTHER_TAGS


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    queue = QueueKey("orders", 3)
    data = bytearray(RECORD.encode())
    data[data.index(b"body")] ^= 1
    assert problem(tmp_path / "log", bytes(data), queue, 7, TAG) is DifferenceKind.NO_RECORD
    whole, sums = RECORD.encode(), {"forceVerifyPropCRC": "true"}
    assert problem(tmp_path / "log", whole, queue, 7, TAG) is None
    assert problem(tmp_path / "log", whole, queue, 7, TAG, **sums) is DifferenceKind.NO_RECORD
