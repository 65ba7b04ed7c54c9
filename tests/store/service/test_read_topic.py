"""A topic over all of its queues: merged by store time, between times, from offsets, lazily."""

from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.reading.topic_follower import TopicFollower
from cqstore.store.service.reading.topic_reader import TopicDamage, last_offsets, read_topic
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import load_dump

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
NEVER = 3_600_000
SLOW = CONFIG.model_copy(
    update={
        "flush_interval_commit_log": NEVER, "flush_commit_log_thorough_interval": NEVER,
        "flush_interval_consume_queue": NEVER, "flush_consume_queue_thorough_interval": NEVER,
    }
)  # fmt: skip
QUEUES = 5


def expected_of(name: str, topic: str) -> list[tuple[int, int, int]]:
    """Return queue id, offset and phy offset of what RocketMQ has of a topic, by store time."""
    dump: dict[str, Any] = load_dump(name)
    stamps = {each["phy"]: each["storeTimestamp"] for each in dump["messages"]}
    units = [
        (stamps[unit[1]], unit[1], queue["queueId"], unit[0])
        for queue in dump["queues"]
        if queue["topic"] == topic
        for unit in queue["units"]
        if unit is not None and unit[1] >= dump["commitLog"]["minPhy"]
    ]
    return [(queue_id, offset, phy) for _, phy, queue_id, offset in sorted(units)]


GOLDEN = ["basic-default", "basic-defaultRocksDB"]
TOPIC = "orders_1"


@pytest.mark.parametrize("name", GOLDEN)
def test_a_topic_is_merged_as_rocketmq_stored_it(name: str, golden_folder: Path) -> None:
    expected = expected_of(name, TOPIC)
    with MessageStore.open(golden_folder / name, read_only=True) as store:

        def places(**of: Any) -> list[tuple[int, int, int]]:
            found = read_topic(store, TOPIC, **of)
            return [(each.queue_id, each.queue_offset, each.message.phy_offset) for each in found]

        assert places() == expected
        assert places(batch=1) == expected
        assert places(batch_bytes=1) == expected
        assert len({queue_id for queue_id, _, _ in expected}) > 2
        stamps = [each.message.store_timestamp for each in read_topic(store, TOPIC)]
        for begin, end in ((0, stamps[0]), (stamps[9], stamps[-9]), (stamps[40], stamps[40])):
            within = [
                place for place, at in zip(expected, stamps, strict=True) if begin <= at <= end
            ]
            assert places(begin=begin, end=end) == within != []
        assert places(begin=stamps[-1] + 1) == places(end=stamps[0] - 1) == []
        assert places(queue_ids={2}) == [place for place in expected if place[0] == 2]
        begins = {2: 10, 3: 1 << 40}
        assert places(from_offsets=begins) == [
            place for place in expected if place[1] >= begins.get(place[0], 0)
        ]
        for count in (0, 1, 7, 100, 1 << 40):
            last = places(from_offsets=last_offsets(store, TOPIC, count))
            assert last == expected[len(expected) - min(count, len(expected)) :]
        assert (
            places(from_offsets=last_offsets(store, TOPIC, 3, queue_ids={2}), queue_ids={2})
            == [place for place in expected if place[0] == 2][-3:]
        )
        tagged = [
            each.message.phy_offset for each in read_topic(store, TOPIC, tags=TagFilter("TagA"))
        ]
        assert 0 < len(tagged) < len(expected)
        tags = {each["phy"]: each["properties"].get("TAGS") for each in load_dump(name)["messages"]}
        assert tagged == [phy for _, _, phy in expected if tags[phy] == "TagA"]
        assert list(read_topic(store, "none")) == []


