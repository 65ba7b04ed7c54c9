"""A master of ours that puts what it is told to: ``python -m tests.interop.ha_child ROOT CONF``.

It speaks as ``Interop.java serve`` does: its port, then a line for each line.
"""

import json
import sys
from ipaddress import ip_network
from pathlib import Path

from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.broker_conf import read_broker_conf
from tests.interop.test_feeding import put
from tests.kit.lossy_link import NETWORK


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def main(root: str, conf: str) -> None:
    config, _ = read_broker_conf(Path(conf))
    settings = FeedSettings(ha_send_heartbeat_interval=700)
    allowed = [ip_network("127.0.0.0/8"), ip_network(NETWORK)]
    with (
        MessageStore.open(root, config, housekeeping=False) as store,
        feeding(Feeder(store, host="0.0.0.0", allow=allowed, settings=settings)) as feeder,
    ):
        say(port=feeder.port)
        for line in sys.stdin:
            statuses = {status.name: count for status, count in put(store, int(line)).items()}
            say(statuses=statuses, end=store.max_phy_offset())


if __name__ == "__main__":
    main(*sys.argv[1:])
