"""A client for ``ab live --client-command``: WHAT ADDRESS [COUNT | FILE], by the format page alone.

``kill`` kills the processes that serve; they have the same parent.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.kit.remoting_client import ONEWAY, Client, pull
from tests.kit.sends import BATCH, SEND_V2, batch_of, sent

QUEUES = 4


async def load(client: Client, count: int) -> None:
    """Send ``count`` messages, one way three more, three in a batch; pull all of them."""
    for number in range(count):
        fields = sent("t", v2=True, queueId=number % QUEUES)
        assert (await client.ask(SEND_V2, fields, b"x" * 100)).code == 0
    batch = sent("t", v2=True, queueId=0, batch="true")
    assert (await client.ask(BATCH, batch, batch_of(b"a", b"b", b"c"))).code == 0
    for queue_id in range(QUEUES):
        at = 0
        while not (found := await client.ask(11, pull("t", queue_id, at))).code:
            at = int(found.fields["nextBeginOffset"])
    assert (await client.ask(SEND_V2, sent("no good", v2=True), b"x")).code
    for _ in range(3):
        client.send(SEND_V2, sent("u", v2=True), b"y", flag=ONEWAY)
    await client.writer.drain()


def siblings() -> list[int]:
    """Return the processes that have the parent of this one."""
    threads = Path(f"/proc/{os.getppid()}/task").glob("*/children")
    return [int(pid) for thread in threads for pid in thread.read_text().split()]


async def main() -> None:
    what, address, *more = sys.argv[1:]
    host, _, port = address.rpartition(":")
    assert os.environ["NAMESRV_ADDR"] == address
    client = Client(*await asyncio.open_connection(host, int(port)))
    if what == "load":
        await load(client, int(more[0]))
    elif what == "fail":
        sys.stdout.write("no such topic\n")
        sys.exit(3)
    elif what == "grow":  # each run sends one message more
        file = Path(more[0])
        runs = len(file.read_bytes()) if file.exists() else 0
        file.write_bytes(b"x" * (runs + 1))
        await load(client, 20 + runs)
    elif what in {"kill", "wait"}:
        Path(more[0]).write_text(str(os.getpid()))
        for pid in siblings() if what == "kill" else ():
            if b"server_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        signal.pause()
    client.writer.close()  # what was sent is sent before
    await client.writer.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())
