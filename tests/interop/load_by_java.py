"""A command for ``ab live --client-command``: RocketMQ's Java producer and push consumer.

Words: ADDRESS COUNT. It sends so many messages, then a consumer receives them all. The program that
it runs was built before.
"""

import sys
from pathlib import Path

from tests.interop.consumers import NEWEST, RunningConsumers
from tests.interop.started import started
from tests.kit.waiting import until
from tools.bench.peer.maven import JavaProgram


def main() -> None:
    address, count = sys.argv[1:]
    port = address.rpartition(":")[2]
    folder = Path(__file__).parent / "clients"
    with started(JavaProgram.build(folder, "interop.Writers", NEWEST), []) as process:
        clients = RunningConsumers(process)
        until(lambda: is_sent(clients, port, count))
        clients.do("open", port, "one", "g", "orders", "concurrent", 0, 16)
        until(lambda: len(clients.do("received", "one")) == int(count), pause=0.05)
        clients.do("close", "one")


def is_sent(clients: RunningConsumers, port: str, count: str) -> bool:
    """Send all messages; return false if the producer did not start, so that nothing was sent.

    It waits 3 s for a route, which a JVM that has just started can miss on a busy machine.
    """
    found = clients.do("send", port, "orders", count, "m", "select")
    if not isinstance(found, list):
        assert "IllegalStateException" in found["refused"], found
        return False
    assert [each["status"] for each in found] == ["SEND_OK"] * int(count), found
    return True


main()
