"""What followers cost a master, and how many puts wait for one.

*fed log*: a log that is there, to a slave that throws it away, beside as many bytes from a bare
socket. *put with a follower*: beside the same puts without one. *replicated put*: ``SYNC_MASTER``
with one follower, beside as many threads, or tasks, that send bare frames and wait until these are
acknowledged. Slaves are processes of their own: *bare* acknowledges what it has read and keeps
nothing, *ours* is ``cqstore follow``.
"""

import asyncio
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.followers import Followers
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.replica_config import BrokerRole
from tools.bench.bare_frames import HEAD, BareFrames, BareTasks
from tools.bench.workloads import CONFIG, Reached, fill, first_log_file, folder

_REPORT = struct.Struct(">q")
_BODY = bytes(128)
_SYNC = CONFIG.model_copy(update={"broker_role": BrokerRole.SYNC_MASTER, "slave_timeout": 30_000})
COMMAND = str(Path(sys.executable).parent / "cqstore")


def fed(body: int, count: int) -> Reached:
    """A log of ``count`` messages, to one that throws it away."""
    with folder() as root:
        fill(root / "log", "file", 100, count, body)
        with MessageStore.open(root / "log", CONFIG) as store, feeding(Feeder(store)) as feeder:
            end = store.max_phy_offset()
            here = _seconds_to_read(feeder.port, 1, end)
        with first_log_file(root / "log").open("rb") as file:
            data = file.read(end)
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=lambda: server.accept()[0].sendall(data))
            thread.start()
            raw = _seconds_to_read(server.getsockname()[1], None, end)
            thread.join()
    return Reached(end / here / 1e6, end / raw / 1e6, "MB/s")


def _seconds_to_read(port: int, begin: int | None, end: int) -> float:
    """Return how long another process needs to take all bytes."""
    words = [sys.executable, "-m", "tools.bench.feeding", "read", str(port), str(begin), str(end)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout)


def put_with(slave: str, count: int) -> Reached:
    """Puts that wait for no replica, with one follower and without."""
    seconds = []
    for kind in ("none", slave):
        with _master(kind, sync=False) as store:
            message = Message("topic_of_17_chars", _BODY, 0, {"TAGS": "TagA"})
            for _ in range(1000):
                store.put_message(message)
            began = time.perf_counter()
            for _ in range(count):
                store.put_message(message)
            store.max_offset("topic_of_17_chars", 0)
            seconds.append(time.perf_counter() - began)
    return Reached(count / seconds[1], count / seconds[0], "messages/s")


def replicated(slave: str, writers: int, seconds: float) -> Reached:
    """Puts that return when one follower has them."""
    with _master(slave, sync=True) as store:

        def writer(place: int) -> Callable[[], None]:
            message = Message("topic_of_17_chars", _BODY, place, {"TAGS": "TagA"})

            def put() -> None:
                assert store.put_message(message).status is PutMessageStatus.PUT_OK

            return put

        reached = _puts_a_second(writer, writers, seconds)
    return Reached(reached, _bare_puts(writers, seconds), "messages/s")


def awaited(slave: str, tasks: int, seconds: float) -> Reached:
    """Puts of the tasks of one event loop, beside frames that as many tasks await."""
    with _master(slave, sync=True) as store:

        def writer(place: int) -> Callable[[], Awaitable[object]]:
            message = Message("topic_of_17_chars", _BODY, place, {"TAGS": "TagA"})

            async def put() -> None:
                assert (await store.put_message_async(message)).status is PutMessageStatus.PUT_OK

            return put

        reached = asyncio.run(_awaited_a_second(writer, tasks, seconds))
    with _bare_peer() as peer:
        frames = BareFrames(peer)
        with frames.receiving():
            bare = asyncio.run(_awaited_a_second(BareTasks(frames).writer, tasks, seconds))
    return Reached(reached, bare, "messages/s")


async def _awaited_a_second(
    writer: Callable[[int], Callable[[], Awaitable[object]]], tasks: int, seconds: float
) -> float:
    """Return how often tasks put; ``writer`` makes what one of them awaits again and again."""
    counts = [0] * tasks
    is_over = False

    async def run(place: int) -> None:
        put = writer(place)
        while not is_over:
            await put()
            counts[place] += 1

    running = [asyncio.create_task(run(place)) for place in range(tasks)]
    await asyncio.sleep(1)
    before, began = sum(counts), time.perf_counter()
    await asyncio.sleep(seconds)
    reached = (sum(counts) - before) / (time.perf_counter() - began)
    is_over = True
    await asyncio.gather(*running)
    return reached


