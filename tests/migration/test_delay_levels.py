"""When a delayed message is due is told by ``messageDelayLevel``: another one than the broker's."""

from pathlib import Path

import pytest

from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.switch.switch import switch
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.delay_levels import unlike_levels
from cqstore.store.service.offline.mode import possible_steps
from cqstore.store.service.opening.components import components_of
from tests.kit.migrations import moved_and_verified
from tests.kit.moving import LEVEL, Moving
from tests.kit.tree import tree_digest
from tests.replication.feed.conftest import CONFIG, leading

BROKER = CONFIG.model_copy(update={"message_delay_level": "1s 30s"})
OTHER = (
    "messageDelayLevel sets delay level 2 to 5000 ms, but the newest message in queue 1 .* 30000 ms"
)


def put_delayed(store: MessageStore) -> None:
    for _ in range(3):
        assert store.put_message(Message(SCHEDULE_TOPIC, b"x", 1, {"DELAY": "2"})).ok


def put(root: Path) -> None:
    with MessageStore.open(root, BROKER, housekeeping=False) as store:
        put_delayed(store)


def waits(root: Path) -> list[int]:
    """Return how long each message waits by its unit."""
    with MessageStore.open(root, BROKER, read_only=True) as store:
        return [
            (unit.tags_code or 0) - store.message_by_offset(unit.phy_offset).store_timestamp
            for unit in components_of(store).queues.queue(SCHEDULE_TOPIC, 1).iterate(0)
        ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """File queues with delayed messages, that may be switched to RocksDB."""
    put(tmp_path / "store")
    moved_and_verified(tmp_path / "store", BROKER, "rocksdb")
    return tmp_path / "store"


def test_queues_do_not_catch_up_by_other_levels_on_the_way_back(root: Path) -> None:
    switch(root, BROKER)
    put(root)
    before = tree_digest(root / "consumequeue")
    with pytest.raises(RefusedStoreError, match=OTHER):
        rollback(root, CONFIG)
    assert tree_digest(root / "consumequeue") == before
    (reason,) = possible_steps(root, CONFIG)[0].reasons
    assert "--config" in reason
    report = rollback(root, BROKER)
    assert report is not None
    assert report.state == "file"
    assert waits(root) == [30_000] * 6


def test_queues_do_not_catch_up_by_other_levels_at_a_switch(root: Path) -> None:
    put(root)
    with pytest.raises(RefusedStoreError, match=OTHER):
        switch(root, CONFIG)
    assert switch(root, BROKER).state == "rocksdb"
    assert waits(root) == [30_000] * 6


def test_levels_that_a_broker_has_changed_since_are_none(root: Path) -> None:
    """What lies below the line is not rebuilt."""
    switch(root, CONFIG)
    report = rollback(root, CONFIG)
    assert report is not None
    assert report.state == "file"
    assert waits(root) == [30_000] * 3


def test_a_running_store_is_not_followed_by_other_levels(tmp_path: Path) -> None:
    own = tmp_path / "own"
    with leading(tmp_path / "master", BROKER, count=60) as master:
        put_delayed(master.store)
        master.store.flush()  # a reader beside it sees the units
        with pytest.raises(RefusedStoreError, match=OTHER):
            Moving(master.root, master.port, own, CONFIG).start().end()
        assert not (own / "commitlog").exists()
        moving = Moving(master.root, master.port, own, BROKER).start()
        moving.wait_for(LEVEL)
    assert moving.end().stopped
    assert waits(own) == [30_000] * 3


def test_messages_that_have_expired_say_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, BROKER, housekeeping=False) as store:
        put_delayed(store)
        for _ in range(40):
            assert store.put_message(Message("t", b"x" * 150, 0)).ok
    (reason,) = possible_steps(tmp_path, CONFIG)[0].reasons
    assert "messageDelayLevel sets delay level" in reason
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    assert possible_steps(tmp_path, CONFIG)[0].is_possible


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_messages_that_come_meanwhile_are_no_fault(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, BROKER, housekeeping=False, backend=backend) as store:
        put_delayed(store)
        store.flush()
        with MessageStore.open(tmp_path, BROKER, read_only=True) as beside:
            put_delayed(store)
            store.flush()
            (found,) = unlike_levels(beside, CONFIG.message_delay_level, 0)
    assert (found.level, found.by_settings_ms, found.in_queue_ms) == ("2", 5000, 30_000)
