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
        # A JVM that has just started may take longer for a route than a client waits.
        until(lambda: clients.do("send", port, "orders", 0, "m", "sync") == [])
        results = clients.do("send", port, "orders", count, "m", "select")
        assert isinstance(results, list), results
        assert [each["status"] for each in results] == ["SEND_OK"] * int(count), results
        clients.do("open", port, "one", "g", "orders", "concurrent", 0, 16)
        until(lambda: len(clients.do("received", "one")) == int(count), pause=0.05)
        clients.do("close", "one")


main()
