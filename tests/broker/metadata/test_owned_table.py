"""A table of a broker's that a program goes on with: what it does not know stays as it was."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.owned_table import JsonTable
from cqstore.broker.metadata.writing import write_form
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths
from tests.kit.faults import ENOSPC, Faults

OFFSETS = {
    "groupTopicMap": {"g": ["t"]},
    "offsetTable": {"t@g": {"0": 5, "1": 7}, "odd@name@g": {"3": 1}},
    "dataVersion": {"counter": 41, "stateVersion": 3, "timestamp": 1_700_000_000_000},
    "theirs": {"later": [1, {"releases": None}]},
}


def paths_of(root: Path) -> StorePaths:
    (root / "config").mkdir(parents=True, exist_ok=True)
    return StorePaths(root)


def content(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_rows_are_replaced_and_other_fields_stay(tmp_path: Path) -> None:
    paths = paths_of(tmp_path)
    file = tmp_path / "config" / "consumerOffset.json"
    file.write_text(json.dumps(OFFSETS))
    table = JsonTable(paths, Table.OFFSETS)
    assert table.take() == {"t@g": {0: 5, 1: 7}, "odd@name@g": {3: 1}}
    for count in (1, 2):
        table.write({"t@new": {0: count}})
        for path in (file, file.with_name("consumerOffset.json.bak")):
            found = content(path)
            assert found["theirs"] == OFFSETS["theirs"]
            assert found["offsetTable"] == {
                "t@g": {"0": 5, "1": 7}, "odd@name@g": {"3": 1}, "t@new": {"0": count},
            }  # fmt: skip
            assert found["groupTopicMap"] == {"g": ["t"], "new": ["t"]}
            assert found["dataVersion"]["counter"] == 41 + count
            assert found["dataVersion"]["stateVersion"] == 3
            assert found["dataVersion"]["timestamp"] > 1_700_000_000_000
    again = JsonTable(paths, Table.OFFSETS)
    assert again.take()["t@new"] == {0: 2}


def test_a_file_as_a_broker_writes_it_is_read_back(tmp_path: Path) -> None:
    """Keys that are numbers have no quotes there."""
    paths = paths_of(tmp_path)
    file = tmp_path / "config" / "consumerOffset.json"
    file.write_text('{"offsetTable":{"t@g":{0:5,1:7}}}')
    assert JsonTable(paths, Table.OFFSETS).take() == {"t@g": {0: 5, 1: 7}}


def test_a_new_folder_has_an_empty_table(tmp_path: Path) -> None:
    root = tmp_path / "new"
    table = JsonTable(StorePaths(root), Table.TOPICS)
    assert table.take() == {}
    assert not root.exists()
    table.write({"t": {"topicName": "t", "later": True}})
    (found,) = read_forms(StorePaths(root))
    assert found.topics == {"t": {"topicName": "t", "later": True}}
    assert found.versions[Table.TOPICS].counter == 1
    assert sorted(path.name for path in (root / "config").iterdir()) == [
        "topics.json", "topics.json.bak",
    ]  # fmt: skip


def test_the_file_of_brokers_with_light_queues_is_written_too(tmp_path: Path) -> None:
    paths = paths_of(tmp_path)
    light = tmp_path / "config" / "lmqConsumerOffset.json"
    light.write_text(json.dumps({"offsetTable": {"t@g": {"0": 5}}, "lmqOffsetTable": {}, "x": 1}))
    table = JsonTable(paths, Table.OFFSETS)
    table.write({**table.take(), "t@%LMQ%a": {0: 3}})
    assert content(light)["lmqOffsetTable"] == {"t@%LMQ%a": 3}
    assert content(light)["x"] == 1
    both = JsonTable(paths, Table.OFFSETS).take()
    assert both == {"t@g": {0: 5}, "t@%LMQ%a": {0: 3}}
    assert content(tmp_path / "config" / "consumerOffset.json")["offsetTable"]["t@g"] == {"0": 5}


@pytest.mark.parametrize("form", [Form.V1, Form.SINGLE])
def test_rows_of_a_database_go_on_in_a_file_that_counts_more(tmp_path: Path, form: Form) -> None:
    """A broker with RocksDB takes a file in whose counter is the higher one."""
    made = BrokerMetadata(form, tmp_path, offsets={"t@g": {0: 5}})
    made.versions[Table.OFFSETS] = DataVersion(0, 1_700_000_000_000, 99)
    write_form(made, form, tmp_path)
    table = JsonTable(StorePaths(tmp_path), Table.OFFSETS)
    assert table.take() == {"t@g": {0: 5}}
    table.write({"t@g": {0: 6}})
    assert content(tmp_path / "config" / "consumerOffset.json")["dataVersion"]["counter"] == 100
    assert JsonTable(StorePaths(tmp_path), Table.OFFSETS).take() == {"t@g": {0: 6}}


def test_version_2_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    made = BrokerMetadata(Form.V2, tmp_path, offsets={"t@g": {0: 5}})
    write_form(made, Form.V2, tmp_path)
    before = sorted((tmp_path / "config").iterdir())
    with pytest.raises(RefusedStoreError, match=r"they are in the form v2\. Open the log"):
        JsonTable(StorePaths(tmp_path), Table.OFFSETS)
    assert sorted((tmp_path / "config").iterdir()) == before


@pytest.mark.parametrize("text", ["", "{", '{"offsetTable":{"t@g":{"0":"x"}}}', "[]"])
def test_a_torn_file_is_refused_unless_its_backup_is_whole(tmp_path: Path, text: str) -> None:
    paths = paths_of(tmp_path)
    file = tmp_path / "config" / "consumerOffset.json"
    file.write_text(text)
    with pytest.raises(CorruptionError, match=r"consumerOffset\.json"):
        JsonTable(paths, Table.OFFSETS)
    assert file.read_text() == text
    file.with_name("consumerOffset.json.bak").write_text(json.dumps(OFFSETS))
    table = JsonTable(paths, Table.OFFSETS)
    table.write(table.take())
    assert content(file)["theirs"] == OFFSETS["theirs"]


def test_a_write_that_is_refused_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = paths_of(tmp_path)
    table = JsonTable(paths, Table.OFFSETS)
    table.write({"t@g": {0: 1}})
    shutil.copytree(tmp_path / "config", tmp_path / "before")
    faults = Faults(monkeypatch)
    faults.fail("write", ENOSPC, "/config/")
    with pytest.raises(StoreIOError, match="No space left"):
        table.write({"t@g": {0: 2}})
    with pytest.raises(StoreIOError, match="No space left"):
        table.write({"t@g": None, "t@new": {0: 2}})
    faults.heal()
    for path in (tmp_path / "before").iterdir():
        assert (tmp_path / "config" / path.name).read_bytes() == path.read_bytes()
    table.write({"t@other": {0: 3}})
    assert JsonTable(paths, Table.OFFSETS).take() == {"t@g": {0: 1}, "t@other": {0: 3}}
