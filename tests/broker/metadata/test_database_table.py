"""A table that is kept live in RocksDB: each write has the changed rows, in RocketMQ's bytes."""

import json
import shutil
import struct
import threading
from dataclasses import replace
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.broker.metadata.changing import exchange
from cqstore.broker.metadata.database_table import DatabaseTable, databases_of
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.owned_table import read_table
from cqstore.broker.metadata.topic_keys import TopicKeys
from cqstore.broker.metadata.writing import write_form
from cqstore.store.errors import (
    NestedCallError,
    StoreClosedError,
    StoreIOError,
    StoreStateError,
)
from cqstore.store.paths import StorePaths
from tests.kit.faults import Faults
from tests.kit.forks import forked
from tests.kit.metadata_forms import raw_rows, the_one

FORMS = [Form.V1, Form.SINGLE, Form.V2]
each_form = pytest.mark.parametrize("form", FORMS)
FOLDERS = {
    (Form.V1, Table.OFFSETS): ("consumerOffsets", "default", "kvDataVersion"),
    (Form.V1, Table.TOPICS): ("topics", "default", "kvDataVersion"),
    (Form.SINGLE, Table.OFFSETS): ("metadata", "consumerOffset", "consumerOffsetVersion"),
    (Form.SINGLE, Table.TOPICS): ("metadata", "topic", "topicVersion"),
}
V2 = ("rdb", "default")
TOPIC = {"topicName": "t", "perm": 6, "readQueueNums": 2, "writeQueueNums": 2}


def opened(root: Path, form: Form, table: Table = Table.OFFSETS) -> DatabaseTable:
    paths = StorePaths(root)
    database = databases_of(paths, form)[table]
    return DatabaseTable(paths, table, form, read_table(paths, table), database)


def closed(table: DatabaseTable) -> None:
    table._database.close()


# ---- against bytes


def test_bytes_of_version_1(tmp_path: Path) -> None:
    """As ``RocksDBConsumerOffsetManager`` and ``RocksDBTopicConfigManager`` put them."""
    for form in (Form.V1, Form.SINGLE):
        root = tmp_path / form
        offsets, topics = opened(root, form), opened(root, form, Table.TOPICS)
        offsets.write({"t@g": {0: 5, 3: 7}, "t@é": {1: 1}})
        closed(offsets)
        topics = opened(root, form, Table.TOPICS)
        topics.write({"t": TOPIC})
        closed(topics)
        rows = raw_rows(root)
        for table in (Table.OFFSETS, Table.TOPICS):
            folder, _, family = FOLDERS[form, table]
            version = json.loads(rows.pop((folder, family, b"kvDataVersionKey")))
            assert version == {"counter": 1, "stateVersion": 0, "timestamp": version["timestamp"]}
            assert version["timestamp"] > 1_700_000_000_000
        folder, family, _ = FOLDERS[form, Table.OFFSETS]
        topic_folder, topic_family, _ = FOLDERS[form, Table.TOPICS]
        assert rows == {
            (folder, family, b"t@g"): b'{"offsetTable":{"0":5,"3":7}}',
            (folder, family, "t@é".encode()): b'{"offsetTable":{"1":1}}',
            (topic_folder, topic_family, b"t"): (
                b'{"topicName":"t","perm":6,"readQueueNums":2,"writeQueueNums":2}'
            ),
        }


def test_bytes_of_version_2(tmp_path: Path) -> None:
    """As ``ConsumerOffsetManagerV2`` and ``TopicConfigManagerV2`` put them."""
    table = opened(tmp_path, Form.V2)
    table.write({"t@grp": {0: 5, 3: 7}})
    closed(table)
    table = opened(tmp_path, Form.V2, Table.TOPICS)
    table.write({"t": TOPIC})
    closed(table)
    rows = raw_rows(tmp_path)
    for number in (b"\x00\x01", b"\x00\x03"):
        version = rows.pop((*V2, b"\x01" + number + b"\x01data_version"))
        state, timestamp, counter = struct.unpack(">qqq", version)
        assert (state, counter) == (0, 1)
        assert timestamp > 1_700_000_000_000
    head = b"\x01\x00\x01\x02" + b"\x00\x03grp" + b"\x01" + b"\x00\x01t" + b"\x01"
    assert rows == {
        (*V2, head + b"\0\0\0\0"): b"\0\0\0\0\0\0\0\x05",
        (*V2, head + b"\0\0\0\x03"): b"\0\0\0\0\0\0\0\x07",
        (*V2, b"\x01\x00\x03\x02\x00\x01t"): (
            b'\x01{"topicName":"t","perm":6,"readQueueNums":2,"writeQueueNums":2}'
        ),
    }


