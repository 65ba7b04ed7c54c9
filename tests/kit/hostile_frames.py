"""Requests of every code that a server knows, and the hostile frames that are made from them.

Real requests are framed by hand in both header forms. A draw then damages parameters, header or
body under lengths that are right, or lets lengths lie.
"""

import json
import random
import struct
from dataclasses import dataclass, replace

from tests.kit.mutations import mutated
from tests.kit.remoting_client import BINARY, JSON, asked, frame, pull
from tests.kit.sends import sent

HEAD_BYTES = 8
_MAX_BINARY_CODE = (1 << 15) - 1
TOPIC, GROUP, CLIENT_ID = "orders_1", "g", "c1"
_CONSUMER = {
    "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "subscriptionDataSet": [
        {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    ],
}  # fmt: skip
_HEARTBEAT = {"clientID": CLIENT_ID, "consumerDataSet": [_CONSUMER], "producerDataSet": []}
_LOCKS = {
    "consumerGroup": GROUP, "clientId": CLIENT_ID,
    "mqSet": [{"topic": TOPIC, "brokerName": "b", "queueId": each} for each in range(4)],
}  # fmt: skip
_CLIENT = {
    "clientId": CLIENT_ID,
    "group": GROUP,
    "subscriptionData": _CONSUMER["subscriptionDataSet"][0],
}
_QUEUE: dict[str, object] = {"topic": TOPIC, "queueId": 1}
_BY_GROUP: dict[str, object] = {"consumerGroup": GROUP}
_ODD_VALUES = (
    "", "-1", "0", "+7", "1", "2147483647", "2147483648", "-2147483649", "9223372036854775807",
    "-9223372036854775808", "9" * 40, "1e3", "0x10", " 1", "NaN", "true", "null", "\0", "a\0b",
    "../..", "/", "%RETRY%", "%RETRY%g", "%DLQ%g", "x" * 255, "x" * 256, "y" * 5000,
    "\u0661\u0662", "\ud7ff\U0001f600", "||", " || ".join(["t"] * 500), "*", "SQL92", "%s%n{0}",
)  # fmt: skip
_ODD_HEADERS = (
    b"", b"{}", b"[]", b"{", b"null", b"[" * 30_000, b'{"a":' * 10_000, b"\xff\xfe", b"\0" * 60,
    b'{"code":11,"opaque":1e999,"flag":0}', b'{"code":11,"opaque":1,"flag":0,"extFields":7}',
    b'{"code":' + b"9" * 5000 + b',"opaque":1,"flag":0}',
    b'{"code":11,"opaque":1,"flag":0,"extFields":{"topic":["a"]}}',
)  # fmt: skip
_FRAME_LENGTHS = [range(4), range(4, 8)]
_BINARY_LENGTHS = [*_FRAME_LENGTHS, range(21, 25), range(25, 29), range(29, 31)]
"""Sizes of frame and header, then of remark, all fields, and the first field's name."""


@dataclass(frozen=True)
class Asked:
    """A request before it is framed."""

    code: int
    fields: dict[str, object]
    body: bytes = b""
    form: int = JSON
    flag: int = 0
    opaque: int = 1

    def framed(self) -> bytes:
        return asked(self.code, self.opaque, self.fields, self.body, self.form, self.flag)


def _body(value: object) -> bytes:
    return json.dumps(value).encode()


