"""Putting and pulling, on both backends, as RocketMQ's rules say."""

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.dispatching import dispatch
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.service.results import GetMessageStatus, PutMessageStatus
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.waiting import running_threads

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, max_message_size=10_000)
LMQ = CONFIG.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL


@pytest.fixture
def store(tmp_path: Path, backend: str) -> Iterator[MessageStore]:
    """A small store; at the end it must be sound."""
    with MessageStore.open(tmp_path / "store", LMQ, backend=backend) as opened:
        yield opened
        assert [finding for finding in opened.check() if finding.damage] == []


def offsets(store: MessageStore, topic: str, start: int = 0, **options: object) -> list[int]:
    tags = options.get("tags")
    result = store.get_message(topic, 0, start, 32, TagFilter(str(tags)) if tags else None)
    return result.queue_offsets


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (Message("t" * 127, b"x"), PutMessageStatus.PUT_OK),
        (Message("t" * 128, b"x"), ILLEGAL),
        (Message("%RETRY%" + "g" * 248, b"x"), PutMessageStatus.PUT_OK),
        (Message("%RETRY%" + "g" * 249, b"x"), ILLEGAL),
        (Message("", b"x"), ILLEGAL),
        (Message("t", b"x" * 10_000), PutMessageStatus.PUT_OK),
        (Message("t", b"x" * 10_001), ILLEGAL),
        (Message("t", b"", properties={"k": "v" * 33000}),
         PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (Message("t", b"x", sys_flag=int(SysFlag.INNER_BATCH)), ILLEGAL),
        (Message("t", b"x", properties={"INNER_NUM": "2"}), ILLEGAL),
        (Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,plain"}), ILLEGAL),
        (Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,"}), ILLEGAL),
    ],
)  # fmt: skip
def test_what_may_not_be_stored_is_refused_and_nothing_is_written(
    store: MessageStore, message: Message, status: PutMessageStatus
) -> None:
    before = store.max_phy_offset()
    result = store.put_message(message)
    assert result.status is status, result.reason
    assert result.ok is (status is PutMessageStatus.PUT_OK)
    if not result.ok:
        assert result.reason
        assert store.max_phy_offset() == before
        assert list(store.queue_keys()) == []


@pytest.mark.parametrize("topic", ["a/b", "..", ".", "a\0b"])
def test_names_that_are_paths_do_not_reach_the_files(tmp_path: Path, topic: str) -> None:
    with MessageStore.open(tmp_path / "s", LMQ, backend="file") as store:
        assert store.put_message(Message(topic, b"x")).status is ILLEGAL
        light = {"INNER_MULTI_DISPATCH": "%LMQ%/../x"}
        assert store.put_message(Message("t", b"x", properties=light)).status is ILLEGAL


@pytest.mark.parametrize("topic", [".", "..", "CHECKPOINT_TOPIC", "a/b", "a\0b"])
def test_a_name_that_another_kind_of_queue_cannot_have_is_refused(
    tmp_path: Path, backend: str, topic: str
) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG, backend=backend) as store:
        refused = store.put_message(Message(topic, b"x"))
        assert (refused.status, refused.appended) == (ILLEGAL, None)
        assert "invalid topic name" in refused.reason


def test_names_that_rocksdb_cannot_hold_are_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", LMQ, backend="rocksdb") as store:
        assert store.put_message(Message("CHECKPOINT_TOPIC", b"x")).status is ILLEGAL
        for size, status in ((281, PutMessageStatus.PUT_OK), (282, ILLEGAL)):
            light = {"INNER_MULTI_DISPATCH": "%LMQ%".ljust(size, "x")}
            assert store.put_message(Message("t", b"x", properties=light)).status is status


def test_a_refused_message_keeps_no_offset_and_nobody_out(store: MessageStore) -> None:
    results = store.put_messages(
        [Message("t", b"1"), Message("t", b"x" * 10_001), Message("t", b"2"), Message("", b"")]
    )
    assert [result.ok for result in results] == [True, False, True, False]
    assert [result.queue_offset for result in results] == [0, -1, 1, -1]
    assert offsets(store, "t") == [0, 1]


