"""How topics are deleted: at a rate, by pages, beside puts, and whole topics or none at a kill."""

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from cqstore.broker.cleaning import cleaning_round
from cqstore.broker.cleaning.cleaning_round import IsDue, delete_from_store
from cqstore.broker.cleaning.rules import CleaningRules, KeptReason
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.json_form import read_json
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.table_forms import table_forms
from cqstore.broker.metadata.topic_offsets import planned
from cqstore.broker.metadata.writing import write_form
from cqstore.store.broker_files.topic_positions import Removal
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.broker.cleaning.kit import made_round, reasons, there
from tests.kit.killed_at_change import ALL, changes_until_killed
from tests.kit.operating import write_config, write_offsets
from tests.kit.share import SomePlaces

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=10,
    max_index_num=50, rocksdb_memory_bytes=16 << 20, max_lmq_consume_queue_num=4, enable_lmq=True,
    enable_multi_dispatch=True,
)  # fmt: skip
UNUSED = CleaningRules(unused=True)
GONE = [f"gone{number}" for number in range(7)]


def open_filled(root: Path, backend: str) -> MessageStore:
    """A store with seven unused topics and one that is used."""
    store = MessageStore.open(root, CONFIG, backend=backend)
    for topic in [*GONE, "orders"]:
        for queue_id in range(2):
            assert store.put_message(Message(topic, b"x", queue_id)).ok
    write_config(root, "topics.json", {"topicConfigTable": {"orders": {}}})
    write_offsets(root, {f"{topic}@g": {0: 1, 1: 1} for topic in [*GONE, "orders"]})
    return store


@pytest.mark.parametrize(
    ("rate", "waits"), [(3.0, [0, 1, 1]), (100.0, [0]), (1.0, [0, 1, 1, 1, 1, 1, 1]),
                        (0.5, [0, 2, 2, 2, 2, 2, 2])],
)  # fmt: skip
def test_a_slice_is_followed_by_a_wait_as_long_as_the_rate_demands(
    tmp_path: Path, rate: float, waits: list[float]
) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    with open_filled(tmp_path, "file") as store:
        rules = CleaningRules(unused=True, topics_per_second=rate)
        done = made_round(store, rules, delete_from_store(store), wait)
        assert reasons(done.topics()) == dict.fromkeys(GONE)
        assert waited == [0, *waits]  # the first asks before the first topic is examined
        assert (done.examined, done.is_stopped) == (8, False)


def test_a_round_that_is_stopped_leaves_the_rest_alone(tmp_path: Path, backend: str) -> None:
    with open_filled(tmp_path, backend) as store:
        rules = CleaningRules(unused=True, topics_per_second=2)
        delete = delete_from_store(store)
        done = made_round(store, rules, delete, lambda seconds: seconds > 0)
        assert reasons(done.topics()) == dict.fromkeys(GONE[:2])
        assert done.is_stopped
        assert there(store).keys() == {*GONE[2:], "orders"}
        at_once = made_round(store, rules, delete, lambda _: True)
        assert (reasons(at_once.topics()), at_once.examined, at_once.is_stopped) == ({}, 0, True)


@pytest.mark.parametrize("page", [1, 2, 3, 7])
def test_no_topic_is_left_out_between_two_pages(
    tmp_path: Path, backend: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning_round, "_PAGE", page)
    with open_filled(tmp_path, backend) as store:
        done = made_round(store, UNUSED, delete_from_store(store))
        assert [each.topic for each in done.topics()] == GONE
        assert done.examined == 8
        assert there(store).keys() == {"orders"}


