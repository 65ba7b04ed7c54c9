"""How fast a log is followed into a new store, beside the same bytes from a socket into a file."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cqstore.replication.follow.follower import Follower
from cqstore.replication.wire import FRAME_HEAD, REPORT, FrameHead
from cqstore.store.service.message_store import MessageStore
from tools.bench.workloads import CONFIG, Reached, fill, first_log_file, folder

_FRAME_BYTES = 32_768
"""RocketMQ's ``haTransferBatchSize``."""
_READ_BYTES = 1 << 18
_QUEUES = 100


def followed(backend: str, body: int, count: int) -> Reached:
    """A log of ``count`` messages, until they are in their queues."""
    with folder() as root:
        fill(root / "led", backend, _QUEUES, count, body)
        with MessageStore.open(root / "led", CONFIG, read_only=True) as store:
            end = store.max_phy_offset()
        frames = _frames(first_log_file(root / "led"), end)
        with _sending(frames) as port:
            raw = _copy(port, root / "copy", len(frames))
        with _sending(frames) as port, MessageStore.open(root / "own", backend=backend) as store:
            began = time.perf_counter()
            follower = Follower(store, "127.0.0.1", port)
            asyncio.run(follower.run(lambda progress: progress.end >= end))
            store.max_offset("topic_of_17_chars", 0)
            here = time.perf_counter() - began
    return Reached(end / here / 1e6, end / raw / 1e6, "MB/s")


def _frames(path: Path, end: int) -> bytearray:
    sent = bytearray()
    with path.open("rb") as file:
        for at in range(0, end, _FRAME_BYTES):
            data = file.read(min(_FRAME_BYTES, end - at))
            sent += FRAME_HEAD.pack(FrameHead(at, len(data))) + data
    return sent


@contextmanager
def _sending(frames: bytearray) -> Iterator[int]:
    """Send ``frames`` from a thread to one client; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(REPORT.size)
                peer.sendall(frames)
                while peer.recv(1 << 16):
                    pass

        thread = threading.Thread(target=send)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def _copy(port: int, path: Path, size: int) -> float:
    """Return the seconds that a bare copy takes."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as peer, path.open("wb") as file:
        peer.sendall(bytes(REPORT.size))
        while size:
            size -= file.write(peer.recv(_READ_BYTES))
    return time.perf_counter() - began


FOLLOWING: dict[str, Callable[[], Reached]] = {
    f"follow {body} B {backend}": partial(followed, backend, body, count)
    for body, count in ((128, 500_000), (1024, 200_000), (8192, 50_000))
    for backend in ("file", "rocksdb")
}
