"""What a master's last log file spans, as it reports it to a client without a log.

The wire has no question for the end of a log, nor for its begin. A client that asks for 0 gets the
last file.
"""

import asyncio

from cqstore.replication.errors import WireError
from cqstore.replication.follow.log_receiver import READ_BYTES
from cqstore.replication.follow.master_port import MasterPort
from cqstore.replication.wire import REPORT, FrameParser, Report

_ENOUGH_HEARTBEATS = 2


async def last_file(port: MasterPort, seconds: float, *, whole: bool) -> range | None:
    """Return what ``request_last_file`` does; ``None`` too where that has an error."""
    try:
        return await request_last_file(port, seconds, whole=whole)
    except (OSError, WireError):
        return None


async def request_last_file(port: MasterPort, seconds: float, *, whole: bool) -> range | None:
    """Return the phy offsets of the bytes that the master's last log file has.

    ``whole``: up to the end of the log, for which all of the file is received and thrown away; else
    of the first frame. ``None`` if the connection ended before that.

    Raises:
        OSError: nothing listens there, or that did not come in ``seconds``.
        WireError: what came is of no master.
    """
    async with asyncio.timeout(seconds):
        reader, writer = await port.connect()
        try:
            writer.write(REPORT.pack(Report(0)))
            return await _span(reader, whole=whole)
        finally:
            writer.transport.abort()


async def _span(reader: asyncio.StreamReader, *, whole: bool) -> range | None:
    """Return the range of what a master sends, ``None`` if it sends nothing.

    ``whole``: up to where it has no more; else of the first piece.
    """
    parser, begin, end, heartbeats = FrameParser(), -1, -1, 0
    while data := await reader.read(READ_BYTES):
        for piece in parser.feed(data):
            begin = piece.phy_offset if begin < 0 else begin
            end = piece.phy_offset + len(piece.data)
            heartbeats += not piece.data
            # The first one may come before the master has looked for bytes.
            is_end = not piece.data and (end > begin or heartbeats == _ENOUGH_HEARTBEATS)
            if is_end or not whole:
                return range(begin, end)
    return None
