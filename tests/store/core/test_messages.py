"""A message read by the core, and by Python, say the same of whatever bytes they are given."""

import pickle
import random
from collections.abc import Callable, Sequence

import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.record.decoder import StoredMessage, check_record
from cqstore.store.record.invalid_record import check_lengths
from tests.kit.corpus import record_fields, records
from tests.kit.mutations import fuzz, mutated
from tests.kit.oracle.stored_message import OracleMessage
from tests.kit.plain_record import PlainRecord

FIELDS = (
    "record", "head", "tail", "queue_id", "queue_offset", "phy_offset", "sys_flag", "size",
    "is_passed_over", "store_timestamp", "topic", "stored_body", "body", "properties",
    "properties_bytes", "born_host", "store_host", "message_id",
)  # fmt: skip
CHECKS = ("check_body", "check_property_crc")


def outcome(ask: Callable[[], object]) -> object:
    try:
        found = ask()
    except Exception as exc:  # noqa: BLE001 - which one it is, is what is compared
        return type(exc), str(exc), getattr(exc, "phy_offset", None)
    return found, type(found)


def reported(record: bytes | bytearray | memoryview) -> object:
    """Return all that a message of ``record`` says, or why there is none."""
    try:
        message = StoredMessage(record, 77)
    except CorruptionError as exc:
        return outcome(lambda: StoredMessage(record)), type(exc), str(exc), exc.phy_offset
    return answers(message)


def expected(record: bytes | bytearray | memoryview) -> object:
    """Return what ``reported`` must return."""
    try:
        check_lengths(record, 77)
    except CorruptionError as exc:
        return outcome(lambda: check_lengths(record, None)), type(exc), str(exc), exc.phy_offset
    return answers(OracleMessage(record))


def answers(message: StoredMessage | OracleMessage) -> list[object]:
    said = [outcome(lambda name=name: getattr(message, name)) for name in FIELDS]  # type: ignore[misc]
    return said + [outcome(getattr(message, name)) for name in CHECKS]


def resized(draw: random.Random, data: bytes, other: bytes, fields: Sequence[range]) -> bytes:
    """Damage a record and let its own size be right again, so that more than that is looked at."""
    data = mutated(draw, data, other, fields)
    return len(data).to_bytes(4, "big") + data[4:] if draw.random() < 0.8 else data


def test_sound_records_are_read_alike() -> None:
    for record in [*records(), *records(crc=True), PlainRecord(sys_flag=1 << 30).encode()]:
        assert reported(record) == expected(record)
        view = memoryview(record)
        assert reported(view) == expected(view)


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_damaged_records_are_read_alike(*, long: bool) -> None:
    def run(data: bytes) -> None:
        assert reported(data) == expected(data)

    seeds = [*records(), *records(crc=True)]
    fuzz("both readers", seeds, run, 1500, long=long, fields=record_fields(), mutate=resized)


@pytest.mark.parametrize("topic_size", [0, 1, 127, 128, 255, 0x7FFF, 0x8000, 0xFFFF])
@pytest.mark.parametrize("magic", [b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xda\xa3\x20\xa8"])
def test_topic_lengths_are_read_alike(magic: bytes, topic_size: int) -> None:
    width = 2 if magic[-1] == 0xAB else 1
    size = (topic_size % (1 << 8 * width)).to_bytes(width, "big")
    rest = size + b"t" * (topic_size % (1 << (8 * width))) + bytes(2)
    start = PlainRecord().encode()[8:84] + bytes(4)
    record = (8 + len(start) + len(rest)).to_bytes(4, "big") + magic + start + rest
    assert reported(record) == expected(record)


def test_each_public_name_is_compared() -> None:
    public = {name for name in dir(StoredMessage) if not name.startswith("_")}
    assert public == {*FIELDS, *CHECKS}


def test_what_was_read_stays() -> None:
    record = PlainRecord().encode()
    message = StoredMessage(record)
    assert message.record is record
    assert message.body is message.body
    assert message.topic is message.topic
    assert message.properties is message.properties
    message.properties["mine"] = "1"
    assert StoredMessage(record).properties == {"TAGS": "A"}


def test_messages_are_equal_only_to_themselves() -> None:
    message, other = StoredMessage(PlainRecord().encode()), StoredMessage(PlainRecord().encode())
    assert message == message  # noqa: PLR0124 - that is the question
    assert message != other
    assert len({message, other}) == 2


def test_a_message_is_pickled_with_its_bytes() -> None:
    message = StoredMessage(PlainRecord(topic=b"kept").encode())
    again = pickle.loads(pickle.dumps(message))
    assert type(again) is StoredMessage
    assert reported(again.record) == reported(message.record)


def test_a_message_keeps_its_buffer_from_moving() -> None:
    record = PlainRecord().encode()
    held = memoryview(bytearray(record))
    message = check_record(held, 0, check_crc=True, property_crc=False)
    del held
    assert (message.body, bytes(message.record)) == (b"hi", record)


def test_a_message_that_was_never_read_says_nothing() -> None:
    message = StoredMessage.__new__(StoredMessage)
    for name in FIELDS:
        with pytest.raises((ValueError, AttributeError)):
            getattr(message, name)
    with pytest.raises((ValueError, AttributeError)):
        message.check_body()


@pytest.mark.parametrize("wrong", [None, 1, "text", ["a"]])
def test_only_bytes_are_read(wrong: object) -> None:
    with pytest.raises((TypeError, AttributeError, CorruptionError)):
        StoredMessage(wrong)  # type: ignore[arg-type]


def test_names_and_tags_that_were_met_of_late_are_no_others() -> None:
    """Of the same length, with the same ends, or whose characters are no bytes."""
    draw = random.Random(11)
    words = [b"axb", b"ayb", b"a\xffb", b"a\xe4b", "äb".encode(), b"\xe4b", b"\xe4", b"x", b"TAGS"]
    words += [b"KEYS", "ä".encode(), b"a" * 32, b"a" * 33, b"a" * 31 + b"b", "é".encode() * 16]
    words += ["\x95b".encode(), b"\x95b"]  # they come to the same place among those that are known
    for _ in range(600):
        pairs = [(draw.choice(words), draw.choice(words)) for _ in range(draw.randrange(1, 5))]
        text = b"\x02".join(name + b"\x01" + value for name, value in pairs)
        record = PlainRecord(properties=text).encode()
        assert StoredMessage(record).properties == OracleMessage(record).properties


def test_names_and_tags_that_were_met_of_late_are_not_made_again() -> None:
    one, other = (
        StoredMessage(PlainRecord(properties=b"TAGS\x01some\x02odd\x01some").encode()).properties
        for _ in range(2)
    )
    assert [*map(id, one)] == [*map(id, other)]
    assert one["TAGS"] is other["TAGS"]
