"""Pieces are taken in the call that brings them, or read in their order."""

import asyncio

from cqstore.replication.follow.received_stream import Arrivals
from tests.kit.waiting import run


def test_pieces_go_by_the_reader_until_one_is_not_taken() -> None:
    async def story() -> None:
        reader, taken = Arrivals(), list[bytes]()

        def take(data: bytes) -> bool:
            if len(data) > 3:
                return False
            taken.append(data)
            return True

        with reader.taken_by(take):
            reading = asyncio.create_task(reader.read(100))
            await asyncio.sleep(0)
            for data in (b"one", b"two", b"three", b"4"):  # the last one lies behind what was kept
                reader.feed_data(data)
            assert await reading == b"three4"
            reader.feed_data(b"5")  # who reads has had one piece, and looks again
        with reader.taken_by(take):
            assert await reader.read(100) == b"5"
        reader.feed_data(b"6")
        reader.feed_eof()
        assert await reader.read(100) == b"6"
        assert taken == [b"one", b"two"]

    run(story())
