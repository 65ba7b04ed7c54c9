"""A command for ``migrate verify --client-command``: RocketMQ's Java consumer, a line a message.

Words: ADDRESS TOPIC …. The program that it runs was built before.
"""

import json
import sys

from tests.interop.consumers import NEWEST, Consumers


def main() -> None:
    address, *topics = sys.argv[1:]
    port = address.rpartition(":")[2]
    with Consumers.build(NEWEST).running() as clients:
        for number, topic in enumerate(topics):
            found = clients.do("pull", port, f"verify{number}", topic, "*")
            for row in (*found["found"], found["ends"]):
                sys.stdout.write(json.dumps(row, sort_keys=True) + "\n")


main()
