"""Real bytes that fuzzing starts from: records of every kind, and what golden stores hold."""

from pathlib import Path

from cqstore.store.record.compression import compress
from cqstore.store.record.message import CompressionType, Host, Message, MessageProperty
from cqstore.store.record.record_layout import BLANK_SIZE, HEAD, STORED, TAIL
from cqstore.store.settings.config import StoreConfig
from tests.kit.oracle.encoder import MessageEncoder, assemble, with_property_crc

_V6 = Host.of("2001:db8::1", 65535)
_STORED_AT = 1_700_000_000_001
_LIGHT = {
    MessageProperty.INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b",
    MessageProperty.INNER_MULTI_QUEUE_OFFSET: "3,14",
}
_INNER = {MessageProperty.INNER_NUM: "4", MessageProperty.INNER_BASE: "12"}
PROPERTIES = [
    {},
    {"TAGS": "TagA"},
    {"TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": "7F0000010000"},
    {"DELAY": "3"},
    _LIGHT,
    _INNER,
]


def messages() -> list[Message]:
    """Return messages of every kind that a record can be of."""
    made = [Message("topic", b"body %d" % n, n, p) for n, p in enumerate(PROPERTIES)]
    made += [
        Message("t" * 200, b"", 1),
        Message("SCHEDULE_TOPIC_XXXX", b"late", 2, {"DELAY": "3"}),
        Message("v6", b"x" * 50, born_host=_V6, store_host=_V6),
        Message("v6", b"x" * 50, born_host=_V6),
    ]
    for kind in CompressionType:
        body, bits = compress(b"squeezed " * 40, kind)
        made.append(Message("small", body, sys_flag=bits))
    return made


def records(*, crc: bool = False) -> list[bytes]:
    """Return ``messages`` as records, one behind the other from phy offset 0 on."""
    made, phy_offset = [], 0
    config = StoreConfig(enabled_append_prop_crc=crc)
    for number, message in enumerate(messages()):
        record = MessageEncoder(config, lambda _: None).encode(message)
        rest = assemble(record, number, phy_offset, _STORED_AT + number)
        made.append(record.start + (with_property_crc(record.start, rest) if crc else rest))
        phy_offset += record.size
    return made


def blocks() -> list[bytes]:
    """Return logs: a row of records and what may follow it in a file."""
    return [
        b"".join(records(crc=crc)) + end
        for crc in (False, True)
        for end in (bytes(64), b"\0\0\0\x08\xcb\xd4\x31\x94"[:BLANK_SIZE])
    ]


def record_fields(at: int = 0) -> list[range]:
    """Return where the numbers of an IPv4 record that starts at ``at`` lie."""
    found, start = [], at
    for layout in (HEAD, STORED, TAIL):
        for name, wire in layout.wires:
            position = start + layout.offset(name)
            found.append(range(position, position + (8 if wire.code == "q" else 4)))
        start += layout.size + 8
    return found


def pieces(folder: Path, pattern: str, size: int = 4096) -> list[bytes]:
    """Return the beginning of each file below ``folder`` that ``pattern`` names, zeros cut off."""
    found = (path.read_bytes()[:size].rstrip(b"\0") for path in sorted(folder.glob(pattern)))
    return [data for data in found if data]