class Counting:
    """A store that counts the records that pulls gave out."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.records = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_message(self, *requested: Any) -> Any:
        found = self._store.get_message(*requested)
        self.records += found.record_count()
        return found


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_it_reads_no_more_than_a_pull_of_each_queue_ahead(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        store.put_messages([Message("t", b"x", at % QUEUES) for at in range(1000)])
        counting = Counting(store)
        reads = read_topic(counting, "t", batch=4)
        for count in range(1, 1001):
            next(reads)
            assert counting.records <= count + QUEUES * 4
        assert next(reads, None) is None


def test_what_comes_while_it_is_read_is_not_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        store.put_messages([Message("t", b"x", at % 2) for at in range(100)])
        reads = read_topic(store, "t")
        next(reads)
        store.put_messages([Message("t", b"y", at % 3) for at in range(90)])
        assert len([*reads]) == 99


def test_damage_is_passed_over_and_reported(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"check_crc_on_pull": True})
    with MessageStore.open(tmp_path, config, backend="file") as store:
        results = store.put_messages([Message("t", b"x" * 50, at % 2) for at in range(10)])
    with next((tmp_path / "commitlog").iterdir()).open("r+b") as file:
        file.seek(results[4].phy_offset + 90)
        file.write(b"?")
    found: list[TopicDamage] = []
    with MessageStore.open(tmp_path, config, read_only=True) as store:
        reads = [*read_topic(store, "t", on_damage=found.append)]
    assert len(reads) == 9
    (damage,) = found
    assert (damage.queue_id, damage.queue_offset, damage.units) == (0, 2, 1)
    assert "CRC" in damage.reason


def test_units_that_are_missing_are_passed_over_and_reported(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        store.put_messages([Message("t", b"%d" % at, 0) for at in range(10)])
    queue = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
    data = queue.read_bytes()
    queue.write_bytes(data[: 4 * 20] + bytes(2 * 20) + data[6 * 20 :])
    found: list[TopicDamage] = []
    with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
        reads = [each.queue_offset for each in read_topic(store, "t", on_damage=found.append)]
    assert reads == [0, 1, 2, 3, 6, 7, 8, 9]
    assert found == [TopicDamage(0, 4, 2, "missing in the queue")]


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_follower_has_what_queues_do_not_show_and_what_comes(
    tmp_path: Path, backend: str
) -> None:
    def put(store: MessageStore, *bodies: str) -> None:
        store.put_messages([Message("t", each.encode(), at % 2) for at, each in enumerate(bodies)])
        store.put_message(Message("other", b"o"))
        store.put_message(Message("t", b"prepared", 0, sys_flag=4))

    with MessageStore.open(tmp_path, SLOW, backend=backend) as writer:
        put(writer, "a", "b", "c")
        writer.flush()
        put(writer, "d", "e")
        assert writer.max_offset("t", 0) == 3  # its queues have them
        with MessageStore.open(tmp_path, SLOW, read_only=True) as store:
            shown = [each.message.body.decode() for each in read_topic(store, "t")]
            assert TopicFollower(components_of(store)).topics() >= (
                {"t", "other"} if backend == "rocksdb" else set()
            )
            follower = TopicFollower(components_of(store))
            behind = [each.message.body.decode() for each in follower.poll("t")]
            assert [*shown, *behind] == ["a", "b", "c", "d", "e"]
            put(writer, "f", "g")
            found = [*follower.poll("t")]
            assert [each.message.body for each in found] == [b"f", b"g"]
            assert [(each.queue_id, each.queue_offset) for each in found] == [(0, 3), (1, 2)]
            assert [*follower.poll("t")] == []


def test_a_light_queue_is_followed_in_the_records_of_its_topic(tmp_path: Path) -> None:
    config = SLOW.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    light = "%LMQ%one"
    message = {"INNER_MULTI_DISPATCH": f"%LMQ%zero,{light}"}
    with MessageStore.open(tmp_path, config, backend="file") as writer:
        writer.put_message(Message("t", b"a", 3, dict(message)))
        writer.flush()
        with MessageStore.open(tmp_path, config, read_only=True) as store:
            follower = TopicFollower(components_of(store))
            assert [*follower.poll(light)] == []
            writer.put_message(Message("t", b"b", 3, dict(message)))
            writer.put_message(Message("t", b"c", 3))
            (found,) = follower.poll(light)
    assert (found.queue_id, found.queue_offset, found.message.body) == (0, 1, b"b")
