"""Masters of a simulation: RocketMQ's wire by hand, and our own feeder over a store.

Both let a log grow, may be restarted, and may come back without their last records and with other
ones. What a follower reports is looked at when it comes.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from replication.errors import OutsideLogError, WireError
from replication.feeding.connection import FeedConnection
from replication.feeding.followers import Followers, Link
from replication.feeding.growth import Growth
from replication.feeding.served_log import ServedLog
from replication.feeding.settings import FeedSettings
from store.config import StoreConfig
from store.service.message_store import MessageStore
from tests.kit.wire_master import WireMaster

HEARTBEAT_SECONDS = 5.0


class Heard(Protocol):
    """Who looks at what a follower reports."""

    def __call__(self, offset: int, *, is_request: bool) -> None:
        """Take an offset; of a connection the first one says where it is to begin."""


class Master(Protocol):
    """What a story does with a master."""

    refused: int
    """Followers that it sent away."""

    @property
    def end(self) -> int: ...
    @property
    def port(self) -> int: ...
    def append(self, data: bytes) -> None: ...
    def come_back_with(self, log: bytes) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...


class ModelMaster(WireMaster):
    """As RocketMQ serves its log."""

    refused = 0

    def __init__(self, heard: Heard, batch: int) -> None:
        super().__init__(b"", batch=batch, heartbeat=HEARTBEAT_SECONDS)
        self._heard, self._life = heard, 0

    async def _listen(self, reader: asyncio.StreamReader, asked: "asyncio.Future[int]") -> None:
        """Take the last report of those that wait; one that repeats the first says nothing more."""
        buffer, done, life = b"", 0, self._life
        with suppress(ConnectionError):
            while (data := await reader.read(1 << 16)) and life == self._life:
                buffer += data
                whole = len(buffer) - len(buffer) % 8
                if whole == done:
                    continue
                done = whole
                value = int.from_bytes(buffer[whole - 8 : whole], "big", signed=True)
                if not asked.done():
                    asked.set_result(value)
                self._heard(value, is_request=value == asked.result())
        if not asked.done():
            asked.cancel()

    def come_back_with(self, log: bytes) -> None:
        """Be restarted with that log; the connections are for the network to cut."""
        self.log = log
        self._life += 1  # what old ones still have to say nobody hears


class _ToldFollowers(Followers):
    """Followers whose acknowledgements are looked at when they come."""

    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self._heard = heard
        self.is_over = False
        """Its master was stopped: what was on its way nobody hears."""

    def acknowledge(self, link: Link, phy_offset: int) -> None:
        if not self.is_over:
            self._heard(phy_offset, is_request=phy_offset == link.start)
        super().acknowledge(link, phy_offset)


class FeedingMaster:
    """Our feeder's connections, over a store, without its sockets."""

    def __init__(self, heard: Heard, batch: int, config: StoreConfig, folder: Path) -> None:
        self._heard, self._config, self._folder = heard, config, folder
        self._settings = FeedSettings(ha_transfer_batch_size=batch)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lives = self.refused = 0

    @property
    def end(self) -> int:
        return self._store.commit_log.max_phy_offset()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def append(self, data: bytes) -> None:
        """Let the log grow by whole records, those of ``data`` that are whole."""
        self._store.append_to_commit_log(self.end, data)

    def come_back_with(self, log: bytes) -> None:
        """Be restarted with another store, that has ``log``."""
        self._stop()
        self._start(log)

    async def __aenter__(self) -> Self:
        self._start(b"")
        self._server = await asyncio.start_server(self._serve, "sim", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, log: bytes) -> None:
        self._lives += 1
        root = self._folder / str(self._lives)
        self._store = MessageStore.open(root, self._config, housekeeping=False)
        if log:
            assert self._store.append_to_commit_log(0, log) == len(log)
        self.followers = _ToldFollowers(self._heard)
        self._log = ServedLog(self._store)
        self._growth = Growth(self._log)
        self._looking = asyncio.get_running_loop().create_task(self._growth.run())
        self._tasks.add(self._looking)

    def _stop(self) -> None:
        self.followers.is_over = True
        for task in self._tasks:
            task.cancel()
        self._store.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        followers = self.followers
        link = followers.join("sim", 1)
        connection = FeedConnection(
            self._log, followers, link, self._growth, self._settings, reader, writer
        )
        try:
            with suppress(OSError, asyncio.CancelledError):
                await connection.begin()
                self._heard(link.position, is_request=True)
                await connection.run()
        except (OutsideLogError, WireError):
            self.refused += 1
        finally:
            followers.leave(link)
            writer.transport.abort()
