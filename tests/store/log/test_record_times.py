"""Many store timestamps at once are those of RocketMQ's dump, and of one question at a time."""

from pathlib import Path

import numpy as np
import pytest

from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.golden import load_dump


@pytest.mark.parametrize("name", ["special-defaultRocksDB", "wide-default", "basic533-default"])
def test_times_of_many_records_are_those_that_rocketmq_read(golden_folder: Path, name: str) -> None:
    dump = load_dump(name)["messages"]
    phys = np.array([row["phy"] for row in dump], np.int64)
    sizes = np.array([row["storeSize"] for row in dump], np.int64)
    order = np.random.default_rng(1).permutation(len(phys))
    with MessageStore.open(golden_folder / name, read_only=True) as store:
        found = components_of(store).log.store_timestamps(phys[order], sizes[order])
    assert found.tolist() == [dump[at]["storeTimestamp"] for at in order.tolist()]


def test_what_is_not_in_the_log_has_no_time(golden_folder: Path) -> None:
    with MessageStore.open(golden_folder / "special-defaultRocksDB", read_only=True) as store:
        log = components_of(store).log
        low, end = log.min_phy_offset(), log.max_phy_offset()
        requested = [(low - 1, 200), (-1, 200), (end - 10, 200), (end, 200), (low, 10), (low, 200)]
        requested += [(low + 262_144 - 20, 200), (1 << 62, 200)]
        phys, sizes = np.array(requested, np.int64).T
        alone = [log.store_timestamp(*each) for each in requested]
        assert low > 0
        assert log.store_timestamps(phys, sizes).tolist() == alone
        assert alone.count(-1) == 7
