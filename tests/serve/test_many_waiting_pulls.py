"""Ten thousand pulls wait in a server process: memory and CPU are bounded, and all are answered."""

import asyncio
import os
from pathlib import Path
from time import monotonic

import pytest

from tests.kit.mutations import resident_bytes
from tests.kit.remoting_client import Client, pull
from tests.kit.sends import SEND, sent
from tests.kit.waiting import becomes, run
from tests.serve.test_serve_command import connected, running

PULLS, QUEUES = 10_000, 4
BYTES_PER_PULL = 4 << 10
"""``docs/serve.md`` has this figure, and the next one."""
CPU_SHARE = 0.05
WATCHED_SECONDS = 4.0
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def send(client: Client, body: bytes) -> None:
    """Send a message to each queue."""
    for queue_id in range(QUEUES):
        assert (await client.ask(SEND, sent("t", queueId=queue_id), body)).code == 0


async def wait_all(clients: list[Client]) -> dict[Client, int]:
    """Have each client's pulls wait; return how many each has."""
    share = PULLS // len(clients)
    for client in clients:
        for number in range(share):
            client.send(11, pull("t", number % QUEUES, 1, wait_ms=300_000))
        # Requests of a connection are answered in order: its pulls have been read.
        assert (await client.ask(30, {"topic": "t", "queueId": 0})).fields["offset"] == "1"
    return dict.fromkeys(clients, share)


async def answered(client: Client, count: int) -> None:
    for _ in range(count):
        found = await client.next_answer()
        assert found.code == 0, found.remark
        assert b"second" in found.body


@pytest.mark.long
@pytest.mark.quiet
@pytest.mark.parametrize("connections", [4, 500])
def test_waiting_pulls_take_little_and_are_all_answered(tmp_path: Path, connections: int) -> None:
    settings = tmp_path / "broker.conf"
    settings.write_text("mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    words = ("--writable", "--new", "--config", settings)

    async def story() -> None:
        with running(tmp_path / "store", *words) as (process, port):
            sender = await connected(port)
            await send(sender, b"first")
            clients = [await connected(port) for _ in range(connections)]
            before = resident_bytes(process.pid)
            shares = await wait_all(clients)
            grown = resident_bytes(process.pid) - before
            spent, until = cpu_seconds(process.pid), monotonic() + WATCHED_SECONDS
            await becomes(lambda: monotonic() >= until)
            waited = cpu_seconds(process.pid) - spent
            await send(sender, b"second")
            await asyncio.gather(*(answered(*each) for each in shares.items()))
            for client in (sender, *clients):
                client.close()
            await asyncio.sleep(0)
        assert grown <= PULLS * BYTES_PER_PULL
        assert waited <= WATCHED_SECONDS * CPU_SHARE

    run(story())
