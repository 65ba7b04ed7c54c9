"""A client of RocketMQ's remoting protocol that frames by hand.

It knows nothing of ``cqstore``: headers are made and read by the format page alone, and a process
that is only a client starts in no time.
"""

import asyncio
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Fields = Mapping[str, object]
JSON, BINARY = 0, 1
ONEWAY = 2
VERSION = 477
"""RocketMQ's number of the client's release."""


@dataclass
class Answer:
    """A response, or a request of the server."""

    code: int
    opaque: int
    flag: int
    remark: str
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    form: int = JSON

    @property
    def json(self) -> Any:
        """The body as JSON that need not be valid: see ``strict``."""
        return json.loads(strict(self.body.decode()))


def strict(text: str) -> str:
    """Return fastjson's text as JSON: keys that are objects or numbers become texts."""
    text = re.sub(r"([{,])(\{[^{}]*\}):", lambda found: found[1] + json.dumps(found[2]) + ":", text)
    return re.sub(r"([{,])(-?\d+):", r'\1"\2":', text)


def frame(header: bytes, body: bytes = b"", form: int = JSON) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), form << 24 | len(header)) + header + body


def asked(
    code: int,
    opaque: int,
    fields: Fields,
    body: bytes = b"",
    form: int = JSON,
    flag: int = 0,
) -> bytes:
    """Return the bytes of a request."""
    texts = {key: str(value) for key, value in fields.items()}
    if form == JSON:
        header = {
            "code": code, "language": "JAVA", "version": VERSION, "opaque": opaque, "flag": flag,
            "extFields": texts, "serializeTypeCurrentRPC": "JSON",
        }  # fmt: skip
        return frame(json.dumps(header).encode(), body)
    table = b""
    for key, value in texts.items():
        table += struct.pack(">h", len(key.encode())) + key.encode()
        table += struct.pack(">i", len(value.encode())) + value.encode()
    head = struct.pack(">hbhii", code, 0, VERSION, opaque, flag)
    return frame(head + struct.pack(">ii", 0, len(table)) + table, body, BINARY)


def answer_in(header: bytes, body: bytes, form: int) -> Answer:
    """Return the answer that a header and a body are."""
    if form == JSON:
        found = json.loads(header)
        return Answer(
            found["code"], found["opaque"], found["flag"], found.get("remark") or "",
            found.get("extFields") or {}, body, form,
        )  # fmt: skip
    code, _language, _version, opaque, flag = struct.unpack_from(">hbhii", header)
    at = 13
    (size,) = struct.unpack_from(">i", header, at)
    remark, at = header[at + 4 : at + 4 + size].decode(), at + 4 + size
    (left,) = struct.unpack_from(">i", header, at)
    at += 4
    end, fields = at + left, {}
    while at < end:
        (size,) = struct.unpack_from(">h", header, at)
        key, at = header[at + 2 : at + 2 + size].decode(), at + 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        fields[key], at = header[at + 4 : at + 4 + size].decode(), at + 4 + size
    assert at == len(header)
    return Answer(code, opaque, flag, remark, fields, body, form)


class Client:
    """One connection; answers may come in any order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._opaque = 0
        self.early: list[Answer] = []
        """What came while another answer was waited for."""

    def send(
        self, code: int, fields: Fields | None = None, body: bytes = b"", form: int = JSON,
        flag: int = 0,
    ) -> int:  # fmt: skip
        """Send a request; return its number."""
        self._opaque += 1
        self.writer.write(asked(code, self._opaque, fields or {}, body, form, flag))
        return self._opaque

    async def next_answer(self) -> Answer:
        size, header = struct.unpack(">iI", await self.reader.readexactly(8))
        data = await self.reader.readexactly(size - 4)
        length = header & 0xFFFFFF
        return answer_in(data[:length], data[length:], header >> 24)

    async def answer(self, opaque: int) -> Answer:
        """Return the answer to the request of this number."""
        for each in self.early:
            if each.opaque == opaque and each.flag & 1:
                self.early.remove(each)
                return each
        while True:
            found = await self.next_answer()
            if found.opaque == opaque and found.flag & 1:
                return found
            self.early.append(found)

    async def ask(
        self,
        code: int,
        fields: Fields | None = None,
        body: bytes = b"",
        form: int = JSON,
    ) -> Answer:
        """Send a request, and return its answer."""
        return await self.answer(self.send(code, fields, body, form))

    async def is_closed(self) -> bool:
        """Wait until the server closes the connection."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.writer.transport.abort()


def pull(
    topic: str, queue_id: int, offset: int, *, count: int = 32, wait_ms: int = 0, tags: str = "*",
    group: str = "g", **changes: object,
) -> dict[str, object]:  # fmt: skip
    """Return the fields of a pull, with its subscription."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset,
        "maxMsgNums": count, "sysFlag": 4 | (2 if wait_ms else 0), "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms, "subscription": tags, "subVersion": 1,
        "expressionType": "TAG",
    } | changes  # fmt: skip
