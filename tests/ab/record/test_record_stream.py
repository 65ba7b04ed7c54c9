"""The records of a log that arrives in pieces, against those that the store itself finds."""

import pytest

from cqstore.ab.record.record_stream import MAX_RECORD_BYTES, RecordStream
from cqstore.replication.errors import WireError
from cqstore.replication.wire import Piece
from cqstore.store.errors import CorruptionError, MagicCodeError, TruncatedRecordError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.log_bytes import log_of, pieces

Row = tuple[int, int, str, int, int]
"""Phy offset, size, topic, queue, offset."""


def fed(data: bytes, most: int, begin: int = 0) -> tuple[list[Row], RecordStream]:
    """Feed ``data`` cut anywhere; return what was found."""
    stream, at, found = RecordStream(), begin, list[Row]()
    for part in pieces(data, most):
        found += (
            (each.phy_offset, each.size, each.topic, each.queue_id, each.queue_offset)
            for each in stream.feed(Piece(at, part))
        )
        at += len(part)
    return found, stream


@pytest.mark.parametrize("most", [1, 7, 300, 5000, 1 << 20])
def test_records_are_those_of_the_store_wherever_bytes_are_cut(
    store: MessageStore, most: int
) -> None:
    log, data = components_of(store).log, log_of(store)
    expected = [
        (each.phy_offset, each.size, each.topic, each.queue_id, each.queue_offset)
        for each in log.scan(0)
    ]
    found, stream = fed(data, most)
    assert found == expected
    assert stream.position == stream.next_phy_offset == len(data)
    part, _ = fed(data[4096:], most, 4096)
    assert part == [row for row in expected if row[0] >= 4096]


def test_the_position_is_after_the_last_whole_record_and_its_padding(store: MessageStore) -> None:
    data = log_of(store)
    starts = [each.phy_offset for each in components_of(store).log.scan(0)]
    assert fed(data[: starts[3] + 5], 50)[1].position == starts[3]
    last = max(start for start in starts if start < 4096)
    (end,) = {int.from_bytes(data[last : last + 4], "big") + last}
    assert end < 4096 - 8, "the file ends with padding"
    assert fed(data[: end + 7], 50)[1].position == end
    assert fed(data[: end + 8], 50)[1].position == 4096
    assert fed(data[:4090], 50)[1].position == 4096


def test_bytes_that_do_not_continue_are_refused() -> None:
    stream = RecordStream()
    list(stream.feed(Piece(100, b"\0\0\0")))
    with pytest.raises(WireError, match="do not continue") as caught:
        list(stream.feed(Piece(104, b"\0")))
    assert (caught.value.expected, caught.value.got) == ("bytes from 103", "bytes from 104")


@pytest.mark.parametrize(
    ("at", "data", "error"),
    [
        (4, b"\1\2\3\4", MagicCodeError),
        (0, b"\0\0\0\5", TruncatedRecordError),
        (0, (MAX_RECORD_BYTES).to_bytes(4, "big"), TruncatedRecordError),
        (28, bytes(8), CorruptionError),
        (20, b"\xff", CorruptionError),
    ],
)
def test_bytes_that_are_no_record_are_refused_with_their_offset(
    store: MessageStore, at: int, data: bytes, error: type[CorruptionError]
) -> None:
    """The phy offset of a record is at byte 28, its queue offset at byte 20."""
    log = log_of(store)
    begin = [each.phy_offset for each in components_of(store).log.scan(0)][2]
    bad = log[: begin + at] + data + log[begin + at + len(data) :]
    found: list[object] = []
    with pytest.raises(error) as caught:
        found.extend(RecordStream().feed(Piece(0, bad)))
    assert len(found) == 2, "those before it"
    assert caught.value.phy_offset == begin
