"""Delay levels and properties of any text are what RocketMQ has answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.client_batch import decode_client_batch
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.record.properties import (
    decode_properties,
    delay_level,
    dispatch_properties,
    dispatch_properties_of,
    level_of,
    text_of,
)
from tests.kit.java_texts import LEVELS, PROPERTIES
from tests.kit.plain_record import PlainRecord
from tests.store.record.test_limits import one_of_batch

BYTES = st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"\xed\xa0", b"\xff"]))


@pytest.mark.parametrize(("text", "level"), LEVELS, ids=lambda given: repr(given)[:20])
def test_a_delay_level_is_what_java_reads(text: str, level: int | None) -> None:
    assert level_of(text) == level
    if level is not None:
        assert delay_level({"DELAY": text}) == level
    else:
        with pytest.raises(IllegalMessageError, match="invalid delay level"):
            delay_level({"DELAY": text})


@pytest.mark.parametrize("odd", [3, b"3", True, ["3"], type("Text", (str,), {})("3")])
def test_a_delay_level_is_plain_text(odd: object) -> None:
    assert level_of(odd) is None
    assert level_of(None) == 0


@pytest.mark.parametrize(("data", "properties"), PROPERTIES, ids=lambda given: repr(given)[:20])
def test_every_reader_of_properties_reads_what_rocketmq_reads(
    data: bytes, properties: dict[str, str]
) -> None:
    assert decode_properties(data) == properties
    assert dispatch_properties(data) == dispatch_properties_of(properties)
    assert StoredMessage(PlainRecord(properties=data).encode()).properties == properties
    part = one_of_batch(22 + len(data), 0, len(data).to_bytes(2, "big") + data)
    (message,) = decode_client_batch(Message("t", part))
    assert message.properties == properties


@given(BYTES.map(b"".join))
def test_properties_are_read_segment_by_segment(data: bytes) -> None:
    pairs = [segment.partition(b"\x01") for segment in data.split(b"\x02")]
    wanted = {text_of(name): text_of(value) for name, _, value in pairs if name and value}
    assert decode_properties(data) == wanted
