"""``cqstore put``: append messages, from options or from JSON lines on standard input."""

import base64
import binascii
import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from store.cli.options import Backend, ConfigFile, Dir, Format, open_store
from store.cli.output import OutputFormat, Row, output
from store.errors import IllegalMessageError
from store.record.message import Message
from store.service.message_store import MessageStore
from store.service.results import PutMessageResult

_LIST = 256
_FIELDS = {"topic", "queueId", "body", "bodyBase64", "properties", "tags", "keys", "flag"}


def put(
    root: Dir,
    topic: Annotated[
        str | None, typer.Option(metavar="T", help="The topic of one message.")
    ] = None,
    queue_id: Annotated[int, typer.Option(metavar="Q", help="Its queue.")] = 0,
    body: Annotated[str, typer.Option(help="Its body.")] = "",
    tags: Annotated[str | None, typer.Option(help="Its tag.")] = None,
    keys: Annotated[str | None, typer.Option(help="Its keys, separated by spaces.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="One property.")
    ] = None,
    config: ConfigFile = None,
    backend: Backend = None,
    kind: Format = OutputFormat.JSONL,
) -> None:
    """Append messages and print their places. Opens the store read-write (and recovers it).

    Without --topic, each line of standard input is a JSON object: topic, queueId, body or
    bodyBase64, properties, tags, keys, flag. Exit code 1 if a message was refused.
    """
    if topic is not None:
        given = dict(_pair(text) for text in properties or [])
        one: dict[str, object] = {"topic": topic, "queueId": queue_id, "body": body}
        one |= {"tags": tags, "keys": keys, "properties": given}
        lines = iter([one])
    else:
        lines = _lines()
    refused = 0
    with open_store(root, config, backend, None, read_only=False, puts=True) as store:

        def rows() -> Iterator[Row]:
            nonlocal refused
            for result in _put_all(store, lines):
                refused += not result.ok
                yield _row(result)

        output(kind).rows(rows())
    if refused:
        raise typer.Exit(1)


def _put_all(store: MessageStore, lines: Iterator[dict[str, object]]) -> Iterator[PutMessageResult]:
    for group in batches(lines):
        yield from store.put_messages([_message(line) for line in group])


def batches(lines: Iterator[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Yield lists of at most 256 lines."""
    group: list[dict[str, object]] = []
    for line in lines:
        group.append(line)
        if len(group) == _LIST:
            yield group
            group = []
    if group:
        yield group


def _lines() -> Iterator[dict[str, object]]:
    for number, text in enumerate(sys.stdin, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError as exc:
            raise IllegalMessageError(f"line {number} is not JSON: {exc}") from exc
        if not isinstance(line, dict) or not isinstance(line.get("topic"), str):
            raise IllegalMessageError(f"line {number} is no JSON object with a topic")
        if unknown := sorted(line.keys() - _FIELDS):
            raise IllegalMessageError(f"line {number} has unknown fields: {', '.join(unknown)}")
        yield line


def _message(line: dict[str, object]) -> Message:
    properties = line.get("properties") or {}
    if not isinstance(properties, dict):
        raise IllegalMessageError("properties are a JSON object")
    named = {"TAGS": line.get("tags"), "KEYS": line.get("keys")}
    merged = {**properties, **{name: value for name, value in named.items() if value is not None}}
    queue_id, flag = line.get("queueId", 0), line.get("flag", 0)
    if not isinstance(queue_id, int) or not isinstance(flag, int):
        raise IllegalMessageError("queueId and flag are whole numbers")
    return Message(
        topic=str(line["topic"]),
        body=_body(line),
        queue_id=queue_id,
        flag=flag,
        properties={str(name): str(value) for name, value in merged.items()},
    )


def _body(line: dict[str, object]) -> bytes:
    if "bodyBase64" not in line:
        return str(line.get("body", "")).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(str(line["bodyBase64"]), validate=True)
    except binascii.Error as exc:
        raise IllegalMessageError(f"bodyBase64 is no Base64: {exc}") from exc


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"a property is NAME=VALUE, not {text!r}")
    return name, value


def _row(result: PutMessageResult) -> Row:
    return {
        "status": result.status.name,
        "phy": result.phy_offset,
        "queueOffset": result.queue_offset,
        "msgId": result.message_id,
        "reason": result.reason,
    }
