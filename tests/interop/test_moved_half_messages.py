"""Half messages that are open when a broker stops are checked back after its queues were moved."""

from collections import Counter
from pathlib import Path

import pytest

from tests.interop.brokers import Broker, Brokers
from tests.interop.walk import Walk, read, registered
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_OPS = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
QUICK = {"transactionOpMsgMaxSize": 1, "transactionTimeOut": 1, "transactionCheckInterval": 600_000}
"""A broker writes at once what became of a half message, and checks when it is told to."""
FORMS = {
    "topics": {},
    "rocksdbstore": {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"},
}
CASES = [
    ("follow", "topics"),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (("switch", "topics"), ("switch", "rocksdbstore"), ("follow", "rocksdbstore"))
    ),
]


def decided(broker: Broker) -> int:
    """Return of how many half messages the broker has written what became of them."""
    bodies = broker.do("read", OPS)["bodies"]  # a broker gathers some in one message
    in_topics = sum(len(body.rstrip(",").split(",")) for body in bodies)
    return in_topics + len(broker.do("read", ROCKSDB_OPS)["bodies"])


def are_open(broker: Broker, form: str, count: int) -> None:
    """Wait until so many are open, as the broker counts them; in RocksDB it builds that later."""
    until(lambda: broker.do("halves") == {"n0": count})
    if form == "rocksdbstore":
        until(lambda: broker.do("open") == {"open": count})


def with_half_messages(broker: Broker) -> None:
    """Have transactions that are committed, rolled back, and open."""
    registered(broker)
    for name, fate in {
        "committed": "COMMIT_MESSAGE", "rolled": "ROLLBACK_MESSAGE", "early": "UNKNOW",
        "late": "UNKNOW",
    }.items():  # fmt: skip
        sent = broker.do("transactions", "g", "n0", name, 2, fate)
        assert sent == {f"SEND_OK {fate}": 2}
    until(lambda: decided(broker) == 4)
    assert broker.do("halves") == {"n0": 4}
    assert read(broker) == Counter(["committed0", "committed1"])


def checked(broker: Broker, form: str, name: str, others: list[str], known: list[str]) -> None:
    """Check what is open, and commit what ``name`` begins; then only ``others`` are open."""
    assert broker.do("halves") == {"n0": len(others) + 2}
    registered(broker)
    are_open(broker, form, len(others) + 2)
    broker.do("decide", "g", "n0", name)
    before = decided(broker)
    broker.do("check")
    until(lambda: decided(broker) == before + 2)
    mine = [f"{name}0", f"{name}1"]
    until(lambda: broker.do("checks", "g") == dict.fromkeys(sorted(mine + others), 1))
    assert read(broker) == Counter(known + mine)
    are_open(broker, form, len(others))
    broker.do("transactions", "g", "n0", f"after-{name}", 1, "UNKNOW")
    are_open(broker, form, len(others) + 1)
    broker.do("check")
    seen = dict.fromkeys(mine, 1) | dict.fromkeys(others, 2) | {f"after-{name}0": 1}
    until(lambda: broker.do("checks", "g") == seen)  # its threads answer side by side
    assert read(broker) == Counter(known + mine)


@pytest.mark.parametrize(("way", "form"), CASES)
def test_open_half_messages_are_checked_back_and_delivered_once(
    tmp_path: Path, brokers: Brokers, names: dict[str, object], way: str, form: str
) -> None:
    """The others are not delivered again: each move brings what the broker knows of them."""
    walk = Walk(way, tmp_path, brokers, {**names, **QUICK, **FORMS[form]})
    known = ["committed0", "committed1"]
    late = ["late0", "late1"]
    walk.live("file", with_half_messages, then="rocksdb")
    walk.live("rocksdb", lambda broker: checked(broker, form, "early", late, known), then="file")
    known += ["early0", "early1"]
    walk.live("file", lambda broker: checked(broker, form, "late", ["after-early0"], known))
