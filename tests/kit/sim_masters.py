"""Masters of a simulation: RocketMQ's wire by hand, and our own feeder over a store.

Both let a log grow, may be restarted, and may come back without their last records and with other
ones. What a follower reports is looked at when it comes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from cqstore.replication.errors import OutsideLogError, WireError
from cqstore.replication.feed.append_notifier import AppendNotifier
from cqstore.replication.feed.connection import FeedConnection
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.followers import Followers, Link
from cqstore.replication.feed.served_log import ServedLog
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import WireServer

HEARTBEAT_SECONDS = 5.0


class OnReport(Protocol):
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

    def __init__(self, received: OnReport, batch: int) -> None:
        super().__init__(b"", batch=batch, heartbeat=HEARTBEAT_SECONDS)
        self._received, self._incarnation = received, 0

    async def _read_reports(self, reader: asyncio.StreamReader) -> AsyncIterator[int]:
        """Let them be looked at; one that repeats the first says nothing more."""
        incarnation, requested = self._incarnation, None
        async for report in super()._read_reports(reader):
            if incarnation != self._incarnation:
                return
            requested = report if requested is None else requested
            self._received(report, is_request=report == requested)
            yield report

    def come_back_with(self, log: bytes) -> None:
        """Be restarted with that log; the connections are for the network to cut."""
        self.log = log
        self._incarnation += 1  # what old ones still send is dropped


class _ReportingFollowers(Followers):
    """Followers whose acknowledgements are looked at when they come."""

    def __init__(self, received: OnReport) -> None:
        super().__init__()
        self._received = received
        self.is_over = False
        """Its master was stopped: what was on its way is dropped."""

    def acknowledge(self, link: Link, phy_offset: int) -> None:
        if not self.is_over:
            self._received(phy_offset, is_request=phy_offset == link.start)
        super().acknowledge(link, phy_offset)


class FeedingMaster(WireServer):
    """Our feeder's connections, over a store, without its sockets."""

    def __init__(self, received: OnReport, batch: int, config: StoreConfig, folder: Path) -> None:
        self._received, self._config, self._folder = received, config, folder
        self._settings = FeedSettings(ha_transfer_batch_size=batch)
        self._lives = self.refused = 0

    @property
    def end(self) -> int:
        return self._store.max_phy_offset()

    def append(self, data: bytes) -> None:
        """Let the log grow by whole records, those of ``data`` that are whole."""
        self._store.append_to_commit_log(self.end, data)

    def come_back_with(self, log: bytes) -> None:
        """Be restarted with another store, that has ``log``."""
        self._stop()
        self._start(log)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._start(b"")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop()
        await super().__aexit__()

    def _start(self, log: bytes) -> None:
        self._lives += 1
        root = self._folder / str(self._lives)
        self._store = MessageStore.open(root, self._config, housekeeping=False)
        if log:
            assert self._store.append_to_commit_log(0, log) == len(log)
        self.followers = _ReportingFollowers(self._received)
        self._log = ServedLog(self._store)
        self._growth = AppendNotifier()
        self._join(self._growth.run())

    def _stop(self) -> None:
        self.followers.is_over = True
        for task in self._tasks:
            task.cancel()
        self._store.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        followers = self.followers
        link = followers.join("sim", 1)
        connection = FeedConnection(
            self._log, followers, link, self._growth, self._settings, reader, writer
        )
        try:
            with suppress(OSError, asyncio.CancelledError):
                await connection.begin()
                self._received(link.position, is_request=True)
                await connection.run()
        except (OutsideLogError, WireError):
            self.refused += 1
        finally:
            followers.leave(link)
