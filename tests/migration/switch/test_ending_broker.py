"""A broker that has released the lock may write its tables still: a switch and a rollback wait."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.broker.conversion import broker_process as stopped
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import Form
from cqstore.broker.metadata.writing import write_form
from cqstore.cli.app import app as cqstore
from cqstore.migration.commands import app as migrate
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.switch.metadata_steps import prepare_for
from cqstore.migration.switch.switch import SwitchReport, switch
from cqstore.store.errors import RefusedStoreError, StoreLockedError
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from tests.kit.tree import tree_digest
from tests.migration.switch.test_switch import backend_of, prepare

Golden = Callable[[str], Path]
WAITS = "waiting until the broker's tables have not changed"


@pytest.fixture(autouse=True)
def _settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "_SETTLE_SECONDS", 0.3)


class EndingBroker:
    """Writes its offsets once more as soon as the command says that it waits."""

    def __init__(self, root: Path) -> None:
        self.path = root / "config" / "consumerOffset.json"
        self.path.parent.mkdir(exist_ok=True)
        self.reported: list[str] = []
        self.write(1)

    def write(self, offset: int) -> None:
        self.path.write_text(json.dumps({"offsetTable": {"t@g": {"0": offset}}}))

    def on_event(self, sentence: str) -> None:
        if WAITS in sentence:
            self.write(2)
        self.reported.append(sentence)

    @property
    def waited(self) -> bool:
        return any(WAITS in each for each in self.reported)

    def offsets(self) -> object:
        return json.loads(self.path.read_text())


TAKEN = {"offsetTable": {"t@g": {"0": 2}}}


def test_a_switch_takes_the_tables_that_were_written_after_the_lock(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    broker = EndingBroker(root)
    report = switch(root, on_event=broker.on_event)
    assert report.prepared_tables
    found = broker.offsets()
    assert isinstance(found, dict)
    assert found.pop("dataVersion")["counter"] == 1
    assert found == TAKEN
    assert backend_of(root) == ["rocksdb"]


def test_a_rollback_waits_where_tables_were_written_since_the_switch(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    broker = EndingBroker(root)
    switch(root)
    seen: list[str] = []
    tables = tree_digest(root / "config")
    rollback(root, dry_run=True, on_event=seen.append)
    assert tree_digest(root / "config") == tables
    broker.write(1)
    report = rollback(root, on_event=broker.on_event)
    assert isinstance(report, SwitchReport)
    assert broker.waited
    found = broker.offsets()
    assert isinstance(found, dict)
    assert found["offsetTable"] == TAKEN["offsetTable"]
    assert not any(WAITS in each for each in seen)


def test_tables_that_the_switch_itself_wrote_are_not_waited_for(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    broker = EndingBroker(root)
    switch(root)
    rollback(root, on_event=broker.on_event)
    assert not broker.waited


def test_old_tables_are_not_waited_for(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    broker = EndingBroker(root)
    for path in (root / "config").rglob("*"):
        os.utime(path, (1, 1))
    for path in root.glob("timer*"):
        os.utime(path, (1, 1))
    switch(root, on_event=broker.on_event)
    assert not broker.waited


def test_a_store_that_is_open_is_refused_before_the_wait(golden: Golden) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    broker = EndingBroker(root)
    lock = StoreLock(StorePaths(root))
    try:
        with pytest.raises(StoreLockedError):
            switch(root, on_event=broker.on_event)
    finally:
        lock.release()
    assert not broker.waited


def test_tables_that_change_all_the_time_are_refused(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden("basic-default")
    prepare(root, "rocksdb")
    EndingBroker(root)
    times = iter(range(1 << 40, 1 << 41))
    monkeypatch.setattr(stopped, "newest_table", lambda _: time.time() + next(times))
    monkeypatch.setattr(stopped, "_MAX_WAIT_SECONDS", 0.5)
    before = tree_digest(root)
    with pytest.raises(RefusedStoreError, match="still change after"):
        switch(root)
    assert tree_digest(root) == before


def test_a_step_of_mode_that_keeps_the_tables_names_the_command(golden: Golden) -> None:
    root = golden("basic-default")
    for state in ("double-write-file", "double-write-rocksdb", "rocksdb"):
        EndingBroker(root)
        before = tree_digest(root / "config")
        done = CliRunner().invoke(cqstore, ["mode", str(root), "--to", state, "--keep-tables"])
        assert done.exit_code == 0
        assert tree_digest(root / "config") == before
        assert f"cqstore migrate tables {root}" in done.output
        assert f"in state {state}" in done.output
    broker = EndingBroker(root)
    report = prepare_for(root, on_event=broker.on_event)
    assert (report.state, report.older_tables) == ("rocksdb", [])
    assert report.prepared_tables
    assert report.converted_tables["to"] == "v1"
    found = broker.offsets()
    assert isinstance(found, dict)
    assert (found["offsetTable"], found["dataVersion"]["counter"]) == (TAKEN["offsetTable"], 1)
    again = prepare_for(root)
    assert (again.prepared_tables, again.converted_tables) == ([], {})


def step(root: Path, state: str) -> dict[str, object]:
    done = CliRunner().invoke(cqstore, ["mode", str(root), "--to", state, "--output", "json"])
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_steps_of_mode_convert_the_tables_there_and_back(golden: Golden) -> None:
    """An operator who changes the state by hand: the next broker reads what the last one wrote."""
    root = golden("basic-default")
    EndingBroker(root).write(7)
    steps = ["double-write-file", "double-write-rocksdb", "rocksdb"]
    done = [step(root, state)["convertedTables"] for state in steps]
    assert done[:2] == [{}, {}]
    assert isinstance(done[2], dict)
    assert (done[2]["to"], done[2]["offsets"]) == ("v1", 1)
    (there,) = [each for each in read_forms(StorePaths(root)) if each.form is Form.V1]
    assert there.offsets == {"t@g": {0: 7}}
    shutil.rmtree(root / "config" / "consumerOffsets")
    there.offsets = {"t@g": {0: 9}}
    write_form(there, Form.V1, root / "made")
    (root / "made" / "config" / "consumerOffsets").rename(root / "config" / "consumerOffsets")
    back = step(root, "double-write-rocksdb")["convertedTables"]
    assert isinstance(back, dict)
    assert back["to"] == "json"
    (there,) = read_forms(StorePaths(root))
    assert (there.form, there.offsets) == (Form.JSON, {"t@g": {0: 9}})


def test_a_refused_step_of_mode_touches_no_table(golden: Golden) -> None:
    root = golden("basic-default")
    EndingBroker(root)
    before = tree_digest(root / "config")
    done = CliRunner().invoke(cqstore, ["mode", str(root), "--to", "rocksdb"])
    assert isinstance(done.exception, RefusedStoreError)
    assert tree_digest(root / "config") == before


def test_the_command_refuses_a_database_that_cannot_be_read(golden: Golden) -> None:
    root = golden("basic-default")
    (root / "config" / "topics").mkdir(parents=True, exist_ok=True)
    (root / "config" / "topics" / "CURRENT").write_text("MANIFEST-000004")
    before = tree_digest(root)
    for words in ([], ["--to", "rocksdb", "--config", str(single_conf(root.parent))]):
        done = CliRunner().invoke(migrate, ["tables", str(root), *words])
        assert isinstance(done.exception, RefusedStoreError)
        assert "cannot convert the broker's topics" in str(done.exception)
        assert tree_digest(root) == before
    done = CliRunner().invoke(migrate, ["tables", str(root), "--accept-older-tables"])
    assert done.exit_code == 0
    assert "topics" in done.output
    done = CliRunner().invoke(migrate, ["tables", str(root), "--to", "rocksdb"])
    assert done.exit_code == 0


def single_conf(folder: Path) -> Path:
    path = folder / "broker.conf"
    path.write_text("useSingleRocksDBForAllConfigs=true\n")
    return path