def test_what_was_put_is_read_at_once_and_after_a_reopening(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=backend) as store:
        placed = []
        for number in range(500):
            message = Message(f"t{number % 7}", b"b" * number, number % 3, {"KEYS": f"k{number}"})
            placed.append((message, store.put_message(message)))
            if number % 50 == 0:
                assert store.max_offset(message.topic, message.queue_id) > 0
    with MessageStore.open(tmp_path / "s") as store:
        for message, result in placed:
            by_id = store.message_by_id(result.message_id)
            pulled = store.get_message(
                message.topic, message.queue_id, result.queue_offset, 1
            ).messages()[0]
            (by_key,) = store.query_message(message.topic, message.properties["KEYS"])
            for found in (by_id, pulled, by_key):
                assert (found.body, found.phy_offset) == (message.body, result.phy_offset)


def test_the_statuses_of_a_pull(store: MessageStore) -> None:
    assert store.get_message("none", 0, 0).status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
    for number in range(40):
        store.put_message(Message("t", str(number).encode()))
    cases = {
        -1: (GetMessageStatus.OFFSET_TOO_SMALL, 0, []),
        0: (GetMessageStatus.FOUND, 32, list(range(32))),
        39: (GetMessageStatus.FOUND, 40, [39]),
        40: (GetMessageStatus.OFFSET_OVERFLOW_ONE, 40, []),
        41: (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 40, []),
    }
    for offset, (status, following, found) in cases.items():
        result = store.get_message("t", 0, offset, 32)
        assert (result.status, result.next_begin_offset, result.queue_offsets) == (
            status, following, found,
        )  # fmt: skip
        assert (result.min_offset, result.max_offset) == (0, 40)


def test_without_sync_flush_all_that_was_written_is_confirmed(store: MessageStore) -> None:
    store.put_message(Message("t", b"x" * 77))
    assert store.confirm_phy_offset() == store.max_phy_offset() > 77


@pytest.mark.slow
def test_readers_in_other_threads_see_every_put_that_has_returned(
    tmp_path: Path, backend: str
) -> None:
    """A reader may come while another thread hands the batch with its message on."""
    config = CONFIG.model_copy(update={"dispatch_slice": 16})
    missed: list[tuple[int, int]] = []
    with MessageStore.open(tmp_path / "s", config, backend=backend) as store:
        returned = 0
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                least = returned
                found = store.max_offset("t", 0)
                if found < least:
                    missed.append((least, found))

        readers = [threading.Thread(target=read) for _ in range(3)]
        with running_threads(readers):
            for number in range(3000):
                returned = store.put_message(Message("t", b"%d" % number)).queue_offset + 1
            done.set()
    assert missed == []


def test_a_first_message_comes_whatever_its_size(store: MessageStore) -> None:
    for _ in range(3):
        store.put_message(Message("t", b"x" * 9000))
    result = store.get_message("t", 0, 0, 32, max_total_bytes=100)
    assert result.queue_offsets == [0]
    assert store.get_message("t", 0, 0, 32, max_total_bytes=20_000).queue_offsets == [0, 1]


def test_tags_are_compared_by_hash_and_then_by_name(store: MessageStore) -> None:
    for tag in ("Aa", "BB", "C", "Aa"):  # Aa and BB have one hash
        store.put_message(Message("t", b"x", properties={"TAGS": tag}))
    store.put_message(Message("t", b"x"))
    assert offsets(store, "t", tags="Aa") == [0, 3]
    assert offsets(store, "t", tags="BB || C") == [1, 2]
    assert offsets(store, "t", tags="*") == [0, 1, 2, 3, 4]
    result = store.get_message("t", 0, 0, 32, TagFilter("D"))
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 5)


def test_a_query_returns_no_message_whose_topic_or_key_has_the_same_hash(tmp_path: Path) -> None:
    places = [(topic, key) for topic in ("tAa", "tBB") for key in ("Aa", "BB")]
    with MessageStore.open(tmp_path, CONFIG) as store:
        for topic, key in places:
            for name in ("KEYS", "UNIQ_KEY"):
                message = Message(topic, f"{topic} {key}".encode(), 0, {name: key})
                assert store.put_message(message).ok
        for topic, key in places:
            found = [message.body.decode() for message in store.query_message(topic, key)]
            assert found == [f"{topic} {key}"] * 2


