"""A switch and a rollback bring topics, groups and offsets into the form that the broker reads.

What RocketMQ's managers wrote and read is the measure: ``tests/kit/metadata_forms.py``.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.broker.conversion import broker_process as stopped
from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.broker.conversion.conversion import CONVERTED
from cqstore.broker.metadata import convert
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.locations import FILES, names_of
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.writing import differences, write_form
from cqstore.migration.commands import app as migrate
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.status import status
from cqstore.migration.switch.switch import SwitchReport, switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.kit.metadata_forms import unpack_forms
from tests.kit.migrations import NO_SPARK
from tests.kit.tree import unchanged
from tests.migration.switch.test_switch import backend_of, prepare

Golden = Callable[[str], Path]
SETTINGS = {
    Form.V1: StoreConfig(),
    Form.SINGLE: StoreConfig.from_mapping({"useSingleRocksDBForAllConfigs": "true"}),
    Form.V2: StoreConfig.from_mapping({"configManagerVersion": "v2"}),
}


@pytest.fixture(autouse=True)
def _settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "_SETTLE_SECONDS", 0.05)


@pytest.fixture
def root(golden: Golden, tmp_path: Path) -> Path:
    """Return a store of files, with JSON files as RocketMQ's managers wrote them."""
    made = golden("basic-default")
    unpack_forms(tmp_path / "forms")
    shutil.rmtree(made / "config", ignore_errors=True)
    shutil.copytree(tmp_path / "forms" / Form.JSON / "config", made / "config")
    return made


def forms(root: Path) -> dict[Form, BrokerMetadata]:
    found = read_forms(StorePaths(root))
    assert not [fault for each in found for fault in each.faults]
    return {each.form: each for each in found}


def counted(found: BrokerMetadata) -> BrokerMetadata:
    """Return what it is to be elsewhere: a version that counts no change counts one."""
    versions = {
        table: each._replace(counter=max(1, each.counter)) for table, each in found.versions.items()
    }
    return replace(found, versions=versions)


def json_bytes(root: Path) -> dict[str, bytes]:
    return {name: (root / "config" / name).read_bytes() for name in FILES[:-1]}


def later(root: Path, form: Form, turn: int) -> BrokerMetadata:
    """Change the form in place as a broker does: a topic more, offsets that go on."""
    found = forms(root)[form]
    found.topics[f"later{turn}"] = {"topicName": f"later{turn}", "readQueueNums": 1}
    found.offsets[f"later{turn}@g"] = {0: 5 * turn}
    for table, version in found.versions.items():
        found.versions[table] = version._replace(counter=version.counter + 7)
    for name in names_of(form):
        path = root / "config" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    write_form(found, form, root)
    return found


def in_the_past(root: Path) -> None:
    for path in (root / "config").rglob("*"):
        os.utime(path, (1000, 1000))


@pytest.mark.parametrize("form", [Form.V1, Form.SINGLE])
def test_there_and_back_twice_with_what_is_changed_meanwhile(root: Path, form: Form) -> None:
    known = counted(forms(root)[Form.JSON])
    config = SETTINGS[form]
    for turn in (1, 2):
        in_the_past(root)
        prepare(root, "rocksdb")
        report = switch(root, config)
        there = forms(root)
        assert set(there) == {Form.JSON, form}
        assert not list(differences(known, there[form]))
        assert report.converted_tables["to"] == form
        assert report.converted_tables["topics"] == len(known.topics)
        assert report.converted_tables["offsets"] == sum(map(len, known.offsets.values()))
        known = later(root, form, 2 * turn)
        back = rollback(root, config)
        assert isinstance(back, SwitchReport)
        there = forms(root)
        assert set(there) == {Form.JSON}
        assert not list(differences(known, there[Form.JSON]))
        assert back.converted_tables["from"] == dict.fromkeys(map(str, Table), form)
        assert back.converted_tables["to"] == Form.JSON
        away = Path(str(back.converted_tables["movedTo"]))
        assert {path.name for path in away.iterdir()} >= set(names_of(form))
        for name in FILES[:-1]:
            path = root / "config" / name
            assert path.read_bytes() == path.with_name(f"{name}.bak").read_bytes()
        assert backend_of(root) == ["file"]
        known = counted(later(root, Form.JSON, 2 * turn + 1))


def test_files_of_a_young_broker_count_in_the_databases(root: Path) -> None:
    """Their versions count no change: RocksDB's managers pass over such files."""
    for name in FILES[:-1]:
        path = root / "config" / name
        content = broker_object(path.read_bytes())
        content["dataVersion"] = {"counter": 0, "stateVersion": 0, "timestamp": 5}
        path.write_text(json.dumps(content))
    prepare(root, "rocksdb")
    switch(root)
    there = forms(root)
    for table in Table:
        counters = [there[form].versions[table].counter for form in (Form.V1, Form.JSON)]
        assert counters == [1, 1], table  # were the files' higher, they would be taken in again


