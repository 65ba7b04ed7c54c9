"""Pulls on the fast and on the slow path answer alike, also where the log is damaged."""

import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import Puller
from cqstore.store.service.results import GetMessageResult, GetMessageStatus
from cqstore.store.settings.config import StoreConfig

LOG_FILE = 4096
CONFIG = StoreConfig(
    mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=400,
    max_message_size=2000, max_transfer_bytes_on_message_in_memory=3000,
    max_transfer_count_on_message_in_memory=12,
)  # fmt: skip
QUEUES = 3
PUTS = 150


@pytest.fixture(scope="module", params=backend_names())
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessageStore]:
    draw = random.Random(1)
    root = tmp_path_factory.mktemp("pulls")
    with MessageStore.open(root / "store", CONFIG, backend=request.param) as opened:
        for number in range(PUTS):
            body = bytes(draw.choice((0, 1, 50, 300, 900)))
            assert opened.put_message(Message("t", body, number % QUEUES, {"TAGS": "a"})).ok
        assert opened.max_offset("t", 0) == PUTS // QUEUES  # hands on what waits
        yield opened


def slow_puller(store: MessageStore) -> Puller:
    """Return a puller that asks the core nothing."""
    puller = Puller(store.config, components_of(store).log, components_of(store).queues)
    puller._fast = None
    return puller


def reported(result: GetMessageResult) -> object:
    """Return all that a result says, its messages before and after its records were asked for."""
    first = [bytes(message.record) for message in result.messages()]
    fields = [
        getattr(result, name) for name in GetMessageResult.__match_args__ if name != "records"
    ]
    fields.append([bytes(record) for record in result.records])
    return first, fields, [message.body for message in result.messages()]


def compare(store: MessageStore, draw: random.Random, count: int) -> list[GetMessageResult]:
    core, slow, results = store._puller, slow_puller(store), []
    for _ in range(count):
        requested = ("t", draw.randrange(QUEUES + 1), draw.randrange(-2, PUTS // QUEUES + 4),
                 draw.choice((0, 1, 5, 12, 32, 1 << 70)), None,
                 draw.choice((0, 500, 2000, 1 << 27, 1 << 70)))  # fmt: skip
        found, expected = core.get(*requested), slow.get(*requested)
        assert found.record_count() == len(expected.records)
        assert reported(found) == reported(expected), requested
        results.append(found)
    return results


def test_sound_pulls_are_alike(store: MessageStore) -> None:
    assert {result.status for result in compare(store, random.Random(2), 300)} == {
        GetMessageStatus.FOUND, GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_ONE,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    }  # fmt: skip


def damage(draw: random.Random, file: Path, store: MessageStore) -> tuple[int, bytes]:
    """Overwrite a few bytes of a record, most often of its head; return what was there."""
    block = components_of(store).queues.queue("t", draw.randrange(QUEUES)).read_units(0, PUTS)
    phys = [phy for phy, _, _ in block.rows() if phy // LOG_FILE * LOG_FILE == int(file.name)]
    at = draw.choice(phys) % LOG_FILE + draw.choice((0, 1, 3, 4, 7, 28, 35, 36, 39, 84, 87, 88))
    with file.open("r+b") as opened:
        before = os.pread(opened.fileno(), 2, at)
        os.pwrite(opened.fileno(), draw.choice((b"\xff", b"\0", b"\x40\x01", b"\x7f\xff")), at)
    return at, before


def test_damaged_pulls_are_alike(store: MessageStore) -> None:
    files = sorted(components_of(store).paths.commit_log.iterdir())[:-1]
    left_out = set()
    for number in range(200):
        draw = random.Random(f"damaged {number}")
        file = draw.choice(files)
        at, before = damage(draw, file, store)
        for result in compare(store, draw, 12):
            left_out |= {damaged.reason.partition("(")[0] for damaged in result.damaged}
        with file.open("r+b") as opened:
            os.pwrite(opened.fileno(), before, at)
    assert len(left_out) >= 4, "damage of several kinds has to be met"


def test_a_record_damaged_after_the_pull_is_left_out_of_the_messages(store: MessageStore) -> None:
    for puller in (store._puller, slow_puller(store)):
        result = puller.get("t", 1, 0, 3, None)
        phy = int.from_bytes(result.records[1][28:36], "big") if puller is not store._puller else 0
        if not phy:
            phy = next(iter(slow_puller(store).get("t", 1, 1, 1, None).messages())).phy_offset
        file = components_of(store).paths.commit_log / f"{phy // LOG_FILE * LOG_FILE:020d}"
        with file.open("r+b") as opened:
            os.pwrite(opened.fileno(), b"\x7f", phy % LOG_FILE + 84)
            messages = result.messages()
            os.pwrite(opened.fileno(), b"\0", phy % LOG_FILE + 84)
        assert [message.queue_offset for message in messages] == [0, 2] == result.queue_offsets
        assert [damaged.queue_offset for damaged in result.damaged] == [1]
        assert result.total_bytes == sum(map(len, result.records))
        assert "body runs past" in result.damaged[0].reason


def test_one_message_holds_on_to_its_file_alone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for number in range(40):
            assert store.put_message(Message("t", b"%d" % number * 100, 0)).ok
        result = store.get_message("t", 0, 0, 12)
        kept = result.messages()[5]
        del result
        components_of(store).log.files.delete_before(1 << 40)
    assert kept.body == b"5" * 100
    assert kept.record[88:91] == b"555"
    assert isinstance(kept.record, memoryview)
    assert kept.record.readonly


FIELDS: tuple[Any, ...] = (
    GetMessageStatus.FOUND,
    3,
    1,
    9,
    [memoryview(b"x")],
    [2],
    1,
    range(1, 3),
    [],
)


def test_results_are_values() -> None:
    result = GetMessageResult(*FIELDS)
    assert result == GetMessageResult(*FIELDS)
    assert result != GetMessageResult(*FIELDS[:7])
    assert result.__eq__(FIELDS) is NotImplemented
    assert [getattr(result, name) for name in GetMessageResult.__match_args__] == [*FIELDS]
    assert repr(result) == (
        "GetMessageResult(status=<GetMessageStatus.FOUND: 1>, next_begin_offset=3, min_offset=1,"
        " max_offset=9, records=<1 views>, queue_offsets=[2], total_bytes=1, hole=range(1, 3),"
        " damaged=[])"
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_results_are_filled_in_one_by_one() -> None:
    result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 0, 0, 0)
    assert (result.records, result.queue_offsets, result.damaged) == ([], [], [])
    assert (result.total_bytes, result.hole, result.record_count()) == (0, None, 0)
    assert result.messages() == []
    result.records.append(memoryview(b"no record"))
    result.queue_offsets.append(4)
    result.total_bytes = 9
    assert result.record_count() == 1
    assert result.messages() == []
    assert (result.status, result.records, result.total_bytes) == (
        GetMessageStatus.MESSAGE_WAS_REMOVING, [], 0,
    )  # fmt: skip
    assert [damaged.queue_offset for damaged in result.damaged] == [4]
    result.leave_out(5, 6, 7, CorruptionError("odd"))
    assert result.damaged[1] == (5, 6, 7, "odd")
    assert pickle.loads(pickle.dumps(result)) == result
