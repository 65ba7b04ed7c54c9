"""The phy offsets of a master's last log file, as the master serves it to a client without a log.

The protocol has no request for the start or end of a log. A client that requests offset 0 receives
the last file.
"""

import asyncio

from cqstore.replication.endpoint import MASTER_CLOSED, nothing_received, reason_of
from cqstore.replication.errors import WireError
from cqstore.replication.follow.log_receiver import READ_BYTES
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.wire import REPORT, FrameParser, Report
from cqstore.store.errors import StoreIOError

_ENOUGH_HEARTBEATS = 2
_HINT = "is this the replication port (haListenPort) of a master without a controller?"


async def last_file(port: MasterPort, seconds: float, *, whole: bool) -> range | None:
    """Return the result of ``request_last_file``, or ``None`` if it raises an error."""
    try:
        return await request_last_file(port, seconds, whole=whole)
    except (OSError, WireError):
        return None


async def request_last_file(port: MasterPort, seconds: float, *, whole: bool) -> range | None:
    """Return the phy offsets of the bytes in the master's last log file.

    ``whole``: up to the end of the log, for which all of the file is received and discarded; else
    only those of the first frame. ``None`` if the connection ended before that.

    Raises:
        OSError: the connection failed, or the bytes did not arrive within ``seconds``.
        WireError: the received bytes are not from a master.
    """
    async with asyncio.timeout(seconds):
        reader, writer = await port.connect()
        try:
            writer.write(REPORT.pack(Report(0)))
            return await _span(reader, whole=whole)
        finally:
            writer.transport.abort()


async def check_master(port: MasterPort, seconds: float) -> range:
    """Receive one frame, to check the address of a master; return its phy offsets.

    Raises:
        StoreIOError: the connection failed, or nothing was received within ``seconds``.
        WireError: the received bytes are not from a master.
    """
    try:
        found = await request_last_file(port, seconds, whole=False)
    except TimeoutError as exc:
        raise StoreIOError(f"{port}: {nothing_received(seconds)}: {_HINT}") from exc
    except OSError as exc:
        raise StoreIOError(f"{port}: {reason_of(exc)}") from exc
    if found is None:
        raise StoreIOError(f"{port}: {MASTER_CLOSED}: {_HINT}")
    return found


async def _span(reader: asyncio.StreamReader, *, whole: bool) -> range | None:
    """Return the range of phy offsets that a master sends; ``None`` if it sends nothing.

    ``whole``: up to the end of its log; else only the first piece.
    """
    parser, begin, end, heartbeats = FrameParser(), -1, -1, 0
    while data := await reader.read(READ_BYTES):
        for piece in parser.feed(data):
            begin = piece.phy_offset if begin < 0 else begin
            end = piece.phy_offset + len(piece.data)
            heartbeats += not piece.data
            # The first heartbeat may arrive before the master has checked for bytes.
            is_end = not piece.data and (end > begin or heartbeats == _ENOUGH_HEARTBEATS)
            if is_end or not whole:
                return range(begin, end)
    return None
