"""Damaged records, blocks of the log, properties and client batches.

Seeded random draws rather than Hypothesis: the draws know where the numbers lie, splice inputs, and
take tens of microseconds an input; 100,000 inputs are minutes. The two were not compared.
"""

import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from cqstore.store.errors import IllegalMessageError, StoreError
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.queue.facts import QueueRestart, QueueType
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.client_batch import decode_client_batch, encode_client_batch
from cqstore.store.record.decoder import StoredMessage, check_record
from cqstore.store.record.message import Message
from cqstore.store.record.message_id import decode_message_id
from cqstore.store.record.properties import dispatch_properties, encode_properties
from cqstore.store.record.scan import ScanRules, TopicCache, scan_block
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import Pending
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.dispatching.replay import Replay
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.settings.config import StoreConfig
from tests.kit.core_encoder import CoreEncoder
from tests.kit.corpus import PROPERTIES, blocks, messages, record_fields, records
from tests.kit.mutations import fuzz, mutated
from tests.kit.plain_record import PlainRecord

if TYPE_CHECKING:
    from cqstore.store.queue.consume_queue_store import ConsumeQueueStore

Run = Callable[[bytes], object]


class Sink:
    """Queues that group every batch and keep nothing."""

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        batch.runs()
        return []

    def check_topic(self, topic: str) -> None:
        if "/" in topic:
            raise IllegalMessageError("no folder")

    def queue_type(self, topic: str) -> QueueType:
        return QueueType.BATCH if topic.startswith("b") else QueueType.SIMPLE


def replay(folder: Path) -> Run:
    """Return a run that scans a block and dispatches what it finds to a sink and an index."""
    index = IndexService(folder, 50, 100_000, read_only=False)
    queues = cast("ConsumeQueueStore", Sink())
    deleted = DeletedTopics(folder / "none")
    state = RunningState(folder, read_only=False)
    units = RecordUnits(
        StoreConfig(), deleted, queues.queue_type, check_topic=queues.check_topic,
        lmq_needs_multi_dispatch=False,
    )  # fmt: skip
    keys = RecordKeys(wanted=True, tags=False)
    dispatcher = Dispatcher(Pending(queues, units, keys, state), queues, index, 1, state)
    again = Replay(dispatcher.store, units, keys)

    def run(data: bytes) -> None:
        for rules in (ScanRules(), ScanRules(property_crc=True), ScanRules(check_crc=False)):
            found = scan_block(data, 0, len(data) + 8, rules, TopicCache())
            again.run([found], 0, 0)

    return run


def read_all(record: bytes) -> None:
    """Ask one record for everything that it has."""
    with suppress(StoreError):
        check_record(record, 0, check_crc=True, property_crc=True)
    message = StoredMessage(record)
    for ask in (
        lambda: message.topic,
        lambda: message.body,
        lambda: message.properties,
        lambda: (str(message.born_host), str(message.store_host)),
        lambda: decode_message_id(message.message_id),
        lambda: dispatch_properties(message.properties_bytes),
        message.check_body,
    ):
        with suppress(StoreError):
            ask()


def resized(draw: random.Random, data: bytes, other: bytes, fields: Sequence[range]) -> bytes:
    """Damage a record and let its own size be right again, so that more than that is looked at."""
    data = mutated(draw, data, other, fields)
    if draw.random() < 0.5:
        data = len(data).to_bytes(4, "big") + data[4:]
    return data


def around(properties: bytes) -> bytes:
    """Return a whole record with these properties: no checksum covers them."""
    topic = random.Random(zlib.crc32(properties)).choice((b"T", b"batch", b"SCHEDULE_TOPIC_XXXX"))
    return PlainRecord(properties=properties[:0x7FFF], topic=topic).encode()


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)])
class TestDamaged:
    def test_records(self, *, long: bool) -> None:
        seeds = [*records(), *records(crc=True)]
        fields = record_fields()
        fuzz("record", seeds, read_all, 700, long=long, fields=fields, mutate=resized)

    def test_blocks_of_the_log(self, tmp_path: Path, *, long: bool) -> None:
        row = records()
        starts = [sum(map(len, row[:number])) for number in range(len(row))]
        fields = [field for start in starts for field in record_fields(start)]
        fuzz("block", blocks(), replay(tmp_path), 600, long=long, fields=fields)

    def test_properties(self, tmp_path: Path, *, long: bool) -> None:
        run = replay(tmp_path)
        seeds = [encode_properties(properties) for properties in PROPERTIES]
        seeds.append(encode_properties({name: "9" * 5000 for p in PROPERTIES for name in p}))
        fuzz("properties", seeds, lambda data: run(around(data)), 500, long=long)

    def test_client_batches(self, *, long: bool) -> None:
        encoder = CoreEncoder()
        seeds = [encode_client_batch(messages()), encode_client_batch(messages()[3:7])]
        fields = [range(at, at + 4) for at in range(0, 20, 4)]

        def run(data: bytes) -> None:
            for message in decode_client_batch(Message("T", data)):
                encoder.encode(message)

        fuzz("client batch", seeds, run, 200, long=long, fields=fields)
