"""``cqstore serve --writable``: other verbs read what was acknowledged, also after a kill."""

import asyncio
import json
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from cqstore.broker.one_form import read_one_form
from cqstore.store.paths import StorePaths
from tests.kit.commands import run as run_verb
from tests.kit.long_too import long_too
from tests.kit.remoting_client import Client, pull
from tests.kit.sends import BATCH, SEND_V2, batch_of, sent
from tests.kit.waiting import run
from tests.serve.test_serve_command import connected, running

WRITABLE = ("--writable", "--new", "--broker-name", "a")


class Acknowledged(NamedTuple):
    """A message of topic ``t`` that was acknowledged."""

    queue_id: int
    queue_offset: int
    body: bytes


async def produce(client: Client, name: str, queue_id: int, into: list[Acknowledged]) -> None:
    """Send messages and batches, one after the other, until the server is gone."""
    number = 0
    while True:
        body = f"{name}:{number}".encode()
        fields = sent("t", {"TAGS": name}, v2=True, queueId=queue_id)
        try:
            if number % 5:
                answer = await client.ask(SEND_V2, fields, body)
                bodies = [body]
            else:
                bodies = [body + b"a", body + b"b", body + b"c"]
                batch = sent("t", v2=True, queueId=queue_id, batch="true")
                answer = await client.ask(BATCH, batch, batch_of(*bodies))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        assert answer.code == 0, answer.remark
        first = int(answer.fields["queueOffset"])
        into += [Acknowledged(queue_id, first + index, each) for index, each in enumerate(bodies)]
        number += 1


async def read_back(client: Client, wanted: list[Acknowledged]) -> None:
    """Pull each acknowledged message; its record has its body."""
    for each in wanted:
        found = await client.ask(11, pull("t", each.queue_id, each.queue_offset, count=1))
        assert found.code == 0
        assert each.body in found.body


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_verbs_read_what_was_acknowledged(tmp_path: Path, backend: str) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")
    given: list[Acknowledged] = []
    with running(root, *WRITABLE, "--backend", backend, "--config", conf) as (process, port):

        async def story() -> None:
            clients = [await connected(port) for _ in range(3)]
            tasks = [
                asyncio.create_task(produce(each, f"p{number}", number, given))
                for number, each in enumerate(clients)
            ]
            while len(given) < 300:
                await asyncio.sleep(0.001)
            where = {"consumerGroup": "g", "topic": "t", "queueId": 1, "commitOffset": 7}
            last = await connected(port)
            assert (await last.ask(15, where)).code == 0
            process.send_signal(signal.SIGTERM)
            await asyncio.gather(*tasks)
            for each in (*clients, last):
                each.close()
            await asyncio.sleep(0)

        run(story())
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    counts = {(each["request"], each["response"]): each["total"] for each in json.loads(out)}
    assert counts["SEND_MESSAGE_V2", 0] >= sum(1 for each in given if each.body[-1:].isdigit())
    for queue_id in range(3):
        words = ("get", root, "--topic", "t", "--queue-id", queue_id, "--count", 10_000)
        rows = map(json.loads, run_verb(words).stdout.splitlines())
        bodies = {row["queueOffset"]: row["body"] for row in rows}
        for each in given:
            if each.queue_id == queue_id:
                assert bodies[each.queue_offset] == each.body.decode()
    assert run_verb(("check", root)).returncode == 0
    tables = read_one_form(StorePaths(root))
    assert tables.topics["t"]["writeQueueNums"] == 4
    assert tables.offsets["t@g"] == {1: 7}


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "flush"),
    [
        ("file", "ASYNC_FLUSH"),
        ("rocksdb", "SYNC_FLUSH"),
        *long_too([("file", "SYNC_FLUSH"), ("rocksdb", "ASYNC_FLUSH")]),
    ],
)
def test_a_killed_server_loses_nothing_that_was_acknowledged(
    tmp_path: Path, backend: str, flush: str
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(f"flushDiskType={flush}\nmappedFileSizeCommitLog=65536\n")
    more = (*WRITABLE, "--backend", backend, "--config", conf)
    given: list[Acknowledged] = []
    for count in (200, 500):
        with running(root, *more) as (process, port):

            async def story(least: int = count) -> None:
                clients = [await connected(port) for _ in range(4)]
                await read_back(clients[0], given)
                tasks = [
                    asyncio.create_task(produce(each, f"p{number}", number % 3, given))
                    for number, each in enumerate(clients)
                ]
                while len(given) < least:
                    await asyncio.sleep(0.001)
                process.kill()
                await asyncio.gather(*tasks)
                for each in clients:
                    each.close()
                await asyncio.sleep(0)

            run(story())
    assert len({(each.queue_id, each.queue_offset) for each in given}) == len(given)
    with running(root, *more) as (process, port):

        async def after() -> None:
            client = await connected(port)
            await read_back(client, given)
            ends = {}
            for queue_id in range(3):
                answer = await client.ask(30, {"topic": "t", "queueId": queue_id})
                ends[queue_id] = int(answer.fields["offset"])
            assert all(each.queue_offset < ends[each.queue_id] for each in given)
            client.close()
            await asyncio.sleep(0)

        run(after())
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