@each_form
def test_a_write_changes_its_rows_and_the_version_of_rocketmq_s_tables(
    golden: Path, tmp_path: Path, form: Form
) -> None:
    root = tmp_path / "s"
    shutil.copytree(golden / form, root)
    before, found = raw_rows(root), the_one(root)
    table = opened(root, form)
    key = next(key for key, row in table.take().items() if len(row) > 1 and key.count("@") == 1)
    row = {queue_id: 70 + queue_id for queue_id in found.offsets[key]}
    table.write({key: row, "new@group": {2: 9}})
    after = raw_rows(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert len(changed) == (len(row) + 1 if form is Form.V2 else 2) + 1
    now = the_one(root)
    last = found.versions.pop(Table.OFFSETS, DataVersion())  # a young broker writes none
    version = now.versions.pop(Table.OFFSETS)
    assert version.counter == last.counter + 1
    assert version.state_version == last.state_version
    assert version.timestamp > last.timestamp
    assert now == replace(found, offsets={**found.offsets, key: row, "new@group": {2: 9}})
    closed(table)


NAMES = ["t@g", "t@h", "u@g", "%RETRY%g@g", "%LMQ%a@%LMQ%b"]
ROWS = st.none() | st.dictionaries(st.integers(0, 4), st.integers(0, 1 << 40), max_size=3)


@settings(max_examples=20)
@given(
    writes=st.lists(st.dictionaries(st.sampled_from(NAMES), ROWS, max_size=3), max_size=6),
    form=st.sampled_from(FORMS),
)  # fmt: skip
def test_many_writes_are_as_one_conversion(
    tmp_path_factory: pytest.TempPathFactory, writes: list[dict[str, Any]], form: Form
) -> None:
    """The converter writes all rows at once; its bytes are compared with RocketMQ's."""
    root, whole = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("whole")
    table, model = opened(root, form), dict[str, dict[int, int]]()
    for number, changes in enumerate(writes):
        table.write(changes)
        model = {key: row for key, row in (model | changes).items() if row}
        if number % 2:
            closed(table)
            table = opened(root, form)
            assert table.take() == model
    write_form(BrokerMetadata(form, whole, offsets=model), form, whole)

    def rows(folder: Path) -> dict[tuple[str, str, bytes], bytes]:
        found = raw_rows(folder)
        return {name: row for name, row in found.items() if b"ersion" not in name[2]}

    assert rows(root) == rows(whole)
    closed(table)


# ---- rows that go


def v2_with(root: Path, **tables: Any) -> None:
    write_form(BrokerMetadata(Form.V2, root, **tables), Form.V2, root)


def test_queues_that_are_no_longer_in_a_row_go(tmp_path: Path) -> None:
    v2_with(tmp_path, offsets={"t@g": {0: 1, 1: 2, 7: 3}, "tt@g": {0: 4}, "t@gg": {0: 5}})
    table = opened(tmp_path, Form.V2)
    table.write({"t@g": {1: 2, 2: 8}})
    assert the_one(tmp_path).offsets == {
        "t@g": {1: 2, 2: 8}, "tt@g": {0: 4}, "t@gg": {0: 5},
    }  # fmt: skip
    table.write({"t@g": {}})
    assert the_one(tmp_path).offsets == {"tt@g": {0: 4}, "t@gg": {0: 5}}
    closed(table)


def test_pull_offsets_of_a_forgotten_topic_go_with_the_next_write(tmp_path: Path) -> None:
    v2_with(
        tmp_path, offsets={"t@g": {0: 1}, "u@g": {0: 2}},
        pull_offsets={"t@g": {0: 3}, "t@h": {0: 4}, "u@g": {0: 5}},
    )  # fmt: skip
    table = opened(tmp_path, Form.V2)
    assert not table.forget(TopicKeys(StorePaths(tmp_path), ["other"]))
    assert table.forget(TopicKeys(StorePaths(tmp_path), ["t"]))
    assert len(the_one(tmp_path).pull_offsets) == 3
    table.write({"t@g": None})
    found = the_one(tmp_path)
    assert found.offsets == {"u@g": {0: 2}}
    assert found.pull_offsets == {"u@g": {0: 5}}
    closed(table)


def test_a_key_that_can_be_split_in_two_ways_keeps_its_names(tmp_path: Path) -> None:
    v2_with(
        tmp_path,
        topics={"a@b": {"topicName": "a@b"}},
        groups={"c": {"groupName": "c"}},
        offsets={"a@b@c": {0: 1}},
    )
    before = {name for name in raw_rows(tmp_path) if name[2][:4] == b"\x01\x00\x01\x02"}
    table = opened(tmp_path, Form.V2)
    table.write({"a@b@c": {0: 2}})
    after = {name for name in raw_rows(tmp_path) if name[2][:4] == b"\x01\x00\x01\x02"}
    assert after == before
    assert the_one(tmp_path).offsets == {"a@b@c": {0: 2}}
    table.write({"a@b@c": None})
    assert the_one(tmp_path).offsets == {}
    closed(table)


# ---- versions, faults, other processes


def test_the_version_exceeds_that_of_every_form(tmp_path: Path) -> None:
    """A broker imports a form that counts more changes than its own."""
    old = BrokerMetadata(Form.JSON, tmp_path, offsets={"t@g": {0: 1}})
    old.versions[Table.OFFSETS] = DataVersion(2, 1, 99)
    write_form(old, Form.JSON, tmp_path)
    made = BrokerMetadata(Form.V1, tmp_path, offsets={"t@g": {0: 5}})
    made.versions[Table.OFFSETS] = DataVersion(0, 1, 3)
    write_form(made, Form.V1, tmp_path)
    table = opened(tmp_path, Form.V1)
    table.write({"t@g": {0: 6}})
    closed(table)
    found = {each.form: each for each in read_forms(StorePaths(tmp_path))}
    assert found[Form.V1].versions[Table.OFFSETS][::2] == (2, 100)
    assert found[Form.V1].offsets == {"t@g": {0: 6}}
    assert found[Form.JSON].offsets == {"t@g": {0: 1}}


def test_nothing_is_written_before_the_first_change(tmp_path: Path) -> None:
    table = opened(tmp_path / "s", Form.V1)
    assert table.take() == {}
    assert not (tmp_path / "s").exists()
    closed(table)
    with pytest.raises(StoreClosedError):
        table.write({"t@g": {0: 1}})
    assert not (tmp_path / "s").exists()


@each_form
def test_a_write_that_fails_is_done_again_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form
) -> None:
    table = opened(tmp_path, form)
    table.write({"t@g": {0: 1}, "t@h": {0: 1}})
    faults = Faults(monkeypatch)
    faults.fail("fsync", EIO, ".log")
    with pytest.raises(StoreIOError):
        table.write({"t@g": {0: 2}, "t@h": {0: 2}})
    faults.heal()
    assert the_one(tmp_path).offsets["t@g"] == the_one(tmp_path).offsets["t@h"]
    table.write({"t@g": {0: 2}, "t@h": {0: 2}})
    assert the_one(tmp_path).offsets == {"t@g": {0: 2}, "t@h": {0: 2}}
    closed(table)


