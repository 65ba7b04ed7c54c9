"""Figures by topic and group, against what was put and by what was counted by hand."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from random import Random

import pytest

from cqstore.store.errors import StoreClosedError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics import by_group, by_topic
from cqstore.store.service.metrics.by_group import FiguresByGroup, GroupSnapshot
from cqstore.store.service.metrics.by_topic import FiguresByTopic, TopicSnapshot
from cqstore.store.service.opening.components import components_of
from tests.kit.golden import load_dump
from tests.kit.logs import opened
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000,
    rocksdb_memory_bytes=16 << 20,

)  # fmt: skip
SECONDS = 10.0


class Rows:
    """Offsets of groups, and how many rows of them were taken."""

    def __init__(self, rows: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        self.rows, self.taken = dict(rows), 0

    def page(self, at: int, count: int) -> Sequence[tuple[str, str, Mapping[int, int]]]:
        found = [(*key, row) for key, row in islice(self.rows.items(), at, at + count)]
        self.taken += len(found)
        return found

    def of_topic(self, group: str, topic: str) -> Mapping[int, int]:
        return self.rows.get((group, topic), {})


@pytest.fixture(params=["file", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG, backend=request.param) as found:
        yield found


def figures(store: MessageStore, limit: int = 20, **more: object) -> FiguresByTopic:
    """Return figures whose clock goes on by ten seconds a look."""
    found = store.metrics.by_topic(limit, **more)  # type: ignore[arg-type]
    clock = count(0, SECONDS)
    found.clock = lambda: next(clock)
    return found


def put(store: MessageStore, received: Mapping[str, int], size: int = 1) -> None:
    """Put that many messages to each topic, by turns, and have them dispatched."""
    waiting = Counter(received)
    while waiting:
        for topic in list(waiting):
            assert store.put_message(Message(topic, b"x" * size, waiting[topic] % 3)).ok
            waiting[topic] -= 1
        waiting += Counter()
    assert store.max_offset("none", 0) == 0


def rates(found: TopicSnapshot) -> dict[str, float | None]:
    return {each.topic: each.puts_per_second for each in found.topics}


def test_a_first_look_tells_ends_and_no_rate(store: MessageStore) -> None:
    put(store, {"a": 5, "b": 2})
    found = figures(store).sample()
    shown = [(each.topic, each.queues, each.offset, each.messages) for each in found.topics]
    assert shown == [("a", 3, 5, 5), ("b", 2, 2, 2)]
    assert {*rates(found).values(), found.puts_per_second, found.others_per_second} == {None}


def test_rates_are_what_was_put_between_two_looks(store: MessageStore) -> None:
    looking = figures(store, 2)
    put(store, {"a": 5, "b": 2})
    looking.sample()
    before = store.max_phy_offset()
    put(store, {"a": 100, "b": 300, "c": 30, "new": 200})
    found = looking.sample()
    assert rates(found) == {"b": 30.0, "new": 20.0}
    assert found.others_per_second == 13.0
    assert found.puts_per_second == 63.0
    put_bytes = store.max_phy_offset() - before
    assert found.bytes_per_second == put_bytes / SECONDS
    reported = sum(each.bytes_per_second or 0 for each in found.topics)
    assert reported + (found.others_bytes_per_second or 0) == pytest.approx(put_bytes / SECONDS)
    assert [each.offset for each in found.topics] == [302, 200]
    quiet = looking.sample()
    assert quiet.puts_per_second == quiet.others_per_second == 0
    assert {*rates(quiet).values()} == {0.0}


def test_the_blank_end_of_a_file_came_to_no_topic(store: MessageStore) -> None:
    looking = figures(store)
    put(store, {"a": 1})
    looking.sample()
    put(store, {"a": 40}, 60_000)  # over the ends of two files
    found = looking.sample()
    records = [each.size for each in components_of(store).log.scan(0)][1:]
    assert store.max_phy_offset() > sum(records) + 10_000
    assert found.bytes_per_second == sum(records) / SECONDS
    assert found.topics[0].put_bytes == sum(records)
    assert found.others_bytes_per_second == 0


def test_by_bytes_few_large_messages_come_first(store: MessageStore) -> None:
    looking = [figures(store, 1), figures(store, 1, by_bytes=True)]
    for each in looking:
        each.sample()
    put(store, {"small": 50})
    put(store, {"large": 3}, 20_000)
    assert [[*rates(each.sample())] for each in looking] == [["small"], ["large"]]


def test_a_topic_that_a_sample_misses_is_among_the_others(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_topic, "_SAMPLED_RECORDS", 50)
    looking = figures(store, 5)
    put(store, {"a": 1})
    looking.sample()
    put(store, {"a": 50, "b": 50})
    put(store, {"late": 100})
    found = looking.sample()
    assert rates(found) == {"a": 5.0, "b": 10.0}  # of b the sample alone tells: half of all
    assert found.others_per_second == 5.0
    put(store, {"late": 100, "b": 10})
    looking.sample()
    put(store, {"late": 100, "b": 10})
    assert rates(looking.sample()) == {
        "late": 10.0,
        "b": 1.0,
        "a": 0.0,
    }  # now it is known, by its queues


def test_what_is_kept_and_read_does_not_grow_with_the_topics(store: MessageStore) -> None:
    looking, draw = figures(store, 3), Random(7)
    for _ in range(3):
        put(store, {f"t{draw.randrange(400)}": 1 for _ in range(200)})
        assert len(looking.sample().topics) == 3
        assert len(looking._tracked) <= 4 * 3


def test_a_topic_that_was_deleted_and_begins_anew_has_no_rate_below_0(store: MessageStore) -> None:
    looking = figures(store)
    put(store, {"a": 50, "b": 1})
    looking.sample()
    store.delete_topics(["a"])
    put(store, {"b": 10})
    assert rates(looking.sample()) == {"b": 1.0}
    looking = figures(store)
    put(store, {"b": 50})
    looking.sample()
    store.delete_topics(["b"])
    put(store, {"b": 20})
    assert rates(looking.sample()) == {"b": 2.0}


def test_half_messages_that_are_in_no_queue_are_no_topics(store: MessageStore) -> None:
    looking = figures(store)
    looking.sample()
    put(store, {"a": 10})
    store.put_messages([Message("a", b"x", sys_flag=4)] * 10)
    found = looking.sample()
    assert rates(found) == {"a": 1.0}
    assert found.others_per_second == 1.0


def test_damage_in_the_log_ends_the_sample_and_not_the_look(store: MessageStore) -> None:
    looking = figures(store)
    put(store, {"a": 10})
    looking.sample()
    start = store.max_phy_offset()
    put(store, {"a": 20, "b": 10})
    size = components_of(store).log.files.file_size
    path = components_of(store).paths.commit_log / f"{start // size * size:020d}"
    with path.open("r+b") as file:
        file.seek(start % size + 4)
        file.write(b"????")
    found = looking.sample()
    assert rates(found) == {"a": 2.0}
    assert found.others_per_second == 1.0


def test_a_closed_store_is_refused(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, CONFIG)
    looking = figures(store)
    store.close()
    with pytest.raises(StoreClosedError):
        looking.sample()


# ---- groups


@pytest.mark.parametrize("name", ["wide-defaultRocksDB", "special-default", "basic-combine"])
def test_lag_is_that_to_the_ends_that_rocketmq_tells(golden_folder: Path, name: str) -> None:
    table: dict[tuple[str, str], dict[int, int]] = {}
    expected: Counter[str] = Counter()
    for queue in load_dump(name)["queues"]:
        offset = (queue["min"] + queue["max"]) // 2
        table.setdefault(("g", queue["topic"]), {})[queue["queueId"]] = offset
        expected[queue["topic"]] += queue["max"] - offset
    with MessageStore.open(golden_folder / name, read_only=True, housekeeping=False) as store:
        found = FiguresByGroup(components_of(store).queues, Rows(table), 10_000).sample()
        few = FiguresByGroup(components_of(store).queues, Rows(table), 3).sample()
    assert {each.topic: each.lag for each in found.groups} == {
        topic: expected[topic] for _, topic in table
    }
    most = [lag for _, lag in expected.most_common(3)]
    assert [each.lag for each in few.groups] == most
    assert few.others_lag == sum(expected.values()) - sum(most)


def group_figures(found: GroupSnapshot) -> dict[tuple[str, str], tuple[int, int]]:
    return {(each.group, each.topic): (each.offset, each.lag) for each in found.groups}


def test_a_pass_goes_on_where_a_look_ended(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_group, "_PAGE", 2)
    put(store, {f"t{number}": 3 * number for number in range(1, 6)})
    table = {("g", f"t{number}"): {0: 0, 1: 0, 2: 0} for number in range(1, 6)}
    rows = Rows(table)
    looking = FiguresByGroup(components_of(store).queues, rows, 2, budget=6)
    first = looking.sample()
    assert rows.taken == 2  # six queues
    assert first.others_lag is None
    assert group_figures(first) == {("g", "t1"): (0, 3), ("g", "t2"): (0, 6)}
    second = looking.sample()
    assert group_figures(second) == {("g", "t3"): (0, 9), ("g", "t4"): (0, 12)}
    third = looking.sample()
    assert group_figures(third) == {("g", "t5"): (0, 15), ("g", "t4"): (0, 12)}
    assert third.others_lag == 3 + 6 + 9
    assert [looking.sample().others_lag for _ in range(3)] == [3 + 6 + 9] * 3
    rows.rows["g", "t5"] = {0: 5, 1: 5, 2: 4}
    put(store, {"t4": 1})
    fourth = looking.sample()  # of the same rows, as of now
    assert group_figures(fourth) == {("g", "t5"): (14, 1), ("g", "t4"): (0, 13)}
    del rows.rows["g", "t5"]
    assert ("g", "t5") not in group_figures(looking.sample())


def test_the_next_message_tells_the_age(store: MessageStore) -> None:
    put(store, {"a": 6})
    times = [store.get_message("a", 0, at).messages()[0].store_timestamp for at in (0, 1)]
    rows = Rows({("g", "a"): {0: 1}, ("h", "a"): {0: 2, 1: 2, 2: 2}, ("i", "a"): {0: 0, 7: 3}})
    found = {
        each.group: each
        for each in FiguresByGroup(components_of(store).queues, rows, 9).sample().groups
    }
    assert found["g"].next_timestamp == times[1]
    assert found["i"].next_timestamp == times[0]
    assert (found["h"].next_timestamp, found["h"].lag) == (None, 0)


def test_topics_in_which_shown_groups_lag_are_shown(store: MessageStore) -> None:
    looking = figures(store, 1, offsets=Rows({("g", "idle"): {0: 0, 1: 0, 2: 0}}))
    put(store, {"idle": 9})
    looking.sample()
    put(store, {"busy": 30})
    found = looking.sample()
    assert rates(found) == {"busy": 3.0, "idle": 0.0}
    assert group_figures(found.groups) == {("g", "idle"): (0, 9)}


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_an_embedded_log_tells_the_offsets_of_its_groups(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path / "log", backend) as log:
        for number in range(8):
            log.put("orders", b"x", queue_id=number % 4)
        log.reset_group("g", "orders", to="earliest")
        log.reset_group("h", "orders", to="latest")
        found = figures(log.store, offsets=log.offsets).sample()
        assert group_figures(found.groups) == {("g", "orders"): (0, 8), ("h", "orders"): (8, 0)}
    with opened(tmp_path / "log", backend, read_only=True) as log:
        assert log.offsets is None
