"""Slow, silent, half-open and lying clients cost one connection each; limits are kept and named."""

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cqstore.remoting.command import Command
from cqstore.replication.address import networks
from cqstore.serve.request import Request
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import Client, asked, pull
from tests.kit.remoting_server import Serving, serving, with_limits
from tests.kit.waiting import becomes, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cqstore.serve.connection import Connection

MAX, PULL = 30, 11
PLACE: dict[str, object] = {"topic": "t", "queueId": 0}


async def serves(found: Serving) -> None:
    """A new client is answered."""
    client = await found.client()
    assert (await client.ask(MAX, PLACE)).fields == {"offset": "30"}
    client.close()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "invalid size in a request"),
        (struct.pack(">iI", (16 << 20) + 1, 4), "expected 4 to 16777216"),
        (struct.pack(">iI", 1 << 20, (64 << 10) + 1), "invalid header size"),
        (struct.pack(">iI", 20, 2 << 24 | 4), "invalid header form"),
        (asked(MAX, 1, PLACE)[:8] + b"x" * 400, "not valid JSON"),
    ],
)
def test_what_is_no_request_ends_its_connection_alone(root: Path, sent: bytes, words: str) -> None:
    async def story() -> None:
        async with serving(root) as found:
            liar, other = await found.client(), await found.client()
            liar.writer.write(sent)
            assert await liar.is_closed()
            assert any(words in each for each in found.events), found.events
            assert (await other.ask(MAX, PLACE)).code == 0
            await serves(found)

    run(story())


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "nothing was received or sent for 0.05 s"),
        (asked(MAX, 1, PLACE)[:20], "a request was not complete after 0.05 s"),
    ],
)
def test_silent_and_half_sent_requests_end(root: Path, sent: bytes, words: str) -> None:
    async def story() -> None:
        limits = with_limits(idle_seconds=0.05, request_seconds=0.05)
        async with serving(root, limits=limits) as found:
            client = await found.client()
            client.writer.write(sent)
            assert await client.is_closed()
            assert any(words in each for each in found.events), found.events

    run(story())


def test_a_client_that_does_not_read_gets_no_more_bytes_and_ends(root: Path) -> None:
    async def story() -> None:
        limits = with_limits(send_seconds=0.05)
        async with serving(root, limits=limits) as found:
            # Its buffer is small from the start: a stream would read ahead.
            peer = socket.socket()
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(0)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(peer, ("127.0.0.1", found.port))
            stream = b"".join(asked(PULL, each, pull("t", 0, 0)) for each in range(20_000))
            sending = loop.create_task(loop.sock_sendall(peer, stream))
            (link,) = [each async for each in _links(found)]
            await becomes(lambda: any("has read nothing" in each for each in found.events))
            assert link._kept < 1 << 20
            await becomes(lambda: found.server._memory.total == 0)
            pulls = sum(each.total for each in found.server.counts.snapshot())
            assert pulls < 5000  # not all: it stopped reading requests
            peer.close()
            with pytest.raises(ConnectionError):
                await sending
            await serves(found)

    run(story())


def holds(links: "set[Connection]", count: int) -> bool:
    return len(links) == count


async def _links(found: Serving) -> "AsyncIterator[Connection]":
    await becomes(lambda: found.server._links)
    for each in found.server._links:
        yield each


def test_bytes_in_memory_are_limited_per_address(root: Path) -> None:
    async def story() -> None:
        limits = with_limits(memory_bytes_per_address=100_000)
        async with serving(root, limits=limits) as found:
            one, two = await found.client(), await found.client()
            for each in (one, two):
                each.writer.write(asked(34, 1, {}, b"x" * 90_000)[:80_000])
            await becomes(lambda: any("too many bytes" in each for each in found.events))
            await becomes(lambda: found.server._memory.total < 100_000)
            await serves(found)

    run(story())


def test_connections_are_limited_per_address_and_in_total(root: Path) -> None:
    async def story() -> None:
        for changes in ({"connections": 3}, {"connections_per_address": 3}):
            async with serving(root, limits=with_limits(**changes)) as found:
                clients = [await found.client() for _ in range(3)]
                for each in clients:
                    assert (await each.ask(MAX, PLACE)).code == 0
                assert await (await found.client()).is_closed()
                assert any("too many connections" in each for each in found.events)
                clients[0].close()
                links = found.server._links
                await becomes(partial(holds, links, 2))
                await serves(found)

    run(story())


def test_other_networks_are_refused(root: Path) -> None:
    async def story() -> None:
        async with serving(root, allow=networks(["10.0.0.0/8"])) as found:
            assert await (await found.client()).is_closed()
            assert any("not in an allowed network" in each for each in found.events)

    run(story())


def test_requests_of_tools_are_limited(root: Path) -> None:
    async def story() -> None:
        async with serving(root, limits=with_limits(jobs_per_address=1)) as found:
            client = await found.client()
            numbers = [client.send(206) for _ in range(20)]
            codes = [(await client.answer(each)).code for each in numbers]
            assert set(codes) == {0, 2}
            assert (await client.ask(206)).code == 0

    run(story())


def test_the_end_waits_for_requests_in_threads(root: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(request: Request, _store: MessageStore) -> Command:
        begun.set()
        assert goes_on.wait(60)
        return request.respond(remark="late")

    async def story() -> None:
        async with serving(root) as found:
            found.server._handlers._jobs[999] = slow
            client = await found.client()
            number = client.send(999)
            await becomes(begun.is_set)
            ending = asyncio.get_running_loop().create_task(found.server.__aexit__())
            await becomes(lambda: found.server._is_ending)
            goes_on.set()
            assert (await client.answer(number)).remark == "late"
            assert await client.is_closed()
            await ending

    run(story())


@pytest.mark.slow
def test_five_hundred_connections_are_served_and_ended(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            clients = [await found.client() for _ in range(500)]
            numbers = [each.send(PULL, pull("t", 0, 30, wait_ms=300_000)) for each in clients]
            await becomes(lambda: len(found.server.held) == 500)
            answers = await asyncio.gather(*(each.ask(MAX, PLACE) for each in clients))
            assert {each.fields["offset"] for each in answers} == {"30"}
            assert len(numbers) == 500
        for each in clients:  # a graceful stop closes them
            assert await each.is_closed()

    run(story())


def test_many_requests_at_once_are_answered_in_turns(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client: Client = await found.client()
            for _ in range(1000):
                client.send(MAX, PLACE)
            answers = [await client.next_answer() for _ in range(1000)]
            assert [each.opaque for each in answers] == list(range(1, 1001))

    run(story())


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_is_accepted_at_the_end_is_closed(root: Path, turns: int) -> None:
    """asyncio forgets a connection if its listener is closed before the transport exists."""

    async def story() -> None:
        async with serving(root) as found:
            client = socket.create_connection(("127.0.0.1", found.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        client.settimeout(10)
        with client, suppress(ConnectionResetError):
            assert client.recv(1) == b""

    run(story())
