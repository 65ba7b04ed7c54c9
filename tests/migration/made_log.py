"""A commit log made by hand: records with the store times that a test wants, over several files."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cqstore.store.record.message import Message
from cqstore.store.record.record_layout import BLANK, BLANK_SIZE, MAGIC_BLANK, BlankRecord
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.oracle.encoder import MessageEncoder, assemble


class Made(NamedTuple):
    """A record to make."""

    topic: str
    queue_id: int
    stored_at: int
    body: bytes = b"body"
    reconsumed: int = 0


def make_log(root: Path, records: Iterable[Made], file_size: int = 1024) -> list[int]:
    """Write ``records`` into files of ``file_size`` below ``root``; return their phy offsets."""
    encoder = MessageEncoder(StoreConfig(), lambda _: None)
    files: list[bytearray] = [bytearray()]
    offsets: list[int] = []
    nexts: dict[tuple[str, int], int] = {}
    for made in records:
        message = Message(
            made.topic, made.body, made.queue_id, reconsume_times=made.reconsumed, born_timestamp=1
        )
        record = encoder.encode(message)
        if len(files[-1]) + record.size + BLANK_SIZE > file_size:
            left = file_size - len(files[-1])
            files[-1] += BLANK.pack(BlankRecord(left, MAGIC_BLANK)).ljust(left, b"\0")
            files.append(bytearray())
        phy_offset = (len(files) - 1) * file_size + len(files[-1])
        key = made.topic, made.queue_id
        rest = assemble(record, nexts.setdefault(key, 0), phy_offset, made.stored_at)
        nexts[key] += 1
        files[-1] += record.start + rest
        offsets.append(phy_offset)
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for number, data in enumerate(files):
        (folder / f"{number * file_size:020d}").write_bytes(data.ljust(file_size, b"\0"))
    return offsets


def make_store(
    root: Path, records: Iterable[Made], file_size: int = 1024, backend: str | None = None
) -> list[int]:
    """Make such a log, and its queues by an opening."""
    offsets = make_log(root, records, file_size)
    MessageStore.open(root, backend=backend, housekeeping=False).close()
    return offsets
