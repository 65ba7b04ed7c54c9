"""Open half messages at a follower that becomes the master: what its tables of offsets decide.

A broker that checks a half message back appends it again, and only the offset of the group
``CID_RMQ_SYS_TRANS`` says which copies count no more. RocketMQ's slave gets it with the other
consumer offsets, and so does ``cqstore follow --broker``.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.brokers import Broker, Brokers
from tests.interop.walk import read, registered
from tests.kit import commands
from tests.kit.waiting import until

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
QUICK = {
    "transactionOpMsgMaxSize": 1, "transactionTimeOut": 1, "transactionCheckInterval": 600_000,
    "haSendHeartbeatInterval": 700,
}  # fmt: skip
OPEN, ROUNDS = 10, 2


def checked(broker: Broker, rounds: int) -> None:
    """Have the broker check all that is open, ``rounds`` times in all."""
    broker.do("check")
    all_of = dict.fromkeys((f"tx{number}" for number in range(OPEN)), rounds)
    until(lambda: broker.do("checks", "g") == all_of)


@pytest.mark.parametrize(("tables", "times"), [("with", 1), ("without", ROUNDS + 1)])
def test_a_promoted_follower_commits_open_half_messages(
    tmp_path: Path, brokers: Brokers, names: dict[str, object], tables: str, times: int
) -> None:
    """Once with the master's offsets; without them once for each copy that a check has made."""
    former, own = tmp_path / "former", tmp_path / "own"
    settings = {**SIZES, **QUICK, **names}
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    with brokers.running(former, **settings) as broker:
        registered(broker)
        sent = broker.do("transactions", "g", "n0", "tx", OPEN, "UNKNOW")
        assert sent == {"SEND_OK UNKNOW": OPEN}
        for rounds in range(1, ROUNDS + 1):
            checked(broker, rounds)
        words = ["follow", f"127.0.0.1:{broker.ha_port}", own, "--config", conf, "--until-quiet"]
        if tables == "with":
            words += ["--broker", f"127.0.0.1:{broker.port}"]
        done = commands.run([str(word) for word in words])
        assert done.returncode == 0, done.stderr
    with brokers.running(own, **settings) as broker:
        registered(broker)
        broker.do("transactions", "g", "n0", "later", 1, "UNKNOW")  # the group's producer is there
        broker.do("decide", "g", "n0", "tx")
        broker.do("check")
        expected = Counter({f"tx{number}": times for number in range(OPEN)})
        until(lambda: read(broker) == expected)
