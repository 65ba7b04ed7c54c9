"""Hostile frames for every request code, in both header forms, at a served golden store.

``--seed`` draws the frames (``make fuzz SEED=…``). Part of ``make fuzz``: what the compiled core
reads for a hostile request is read under AddressSanitizer.
"""

import asyncio
import gc
import logging
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from cqstore.remoting.command import Command
from cqstore.remoting.errors import WireError
from cqstore.remoting.frame import CommandReader
from cqstore.serve.codes import WRITES, RequestCode
from cqstore.serve.limits import ServeLimits
from tests.kit.given_memory import given_memory
from tests.kit.hostile_frames import (
    HEAD_BYTES,
    Asked,
    drawn_request,
    hostile_frame,
    requests,
)
from tests.kit.log_bytes import pieces
from tests.kit.remoting_client import Answer, answer_in
from tests.kit.remoting_server import Serving, serving, with_limits
from tests.kit.tree import tree_digest
from tests.kit.waiting import becomes, run

FRAMES = 10_000
OF_A_CONNECTION, AT_ONCE, PARTS = 20, 32, 10
MAX_BYTES = 32 << 20
SEEDS = requests()
READS: list[tuple[int, dict[str, object]]] = [
    (each.code, each.fields) for each in SEEDS
    if each.code in {11, 12, 29, 30, 31, 32, 33, 105, 202, 206, 321, 351}
    and not each.fields.get("suspendTimeoutMillis")
]  # fmt: skip
"""Requests whose responses depend on the store alone."""


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> str:
    """The word that draws the frames."""
    return str(request.config.option.seed)


@contextmanager
def named(seed: str, number: int, data: bytes) -> Iterator[None]:
    try:
        yield
    except BaseException as exc:
        exc.add_note(f"--seed {seed}: frame {number} of {len(data)} bytes: {data[:2000].hex()}")
        raise


@contextmanager
def no_more_memory() -> Iterator[None]:
    """Fail if the block leaves more memory in use; a sanitizer keeps what was freed."""
    gc.collect()
    before = given_memory()
    yield
    gc.collect()
    grown = given_memory() - before
    assert grown <= MAX_BYTES, f"{grown} bytes"


def test_there_is_a_request_of_each_code() -> None:
    codes = {each.code for each in SEEDS}
    answered = {*RequestCode} - {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}
    assert codes >= answered
    assert codes & set(WRITES)


def decoded(parts: Iterator[bytes]) -> list[Command | str]:
    """Return the commands in a stream, and the error that ended it."""
    reader, found = CommandReader(ServeLimits().frame_limits), list[Command | str]()
    try:
        for part in parts:
            reader.feed(part)
            while (command := reader.next_command()) is not None:
                found.append(command)
    except WireError as exc:
        return [*found, str(exc)]
    return found


def test_the_decoder_refuses_hostile_frames_with_an_error_of_its_own(seed: str) -> None:
    """However the frames are cut; parameters that are only odd arrive as they were sent."""
    with no_more_memory():
        for number in range(FRAMES):
            draw = random.Random(f"{seed} {number}")
            data = hostile_frame(draw, SEEDS)
            with named(seed, number, data):
                whole = decoded(iter((data,)))
                assert (
                    decoded(pieces(data, draw.choice((len(data) // 9 + 1, 10_000)), number))
                    == whole
                )
            request = drawn_request(draw, SEEDS)
            data = request.framed()
            with named(seed, number, data):
                assert_equal(decoded(iter((data,))), request)


def assert_equal(found: list[Command | str], sent: Asked) -> None:
    (command,) = found
    assert isinstance(command, Command), command
    fields = {key: str(each) for key, each in sent.fields.items()}
    assert (command.code, command.fields, command.body) == (sent.code, fields, sent.body)
    assert (command.opaque, command.flag, command.form) == (sent.opaque, sent.flag, sent.form)


def streams(draw: random.Random, count: int) -> Iterator[bytes]:
    """Yield ``count`` frames, those of a connection together; the server reads each of them.

    A frame that ends its connection is the last one of its stream.
    """
    parts = list[bytes]()
    for _ in range(count):
        parts.append(hostile_frame(draw, SEEDS))
        result = decoded(iter(parts[-1:]))
        goes_on = len(result) == 1 and isinstance(result[0], Command)
        if not goes_on or len(parts) == OF_A_CONNECTION:
            yield b"".join(parts)
            parts.clear()
    if parts:
        yield b"".join(parts)


def _batched(found: Iterator[bytes]) -> Iterator[list[bytes]]:
    while some := list(islice(found, AT_ONCE)):
        yield some


async def attack(found: Serving, stream: bytes, draw: random.Random) -> list[Answer]:
    """Send a stream to its end, or until the server closes the connection; return all answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", found.port)
    with suppress(ConnectionError):
        for part in pieces(stream, draw.choice((300, 10_000, 100_000)), draw.randrange(1 << 30)):
            writer.write(part)
        writer.write_eof()
    received = bytearray()
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            received += data
    writer.transport.abort()
    return list(answers(received))


def answers(received: bytearray) -> Iterator[Answer]:
    """Yield what the server has sent, but for an answer that the end has cut."""
    at = 0
    while len(received) - at >= HEAD_BYTES:
        size, sizes = struct.unpack_from(">iI", received, at)
        begin, end = at + HEAD_BYTES + (sizes & 0xFFFFFF), at + 4 + size
        assert at + HEAD_BYTES <= begin <= end
        if end > len(received):
            return
        header = bytes(received[at + HEAD_BYTES : begin])
        yield answer_in(header, bytes(received[begin:end]), sizes >> 24)
        at = end


async def read_all(found: Serving) -> list[tuple[int, str, bytes]]:
    """Return what a client receives that asks as clients do."""
    client = await found.client()
    got = [await client.ask(code, fields) for code, fields in READS]
    client.close()
    return [(each.code, each.remark, each.body) for each in got]


@pytest.mark.parametrize("name", ["basic-default", "basic-defaultRocksDB"])
def test_hostile_frames_leave_server_and_store_as_they_were(
    golden: Callable[[str], Path], name: str, seed: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = golden(name)
    before, draw = tree_digest(root), random.Random(f"{seed} {name}")
    limits = with_limits(jobs=FRAMES, jobs_per_address=FRAMES, call_seconds=0.05)

    async def story() -> None:
        async with serving(root, limits=limits) as found:
            expected, got = await read_all(found), list[Answer]()
            for some in _batched(streams(draw, FRAMES // 2 // PARTS)):
                for each in await asyncio.gather(*(attack(found, one, draw) for one in some)):
                    got += each
            await becomes(lambda: not (found.server._links or found.server._handlers._running))
            assert (found.server._memory.total, len(found.server.held)) == (0, 0)
            assert await read_all(found) == expected
            assert len(got) > FRAMES // 20 // PARTS

    with caplog.at_level(logging.ERROR), no_more_memory():
        for _ in range(PARTS):
            run(story())
    assert not caplog.records  # a fault of the program is logged
    assert tree_digest(root) == before
