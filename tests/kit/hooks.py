"""Put hooks and dispatchers that note what they are called with, and stores that have them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cqstore import (
    DispatchRequest,
    Message,
    MessageStore,
    PutMessageResult,
    PutMessageStatus,
)
from cqstore.store.record.client_batch import encode_client_batch
from tests.kit.double_write import config as combined_config
from tests.kit.engines import ENGINES
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 14, dispatch_slice=64, rocksdb_memory_bytes=16 << 20,


    enable_lmq=True, enable_multi_dispatch=True, max_index_num=200, max_hash_slot_num=50,
    mapped_file_size_consume_queue=20 * 50,
)  # fmt: skip
KINDS = ["file", *ENGINES, "combined"]
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
SECONDS = 60.0


class Hook:
    """Does ``step`` with each message, and notes what it was given."""

    def __init__(self, step: Callable[[Message], Any] = lambda _: None, name: str = "h") -> None:
        self.hook_name = name
        self._step = step
        self.given: list[bytes] = []

    def execute_before_put_message(self, message: Message) -> PutMessageResult | None:
        self.given.append(bytes(message.body))
        result: PutMessageResult | None = self._step(message)
        return result


class Taker:
    """A dispatcher that notes what it takes, and fails where it is told to."""

    name = "taker"

    def __init__(self, fails: Callable[[DispatchRequest], object] = lambda _: None) -> None:
        self.taken: list[DispatchRequest] = []
        self.bodies: list[bytes] = []
        self.fails = fails

    def dispatch(self, request: DispatchRequest) -> None:
        self.fails(request)
        self.taken.append(request)
        self.bodies.append(bytes(request.message().body))


class Placed(Taker):
    """One that knows how far it is."""

    def __init__(self, phy_offset: Any) -> None:
        super().__init__()
        self.phy_offset = phy_offset

    def dispatch_from_phy_offset(self) -> int:
        place: int = self.phy_offset
        return place


def opened(root: Path, kind: Any = "file", **options: Any) -> MessageStore:
    if kind == "combined":
        config = combined_config("rocksdb").model_copy(
            update={"enable_lmq": True, "enable_multi_dispatch": True}
        )
        return MessageStore.open(root, config, housekeeping=False, **options)
    config, backend = CONFIG, "file"
    if kind != "file":
        config, backend = CONFIG.model_copy(update={"rocksdb_engine": kind}), "rocksdb"
    config = options.pop("config", config)
    return MessageStore.open(root, config, backend=backend, housekeeping=False, **options)


def put(store: MessageStore, *bodies: bytes, topic: str = "t") -> None:
    for body in bodies:
        assert store.put_message(Message(topic, body)).ok


def bodies_of(store: MessageStore, topic: str = "t") -> list[bytes]:
    found = store.get_message(topic, 0, 0, 1000)
    return [bytes(message.body) for message in found.messages()]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def refuse(message: Message, *wanted: bytes) -> PutMessageResult | None:
    return PutMessageResult(ILLEGAL, reason="not that one") if message.body in wanted else None


def batch_of(*bodies: bytes) -> Message:
    return Message("t", encode_client_batch([Message("t", body) for body in bodies]), 2)


async def put_task(store: MessageStore, message: Message) -> PutMessageResult:
    return await store.put_message_async(message)