def test_a_filter_passes_over_no_more_than_its_bound(store: MessageStore) -> None:
    store.put_messages([Message("t", b"", properties={"TAGS": "no"}) for _ in range(900)])
    store.put_message(Message("t", b"", properties={"TAGS": "yes"}))
    first = store.get_message("t", 0, 0, 32, TagFilter("yes"))
    assert (first.status, first.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 800)
    second = store.get_message("t", 0, 800, 32, TagFilter("yes"))
    assert second.queue_offsets == [900]


def test_a_pull_ends_where_a_queue_file_does(tmp_path: Path, backend: str) -> None:
    small = CONFIG.model_copy(update={"mapped_file_size_consume_queue": 2000})
    with MessageStore.open(tmp_path / "s", small, backend=backend) as store:
        store.put_messages([Message("t", b"") for _ in range(150)])
        assert offsets(store, "t", 90) == list(range(90, 100))
        assert offsets(store, "t", 100) == list(range(100, 132))
    if backend == "file":  # the files show their size themselves
        with MessageStore.open(tmp_path / "s") as store:
            assert offsets(store, "t", 90) == list(range(90, 100))


def test_a_deleted_topic_begins_again_at_zero(store: MessageStore) -> None:
    for topic in ("t", "t2"):
        store.put_messages([Message(topic, b"x", number % 2) for number in range(10)])
    store.delete_topic("t")
    assert [tuple(key) for key in store.queue_keys("t")] == []
    assert (store.max_offset("t", 0), store.max_offset("t2", 0)) == (0, 5)
    assert store.put_message(Message("t", b"again")).queue_offset == 0
    assert [m.body for m in store.get_message("t", 0, 0).messages()] == [b"again"]


def test_a_client_batch_is_stored_whole(store: MessageStore) -> None:
    inner = [Message("t", b"x" * 100, properties={"TAGS": str(number)}) for number in range(20)]
    results = store.put_client_batch(Message("t", encode_client_batch(inner)))
    assert [result.queue_offset for result in results] == list(range(20))
    found = store.get_message("t", 0, 0, 32).messages()
    assert [message.properties["TAGS"] for message in found] == [str(n) for n in range(20)]
    for bad in (
        Message("t", b"garbage"),
        Message("t", encode_client_batch(inner), sys_flag=0x8),
        Message("t", encode_client_batch(inner), properties={"DELAY": "3"}),
        Message("t", b"x" * 10_001),
        Message("t", b""),
    ):
        assert [result.status for result in store.put_client_batch(bad)] == [ILLEGAL]
    assert store.max_offset("t", 0) == 20


def test_light_queues_get_their_units_and_go_on_after_a_reopening(
    tmp_path: Path, backend: str
) -> None:
    root = tmp_path / "s"
    for life in range(2):
        with MessageStore.open(root, LMQ, backend=backend) as store:
            for number in range(6):
                names = "%LMQ%a" + (",%LMQ%b" if number % 2 == 0 else "")
                result = store.put_message(
                    Message("t", b"x", 2, {"INNER_MULTI_DISPATCH": names, "TAGS": "T"})
                )
                assert result.queue_offset == life * 6 + number
            assert store.max_offset("%LMQ%a", 0) == life * 6 + 6
            assert store.max_offset("%LMQ%b", 0) == life * 3 + 3
            last = store.get_message("%LMQ%b", 0, life * 3 + 2, 1).messages()[0]
            wanted = f"{life * 6 + 4},{life * 3 + 2}"
            assert last.properties["INNER_MULTI_QUEUE_OFFSET"] == wanted
            assert [f for f in store.check() if f.damage] == []


def test_delayed_messages_carry_their_due_time_in_the_queue(store: MessageStore) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    for level, delay in (("0", None), ("1", 1_000), ("18", 7_200_000), ("99", 7_200_000)):
        properties = {"DELAY": level, "TAGS": "TagA"}
        result = store.put_message(Message(topic, b"x", 0, properties))
        assert result.appended is not None
        assert store.max_offset(topic, 0) == result.queue_offset + 1
        (unit,) = components_of(store).queues.queue(topic, 0).iterate(result.queue_offset)
        expected = 2598919 if delay is None else result.appended.store_timestamp + delay
        assert unit.tags_code == expected


def test_a_delayed_message_is_passed_over_by_its_unit_whatever_its_tag(
    store: MessageStore,
) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    assert store.put_message(Message(topic, b"x", 0, {"DELAY": "1", "TAGS": "TagA"})).ok
    pulled = store.get_message(topic, 0, 0, 32, TagFilter("TagA"))
    assert pulled.status is GetMessageStatus.NO_MATCHED_MESSAGE
    assert pulled.next_begin_offset == 1


