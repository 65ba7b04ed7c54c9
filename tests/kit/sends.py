"""Fields and bodies of requests that send messages, made by hand."""

import struct

SEND, SEND_V2, BATCH, BACK = 10, 310, 320, 36
V1 = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch",
)  # fmt: skip
NAME_OF = dict(zip(V1, "abcdefghijklm", strict=True))
BORN = 1_700_000_000_000


def text_of(properties: dict[str, str]) -> str:
    """Return properties as a client sends them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def sent(
    topic: str = "t", properties: dict[str, str] | str | None = None, *, v2: bool = False,
    **changes: object,
) -> dict[str, object]:  # fmt: skip
    """Return the fields of a send, of either version of the header; ``None`` leaves one out.

    Properties that are a text are sent as they are.
    """
    if not isinstance(properties, str):
        properties = text_of({"UNIQ_KEY": "U1", "WAIT": "true"} | (properties or {}))
    fields: dict[str, object] = {
        "producerGroup": "pg", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4, "queueId": 1, "sysFlag": 0, "bornTimestamp": BORN, "flag": 7,
        "properties": properties,
        "reconsumeTimes": 0, "unitMode": "false", "batch": "false",
    } | changes  # fmt: skip
    found = {name: value for name, value in fields.items() if value is not None}
    return {NAME_OF.get(name, name): value for name, value in found.items()} if v2 else found


def batch_of(*bodies: bytes, properties: str = "") -> bytes:
    """Return a client batch, made by hand."""
    text, parts = properties.encode(), []
    for body in bodies:
        rest = struct.pack(">i", len(body)) + body + struct.pack(">h", len(text)) + text
        parts.append(struct.pack(">iiii", 16 + len(rest), 0, 0, 5) + rest)
    return b"".join(parts)
