"""A small broker that answers as RocketMQ's ``AdminBrokerProcessor`` does, from tables it is given.

It frames by hand and knows nothing of ``replication``. Made to be unkind: a test may put anything
in the place of an answer, and change the tables between two pages.
"""

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any

from tests.kit.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Callable

Fields = dict[str, str]
SYSTEM_TOPICS = ("SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT")
SYSTEM_GROUPS = ("TOOLS_CONSUMER", "SELF_TEST_C_GROUP")


def command(header: object, body: bytes = b"", form: int = 0) -> bytes:
    """Return the bytes of one command."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(head) + len(body), form << 24 | len(head)) + head + body


def topic(name: str) -> dict[str, object]:
    return {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4,
        "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": 0,
    }  # fmt: skip


def group(name: str) -> dict[str, object]:
    return {"groupName": name, "consumeEnable": True, "retryQueueNums": 1}


class WireBroker(WireServer):
    """Serves tables, which may be changed at any time."""

    def __init__(self, *, topics: int = 0, groups: int = 0, page: int = 2000) -> None:
        """Have so many topics and groups in all, those of every broker among them."""
        names = [*SYSTEM_TOPICS, *(f"t{number:05}" for number in range(topics))]
        self.topics = {name: topic(name) for name in names[: max(topics, len(SYSTEM_TOPICS))]}
        names = [*SYSTEM_GROUPS, *(f"g{number:05}" for number in range(groups))]
        self.groups = {name: group(name) for name in names[: max(groups, len(SYSTEM_GROUPS))]}
        self.mappings: dict[str, object] = {}
        self.forbidden: dict[str, object] = {}
        self.offsets = "{}"
        """``offsetTable`` as text: its keys need no quotes."""
        self.delays = "{}"
        self.modes: dict[str, object] = {}
        self.timer = bytes(56)
        self.timings: dict[str, object] = {}
        self.versions = {21: 1, 201: 1}
        self.log_end = 0
        self.slaves: list[str] = []
        self.page = page
        self.pages = True
        """Whether it splits tables and tells totals, as RocketMQ does since 5.3.4."""
        self.requested: list[tuple[int, Fields]] = []
        self.instead: dict[int, Callable[[int, Fields], bytes | None]] = {}
        """By code: what is sent in place of an answer, given its number; ``None``: the answer."""
        self.before: Callable[[int, Fields], object] = lambda _code, _fields: None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            data = await reader.readexactly(size)
            (length,) = struct.unpack_from(">i", data)
            answer = self._answer(json.loads(data[4 : 4 + length]))
            if not answer:
                return
            writer.write(answer)
            await writer.drain()

    def _answer(self, requested: dict[str, Any]) -> bytes:
        code, number, fields = (
            requested["code"],
            requested["opaque"],
            requested.get("extFields", {}),
        )
        self.requested.append((code, fields))
        self.before(code, fields)
        instead = self.instead.get(code)
        if instead is not None and (given := instead(number, fields)) is not None:
            return given
        return self.plain(code, number, fields)

    def plain(self, code: int, number: int, fields: Fields) -> bytes:
        """Return what RocketMQ would answer."""
        if code in {21, 201}:
            return self._page(code, number, fields)
        version = '{"counter":1,"stateVersion":0,"timestamp":7}'
        slaves = [{"addr": place, "slaveAckOffset": 0} for place in self.slaves]
        ends = {"master": True, "masterCommitLogMaxOffset": self.log_end}
        metrics = {"dataVersion": json.loads(version), "timingCount": self.timings}
        bodies: dict[int, object] = {
            43: f'{{"dataVersion":{version},"offsetTable":{self.offsets}}}',
            45: f'{{"dataVersion":{version},"offsetTable":{self.delays}}}',
            402: {"messageRequestModeMap": self.modes},
            60: self.timer,
            61: metrics,
            907: {**ends, "haConnectionInfo": slaves},
            28: {"table": {"commitLogMaxOffset": str(self.log_end)}},
        }
        if code == 351:
            there = fields["topic"] in self.topics
            return self.say(number, b"{}" if there else b"", 0 if there else 17)
        if code not in bodies:
            return self.say(number, code=3)
        body = bodies[code]
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.say(number, text.encode() if isinstance(text, str) else text)

    def _page(self, code: int, number: int, fields: Fields) -> bytes:
        topics = code == 21
        table = self.topics if topics else self.groups
        seq, most = ("topicSeq", "maxTopicNum") if topics else ("groupSeq", "maxGroupNum")
        version = {"counter": self.versions[code], "stateVersion": 0, "timestamp": 7}
        at, size = int(fields[seq]), min(self.page, int(fields[most]))
        if at and (not fields["dataVersion"] or json.loads(fields["dataVersion"]) != version):
            at = 0
        names = sorted(table)[at : at + size] if self.pages else sorted(table)
        found = {name: table[name] for name in names}
        if topics:
            body: dict[str, object] = {
                "dataVersion": version, "topicConfigTable": found,
                "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 3},
                "topicQueueMappingDetailMap": {
                    name: each for name, each in self.mappings.items() if name in found
                },
            }  # fmt: skip
        else:
            forbidden = {name: each for name, each in self.forbidden.items() if name in found}
            body = {
                "dataVersion": version, "subscriptionGroupTable": found,
                "forbiddenTable": forbidden,
            }  # fmt: skip
        total = {"totalTopicNum" if topics else "totalGroupNum": str(len(table))}
        return self.say(number, json.dumps(body).encode(), fields=total if self.pages else None)

    @staticmethod
    def say(
        number: int, body: bytes = b"", code: int = 0, remark: str | None = None,
        fields: Fields | None = None,
    ) -> bytes:  # fmt: skip
        """Return an answer."""
        header = {
            "code": code, "flag": 1, "language": "JAVA", "opaque": number, "version": 0,
            "serializeTypeCurrentRPC": "JSON", "extFields": fields, "remark": remark,
        }  # fmt: skip
        return command({key: each for key, each in header.items() if each is not None}, body)
