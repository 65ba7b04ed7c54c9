"""A broker of RocketMQ's goes on where an embedded log stopped, and the other way."""

from pathlib import Path

import pytest

import cqstore
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Brokers
from tests.kit.waiting import run

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
CONFIG = StoreConfig().from_mapping({key: str(value) for key, value in SIZES.items()})
KINDS = {"file": "default", "rocksdb": "defaultRocksDB"}


def consume(root: Path, backend: str, puts: int, takes: int) -> tuple[list[str], dict[int, int]]:
    """Put and take as a program does; return what was taken, and where the group is then."""

    async def story() -> tuple[list[str], dict[int, int]]:
        with cqstore.open(root, backend=backend, config=CONFIG, queues=2) as log:
            for number in range(puts):
                log.put("orders", b"ours %d" % number)
            async with log.tail("orders", group="billing") as tail:
                found = [(await anext(tail)).body.decode() for _ in range(takes)]
            return found, log.committed("billing", "orders")

    return run(story())


@pytest.mark.parametrize("backend", list(KINDS))
def test_a_broker_goes_on_where_a_program_stopped_and_back(
    tmp_path: Path, brokers: Brokers, backend: str
) -> None:
    found, offsets = consume(tmp_path, backend, 10, 6)
    assert found == [f"ours {number}" for number in range(6)]
    with brokers.running(tmp_path, storeType=KINDS[backend], **SIZES) as broker:
        known = broker.do("metadata")
        assert known["offsets"] == {"orders@billing": f"{{0={offsets[0]}, 1={offsets[1]}}}"}
        row = str(known["topics"]["orders"])
        assert "readQueueNums=2, writeQueueNums=2" in row
        assert broker.do("put", "orders", 2, 4)["statuses"] == {"PUT_OK": 4}
        broker.do("offset", "orders", "billing", 0, offsets[0] + 1)
        broker.do("offset", "orders", "audit", 1, 5)
    found, _ = consume(tmp_path, backend, 1, 8)
    assert found[:3] == [f"ours {number}" for number in range(7, 10)]
    assert found[-1] == "ours 0"
    with brokers.running(tmp_path, storeType=KINDS[backend], **SIZES) as broker:
        known = broker.do("metadata")
        assert known["offsets"] == {
            "orders@billing": "{0=8, 1=7}", "orders@audit": "{1=5}",
        }  # fmt: skip