def test_a_record_that_has_gone_is_passed_over_and_said_so(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        assert store.put_message(Message("t", b"x", 0)).ok
        assert store.get_message("t", 0, 0).status is GetMessageStatus.FOUND
        unit = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
        with unit.open("r+b") as file:
            file.write((-100).to_bytes(8, "big", signed=True))  # before the log's beginning
        pulled = store.get_message("t", 0, 0)
        assert pulled.status is GetMessageStatus.MESSAGE_WAS_REMOVING
        assert (pulled.next_begin_offset, pulled.records) == (1, [])


def test_prepared_and_rolled_back_records_take_no_place(store: MessageStore) -> None:
    for flag in (0x4, 0x8, 0xC, 0x0):
        assert store.put_message(Message("t", b"x", sys_flag=flag)).ok
    assert store.max_offset("t", 0) == 2
    flags = [message.sys_flag for message in store.get_message("t", 0, 0).messages()]
    assert flags == [0x8, 0x0]


@pytest.mark.parametrize("how", ["one", "list", "light"])
def test_what_takes_no_place_says_offset_0_and_leaves_no_gap(
    tmp_path: Path, backend: str, how: str
) -> None:
    """A half message for a light queue took an offset in it, and the next unit met a gap."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if how == "light" else {}
    messages = [Message("t", b"", 0, dict(light), sys_flag=flag) for flag in (0, 4, 0xC, 8, 0)]
    for message in messages[1:]:  # as a broker finds them in what was half of it
        message.properties.update({"INNER_MULTI_QUEUE_OFFSET": "7"} if light else {})
    for rebuild in (Rebuild.NOTHING, Rebuild.QUEUES):
        with MessageStore.open(
            tmp_path, LMQ, backend=backend, recovery=RecoveryOptions(rebuild=rebuild)
        ) as store:
            if not rebuild:
                put = store.put_messages
                results = put(messages) if how == "list" else [put([one])[0] for one in messages]
                assert [(result.ok, result.queue_offset) for result in results] == [
                    (True, offset) for offset in (0, 0, 0, 1, 2)
                ]
            found = [record.queue_offset for record in components_of(store).log.scan(0)]
            assert found == [0, 0, 0, 1, 2]
            ends = [store.max_offset(topic, 0) for topic in ("t", "%LMQ%a")]
            assert ends == [3, 3 if light else 0]
            assert [finding for finding in store.check() if finding.damage] == []


def test_batch_topics_are_read_and_not_written(golden: Callable[[str], Path]) -> None:
    with MessageStore.open(golden("special-default")) as store:
        (topic,) = {key.topic for key in store.queue_keys() if key.topic.startswith("batch_")}
        result = store.put_message(Message(topic, b"x"))
        assert result.status is ILLEGAL
        assert "BatchCQ" in result.reason
        pulled = store.get_message(topic, 0, 0, 32)
        assert pulled.status is GetMessageStatus.FOUND
        assert pulled.messages()[0].properties["INNER_NUM"] == "2"


@pytest.mark.parametrize("bound", [1, 2, 3, 4])
def test_a_filter_on_a_batch_queue_passes_over_no_more_messages_than_its_bound(
    golden: Callable[[str], Path], bound: int
) -> None:
    config = StoreConfig(max_filter_message_size=20 * bound)
    with MessageStore.open(golden("special-default"), config, read_only=True) as store:
        (topic,) = {key.topic for key in store.queue_keys() if key.topic.startswith("batch_")}
        units = list(components_of(store).queues.queue(topic, 0).iterate(0))
        assert [unit.batch_num for unit in units[:2]] == [2, 2]
        pulled = store.get_message(topic, 0, 0, 1, TagFilter("no such tag"))
        assert pulled.status is GetMessageStatus.NO_MATCHED_MESSAGE
        begun = [unit for unit in units if unit.queue_offset < bound]
        assert pulled.next_begin_offset == begun[-1].queue_offset + begun[-1].batch_num


def test_sync_flush_returns_when_the_disk_has_it(tmp_path: Path, backend: str) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    with MessageStore.open(tmp_path / "s", config, backend=backend) as store:
        for number in range(20):
            result = store.put_message(Message("t", b"x" * number))
            assert result.appended is not None
            end = result.phy_offset + result.appended.size
            assert store.confirm_phy_offset() >= end
        assert store.max_offset("t", 0) == 20


def test_offsets_go_on_when_they_are_no_longer_kept_in_memory(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ASSIGNED_QUEUES", 5)
    monkeypatch.setattr(dispatch, "_MAX_SLICE", 16)
    alone = {"flush_interval_commit_log": 3_600_000, "flush_interval_consume_queue": 3_600_000}
    config = LMQ.model_copy(update={"dispatch_slice": 7, **alone})
    with MessageStore.open(tmp_path / "few", config, backend=backend) as store:
        most = 0
        for offset in range(3):
            for queue_id in range(100):
                result = store.put_message(Message("t", b"x", queue_id))
                assert result.queue_offset == offset
                most = max(most, len(components_of(store).pending.offsets))
        assert most <= 5 + 2 * 16
        assert [store.max_offset("t", queue_id) for queue_id in range(100)] == [3] * 100


def test_most_offsets_stay_where_queues_are_put_to_in_turn(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ASSIGNED_QUEUES", 128)
    monkeypatch.setattr(dispatch, "_MAX_SLICE", 16)
    alone = {"flush_interval_commit_log": 3_600_000, "flush_interval_consume_queue": 3_600_000}
    config = LMQ.model_copy(update={"dispatch_slice": 7, **alone})
    put = dict.fromkeys(range(200), 0)
    with MessageStore.open(tmp_path / "turns", config, backend=backend) as store:
        requested: list[int] = []
        real = components_of(store).queues.next_offset
        monkeypatch.setattr(
            components_of(store).pending.offsets._queues,
            "next_offset",
            lambda topic, queue_id: requested.append(queue_id) or real(topic, queue_id),  # type: ignore[func-returns-value]
        )
        for turn in range(6):
            requested.clear()
            for queue_id in put:
                batch = [Message("t", b"x", queue_id)] * (1 + queue_id % 3)
                results = store.put_messages(batch)
                assert [each.queue_offset for each in results] == [
                    put[queue_id] + at for at in range(len(batch))
                ]
                put[queue_id] += len(batch)
            assert len(requested) < (201 if turn == 0 else 120)
        assert {number: store.max_offset("t", number) for number in put} == put
    with MessageStore.open(tmp_path / "turns", config, backend=backend) as store:
        assert {number: store.max_offset("t", number) for number in put} == put
        assert [each for each in store.check() if each.damage] == []


def test_a_message_for_a_hundred_light_queues_is_a_hundred_units(
    tmp_path: Path, backend: str
) -> None:
    names = [f"%LMQ%{number}" for number in range(100)]
    message = Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": ",".join(names)})
    root = tmp_path / "light"
    with MessageStore.open(root, LMQ, backend=backend) as store:
        store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": names[7]}))
        assert all(store.put_message(message).ok for _ in range(3))
    for happens in ("a clean stop", "a crash", "no queues"):
        if happens != "a clean stop":
            (root / "abort").touch()
        if happens == "no queues":
            shutil.rmtree(root / "consumequeue")
            (root / "checkpoint").write_bytes(bytes(4096))
        with MessageStore.open(root, LMQ, backend=backend) as store:
            ends = [store.max_offset(name, 0) for name in names]
            assert ends == [4 if number == 7 else 3 for number in range(100)], happens
            found = store.get_message(names[99], 0, 0, 32)
            assert found.queue_offsets == [0, 1, 2]
            assert {m.queue_offset for m in found.messages()} == {1, 2, 3}, "those of topic t"


def test_more_light_queues_than_the_quota_are_refused_before_anything_is_written(
    tmp_path: Path, backend: str
) -> None:
    config = LMQ.model_copy(update={"max_lmq_consume_queue_num": 3})
    message = Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%1,%LMQ%2,%LMQ%3"})
    with MessageStore.open(tmp_path / "quota", config, backend=backend) as store:
        assert store.put_message(message).ok
        end = store.max_phy_offset()
        more = Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%1,%LMQ%4"})
        refused = store.put_message(more)
        assert refused.status is PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        assert "maxLmqConsumeQueueNum" in refused.reason
        assert store.max_phy_offset() == end
        assert store.put_message(message).ok, "those that are there go on"
        assert store.put_message(Message("t", b"x")).ok
