"""Each form of metadata, as RocketMQ's managers wrote it, beside what they themselves read."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table, readings
from cqstore.store.paths import StorePaths
from tests.kit.metadata_forms import LIGHT, databases, expected_forms, unpack_forms
from tests.kit.tree import unchanged

EXPECTED = expected_forms()
each_form = pytest.mark.parametrize("form", list(Form))
in_rocksdb = pytest.mark.parametrize("form", [Form.V1, Form.SINGLE, Form.V2])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forms")
    unpack_forms(folder)
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    unpack_forms(tmp_path)
    return tmp_path


def the_one(root: Path) -> BrokerMetadata:
    (found,) = read_forms(StorePaths(root))
    return found


def as_text(offsets: dict[str, dict[int, int]]) -> dict[str, dict[str, int]]:
    return {key: {str(each): at for each, at in row.items()} for key, row in offsets.items()}


@each_form
def test_topics_are_those_of_rocketmq(stores: Path, form: Form) -> None:
    found, expected = the_one(stores / form), EXPECTED[form]["topics"]
    assert found.form is form
    assert not found.faults
    assert {"orders11", "at@sign", "prüfung测试", "parent"} <= found.topics.keys()
    assert "gone" not in found.topics
    for name, config in found.topics.items():
        assert config == expected[name]
    # The rest a broker makes at each start, whether it has kept them or not.
    made = {name for name in expected if name not in found.topics}
    assert not any(name.startswith(("orders", "at", "p")) for name in made)


@each_form
def test_groups_and_offsets_are_those_of_rocketmq(stores: Path, form: Form) -> None:
    found, expected = the_one(stores / form), EXPECTED[form]
    assert "grüppe@x" in found.groups
    assert found.groups == {name: expected["groups"][name] for name in found.groups}
    assert found.forbidden == expected["forbidden"]
    offsets = as_text(found.offsets)
    light = offsets.pop(LIGHT)
    assert light == {"0": 5}
    assert offsets == {key: row for key, row in expected["offsets"].items() if key != LIGHT}
    assert offsets["at@sign@grüppe@x"] == {"1": 1 << 40}


@each_form
def test_versions_are_those_of_rocketmq(stores: Path, form: Form) -> None:
    found, expected = the_one(stores / form), EXPECTED[form]
    for table in (Table.TOPICS, Table.GROUPS):
        version: dict[str, Any] = expected[f"{table}Version"]
        assert found.versions[table] == (
            version["stateVersion"], version["timestamp"], version["counter"],
        )  # fmt: skip


def test_a_file_that_counts_no_changes_has_no_version(stores: Path) -> None:
    path = stores / Form.JSON / "config" / "topics.json"
    content = json.loads(path.read_text())
    del content["dataVersion"]
    path.write_text(json.dumps(content))
    assert the_one(stores / Form.JSON).versions.keys() == {Table.GROUPS, Table.OFFSETS}


def test_version_2_alone_keeps_offsets_of_pull_consumers(stores: Path) -> None:
    assert the_one(stores / Form.V2).pull_offsets == {"orders2@billing2": {0: 77}}
    assert not the_one(stores / Form.V1).pull_offsets


@each_form
def test_reading_changes_no_byte(own: Path, form: Form) -> None:
    with unchanged(own / form):
        the_one(own / form)


@pytest.mark.parametrize("content", [b"", b'{"offsetTable":{"a@b":{0:1', b"[]", b"\xff\xfe"])
def test_a_torn_file_is_read_from_its_backup_and_named(own: Path, content: bytes) -> None:
    path = own / Form.JSON / "config" / "consumerOffset.json"
    whole = path.read_bytes()
    path.with_name("consumerOffset.json.bak").write_bytes(whole)
    path.write_bytes(content)
    found = the_one(own / Form.JSON)
    assert as_text(found.offsets) == EXPECTED[Form.JSON]["offsets"]
    (fault,) = found.faults
    assert fault.path == path


def test_a_torn_file_without_a_backup_leaves_the_other_tables(own: Path) -> None:
    path = own / Form.JSON / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:200])
    found = the_one(own / Form.JSON)
    assert not found.offsets
    assert "orders3" in found.topics
    assert [fault.path for fault in found.faults] == [path, path.with_name(f"{path.name}.bak")]


@pytest.mark.parametrize("value", ['"x"', "null", str(1 << 63), "[]", "{}", "1l", '""'])
def test_an_offset_that_is_no_number_is_named(own: Path, value: str) -> None:
    path = own / Form.JSON / "config" / "consumerOffset.json"
    path.write_text(f'{{"offsetTable":{{"orders@billing":{{0:{value}}}}}}}')
    fault = the_one(own / Form.JSON).faults[0]
    assert "orders@billing" in str(fault)
    assert fault.path == path


@in_rocksdb
def test_what_damage_takes_away_is_named(own: Path, form: Form) -> None:
    tables = [path for each in databases(own / form) for path in each.glob("*.sst")]
    logs = [path for each in databases(own / form) for path in each.glob("*.log")]
    whole = {path: path.read_bytes() for path in (*tables, *logs) if path.stat().st_size}
    assert whole
    before = the_one(own / form)
    for path, data in whole.items():
        for at in range(3, len(data), len(data) // 3 + 1):
            damaged = bytearray(data)
            damaged[at] ^= 0xFF
            path.write_bytes(damaged)
            found = the_one(own / form)
            kept = (found.topics, found.groups, found.offsets)
            assert found.faults or kept == (before.topics, before.groups, before.offsets), (
                path,
                at,
            )
        path.write_bytes(data)


@in_rocksdb
def test_a_database_without_its_manifest_is_named(own: Path, form: Form) -> None:
    gone = databases(own / form)[0]
    for path in gone.glob("MANIFEST-*"):
        path.unlink()
    faults = the_one(own / form).faults
    assert [fault.path for fault in faults] == [gone]


def test_a_key_with_several_signs_has_several_readings() -> None:
    assert list(readings("at@sign@g@x")) == [
        ("at", "sign@g@x"),
        ("at@sign", "g@x"),
        ("at@sign@g", "x"),
    ]
    assert list(readings("orders@billing")) == [("orders", "billing")]
    assert not list(readings("orders"))
    assert not list(readings("@billing@"))[1:]
