"""Every golden store, recovered by us, reads as RocketMQ read it after recovering it itself.

Where ours differs on purpose is the table of docs/compatibility.md, and nowhere else.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqstore.cli.message_files.dump_rows import message_row, queue_row, sorted_queues
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.compatibility import differences
from tests.kit.golden import CLEAN, NAMES, Dump, copy_store, each_kind, load_dump
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
RecoveredStore = tuple[str, MessageStore]
HOLES = [name for name in NAMES if name.startswith("hole")]
WHOLE = [name for name in NAMES if name not in HOLES]


@pytest.fixture(scope="module")
def recovered(
    request: pytest.FixtureRequest,
    golden_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RecoveredStore]:
    """A golden store's name and an open copy of it; what is asked of it changes nothing."""
    name: str = request.param
    root = tmp_path_factory.mktemp("recovered") / name
    copy_store(golden_folder / name, root)
    with MessageStore.open(root, housekeeping=False) as store:
        yield name, store
    shutil.rmtree(root.parent)


def recovered_of(names: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recovered", names, indirect=True)


def messages_of(store: MessageStore) -> list[Dump]:
    log = components_of(store).log
    rows = []
    for record in log.scan(log.min_phy_offset()):
        row = message_row(StoredMessage(log.view(record.phy_offset, record.size)))
        rows.append({key: value for key, value in row.items() if key not in {"body", "msgId"}})
    return rows


@recovered_of(NAMES)
def test_every_record_and_blank_is_what_rocketmq_read(recovered: RecoveredStore) -> None:
    name, store = recovered
    dump = load_dump(name)
    blanks: list[tuple[int, int]] = []
    assert messages_of(store) == dump["messages"]
    assert store.min_phy_offset() == dump["commitLog"]["minPhy"]
    assert store.max_phy_offset() == dump["commitLog"]["maxPhy"]
    for _ in components_of(store).log.scan(store.min_phy_offset(), blanks=blanks):
        pass
    assert [list(blank) for blank in blanks] == dump["blanks"]


@recovered_of(WHOLE)
def test_every_queue_and_unit_is_what_rocketmq_read(recovered: RecoveredStore) -> None:
    name, store = recovered
    expected = load_dump(name)["queues"]
    found = [
        queue_row(components_of(store).queues, key)
        for key in sorted_queues(components_of(store).queues)
    ]
    assert [(queue["topic"], queue["queueId"]) for queue in found] == [
        (queue["topic"], queue["queueId"]) for queue in expected
    ]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs


@recovered_of(HOLES)
def test_a_store_in_which_rocketmq_loses_units_comes_out_whole(recovered: RecoveredStore) -> None:
    """The log is the oracle: each of its queued records has its unit, in order and alone."""
    name, store = recovered
    dump = load_dump(name)
    found = {
        (key.topic, key.queue_id, unit.queue_offset): [unit.phy_offset, unit.size]
        for key in store.queue_keys()
        for unit in components_of(store).queues.queue(*key).iterate(0)
    }
    expected = {
        (message["topic"], message["queueId"], message["queueOffset"]): [
            message["phy"],
            message["storeSize"],
        ]
        for message in dump["messages"]
    }
    assert found == expected
    assert len(found) == len(dump["messages"])


@recovered_of(WHOLE)
def test_searches_by_time_answer_as_rocketmq(recovered: RecoveredStore) -> None:
    name, store = recovered
    dump = load_dump(name)
    known = differences() if name.endswith("defaultRocksDB") else set()
    for probe in dump["probes"]:
        topic, queue_id = probe["topic"], probe["queueId"]
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        for time, lower, upper in probe["byTime"]:
            expected = [lower, upper]
            if "time-search-clamped" in known:
                expected = [min(max(offset, low), high) for offset in expected]
            assert [
                store.offset_by_time(topic, queue_id, time, BoundaryType.LOWER),
                store.offset_by_time(topic, queue_id, time, BoundaryType.UPPER),
            ] == expected, (topic, queue_id, time)


@recovered_of(WHOLE)
def test_pulls_answer_as_rocketmq(recovered: RecoveredStore) -> None:
    name, store = recovered
    dump = load_dump(name)
    for probe in dump["probes"]:
        topic, queue_id = probe["topic"], probe["queueId"]
        for offset, status, following, low, high, found in probe["pulls"]:
            result = store.get_message(topic, queue_id, offset, 32)
            assert (
                result.status.name, result.next_begin_offset, result.min_offset,
                result.max_offset, result.queue_offsets,
            ) == (status, following, low, high, found), (topic, queue_id, offset)  # fmt: skip


@recovered_of(NAMES)
def test_keys_lead_to_the_records_that_rocketmq_found(recovered: RecoveredStore) -> None:
    """After a crash RocketMQ finds less (spec T18) or a record twice (19.3.5): ours finds all."""
    name, store = recovered
    dump = load_dump(name)
    crashed = name not in CLEAN
    owners: dict[tuple[str, str], list[int]] = {}
    for message in dump["messages"]:
        properties = message["properties"]
        if message["sysFlag"] & 0xC == 0xC:
            continue  # ROLLBACK is not indexed
        keys = {*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY", "")} - {""}
        for key in keys:
            owners.setdefault((message["topic"], key), []).append(message["phy"])
    for query in dump["keys"]:
        place = (query["topic"], query["key"])
        found = [message.phy_offset for message in store.query_message(*place, 64)]
        assert found == sorted(owners[place])[-64:], place
        if not crashed:
            assert set(found) <= set(query["phy"])


@pytest.mark.parametrize("name", each_kind(CLEAN))
def test_reading_a_clean_store_changes_no_byte_and_finds_nothing_wrong(
    golden_folder: Path, name: str
) -> None:
    root = golden_folder / name
    before = tree_digest(root)
    with MessageStore.open(root, read_only=True) as store:
        assert not store.report.needed
        damage = [finding for finding in store.check() if finding.damage]
        rows = [
            queue_row(components_of(store).queues, key)
            for key in sorted_queues(components_of(store).queues)
        ]
    assert damage == []
    assert rows == load_dump(name)["queues"]
    assert tree_digest(root) == before


@pytest.mark.parametrize("name", each_kind(NAMES))
def test_a_recovered_store_opens_again_without_recovery_and_is_sound(
    golden: Golden, name: str
) -> None:
    root = golden(name)
    MessageStore.open(root).close()
    with MessageStore.open(root, read_only=True) as store:
        assert not store.report.needed
        assert [finding for finding in store.check() if finding.damage] == []