def _puts_a_second(
    writer: Callable[[int], Callable[[], object]], writers: int, seconds: float
) -> float:
    """Return how often threads put; ``writer`` makes what one of them calls again and again."""
    counts = [0] * writers
    ended = threading.Event()

    def run(place: int) -> None:
        put = writer(place)
        while not ended.is_set():
            put()
            counts[place] += 1

    threads = [threading.Thread(target=run, args=(place,)) for place in range(writers)]
    for thread in threads:
        thread.start()
    ended.wait(1)
    before, began = sum(counts), time.perf_counter()
    ended.wait(seconds)
    reached = (sum(counts) - before) / (time.perf_counter() - began)
    ended.set()
    for thread in threads:
        thread.join()
    return reached


@contextmanager
def _master(slave: str, *, sync: bool) -> Iterator[MessageStore]:
    """A master, and one follower of it once it has begun to follow."""
    followers = Followers()
    with (
        folder() as root,
        MessageStore.open(
            root / "master", _SYNC if sync else CONFIG, replicas=followers, housekeeping=False
        ) as store,
        feeding(Feeder(store, followers)) as feeder,
    ):
        words = {
            "bare": [sys.executable, "-m", "tools.bench.feeding", "follow", str(feeder.port)],
            "ours": [COMMAND, "follow", f"127.0.0.1:{feeder.port}", str(root / "own")],
        }.get(slave)
        if words is None:
            yield store
            return
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            try:
                while not any(link.position >= 0 for link in followers.links()):
                    time.sleep(0.01)
                yield store
            finally:
                child.kill()


def _bare_puts(writers: int, seconds: float) -> float:
    """Return how many frames of threads another process acknowledges a second, without a store."""
    with _bare_peer() as peer:
        frames = BareFrames(peer)
        with frames.receiving():
            return _puts_a_second(frames.writer, writers, seconds)


@contextmanager
def _bare_peer() -> Iterator[socket.socket]:
    """Return a connection to another process that acknowledges what it reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = [
            sys.executable,
            "-m",
            "tools.bench.feeding",
            "follow",
            str(server.getsockname()[1]),
        ]
        with subprocess.Popen(words) as child:
            peer, _ = server.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.recv(_REPORT.size)
                yield peer
            child.wait()


def _read(port: int, begin: int | None, end: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as peer:
        began = time.perf_counter()
        if begin is not None:
            peer.sendall(_REPORT.pack(begin))
        left = end - (begin or 0)
        buffer = bytearray(1 << 18)
        while left > 0:
            left -= peer.recv_into(buffer)  # the heads too: they are few
        print(time.perf_counter() - began)


def _follow(port: int) -> None:
    """Acknowledge every frame, and keep nothing."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.sendall(_REPORT.pack(0))
        buffer = b""
        while data := peer.recv(1 << 18):
            buffer += data
            at, end = 0, -1
            while at + HEAD.size <= len(buffer):
                phy_offset, size = HEAD.unpack_from(buffer, at)
                if at + HEAD.size + size > len(buffer):
                    break
                at += HEAD.size + size
                end = phy_offset + size if size else end
            buffer = buffer[at:]
            if end >= 0:
                peer.sendall(_REPORT.pack(end))


FEEDING: dict[str, Callable[[], Reached]] = {
    "fed log 128 B": partial(fed, 128, 1_000_000),
    "put with a follower, bare": partial(put_with, "bare", 500_000),
    "put with a follower, ours": partial(put_with, "ours", 500_000),
    **{
        f"replicated put {writers} writers, {slave}": partial(replicated, slave, writers, 4.0)
        for slave in ("bare", "ours")
        for writers in (1, 16, 64)
    },
    **{
        f"replicated put 64 tasks, {slave}": partial(awaited, slave, 64, 4.0)
        for slave in ("bare", "ours")
    },
}

if __name__ == "__main__":
    if sys.argv[1] == "follow":
        _follow(int(sys.argv[2]))
    else:
        start = None if sys.argv[3] == "None" else int(sys.argv[3])
        _read(int(sys.argv[2]), start, int(sys.argv[4]))
