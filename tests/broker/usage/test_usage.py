"""``cqstore usage``: units and bytes as RocketMQ's dump has them, and by stores made by hand."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.cq_rocksdb.engine.errors import RocksDBError
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.message import SCHEDULE_TOPIC, Message, MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageStatus
from tests.kit.golden import CLEAN, each_kind, load_dump
from tests.kit.metadata_forms import unpack_forms
from tests.kit.operating import SMALL, call, rows, write_config
from tests.kit.rocksdb_queues import lose
from tests.kit.tree import unchanged
from tests.migration.made_log import Made, make_store

Golden = Callable[[str], Path]
LIGHT, LIGHT_PREFIX = MessageProperty.INNER_MULTI_DISPATCH, "%LMQ%"
FIGURES = ("units", "bytes", "oldestStoreTimestamp", "newestStoreTimestamp")
DAY = 86_400_000
NOON = DAY // 2


def dumped_units(name: str) -> dict[str, list[list[int]]]:
    """Return topic → its units from minimum to maximum, as RocketMQ printed them."""
    found: dict[str, list[list[int]]] = defaultdict(list)
    for queue in load_dump(name)["queues"]:
        found[queue["topic"]] += [
            unit for unit in queue["units"] if unit and queue["min"] <= unit[0] < queue["max"]
        ]
    return found


@pytest.mark.parametrize("name", each_kind(name for name in CLEAN if "533" not in name))
def test_units_and_bytes_are_those_that_rocketmq_read(golden: Golden, name: str) -> None:
    root, units = golden(name), dumped_units(name)
    with unchanged(root):
        found = {row["topic"]: row for row in rows("usage", root)}
    assert {
        topic: tuple(row[name] for name in FIGURES)
        for topic, row in found.items()
        if row["units"]
    } == {
        topic: (
            len(each), sum(unit[2] for unit in each),
            min(unit[4] for unit in each), max(unit[4] for unit in each),
        )
        for topic, each in units.items()
        if each
    }  # fmt: skip
    whole = sum(row["bytes"] for row in found.values() if not row["topic"].startswith(LIGHT_PREFIX))
    for topic, row in found.items():
        if not topic.startswith(LIGHT_PREFIX):
            assert row["share"] == pytest.approx(row["bytes"] / whole, abs=1e-6)


def test_units_of_light_queues_are_records_of_other_topics(golden: Golden) -> None:
    units = dumped_units("special-default")
    own = {unit[1] for topic, each in units.items() if topic[:5] != LIGHT_PREFIX for unit in each}
    light = [unit for topic, each in units.items() if topic[:5] == LIGHT_PREFIX for unit in each]
    assert light
    assert {unit[1] for unit in light} <= own  # so they are no part of the totals
    root = golden("special-default")
    total = sum(
        unit[2] for topic, each in units.items() if topic[:5] != LIGHT_PREFIX for unit in each
    )
    assert call("usage", root).stderr.startswith(
        f"cqstore: {total} bytes in {sum(map(len, units.values())) - len(light)} units, "
        f"plus {len(light)} units in light queues; "
    )
    shown = [row for row in rows("usage", root) if row["kind"] == "light"]
    assert {row["share"] for row in shown} == {None}
    assert sum(row["units"] for row in shown) == len(light)


def test_retries_and_dead_letters_are_their_groups(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    names = [
        "orders",
        "%RETRY%billing",
        "%RETRY%billing_orders",
        "%RETRY%billing+orders",
        "%DLQ%billing",
    ]
    with MessageStore.open(root, SMALL, backend=backend) as store:
        for number, topic in enumerate(names, 1):
            for _ in range(number):
                assert store.put_message(Message(topic, b"x")).status is PutMessageStatus.PUT_OK
    write_config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {"billing": {}}})
    found = {row["group"]: row for row in rows("usage", root, "--by", "group")}
    assert set(found) == {None, "billing"}
    billing = found["billing"]
    assert (billing["topics"], billing["units"]) == (4, 14)
    assert (billing["retryUnits"], billing["deadUnits"]) == (9, 5)
    assert found[None]["units"] == 1
    by_topic = {row["topic"]: row["bytes"] for row in rows("usage", root)}
    assert billing["retryBytes"] == sum(by_topic[name] for name in names[1:4])
    assert billing["deadBytes"] == by_topic["%DLQ%billing"]
    assert billing["bytes"] == billing["retryBytes"] + billing["deadBytes"]
    path = root / "config" / "subscriptionGroup.json"
    path.write_bytes(b"{")
    rows("usage", root, "--by", "group", code=1)
    assert str(path) in call("usage", root, "--by", "group").stderr
    rows("usage", root)  # by topic no group is asked for
    path.unlink()  # without it the longest name is taken
    assert {row["group"] for row in rows("usage", root, "--by", "group")} == {
        None,
        "billing",
        "billing_orders",
    }


def test_lite_topics_are_their_parents(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    config = SMALL.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    with MessageStore.open(root, config, backend=backend) as store:
        for name in ("a", "b", "a"):
            store.put_message(Message("parent", b"x", properties={LIGHT: f"%LMQ%$parent${name}"}))
        store.put_message(Message("parent", b"x"))
        store.put_message(Message("mqtt", b"x", properties={LIGHT: "%LMQ%t"}))
    found = {row["parent"]: row for row in rows("usage", root, "--by", "parent")}
    shown = {name: (row["topics"], row["units"], row["lightUnits"]) for name, row in found.items()}
    assert shown == {"parent": (3, 4, 3), "mqtt": (1, 1, 0), "%LMQ%t": (1, 0, 1)}


def days_of(found: list[dict[str, Any]]) -> dict[str | None, tuple[int, int, int]]:
    return {row["day"]: (row["queues"], row["units"], row["bytes"]) for row in found}


def test_days_are_those_of_the_store_times(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    times = [NOON, DAY - 1, DAY, DAY + 5, 4 * DAY, 4 * DAY + NOON]  # two days without messages
    records = [Made("t", queue_id, at) for at in times for queue_id in (0, 1)]
    records += [Made("late", 0, 4 * DAY + NOON + 1)]
    made = make_store(root, records, 4096, backend=backend)
    size = made[1] - made[0]
    found = rows("usage", root, "--by", "day", "--sort", "day")
    late = found[-1]["bytes"] - 4 * size
    assert late == size + len("late") - len("t")
    assert days_of(found) == {
        "1970-01-01": (2, 4, 4 * size),
        "1970-01-02": (2, 4, 4 * size),
        "1970-01-05": (3, 5, 4 * size + late),
    }  # fmt: skip
    assert [row["newestStoreTimestamp"] for row in found] == [DAY - 1, DAY + 5, 4 * DAY + NOON + 1]
    assert sum(row["share"] for row in found) == pytest.approx(1, abs=1e-5)


def test_a_time_far_off_is_a_day_as_any_other(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    make_store(root, [Made("t", 0, 1), Made("t", 0, 1 << 62)], 4096, backend=backend)
    found = days_of(rows("usage", root, "--by", "day"))
    assert {day: units for day, (_, units, _) in found.items()} == {
        "1970-01-01": 1, f"day {(1 << 62) // DAY}": 1
    }  # fmt: skip


def test_days_of_every_store_sum_up_to_its_topics(golden: Golden) -> None:
    for name in ("special-default", "special-defaultRocksDB"):
        root, units = golden(name), dumped_units(name)
        expected: dict[int, int] = defaultdict(int)
        for topic, each in units.items():
            for unit in each if topic[:5] != LIGHT_PREFIX else ():
                expected[unit[4] // DAY] += unit[2]
        found = rows("usage", root, "--by", "day")
        assert sorted(row["bytes"] for row in found) == sorted(expected.values())


def test_units_that_are_missing_do_not_count(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend="rocksdb") as store:
        for topic in ("orders", SCHEDULE_TOPIC):
            for _ in range(10):
                store.put_message(Message(topic, b"x"))
            queues = components_of(store).queues
            assert isinstance(queues, RocksDBConsumeQueueStore)
            assert store.max_offset(topic, 0) == 10
            lose(queues, topic, 0, range(3, 5))
    found = {row["topic"]: row for row in rows("usage", root)}
    assert found["orders"]["units"] == 8
    sizes = {row["day"]: row["units"] for row in rows("usage", root, "--by", "day")}
    assert sum(sizes.values()) == 16
    assert rows("pending", root)[0]["pending"] == 8


def test_topics_are_chosen_ordered_and_cut(golden: Golden) -> None:
    root = golden("wide-defaultRocksDB")
    chosen = {topic for topic in dumped_units("wide-defaultRocksDB") if topic.startswith("pre")}
    assert {row["topic"] for row in rows("usage", root, "--prefix", "pre")} == chosen
    sizes = [row["bytes"] for row in rows("usage", root, "--limit", "7")]
    assert sizes == sorted((row["bytes"] for row in rows("usage", root)), reverse=True)[:7]


def test_without_queues_there_are_no_rows(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend=backend) as store:
        store.put_message(Message("t", b"x"))
    done = call("usage", root, "--prefix", "none")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "0 bytes in 0 units" in done.stderr


def test_a_damaged_database_ends_in_a_sentence(golden: Golden) -> None:
    root = golden("basic-defaultRocksDB")
    for table in (root / "consumequeue").rglob("*.sst"):
        data = bytearray(table.read_bytes())
        data[: len(data) // 2] = bytes(len(data) // 2)
        table.write_bytes(data)
    done = call("usage", root)
    assert isinstance(done.exception, RocksDBError)
    assert "consumequeue" in str(done.exception)


@pytest.fixture
def with_unused(tmp_path: Path, backend: str) -> Path:
    """Topics of which ``topics.json`` knows one, a light queue, and one of the broker's own."""
    root = tmp_path / "store"
    config = SMALL.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    with MessageStore.open(root, config, backend=backend) as store:
        for topic in ("orders", "old", "older", "%RETRY%gone", "TBW102"):
            store.put_message(Message(topic, b"x"))
        store.put_message(Message("orders", b"x", properties={LIGHT: "%LMQ%light"}))
    write_config(root, "topics.json", {"topicConfigTable": {"orders": {}, "empty": {}}})
    return root


