"""Light queues in RocksDB alone, as RocketMQ keeps them with ``combineCQUseRocksdbForLmq``.

What lies on disk decides; the setting only where the disk does not tell.
"""

import logging
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode, change_mode, possible_steps
from cqstore.store.service.opening.components import components_of
from tests.kit.double_write import config, open_store, refuse
from tests.kit.tree import unchanged

ENABLED: dict[str, Any] = {"enableLmq": True, "enableMultiDispatch": True}
APART = ENABLED | {"combineCQUseRocksdbForLmq": True}
LIGHT = ["%LMQ%a", "%LMQ%bb", "%LMQ%bc"]


def put(store: MessageStore, count: int, *names: str) -> list[int]:
    """Put messages of topic ``t`` that go to light queues too; return the offsets in the first."""
    offsets = []
    for _ in range(count):
        offsets.append(store.max_offset(names[0], 0))
        message = Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": ",".join(names)})
        assert store.put_message(message).ok
    return offsets


def pulled(store: MessageStore, name: str) -> list[int]:
    found = store.get_message(name, 0, 0, 32)
    phys = [message.phy_offset for message in found.messages()]
    assert list(found.queue_offsets) == list(range(len(phys)))
    assert len(set(phys)) == len(phys)
    return phys


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "consumequeue").glob("%LMQ%*"))


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """A store as RocketMQ leaves it: light queues in RocksDB alone, no line of ours."""
    root = tmp_path / "store"
    with open_store(root, **APART) as store:
        assert put(store, 5, *LIGHT) == list(range(5))
    assert folders(root) == []
    for name in ("mode", "kept"):
        (root / "cqstore" / name).unlink()
    return root


@pytest.mark.parametrize("read", ["file", "rocksdb"])
def test_the_setting_keeps_them_out_of_the_files(tmp_path: Path, read: str) -> None:
    root = tmp_path / "store"
    for first in (0, 3):
        with open_store(root, read, **APART) as store:
            assert put(store, 3, *LIGHT) == [first, first + 1, first + 2]
            assert store.verify().is_clean
            assert list(store.check()) == []
            assert len(pulled(store, LIGHT[1])) == first + 3
    assert folders(root) == []
    with MessageStore.open(root, read_only=True, backend="file") as store:
        assert len(pulled(store, LIGHT[1])) == 6


@pytest.mark.parametrize("backend", [None, "file"])
def test_many_queues_are_asked_at_once_wherever_they_lie(apart: Path, backend: str | None) -> None:
    with MessageStore.open(apart, read_only=True, backend=backend) as store:
        keys = list(store.queue_keys())
        assert {*LIGHT, "t"} == {key.topic for key in keys}
        assert components_of(store).queues.queues_estimate() == len(keys)
        units = [(key, at) for key in keys for at in range(5)]
        times = [components_of(store).queues.queue(*key).unit_timestamp(at) for key, at in units]
        assert min(times) > 0
        assert list(components_of(store).queues.unit_timestamps(units)) == times


@pytest.mark.parametrize("backend", [None, "file"])
def test_all_queues_are_listed_and_checked(apart: Path, backend: str | None) -> None:
    with unchanged(apart), MessageStore.open(apart, read_only=True, backend=backend) as store:
        every = list(store.queue_keys())
        assert sorted(every) == [*((name, 0) for name in LIGHT), ("t", 0)]
        assert [key for at in [None, *every] for key in [next(store.queue_keys(after=at), None)]] \
            == [*every, None]  # fmt: skip
        assert list(store.topics("%LMQ%b")) == LIGHT[1:]
        assert list(store.topics("%L")) == LIGHT
        assert list(store.topics("t")) == ["t"]
        assert list(store.queue_keys(LIGHT[0])) == [QueueKey(LIGHT[0], 0)]
        checker = store.checker()
        assert list(checker.run()) == []
        assert checker.units == 5 * 4
        assert len(pulled(store, LIGHT[2])) == 5
        assert "rocksdb alone" in str(components_of(store).queues.describe()["light queues in"])


@pytest.mark.parametrize("read", ["file", "rocksdb"])
def test_with_the_setting_forgotten_they_go_on(
    apart: Path, caplog: pytest.LogCaptureFixture, read: str
) -> None:
    with caplog.at_level(logging.WARNING), open_store(apart, read, **ENABLED) as store:
        assert put(store, 4, LIGHT[0]) == [5, 6, 7, 8]
        assert len(pulled(store, LIGHT[0])) == 9
        assert "although combineCQUseRocksdbForLmq is not set" in str(
            components_of(store).queues.describe()["light queues in"]
        )
        assert store.verify().is_clean
    assert "combineCQUseRocksdbForLmq" in caplog.text
    assert folders(apart) == []
    with MessageStore.open(apart, config(read)) as store:  # no light queues by the settings at all
        assert len(pulled(store, LIGHT[0])) == 9
        assert [finding for finding in store.check() if finding.damage] == []


