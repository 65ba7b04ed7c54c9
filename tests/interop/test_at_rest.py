"""What a broker left is told as the broker itself told it while it ran."""

from pathlib import Path

import pytest

from tests.interop.asking import max_offset
from tests.interop.brokers import TIMED, Broker, Brokers
from tests.kit.operating import rows
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.long]
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
ROCKSDB = {"storeType": "defaultRocksDB"}
TIMERS = {"timer", "timer-queue", "rocksdb-timer"}


def waiting_timers(broker: Broker) -> None:
    """Have one timer message delivered, and let three wait for most of a minute."""
    broker.do("topics", "n", 1)
    broker.do("timer", "n0", 1, 1000)
    until(lambda: max_offset(broker, "n0") == 1)
    assert broker.do("timer", "n0", 3, 45_000)["statuses"] == {"PUT_OK": 3}


@pytest.mark.parametrize("more", [{}, {"timerRocksDBEnable": "true"}], ids=["wheel", "rocksdb"])
def test_timer_messages_that_wait_are_counted(
    tmp_path: Path, brokers: Brokers, more: dict[str, str]
) -> None:
    root = tmp_path / "store"
    with brokers.running(root, **SIZES, **TIMED, **more) as broker:
        waiting_timers(broker)
    found = rows("pending", root)
    timers = [row for row in found if row["source"] in TIMERS]
    assert sum(row["pending"] for row in timers) == 3, found


@pytest.mark.parametrize("more", [{}, ROCKSDB], ids=["json", "v1"])
def test_lag_is_that_of_the_brokers_own_offsets(
    tmp_path: Path, brokers: Brokers, more: dict[str, str]
) -> None:
    root = tmp_path / "store"
    with brokers.running(root, **SIZES, **more) as broker:
        broker.do("topics", "n", 2)
        broker.do("put", "n0", 2, 40)
        broker.do("offset", "n0", "g", 0, 7)
        broker.do("offset", "n0", "g", 1, 20)
        for queue_id in (0, 1):
            until(lambda: max_offset(broker, "n0", queue_id) == 20)  # noqa: B023 - called at once
    form = "v1" if more else "json"
    found = rows("groups", root, "--by", "queue", "--group", "g", "--form", form)
    lag = {row["queueId"]: row["lag"] for row in found}
    assert lag == {0: 20 - 7, 1: 0}
