"""The last bytes of a running master's log, received as by a slave and never acknowledged.

The only request in the protocol is where a slave wants to begin. RocketMQ takes that number as a
phy offset that the slave has, so the request is never after what the master is known to have: the
start of its last file, which the master reports to a client that requests 0. The same number is
repeated to keep the connection open, and never grows.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from cqstore.replication.endpoint import MASTER_CLOSED, endpoint, nothing_received, reason_of
from cqstore.replication.errors import DivergedError, WireError
from cqstore.replication.follow.last_file import request_last_file
from cqstore.replication.follow.log_receiver import READ_BYTES
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.follow.stopwatch import Stopwatch
from cqstore.replication.ha.sides import LogSide, Undispatched
from cqstore.replication.wire import REPORT, FrameParser, Piece, Report, outside_log
from cqstore.store.errors import (
    CorruptionError,
    RefusedStoreError,
    StoreIOError,
    TruncatedRecordError,
    os_errors,
)
from cqstore.store.files import file_name
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.progress import Progress, noop
from cqstore.store.settings.config import StoreConfig


@dataclass(frozen=True, slots=True)
class Master:
    """A running master, and the timeouts for it in seconds."""

    host: str
    port: int
    answer: float = 20.0
    """Time without received bytes after which it is given up (``haHousekeepingInterval``)."""
    report: float = 5.0
    """Time between two reports of the same offset (``haSendHeartbeatInterval``)."""
    quiet: float = 2.0
    """Minimum time between two heartbeats that show that the master has nothing more."""
    linger: float = 10.0
    """Maximum time to continue with a growing log after all needed bytes were received."""

    def __str__(self) -> str:
        return endpoint(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The range of a master's log to fetch, as phy offsets."""

    begin: int
    """Start of a file, at or before the start of the master's last file."""
    needed: int
    """Fetch at least up to here, if the master has it."""
    max_bytes: int
    """Phy offset after which nothing is fetched."""


async def last_file_begin(master: Master) -> int:
    """Return the start of the master's last log file.

    Raises:
        StoreIOError: there is no response from a master.
    """
    why, found = "no response from a master", None
    try:
        found = await request_last_file(
            MasterPort(master.host, master.port), master.answer, whole=False
        )
    except (OSError, WireError) as exc:
        why = reason_of(exc)
    if found is None:
        raise StoreIOError(f"{master}: {why}; is this the haListenPort of a master?")
    return found.start


async def fetch(
    master: Master, wanted: ByteRange, folder: Path, file_size: int, progress: Progress = noop
) -> tuple[int, bool]:
    """Fetch a range of the log into files in ``folder``, in the layout of a commit log.

    Returns the end of the received bytes, and whether the master had no more at that time.

    Raises:
        StoreIOError: the connection ended; the folder contains the bytes received before.
        DivergedError, WireError: the received bytes are not a log.
    """
    files = _Files(folder, file_size, wanted.begin)
    try:
        async with asyncio.timeout(master.answer):
            reader, writer = await asyncio.open_connection(
                master.host, master.port, limit=READ_BYTES
            )
        try:
            has_all = await _Fetching(master, wanted, files, progress).run(reader, writer)
        finally:
            writer.transport.abort()
    except OSError as exc:
        raise StoreIOError(f"{master}: {reason_of(exc)}") from exc
    finally:
        files.close()
    return files.end, has_all


