"""Who is read, who assigns offsets, and topics that only one backend gets."""

from pathlib import Path

import pytest

from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.journals.backend_state import BackendState
from cqstore.store.queue.backend_replica import selects
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, change_mode, possible_steps
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.double_write import StoredOffsets, backend_state, config, open_store

SELECTIVE = {"rocksdbCQSelectiveDoubleWriteEnable": True, "doubleWriteTopics": "t; lite-*"}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"combineCQLoadingCQTypes": ""}, "names no known type"),
        ({"combineCQLoadingCQTypes": "rocks;files"}, "names no known type"),
        ({"combineCQPreferCQType": "rocks"}, "combineCQPreferCQType"),
        ({"combineCQPreferCQType": "default;defaultRocksDB"}, "combineCQPreferCQType"),
        ({"combineCQLoadingCQTypes": "defaultRocksDB"}, "combineCQPreferCQType"),
        (
            {"combineCQLoadingCQTypes": "default", "combineAssignOffsetCQType": "defaultRocksDB"},
            "combineAssignOffsetCQType",
        ),
        (
            {"combineCQLoadingCQTypes": "default", "combineCQUseRocksdbForLmq": True},
            "combineCQUseRocksdbForLmq",
        ),
        ({"rocksdbCQSelectiveDoubleWriteEnable": True}, "doubleWriteTopics"),
        (SELECTIVE | {"combineCQPreferCQType": "defaultRocksDB"}, "leaves topics out"),
        (SELECTIVE | {"combineAssignOffsetCQType": "defaultRocksDB"}, "leaves topics out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    values: dict[str, object], word: str
) -> None:
    with pytest.raises(StoreConfigError, match=word):
        StoreConfig.from_mapping(values)


@pytest.mark.parametrize(
    ("types", "backends"),
    [
        ("default;defaultRocksDB", ["file", "rocksdb"]),
        (" DEFAULTROCKSDB ; default ; other ", ["file", "rocksdb"]),
        ("default", ["file"]),
    ],
)
def test_types_are_read_as_rocketmq_reads_them(types: str, backends: list[str]) -> None:
    config = StoreConfig.from_mapping({"combineCQLoadingCQTypes": types})
    assert config.loaded_backends == backends


@pytest.mark.parametrize(
    ("topic", "chosen"),
    [("t", True), ("t2", False), ("", False), ("lite-", True), ("lite-x", True),
     ("lite", False), ("litex", False), ("Lite-x", False), ("xlite-", False)],
)  # fmt: skip
def test_a_star_stands_for_whatever_follows_and_nothing_else_does(
    topic: str,
    chosen: bool,  # noqa: FBT001
) -> None:
    assert selects("t;lite-*", topic) is chosen
    assert selects(None, topic)


def next_offset(store: MessageStore, topic: str) -> int:
    return components_of(store).pending.offsets.assign((topic, 0))


def lose_last_units(store: MessageStore, part: int) -> None:
    """Let one backend end before the last record."""
    last = max(record.phy_offset for record in components_of(store).log.scan(0))
    components_of(store).queues.backends()[part].truncate_dirty(last)
    components_of(store).pending.offsets.forget_all()


def test_reading_follows_prefer_and_offsets_follow_assign(tmp_path: Path) -> None:
    changes = {"combineAssignOffsetCQType": "defaultRocksDB"}
    with open_store(tmp_path / "store", "file", **changes) as store:
        for _ in range(5):
            store.put_message(Message("t", b"", 0))
        assert store.max_offset("t", 0) == 5
        lose_last_units(store, 0)
        assert store.max_offset("t", 0) == 4, "the files are read"
        assert next_offset(store, "t") == 5, "RocksDB assigns"
        lose_last_units(store, 1)
        assert next_offset(store, "t") == 4