def test_json_files_stay_for_a_broker_with_the_former_store_type(root: Path) -> None:
    before, known = json_bytes(root), counted(forms(root)[Form.JSON])
    prepare(root, "rocksdb")
    switch(root)
    assert not list(differences(known, forms(root)[Form.JSON]))
    for name, data in before.items():
        path = root / "config" / name
        assert data in {path.read_bytes(), path.with_name(f"{name}.bak").read_bytes()}


def test_version_2_is_made_and_left_where_the_settings_say_so(root: Path) -> None:
    prepare(root, "rocksdb")
    with unchanged(root), pytest.raises(RefusedStoreError, match="--without forbidden"):
        switch(root, SETTINGS[Form.V2])
    report = switch(root, SETTINGS[Form.V2], without=[AcceptedLoss.FORBIDDEN])
    assert report.converted_tables["dropped"] == ["forbidden"]
    known = later(root, Form.V2, 1)
    assert rollback(root) is not None  # no setting says otherwise: that broker reads version 2 on
    assert not list(differences(known, forms(root)[Form.V2]))


def test_a_dry_run_says_what_is_converted_and_changes_nothing(root: Path) -> None:
    prepare(root, "rocksdb")
    switch(root)
    with unchanged(root):
        report = rollback(root, dry_run=True)
        assert isinstance(report, SwitchReport)
        assert report.converted_tables["from"] == dict.fromkeys(map(str, Table), Form.V1)
        assert "movedTo" not in report.converted_tables


def test_plan_and_status_name_the_tables(root: Path) -> None:
    words = ["plan", str(root), "--output", "json", "--master", "none"]
    done = CliRunner().invoke(migrate, words)
    assert done.exit_code == 0, (done.output, done.exception)
    planned = json.loads(done.stdout)["tables"]
    assert (planned["to"], planned["from"]["topics"]) == (Form.V1, Form.JSON)
    assert "tables" not in status(root)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    switch(root)
    known = status(root)["tables"]
    assert isinstance(known, dict)
    assert (known["step"], known["to"]) == ("converted tables", Form.V1)
    assert known["topics"] == planned["topics"]


def test_fields_that_no_release_writes_are_named(root: Path) -> None:
    path = root / "config" / "topics.json"
    content = path.read_bytes()
    odd = json.dumps(broker_object(content) | {"ours": {"x": 1}})
    path.write_text(odd)
    named = r"topics\.json: ours.*--without unknown-fields"
    with pytest.raises(RefusedStoreError, match=named):
        make_plan(root, target="rocksdb")
    path.write_bytes(content)
    prepare(root, "rocksdb")
    path.write_text(odd)
    with pytest.raises(RefusedStoreError, match=named):
        switch(root)
    report = switch(root, without=[AcceptedLoss.UNKNOWN_FIELDS])
    assert report.converted_tables["dropped"] == ["topics.json: ours"]


def test_a_switch_that_ended_before_the_queues_is_rolled_back_with_its_tables(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(root, "rocksdb")
    known = counted(forms(root)[Form.JSON])

    def ends(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cqstore.migration.switch.switch.set_mode", ends)
    with pytest.raises(KeyboardInterrupt):
        switch(root)
    assert set(forms(root)) == {Form.JSON, Form.V1}
    assert rollback(root) is None
    there = forms(root)
    assert set(there) == {Form.JSON}
    assert not list(differences(known, there[Form.JSON]))


@pytest.mark.parametrize("place", ["convert", "note"])
def test_a_conversion_that_ended_early_is_finished_and_noted(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    prepare(root, "rocksdb")
    ended: list[str] = []

    def ends(*_: object, **__: object) -> None:
        ended.append(place)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if place == "convert":
            patched.setattr(convert, "place", ends)
        else:
            real = Workspace.note

            def note(space: Workspace, step: str, **facts: object) -> None:
                if step == CONVERTED:
                    ends()
                real(space, step, **facts)

            patched.setattr(Workspace, "note", note)
        with pytest.raises(KeyboardInterrupt):
            switch(root)
    assert ended == [place]
    report = switch(root)
    assert report.converted_tables["to"] == Form.V1
    assert status(root)["stage"] == "switched"
    steps = [entry["step"] for entry in Workspace.of(root).history()]
    assert steps.count(CONVERTED) == 1
    assert not (root / "cqstore" / "new-metadata").exists()
