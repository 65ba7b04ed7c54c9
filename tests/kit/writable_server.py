"""A writable server in the loop of a test, and the fields of requests that send."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cqstore.serve.limits import ServeLimits
from cqstore.serve.server import Server
from cqstore.serve.store_writer import StoreWriter, WriteSettings
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import Serving, running

SEND, SEND_V2, BATCH, BACK = 10, 310, 320, 36
V1 = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch",
)  # fmt: skip
NAME_OF = dict(zip(V1, "abcdefghijklm", strict=True))
BORN = 1_700_000_000_000


@asynccontextmanager
async def writing(
    store: MessageStore, *, settings: WriteSettings | None = None,
    limits: ServeLimits | None = None, **changes: Any,
) -> AsyncIterator[Serving]:  # fmt: skip
    """Serve an open store to clients that send."""
    writer = StoreWriter(store, settings)
    events: list[str] = []
    server = Server(
        broker := writer.broker("b", "c"), [("127.0.0.1", 0)],
        limits=writer.limits(limits or ServeLimits()), on_event=events.append,
        read_metadata=writer.metadata, writer=writer, **changes,
    )  # fmt: skip
    try:
        async with running(server, broker, events) as found:
            yield found
    finally:
        writer.close()


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