def test_where_both_have_them_both_keep_them(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for _ in range(2):
        with open_store(root, **ENABLED) as store:
            put(store, 3, *LIGHT)
            assert store.verify().is_clean
            assert store.verify(LIGHT[0]).units in {3, 6}
    assert folders(root) == LIGHT
    with open_store(root, **APART) as store:  # switched on: RocksDB has all, the files get no more
        assert put(store, 2, LIGHT[0], "%LMQ%new") == [6, 7]
        assert store.verify().is_clean
        assert len(pulled(store, LIGHT[0])) == 8
        every = list(store.queue_keys())
        assert sorted(every) == [*((name, 0) for name in [*LIGHT, "%LMQ%new"]), ("t", 0)]
        for place, key in enumerate(every):
            assert list(store.queue_keys(after=key)) == every[place + 1 :]
    assert folders(root) == LIGHT
    with open_store(root, **ENABLED) as store:
        assert put(store, 1, LIGHT[0]) == [8]
        assert len(pulled(store, LIGHT[0])) == 9
    with MessageStore.open(root, read_only=True) as store:
        assert list(store.check()) == []


def test_files_that_rocketmq_left_behind_do_not_answer(tmp_path: Path) -> None:
    """It switched the setting on: the files have the older light units, RocksDB has all."""
    root = tmp_path / "store"
    with open_store(root, **ENABLED) as store:
        put(store, 3, *LIGHT)
    with open_store(root, **APART) as store:
        put(store, 4, *LIGHT)
    for name in ("mode", "kept"):
        (root / "cqstore" / name).unlink()
    with MessageStore.open(root, read_only=True) as store:
        assert len(pulled(store, LIGHT[1])) == 7
    with open_store(root, **ENABLED) as store:
        assert put(store, 1, LIGHT[0], "%LMQ%new") == [7]
        assert len(pulled(store, LIGHT[0])) == 8
        assert store.verify().is_clean
    assert folders(root) == LIGHT


def test_no_offset_is_given_that_any_part_has_given(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        for _ in range(5):
            store.put_message(Message("t", b"", 0))
        last = store.max_phy_offset() - 1
        assert store.max_offset("t", 0) == 5
        components_of(store).queues.backends()[0].truncate_dirty(last - 100)
        components_of(store).pending.offsets.forget_all()
        assert store.max_offset("t", 0) < 5
        assert components_of(store).pending.offsets.assign(("t", 0)) == 5


def test_nothing_is_put_to_light_queues_that_nobody_can_look_at(
    apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        refuse(patched, "rocksdb", "load")
        with open_store(apart, **ENABLED) as store:
            light = Message("t", b"", 0, {"INNER_MULTI_DISPATCH": LIGHT[0]})
            refused = store.put_message(light)
            assert not refused.ok
            assert "may have its light queue" in refused.reason
            assert store.put_message(Message("t", b"")).ok
    with open_store(apart, **ENABLED) as store:
        assert put(store, 1, LIGHT[0]) == [5]
        assert store.verify().is_clean


def test_a_step_to_the_files_alone_is_refused_while_they_have_none(apart: Path) -> None:
    for read_write in (True, False):
        with MessageStore.open(apart, config(), read_only=not read_write):
            pass
    change_mode(apart, StoreMode("rocksdb"), config(), passing=True)
    change_mode(apart, StoreMode("double-write-rocksdb"), config())
    change_mode(apart, StoreMode("double-write-file"), config())
    steps = {step.to: step.reasons for step in possible_steps(apart, config())}
    assert "have no light queues" in "; ".join(steps[StoreMode("file")])
    assert steps[StoreMode("double-write-rocksdb")] == []


@pytest.mark.parametrize("left_behind", [False, True])
def test_files_that_are_kept_anew_get_them(tmp_path: Path, *, left_behind: bool) -> None:
    """That they have none yet says nothing."""
    root = tmp_path / "store"
    plain = config("rocksdb", rocksdb_cq_double_write_enable=False, **ENABLED)
    if left_behind:
        with MessageStore.open(root, plain, backend="file") as store:
            store.put_message(Message("t", b""))
        change_mode(root, StoreMode("double-write-file"), plain)
        change_mode(root, StoreMode("rocksdb"), plain, passing=True)
    with MessageStore.open(root, plain, backend="rocksdb") as store:
        put(store, 3, *LIGHT)
    change_mode(root, StoreMode("double-write-rocksdb"), plain)
    assert folders(root) == LIGHT
    with MessageStore.open(root, plain) as store:
        put(store, 3, *LIGHT)
        assert store.verify().is_clean
    assert change_mode(root, StoreMode("file"), plain, passing=True).after == StoreMode("file")
    with MessageStore.open(root, plain) as store:
        assert put(store, 1, LIGHT[0]) == [6]


def test_a_name_that_is_no_folder_s_is_one_where_files_get_none(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", **APART) as store:
        for size, fits in ((281, True), (282, False)):  # RocksDB's bound
            light = {"INNER_MULTI_DISPATCH": "%LMQ%".ljust(size, "x")}
            assert store.put_message(Message("t", b"x", 0, light)).ok is fits
    with open_store(tmp_path / "both", **ENABLED) as store:
        for size, fits in ((255, True), (256, False)):  # of a folder
            light = {"INNER_MULTI_DISPATCH": "%LMQ%".ljust(size, "x")}
            assert store.put_message(Message("t", b"x", 0, light)).ok is fits