class _Fetching:
    """One connection to a master, whose log is received and never acknowledged."""

    def __init__(
        self, master: Master, wanted: ByteRange, files: "_Files", progress: Progress
    ) -> None:
        self._master, self._wanted, self._files = master, wanted, files
        # A master reads 0 as a request for its last file. Byte 0 of a file is always 0.
        self._next = self._requested = max(wanted.begin, 1)
        self._quiet = Stopwatch()  # since when heartbeats arrive at the same offset
        self._enough_at: float | None = None
        self._progress = progress

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Receive until there is enough; return whether the master had no more.

        Raises:
            ConnectionError: the master was silent for too long, or closed the connection.
            WireError: the received bytes are not frames of a master.
            DivergedError: the master's bytes are not contiguous.
        """
        parser, master = FrameParser(), self._master
        received_at, reported = time.monotonic(), -1.0
        while True:
            now = time.monotonic()
            if reported < 0 or now >= reported + master.report:
                writer.write(REPORT.pack(Report(self._requested)))
                reported = now
            if now >= received_at + master.answer:
                raise ConnectionError(nothing_received(master.answer))
            patience = min(received_at + master.answer, reported + master.report) - now
            data = await _read(reader, patience)
            if data is not None:
                received_at = time.monotonic()
                if (has_all := self._receive_all(parser.feed(data), received_at)) is not None:
                    return has_all
            if self._has_enough(time.monotonic()):
                return False

    def _receive_all(self, pieces: Iterable[Piece], now: float) -> bool | None:
        """Store the pieces; return whether the master has no more, or ``None`` to continue."""
        for piece in pieces:
            if self._receive(piece, now):
                return True
            if self._next >= self._wanted.max_bytes:
                return False
        return None

    def _receive(self, piece: Piece, now: float) -> bool:
        """Store a piece; return whether it shows that the master has no more."""
        if self._next == self._requested and (found := outside_log(self._next, piece)):
            raise DivergedError(f"{self._master}: {found}", phy_offset=self._next)
        if piece.phy_offset != self._next:
            raise DivergedError(
                f"{self._master} sent bytes that are not contiguous",
                expected=f"bytes from {self._next}", got=f"bytes from {piece.phy_offset}",
            )  # fmt: skip
        if piece.data:
            self._files.write(piece)
            self._next += len(piece.data)
            self._progress(self._next)
            return False
        return self._quiet.seconds(self._next, now) >= self._master.quiet

    def _has_enough(self, now: float) -> bool:
        if self._next < self._wanted.needed:
            return False
        self._enough_at = self._enough_at or now
        return now - self._enough_at >= self._master.linger


async def _read(reader: asyncio.StreamReader, seconds: float) -> bytes | None:
    """Return received bytes; ``None``: nothing was received within ``seconds``.

    Raises:
        ConnectionError: the master closed the connection.
    """
    try:
        async with asyncio.timeout(seconds):
            data = await reader.read(READ_BYTES)
    except TimeoutError:
        return None
    if not data:
        raise ConnectionError(MASTER_CLOSED)
    return data


class _Files:
    """The log files that received bytes are written to; sparse where nothing was received."""

    def __init__(self, folder: Path, file_size: int, begin: int) -> None:
        self._folder, self._file_size = folder, file_size
        self._file: BinaryIO | None = None
        self._start = -1
        self.end = begin

    def write(self, piece: Piece) -> None:
        """Write a piece at its phy offset.

        Raises:
            StoreIOError, DiskFullError: the piece cannot be written, or the disk is full.
        """
        at, data = piece
        while data:
            start = at - at % self._file_size
            part = data[: start + self._file_size - at]
            with os_errors("write the data received from the master", self._folder):
                file = self._open(start)
                file.seek(at - start)
                file.write(part)
            at, data = at + len(part), data[len(part) :]
        self.end = at

    def _open(self, start: int) -> BinaryIO:
        if self._file is None or start != self._start:
            self.close()
            self._file = (self._folder / file_name(start)).open("w+b")
            os.truncate(self._file.fileno(), self._file_size)
            self._start = start
        return self._file

    def close(self) -> None:
        """Close the file, so that its content can be read."""
        if self._file is not None:
            with os_errors("write the data received from the master", self._folder):
                self._file.close()
            self._file = None


class FetchedSide(LogSide):
    """The fetched part of a running master's log."""

    def __init__(self, master: Master, log: CommitLog) -> None:
        """``log`` must have its end set."""
        self.name, self.log = str(master), log
        self.whole_begin = False

    def undispatched(self) -> Undispatched | None:
        """Return ``None``: the protocol does not report queues."""
        return None

    @classmethod
    def of(cls, master: Master, folder: Path, file_size: int, end: int, *, whole: bool) -> Self:
        """Return the log in ``folder`` up to ``end``, which may be inside a record.

        Raises:
            StoreIOError: the files cannot be read.
        """
        config = StoreConfig(mapped_file_size_commit_log=file_size)
        log = CommitLog([folder], config, read_only=True)
        log.load()
        log.set_end(end)
        side = cls(master, log)
        side.whole = whole
        behind, blanks = max(log.min_phy_offset(), 0), list[tuple[int, int]]()
        try:
            for record in log.scan(behind, blanks=blanks):
                behind = record.phy_offset + record.size
        except CorruptionError as exc:
            side.damage = None if isinstance(exc, TruncatedRecordError) else exc
        behind = max([behind, *(at + left for at, left in blanks if at + left <= end)])
        side.bytes_behind_end = 0 if side.damage is None else end - behind
        log.set_end(min(behind, end))
        return side


def refuse_other_files(master: Master, begin: int, file_size: int) -> None:
    """Refuse a master whose last file does not begin at a multiple of ``file_size``.

    Raises:
        RefusedStoreError: it begins inside a file of this size.
    """
    if begin % file_size:
        raise RefusedStoreError(
            f"the last log file of {master} begins at {begin}, inside a file of {file_size} bytes:"
            " is its mappedFileSizeCommitLog different?"
        )