def requests() -> list[Asked]:
    """Return a real request of each code that is answered or refused by name."""
    waits = pull(TOPIC, 1, 9_999, wait_ms=200)
    found: list[tuple[int, dict[str, object], bytes]] = [
        (11, pull(TOPIC, 1, 0), b""), (11, waits, b""), (361, pull(TOPIC, 0, 2), b""),
        (11, pull(TOPIC, 2, 0, tags="TagA || TagB", sysFlag=5), b""),
        (12, {"topic": TOPIC, "key": "k1", "maxNum": 32, "beginTimestamp": 0,
              "endTimestamp": (1 << 63) - 1}, b""),
        (14, _QUEUE | _BY_GROUP, b""), (15, _QUEUE | _BY_GROUP | {"commitOffset": 3}, b""),
        (21, {"topicSeq": 0, "maxTopicNum": 9}, b""), (26, {}, b""), (28, {}, b""),
        (29, _QUEUE | {"timestamp": 1_700_000_000_000, "boundaryType": "upper"}, b""),
        (30, _QUEUE, b""), (31, _QUEUE, b""), (32, _QUEUE, b""), (33, {"offset": 0}, b""),
        (34, {}, _body(_HEARTBEAT)), (35, {"clientID": CLIENT_ID} | _BY_GROUP, b""),
        (36, {"offset": 0, "group": GROUP, "delayLevel": 3, "originTopic": TOPIC,
              "originMsgId": "", "unitMode": "false", "maxReconsumeTimes": 16}, b""),
        (38, _BY_GROUP, b""), (41, {}, _body(_LOCKS)), (42, {}, _body(_LOCKS)),
        (46, {}, _body(_CLIENT)), (105, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}, b""),
        (106, {}, b""), (201, {"groupSeq": 0, "maxGroupNum": 9}, b""), (202, {"topic": TOPIC}, b""),
        (203, _BY_GROUP, b""), (204, {"producerGroup": "p"}, b""), (206, {}, b""),
        (208, _BY_GROUP | {"topic": TOPIC}, b""), (300, {"topic": TOPIC}, b""),
        (307, _BY_GROUP | {"clientId": CLIENT_ID, "jstackEnable": "false"}, b""),
        (10, sent(TOPIC, {"TAGS": "red"}), b"body"),
        (310, sent(TOPIC, v2=True), b"body"),
        (320, sent(TOPIC, v2=True, batch="true"), b"\0\0\0\x19" + bytes(21)),
        (315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}, b""),
        (321, _QUEUE | {"index": 0, "count": 9, "consumerGroup": GROUP}, b""),
        (351, {"topic": TOPIC}, b""), (352, {"group": GROUP}, b""),
        (3004, {"username": "u"}, b""), (3005, {"filter": "u"}, b""),
        (3009, {"subject": "User:u"}, b""), (3010, {"subjectFilter": "User:u"}, b""),
        (17, {"topic": TOPIC}, b""), (200_050, _QUEUE, b""), (999, {}, b""),
    ]  # fmt: skip
    return [Asked(code, fields, body) for code, fields, body in found]


def drawn_request(draw: random.Random, seeds: list[Asked]) -> Asked:
    """Return a request under right lengths, with odd parameters or another body."""
    found = draw.choice(seeds)
    form = draw.choice((JSON, BINARY)) if found.code <= _MAX_BINARY_CODE else JSON
    flag = draw.choice((0, 0, 0, 0, 0, 0, 2, 1))
    found = replace(found, form=form, opaque=draw.randrange(1 << 31), flag=flag)
    fields = dict(found.fields)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 5))):
        name = draw.choice([*fields, "extra"])
        if draw.random() < 0.1:
            fields.pop(name, None)
        else:
            fields[name] = draw.choice(_ODD_VALUES)
    body = found.body
    if draw.random() < 0.4:
        body = mutated(draw, body, draw.choice(seeds).body)
    return replace(found, fields=fields, body=body)


def hostile_frame(draw: random.Random, seeds: list[Asked]) -> bytes:
    """Return a frame: half of them have right lengths, and reach what is behind the decoder."""
    request = drawn_request(draw, seeds)
    data = request.framed()
    if draw.random() < 0.5:
        return data
    if draw.random() < 0.3:  # lengths lie
        lengths = _BINARY_LENGTHS if request.form == BINARY else _FRAME_LENGTHS
        return mutated(draw, data, draw.choice(seeds).framed(), lengths)
    (sizes,) = struct.unpack_from(">I", data, 4)
    end = HEAD_BYTES + (sizes & 0xFFFFFF)
    header = draw.choice(_ODD_HEADERS)
    if draw.random() < 0.8:
        header = mutated(draw, data[HEAD_BYTES:end], draw.choice(seeds).framed()[HEAD_BYTES:])
    return frame(header, data[end:], request.form)
