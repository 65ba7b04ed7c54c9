"""Which form of a broker's tables an open log keeps, and how it gets there."""

import json
from itertools import count
from pathlib import Path

import pytest

from cqstore.broker.conversion.owned_tables import OwnedTables
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.writing import write_form
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreClosedError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.kit.killed_at_change import changes_until_killed
from tests.kit.metadata_forms import SETTINGS

FILE, ROCKSDB, BOTH = ["file"], ["rocksdb"], ["file", "rocksdb"]
OFFSETS = {"t@g": {0: 5}, "u@h": {1: 7, 2: 8}}
TOPICS: dict[str, dict[str, object]] = {"t": {"topicName": "t", "perm": 6}}
NEW: dict[str, dict[str, object]] = {"new": {"topicName": "new"}}


def config(*words: str) -> StoreConfig:
    found = dict(word.split("=") for word in words)
    found.pop("storeType", None)
    return StoreConfig.from_mapping(found)


def opened(root: Path, backends: list[str], *words: str) -> OwnedTables:
    return OwnedTables(StorePaths(root), backends, config(*words))


def written(root: Path, form: Form) -> None:
    made = BrokerMetadata(form, root, offsets=OFFSETS, topics=TOPICS)
    made.versions = {table: DataVersion(0, 1_700_000_000_000, 41) for table in Table}
    write_form(made, form, root)


def forms(root: Path) -> dict[Form, BrokerMetadata]:
    found = read_forms(StorePaths(root))
    assert not [each.faults for each in found if each.faults]
    return {each.form: each for each in found}


@pytest.mark.parametrize(
    ("backends", "words", "form"),
    [
        (FILE, [], Form.JSON),
        (BOTH, [], Form.JSON),
        (BOTH, ["useSingleRocksDBForAllConfigs=true"], Form.JSON),
        (FILE, ["useSingleRocksDBForAllConfigs=true"], Form.JSON),
        (ROCKSDB, [], Form.V1),
        (ROCKSDB, ["configManagerVersion=v1"], Form.V1),
        (ROCKSDB, ["useSingleRocksDBForAllConfigs=false"], Form.V1),
        (ROCKSDB, ["useSingleRocksDBForAllConfigs=true"], Form.SINGLE),
        (ROCKSDB, ["configManagerVersion=v2", "useSingleRocksDBForAllConfigs=true"], Form.V2),
        (FILE, ["configManagerVersion=v2"], Form.V2),
        (BOTH, ["configManagerVersion=v2"], Form.V2),
    ],
)
def test_a_new_store_has_the_form_that_a_broker_chooses(
    tmp_path: Path, backends: list[str], words: list[str], form: Form
) -> None:
    """As ``BrokerController.initializeMetadata`` chooses its managers."""
    tables = opened(tmp_path, backends, *words)
    assert tables.form is form
    assert tables.offsets.take() == {}
    assert not (tmp_path / "config").exists()
    tables.offsets.write(OFFSETS)
    tables.topics.write(TOPICS)
    tables.stop()
    found = forms(tmp_path)
    assert list(found) == [form]
    assert (found[form].offsets, found[form].topics) == (OFFSETS, TOPICS)
    if form is not Form.JSON:
        with pytest.raises(StoreClosedError):
            tables.offsets.write(OFFSETS)


@pytest.mark.parametrize(
    ("backends", "there", "form"),
    [
        (ROCKSDB, Form.SINGLE, Form.SINGLE),  # as the last broker had it
        (ROCKSDB, Form.V2, Form.V2),
        (FILE, Form.V2, Form.V2),
        (ROCKSDB, Form.V1, Form.V1),
    ],
)
def test_tables_go_on_in_the_form_that_is_there(
    tmp_path: Path, backends: list[str], there: Form, form: Form
) -> None:
    written(tmp_path, there)
    tables = opened(tmp_path, backends)
    assert tables.form is form
    assert tables.offsets.take() == OFFSETS
    tables.offsets.write({"t@g": {0: 6}})
    tables.stop()
    found = forms(tmp_path)
    assert list(found) == [form]
    assert found[form].offsets == OFFSETS | {"t@g": {0: 6}}
    assert found[form].versions[Table.OFFSETS].counter == 42
    assert found[form].versions[Table.TOPICS].counter == 41
    assert not (tmp_path / "cqstore" / "replaced").exists()


