"""``cqstore serve`` as a user meets it: what it serves, prints and refuses."""

import asyncio
import json
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit import hostile_frames
from tests.kit.hostile_frames import hostile_frame
from tests.kit.remoting_client import Client, pull
from tests.kit.running import COMMAND
from tests.kit.tree import tree_digest
from tests.kit.waiting import run
from tests.serve.test_consumers import where
from tests.serve.test_server_metrics import requests, scraped


@contextmanager
def running(root: Path, *more: object) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    words = [*COMMAND[:1], "serve", str(root), "--listen", "127.0.0.1:0", "--output", "json"]
    with subprocess.Popen(
        [*words, *map(str, more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                assert line, "cqstore serve has ended"
                found = re.search(r"127\.0\.0\.1:(\d+).*: serving as name server and broker", line)
            yield process, int(found[1])
        finally:
            process.kill()


async def connected(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_tells_its_requests(
    logged_root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    offsets = tmp_path / "offsets.json"
    before = tree_digest(logged_root)
    more = ("--offsets", offsets, "--access-log", "--broker-name", "a", "--as", "127.0.0.2:19876")
    with running(logged_root, *more) as (process, port):

        async def story() -> None:
            client = await connected(port)
            route = (await client.ask(105, {"topic": "orders"})).json
            assert route["queueDatas"][0]["brokerName"] == "a"
            assert (await client.ask(11, pull("orders", 0, 0))).code == 0
            assert (await client.ask(10, {}, b"x")).code == 16
            assert (await client.ask(15, where(1, "orders", commitOffset=3))).code == 0
            client.send(11, pull("orders", 0, 5, wait_ms=300_000))
            await client.ask(30, {"topic": "orders", "queueId": 0})
            process.send_signal(number)
            assert await client.is_closed()
            client.close()
            await asyncio.sleep(0)

        run(story())
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    counts = {(each["request"], each["response"]): each["total"] for each in json.loads(out)}
    assert counts["SEND_MESSAGE", 16] == 1
    assert counts["PULL_MESSAGE", 0] == 1
    assert re.search(r"T\S+\+00:00 127\.0\.0\.1:\d+ PULL_MESSAGE 'orders' -> 0, \d+ bytes", err)
    assert "1 connections were accepted" in err
    assert json.loads(offsets.read_text())["offsetTable"] == {"orders@g": {"1": 3}}
    assert tree_digest(logged_root) == before


@pytest.mark.slow
def test_metrics_are_served_on_request(root: Path) -> None:
    with running(root, "--metrics", "127.0.0.1:0") as (process, port):
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/metrics: serving metrics", line)
        assert found, line

        async def story() -> None:
            client = await connected(port)
            assert (await client.ask(30, {"topic": "t", "queueId": 0})).code == 0
            samples = await asyncio.to_thread(scraped, int(found[1]))
            assert requests(samples, "get_max_offset", "success") == 1
            client.close()
            await asyncio.sleep(0)

        run(story())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


@pytest.mark.slow
def test_a_killed_server_leaves_the_store_equal(root: Path) -> None:
    before = tree_digest(root)
    with running(root) as (process, port):

        async def story() -> None:
            client = await connected(port)
            assert (await client.ask(11, pull("t", 0, 0))).code == 0
            client.send(11, pull("t", 0, 30, wait_ms=300_000))
            process.kill()
            assert await client.is_closed()
            client.close()
            await asyncio.sleep(0)

        run(story())
    assert tree_digest(root) == before


@pytest.mark.slow
def test_a_server_killed_among_hostile_clients_leaves_the_store_equal(root: Path) -> None:
    """Five hundred connections send damaged requests; the process is killed while it answers."""
    draw, before, seeds = random.Random(46), tree_digest(root), hostile_frames.requests()
    for turn in range(3):
        with running(root) as (process, port):

            async def story(process: "subprocess.Popen[str]", port: int, turn: int) -> None:
                good, others = await connected(port), [await connected(port) for _ in range(499)]
                for each in others:
                    each.writer.write(hostile_frame(draw, seeds))
                for _ in range(turn):
                    assert (await good.ask(30, {"topic": "t", "queueId": 0})).code == 0
                process.kill()
                for each in (good, *others):
                    assert await each.is_closed()
                    each.close()
                await asyncio.sleep(0)

            run(story(process, port, turn))
        assert tree_digest(root) == before