def test_a_topic_that_got_a_message_meanwhile_stays_with_all_its_messages(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the message still waits in memory for its dispatch, and at the end of a page."""
    monkeypatch.setattr(cleaning_round, "_PAGE", 2)
    with open_filled(tmp_path, backend) as store:
        delete = delete_from_store(store)

        def put_first(topics: Sequence[str], is_due: IsDue) -> Mapping[str, KeptReason]:
            for topic, queue_id in (("gone1", 1), ("gone4", 7)):
                if topic in topics:
                    assert store.put_message(Message(topic, b"y", queue_id)).ok
            if "gone6" in topics:
                store.delete_topic("gone6")
            return delete(topics, is_due)

        found = list(made_round(store, UNUSED, put_first).topics())
        assert [each.topic for each in found] == GONE
        kept = dict.fromkeys(["gone1", "gone4", "gone6"], "new-messages")
        assert reasons(found) == dict.fromkeys(GONE) | kept
        assert there(store) == {"gone1": 3, "gone4": 3, "orders": 2}
        puts = [store.put_message(Message("gone1", b"z", 1)) for _ in range(2)]
        assert [put.queue_offset for put in puts] == [2, 3]
        assert store.put_message(Message("gone0", b"z", 1)).queue_offset == 0
    found_offsets = read_json(tmp_path / "config")
    assert found_offsets is not None
    assert found_offsets.offsets.keys() == {"gone1@g", "gone4@g", "orders@g"}
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert there(store) == {"gone0": 1, "gone1": 5, "gone4": 3, "orders": 2}
        assert [each for each in store.check() if each.damage] == []


def light(store: MessageStore, name: str) -> bool:
    """Put a message that a light queue gets, too; return whether it was stored."""
    properties = {"INNER_MULTI_DISPATCH": f"%LMQ%{name}"}
    return store.put_message(Message("orders", b"x", 0, properties)).ok


@pytest.mark.parametrize("counted", ["before", "meanwhile"])
def test_kept_light_queues_count_for_the_limit_of_light_queues(
    tmp_path: Path, backend: str, counted: str
) -> None:
    """The first put counts them, before the topics are held or meanwhile."""
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        assert light(store, "a")
        assert light(store, "b")
        assert light(store, "c")
    with MessageStore.open(tmp_path, CONFIG) as store:

        def is_due(topic: str) -> bool:
            if counted == "meanwhile" and topic == "%LMQ%a":
                assert light(store, "d")
            return topic == "%LMQ%b"

        if counted == "before":
            assert light(store, "d")
        names = ["%LMQ%a", "%LMQ%b", "%LMQ%c"]
        assert components_of(store).clean.delete_topics(names, is_due) == ["%LMQ%b"]
        assert light(store, "e")
        assert not light(store, "f")
        assert set(store.topics("%LMQ%")) == {"%LMQ%a", "%LMQ%c", "%LMQ%d", "%LMQ%e"}


def test_a_kill_at_any_change_leaves_whole_topics_or_none(
    tmp_path: Path, backend: str, some_places: SomePlaces
) -> None:
    made, root = tmp_path / "made", tmp_path / "store"
    open_filled(made, backend).close()
    shutil.copytree(made, root)
    changes = changes_until_killed("tests.kit.killed_cleaning", ALL, root)
    assert changes is not None
    shutil.rmtree(root)
    seen = set()
    for count in {1, *some_places(changes, 12, changes), ALL}:
        shutil.copytree(made, root)
        done = changes_until_killed("tests.kit.killed_cleaning", count, root)
        assert done == (changes if count == ALL else None)
        with MessageStore.open(root, CONFIG, housekeeping=False) as store:
            left = there(store)
            assert [each for each in store.check() if each.damage] == []
        assert set(left.values()) == {2}, "a topic lost one of its queues"
        gone = {*GONE} - left.keys()
        assert gone in [{*GONE[:size]} for size in (0, 3, 6, 7)], "a slice was cut in two"
        found = read_json(root / "config")
        assert found is not None
        outlived = {key.split("@")[0] for key in found.offsets} - left.keys()
        assert not outlived, "an offset has outlived its queues"
        seen.add(len(gone))
        shutil.rmtree(root)
    assert seen == {0, 3, 6, 7}


def test_a_kill_at_any_change_of_a_database_leaves_no_offset_without_its_queues(
    tmp_path: Path, some_places: SomePlaces
) -> None:
    """Next to an outdated file, which stays outdated. A broker may open the store next."""
    made, root = tmp_path / "made", tmp_path / "store"
    open_filled(made, "rocksdb").close()
    found = BrokerMetadata(Form.V1, made, topics={"orders": {"topicName": "orders"}})
    found.offsets = {f"{topic}@g": {0: 1, 1: 1} for topic in [*GONE, "orders"]}
    write_form(found, Form.V1, made)
    for path in made.glob("config/*.json"):
        os.utime(path, (1000, 1000))
    shutil.copytree(made, root)
    changes = changes_until_killed("tests.kit.killed_cleaning", ALL, root)
    assert changes is not None
    seen = set()
    for count in [*some_places(changes, 12, changes), ALL]:
        shutil.rmtree(root)
        shutil.copytree(made, root)
        changes_until_killed("tests.kit.killed_cleaning", count, root)
        assert [each.form for each in table_forms(StorePaths(root))] == [Form.V1] * 3
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            left = there(store)
        seen.add(check_offsets(root, left))
        with MessageStore.open(root, CONFIG, housekeeping=False) as store:
            check_offsets(root, there(store))
    assert len(seen) > 2


def check_offsets(root: Path, left: Mapping[str, int]) -> frozenset[str]:
    """Return the topics with offsets in the database; in no form is another one without queues."""
    forms = {each.form: each.offsets for each in read_forms(StorePaths(root))}
    assert forms.keys() == {Form.JSON, Form.V1}
    topics = {form: {key.split("@")[0] for key in rows} for form, rows in forms.items()}
    assert all(each <= left.keys() for each in topics.values()), "an offset has outlived its queues"
    return frozenset(topics[Form.V1])


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_tables_are_read_once_per_page_unless_others_change_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_changed: bool
) -> None:
    read: list[Collection[str]] = []

    def plan(config: Path, topics: Collection[str], owned: str | None) -> Removal:
        read.append(topics)
        return planned(config, topics, owned)

    monkeypatch.setattr("cqstore.broker.metadata.topic_offsets.planned", plan)

    def wait(seconds: float) -> bool:
        if seconds and is_changed:
            path = tmp_path / "config" / "consumerOffset.json"
            path.write_text(path.read_text().replace("orders@g", "orders@g2"))
        return False

    with open_filled(tmp_path, "file") as store:
        rules = CleaningRules(unused=True, topics_per_second=3)
        done = made_round(store, rules, delete_from_store(store), wait)
        assert [each.topic for each in done.topics()] == GONE
    assert read == [{*GONE}] * (3 if is_changed else 1)
    found = read_json(tmp_path / "config")
    assert found is not None
    assert [*found.offsets] == ["orders@g22" if is_changed else "orders@g"]