def test_topics_that_the_metadata_does_not_know_are_unused(with_unused: Path) -> None:
    with unchanged(with_unused):
        found = {row["topic"]: row["units"] for row in rows("usage", with_unused, "--unused")}
        assert found == {"old": 1, "older": 1, "%RETRY%gone": 1}
        chosen = rows("usage", with_unused, "--unused", "--prefix", "old", "--sort", "topic")
        assert [row["topic"] for row in chosen] == ["old", "older"]


def test_without_whole_metadata_no_topic_is_unused(with_unused: Path) -> None:
    path = with_unused / "config" / "topics.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])  # torn: it would know no topic
    done = call("usage", with_unused, "--unused")
    assert isinstance(done.exception, RefusedStoreError)
    assert str(path) in str(done.exception)
    assert done.stdout == ""
    write_config(with_unused, "topics.json", {"topicConfigTable": {}})
    assert isinstance(call("usage", with_unused, "--unused").exception, RefusedStoreError)
    path.unlink()
    assert isinstance(call("usage", with_unused, "--unused").exception, RefusedStoreError)
    path.write_bytes(whole)
    unpack_forms(with_unused.parent / "forms")
    (with_unused.parent / "forms" / "v2" / "config" / "rdb").rename(with_unused / "config" / "rdb")
    done = call("usage", with_unused, "--unused")
    assert "json, v2" in str(done.exception)
    assert len(rows("usage", with_unused, "--unused", "--form", "json")) == 3