@pytest.mark.parametrize("there", list(Form))
@pytest.mark.parametrize("to", [Form.V1, Form.SINGLE, Form.V2])
def test_another_form_is_converted_once_and_kept_aside(
    tmp_path: Path, there: Form, to: Form, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, there)
    words = [*SETTINGS[to]] + (["configManagerVersion=v1"] if to is not Form.V2 else [])
    words += ["useSingleRocksDBForAllConfigs=false"] if to is Form.V1 else []
    for offset in (1, 2):
        tables = opened(tmp_path, ROCKSDB, *words)
        assert tables.form is to
        assert tables.offsets.take()["u@h"] == OFFSETS["u@h"]
        tables.offsets.write({"t@g": {0: offset}})
        tables.topics.write(NEW)
        tables.stop()
    found = forms(tmp_path)
    assert list(found) == [to]
    assert found[to].offsets == OFFSETS | {"t@g": {0: 2}}
    assert found[to].topics.keys() == {"t", "new"}
    assert found[to].versions[Table.OFFSETS].counter == 43
    told = [each for each in caplog.messages if "were converted to the form" in each]
    assert len(told) == (there is not to)
    kept = [*(tmp_path / "cqstore" / "replaced").iterdir()] if there is not to else []
    assert [str(each) in told[0] for each in kept] == [True] * len(told)


def test_what_a_form_cannot_hold_stays_in_files_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path, Form.JSON)
    file = tmp_path / "config" / "consumerOffset.json"
    theirs = json.loads(file.read_text()) | {"theirs": {"later": 1}}
    file.write_text(json.dumps(theirs))
    tables = opened(tmp_path, ROCKSDB)
    assert tables.form is Form.JSON
    assert "not kept in the form v1: " in caplog.text
    assert "consumerOffset.json: theirs" in caplog.text
    tables.offsets.write({"t@g": {0: 6}})
    found = json.loads(file.read_text())
    assert found["theirs"] == {"later": 1}
    assert found["offsetTable"]["t@g"] == {"0": 6}
    assert found["dataVersion"]["counter"] == 42  # so that a broker imports it


def test_a_table_of_version_2_is_refused_where_no_broker_reads_it(tmp_path: Path) -> None:
    written(tmp_path, Form.V2)
    with pytest.raises(RefusedStoreError, match="Open the log with configManagerVersion=v2"):
        opened(tmp_path, FILE, "configManagerVersion=v1")


@pytest.mark.parametrize("there", [Form.JSON, Form.V1])
def test_a_damaged_table_is_refused_and_stays(tmp_path: Path, there: Form) -> None:
    written(tmp_path, there)
    for path in sorted((tmp_path / "config").rglob("*")):
        if path.name.startswith("consumerOffset.json") or path.suffix == ".sst":
            path.write_bytes(path.read_bytes()[:-3])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CorruptionError) as caught:
        opened(tmp_path, ROCKSDB)
    assert caught.value.path is not None
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("there", [Form.JSON, pytest.param(Form.V2, marks=pytest.mark.long)])
def test_a_kill_within_the_conversion_loses_no_offset(tmp_path: Path, there: Form) -> None:
    """Before each change of a name; RocksDB's own are not seen."""
    for number in count(1):
        root = tmp_path / str(number)
        written(root, there)
        if changes_until_killed("tests.kit.killed_tables", number, root) is not None:
            break
        tables = opened(root, ROCKSDB, "configManagerVersion=v1")
        assert tables.form is Form.V1
        assert tables.offsets.take() == OFFSETS, number
        assert tables.topics.take() == TOPICS, number
        tables.stop()
    assert number > 10