def test_a_child_of_the_process_writes_nothing(tmp_path: Path) -> None:
    table = opened(tmp_path, Form.SINGLE)
    table.write({"t@g": {0: 1}})

    def child() -> int:
        try:
            table.write({"t@g": {0: 2}})
        except StoreStateError:
            closed(table)
            return 7
        return 0

    assert forked(child) == 7
    table.write({"t@g": {0: 3}})
    closed(table)
    assert the_one(tmp_path).offsets == {"t@g": {0: 3}}


def test_a_write_waits_until_a_released_database_may_be_opened(tmp_path: Path) -> None:
    table = opened(tmp_path, Form.V1)
    table.write({"t@g": {0: 1}})
    made = BrokerMetadata(Form.V1, tmp_path, offsets={"u@g": {0: 7}})
    write_form(made, Form.V1, tmp_path / "other")
    writing = threading.Thread(target=table.write, args=({"t@h": {0: 2}},))
    with table.released():
        writing.start()
        folder = Path("config") / "consumerOffsets"
        exchange(tmp_path / "other" / folder, tmp_path / folder)
        assert the_one(tmp_path).offsets == {"u@g": {0: 7}}
        with pytest.raises(NestedCallError):
            table.write({"t@h": {0: 3}})
    writing.join()
    closed(table)
    assert the_one(tmp_path).offsets == {"u@g": {0: 7}, "t@h": {0: 2}}