def test_without_assign_the_one_that_is_read_assigns(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", "rocksdb") as store:
        for _ in range(5):
            store.put_message(Message("t", b"", 0))
        assert store.max_offset("t", 0) == 5
        lose_last_units(store, 1)
        assert next_offset(store, "t") == 5
        lose_last_units(store, 0)
        assert next_offset(store, "t") == 4


def test_light_queues_can_be_rocksdbs(tmp_path: Path) -> None:
    changes = {
        "combineCQUseRocksdbForLmq": True, "enableLmq": True, "enableMultiDispatch": True,
    }  # fmt: skip
    with open_store(tmp_path / "store", "file", **changes) as store:
        for _ in range(5):
            message = Message("t", b"", 0, {"INNER_MULTI_DISPATCH": "%LMQ%a"})
            assert store.put_message(message).ok
        assert store.max_offset("%LMQ%a", 0) == 5
        assert store.verify().is_clean, "both have them"
        lose_last_units(store, 0)
        assert store.max_offset("t", 0) == 4
        assert store.max_offset("%LMQ%a", 0) == next_offset(store, "%LMQ%a") == 5
        assert len(store.get_message("%LMQ%a", 0, 0, 32).queue_offsets) == 5


def test_with_selective_double_write_light_queues_can_be_rocksdbs_too(tmp_path: Path) -> None:
    changes = {
        **SELECTIVE, "combineCQUseRocksdbForLmq": True, "enableLmq": True,
        "enableMultiDispatch": True,
    }  # fmt: skip
    with open_store(tmp_path / "store", "file", **changes) as store:
        for topic in ("t", "other"):
            message = Message(topic, b"", 0, {"INNER_MULTI_DISPATCH": f"%LMQ%{topic}"})
            assert store.put_message(message).ok
        assert store.max_offset("%LMQ%other", 0) == 1
        assert {key.topic for key in rocksdb_ends(store)} == {"t", "%LMQ%t", "%LMQ%other"}
        file = components_of(store).queues.backends()[0]
        assert {key.topic for key in file.queues()} == {"t", "other"}


def rocksdb_ends(store: MessageStore) -> dict[QueueKey, int]:
    part = components_of(store).queues.backends()[1]
    assert part.name == "rocksdb"
    return {key: part.queue(*key).max_offset() for key in part.queues()}


def test_rocksdb_gets_the_selected_topics_and_the_rest_when_that_ends(tmp_path: Path) -> None:
    root, stored = tmp_path / "store", StoredOffsets()
    with open_store(root, "file", **SELECTIVE) as store:
        for topic in ("t", "lite-1", "lite", "other"):
            stored.put(store, 10, topic)
        components_of(store).queues.flush()
        assert {key.topic for key in rocksdb_ends(store)} == {"t", "lite-1"}
        assert store.verify().is_clean
        assert store.verify().units == 20
    with open_store(root, "file", **SELECTIVE) as store:
        assert store.report.dispatched_units == 0, "nothing lags"
    with pytest.raises(RefusedStoreError, match="only some topics"):
        MessageStore.open(root, read_only=True, backend="rocksdb")
    assert backend_state(root).covers == {"rocksdb": "lite-*;t"}
    with open_store(root, "file", **SELECTIVE | {"doubleWriteTopics": "t;o*"}) as store:
        assert {key.topic for key in rocksdb_ends(store)} >= {"t", "other"}
        assert store.verify().is_clean
    with open_store(root, "rocksdb") as store:
        assert store.verify().is_clean
    assert backend_state(root).covers == {}
    stored.check(root)


def test_what_a_backend_is_to_get_now_is_not_noted_before_what_it_lacks(tmp_path: Path) -> None:
    """Ended in between, the next open would take it for whole."""
    root = tmp_path / "store"
    with open_store(root, "file", **SELECTIVE) as store:
        for topic in ("t", "other"):
            assert store.put_message(Message(topic, b"", 0)).ok
    calls, seen = CallOrder(root), list[BackendState]()
    calls.at_each = lambda _: seen.append(backend_state(root))
    with calls.watching(), open_store(root, "file", **SELECTIVE | {"doubleWriteTopics": "*"}):
        seen.append(backend_state(root))
    noted = [found.lagging for found in seen if found.covers == {"rocksdb": "*"}]
    assert noted[0] == {"rocksdb": 0}
    assert noted[-1] == {}, "it has caught up"


def test_a_backend_that_was_given_some_topics_is_not_to_be_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, "file", **SELECTIVE) as store:
        for topic in ("t", "other"):
            assert store.put_message(Message(topic, b"", 0)).ok
    assert backend_state(root).covers == {"rocksdb": "lite-*;t"}
    steps = {step.to: step for step in possible_steps(root, config("file", **SELECTIVE))}
    assert steps[StoreMode("file")].is_possible
    to = StoreMode("double-write-rocksdb")
    assert steps[to].reasons == ["the rocksdb queues hold only the topics 'lite-*;t'"]
    with pytest.raises(RefusedStoreError, match="hold only the topics"):
        change_mode(root, to, config("file", **SELECTIVE))
