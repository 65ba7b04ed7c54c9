"""What RocketMQ does to stores with two backends, and what we make of it."""

from pathlib import Path

import pytest

from cqstore.migration.rollback.rollback import rollback
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.interop.rocketmq import RocketMQ
from tests.interop.started import Row
from tests.interop.test_interop import CONFIG, KINDS, QUEUES, SIZES, compare, write
from tests.interop.test_migration import move
from tests.kit.served import served

pytestmark = [pytest.mark.interop, pytest.mark.slow]
OTHER = {"rocksdb": "file", "file": "rocksdb"}
LIGHT = [("%LMQ%a", 0), ("%LMQ%bb", 0)]
LMQ = {"enableLmq": "true", "enableMultiDispatch": "true"}
APART = LMQ | {"combineCQUseRocksdbForLmq": "true"}


def both(read: str, **settings: object) -> StoreConfig:
    return StoreConfig.from_mapping(
        {
            **SIZES,
            "rocksdbCQDoubleWriteEnable": True,
            "combineCQPreferCQType": KINDS[read],
            **settings,
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("read", list(KINDS))
def test_double_write_that_was_switched_on_late_is_filled(
    tmp_path: Path, rocketmq: RocketMQ, read: str
) -> None:
    root = tmp_path / "store"
    write(root, "file", 2000)
    rocketmq.append(root, "combine", QUEUES, 20, crash=False, **SIZES)
    with MessageStore.open(root, CONFIG, read_only=True, backend="rocksdb") as store:
        assert store.min_offset(*QUEUES[0]) > 400, "RocketMQ left out what was there before"
    with pytest.raises(RefusedStoreError, match="lack units"):
        MessageStore.open(root, both("rocksdb"), read_only=True)
    with MessageStore.open(root, both(read), housekeeping=False) as store:
        assert store.report.watermarks["rocksdb"] == 0
        assert store.verify().is_clean
        assert [store.min_offset(*queue) for queue in QUEUES] == [0] * 4
    keys = {"combineCQPreferCQType": KINDS[read], "combineAssignOffsetCQType": KINDS[read]}
    compare(root, rocketmq.dump(root, "combine", QUEUES, **SIZES, **keys))
    with MessageStore.open(root, both(read), housekeeping=False) as store:
        assert store.report.dispatched_units == 0


def test_light_queues_in_rocksdb_alone_go_on_with_the_setting_forgotten(
    tmp_path: Path, rocketmq: RocketMQ
) -> None:
    root = tmp_path / "store"
    rocketmq.append(root, "combine", [*QUEUES, *LIGHT], 20, crash=False, **SIZES, **APART)
    assert not list((root / "consumequeue").glob("%LMQ%*"))
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert set(LIGHT) <= set(store.queue_keys())
        assert [finding for finding in store.check() if finding.damage] == []
    with MessageStore.open(root, both("file", **LMQ), housekeeping=False) as store:
        for name, _ in LIGHT:
            message = Message("parent", b"", 0, {"INNER_MULTI_DISPATCH": name})
            assert store.put_message(message).ok
            assert store.max_offset(name, 0) == 21
            assert len(store.get_message(name, 0, 0, 32).queue_offsets) == 21
    assert not list((root / "consumequeue").glob("%LMQ%*"))
    rows = rocketmq.dump(root, "combine", LIGHT, **SIZES, **APART)
    assert [(row["min"], row["max"]) for row in rows if row["kind"] == "queue"] == [(0, 21)] * 2


@pytest.mark.long
@pytest.mark.parametrize("later", [0, 25])
@pytest.mark.parametrize("target", list(KINDS))
def test_a_broker_with_the_store_type_of_before_is_noticed(
    tmp_path: Path, rocketmq: RocketMQ, target: str, later: int
) -> None:
    root, source = tmp_path / "store", OTHER[target]
    write(root, source, 600)
    move(root, CONFIG, target)
    phys = [row["phy"] for row in _append(rocketmq, root, target, later)]
    phys += [row["phy"] for row in _append(rocketmq, root, source, 10)]
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        assert components_of(store).queues.name == target
        assert list(store.report.written_since) == [source]
        # RocketMQ loses a unit at such a start, and gives its queue offset again.
        again = sum(len(restart.dropped) for restart in store.report.restarts)
    whole = served(root)
    found = {row[0] for rows in whole.values() for row in rows[1:]}
    assert len(set(phys) - found) == again <= 1
    assert rollback(root, CONFIG) is not None
    assert served(root) == whole
    rows = rocketmq.dump(root, KINDS[source], QUEUES, **SIZES)
    compare(root, rows)


def _append(rocketmq: RocketMQ, root: Path, backend: str, count: int) -> list[Row]:
    if not count:
        return []
    return rocketmq.append(root, KINDS[backend], QUEUES, count, crash=False, **SIZES)
