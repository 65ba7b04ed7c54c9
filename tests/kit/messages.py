"""Messages of every kind, plain and odd, and the ways to put them."""

from array import array
from typing import Any

from hypothesis import strategies as st

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import LOOPBACK, Host, Message, MessageProperty, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult

MAX_BODY = 4096
LIGHT, LIGHT_OFFSETS = (
    MessageProperty.INNER_MULTI_DISPATCH,
    MessageProperty.INNER_MULTI_QUEUE_OFFSET,
)
INT, LONG = 1 << 31, 1 << 63
V6_BITS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6


def changed(message: Message, name: str, value: object) -> Message:
    setattr(message, name, value)
    return message


def _host_of(wire: bytes) -> Host:
    """A host of any bytes, if there is one."""
    try:
        return Host(wire)
    except IllegalMessageError:
        return LOOPBACK


topics: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["t", "u"]),
    st.sampled_from([
        "", " ", ".", "..", "a/b", "a\0b", "a\nb", "\ud800", "\udc80", "T" * 127, "T" * 128,
        "é" * 63, "é" * 64, "𝄞" * 31, "%RETRY%" + "r" * 248, "%RETRY%" + "r" * 249, "%LMQ%a",
        "SCHEDULE_TOPIC_XXXX", "CHECKPOINT_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", b"t", None, 7, [],
    ]),
    st.text(max_size=130),
)  # fmt: skip
wild: st.SearchStrategy[Any] = st.sampled_from([None, 0.5, "1", b"1", True, [], -LONG - 1, LONG])
ints: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([0, 1, -1, INT - 1, INT, -INT, -INT - 1, LONG - 1, -LONG]),
    st.integers(0, INT - 1),
    wild,
)
names: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([
        "TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "INNER_NUM", "INNER_BASE", LIGHT,
        LIGHT_OFFSETS, "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_OUT_MS",
        "INNER_X", "DELAYED", "TIMER_X", "__CRC32#",
        "", "a\x01b", "a\x02b", "\udc80", b"TAGS", 5, None,
    ]),
    st.text(max_size=9),
)  # fmt: skip
texts: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=9),
    st.sampled_from([
        "", " ", "0", "3", "-1", "+00", "-", "000000000", "0000000000",
        "9" * 5000, "٣", "false", "%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a/b",
        "%LMQ%\udc80", "0,0", str(1 << 58), str(LONG), "a\x01b", "a\x02", "\ud800", "x" * 32_760,
        "x" * 40_000, 5, None, b"x", True,
    ]),
)  # fmt: skip
hosts = st.one_of(
    st.just(LOOPBACK),
    st.builds(Host.of, st.sampled_from(["10.0.0.1", "::1"]), st.sampled_from([0, 65535])),
    st.binary(min_size=20, max_size=20).map(Host),
    st.binary(max_size=24).map(_host_of),
    st.sampled_from([None, "127.0.0.1", b"\x7f\0\0\1\0\0\0\0"]),
)
bodies: st.SearchStrategy[Any] = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([
        b"", bytes(MAX_BODY), bytes(MAX_BODY + 1), bytearray(b"ab"), "ab", None, 5,
    ]),
    st.builds(lambda: memoryview(array("i", [1, 2, 3]))),
)  # fmt: skip
plain = st.builds(
    Message, st.just("t"), st.binary(max_size=40), st.integers(0, 1),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS"]), st.text("ab ", min_size=1), max_size=2),
)  # fmt: skip
light = st.builds(
    Message, st.just("t"), st.binary(max_size=9), st.just(0),
    st.fixed_dictionaries({LIGHT: st.sampled_from(["%LMQ%a", "%LMQ%b,%LMQ%a"])}),
)  # fmt: skip
odd = st.builds(
    Message, topics, bodies, ints,
    st.one_of(st.dictionaries(names, texts, max_size=4), st.sampled_from([None, [], "ab"])),
    ints, ints, ints, hosts, hosts, ints, ints,
)  # fmt: skip
nearly = st.builds(
    changed,
    plain,
    st.sampled_from([field for field in Message.__match_args__ if field != "properties"]),
    st.one_of(topics, bodies, ints, hosts),
)
with_property = st.builds(
    lambda message, name, value: changed(message, "properties", {name: value}),
    st.one_of(plain, st.builds(Message, st.just("SCHEDULE_TOPIC_XXXX"), st.just(b""))),
    names,
    texts,
)
messages = st.one_of(plain, light, nearly, with_property, odd)
WAYS = ["one", "async", "list", "batch"]


def put(
    store: MessageStore, way: str, given: list[Message]
) -> list[tuple[Message, PutMessageResult]]:
    """Put in one of the ways; return each message with what the store says of it."""
    if way == "one":
        return [(message, store.put_message(message)) for message in given]
    if way == "async":
        return [(message, store.put_message_future(message).result()) for message in given]
    if way == "list":
        return list(zip(given, store.put_messages(given), strict=True))
    (batch, *inner) = given
    try:
        body = encode_client_batch(inner)
    except IllegalMessageError:
        return []
    results = store.put_client_batch(changed(batch, "body", body))
    if len(results) != len(inner):
        assert not any(result.ok for result in results)
        return [(batch, result) for result in results]
    stored = [
        Message(
            batch.topic, message.body, batch.queue_id, message.properties, message.flag,
            batch.sys_flag, batch.born_timestamp, batch.born_host, batch.store_host,
            batch.reconsume_times,
        )
        for message in inner
    ]  # fmt: skip
    return list(zip(stored, results, strict=True))
