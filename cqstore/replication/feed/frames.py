"""Splits bytes of the log into frames."""

from collections.abc import Iterator

from cqstore.replication.wire import FRAME_HEAD, FrameHead


def frames(phy_offset: int, data: bytes, batch: int) -> Iterator[bytes | memoryview]:
    """Yield header and body of each frame for ``data``, with at most ``batch`` bytes per body."""
    if len(data) <= batch:
        yield FRAME_HEAD.struct.pack(phy_offset, len(data))
        yield data
        return
    view = memoryview(data)
    for at in range(0, len(data), batch):
        body = view[at : at + batch]
        yield FRAME_HEAD.pack(FrameHead(phy_offset + at, len(body)))
        yield body
