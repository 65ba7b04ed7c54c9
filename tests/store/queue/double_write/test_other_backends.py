"""A third backend, known by entry points alone, does all that RocketMQ's two do."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cqstore.migration.plan.plan import read_plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight import preflight
from cqstore.migration.rollback.rollback import finish, rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend, queue_folders
from cqstore.store.record.message import Message
from cqstore.store.service.layout.left_behind import sentence
from cqstore.store.service.layout.log_paths import log_paths
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import (
    StoreMode,
    change_mode,
    current_mode,
    possible_steps,
    store_modes,
)
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.installed_backends import backends_of
from tests.kit.migrations import NO_SPARK, move
from tests.kit.other_files import FOLDER, OtherFiles, install
from tests.kit.served import served

BACKENDS = ["file", "rocksdb", "other"]
SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16)


@pytest.fixture(autouse=True)
def _other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "installed", monkeypatch)


def put(root: Path, count: int, topic: str = "t", **options: Any) -> None:
    with MessageStore.open(root, housekeeping=False, **options) as store:
        for number in range(count):
            message = Message(topic, b"%d" % number, number % 3, {"TAGS": "a"})
            assert store.put_message(message).ok


def filled(root: Path, name: str) -> Path:
    put(root, 30, backend=name, config=SMALL)
    return root


def parts(root: Path, config: StoreConfig | None = None) -> list[str]:
    with MessageStore.open(root, config, read_only=True) as store:
        return [each.name for each in components_of(store).queues.backends()]


def test_it_is_opened_put_to_read_rebuilt_and_checked(tmp_path: Path) -> None:
    root = filled(tmp_path / "store", "other")
    assert (root / FOLDER / "t" / "1").is_dir()
    assert not (root / "consumequeue").exists()
    before = served(root)
    assert {len(units) for units in before.values()} == {11}  # an end and ten units
    assert parts(root) == ["other"]
    with pytest.raises(RefusedStoreError, match=r"the queues are in backend 'other', not 'file'"):
        MessageStore.open(root, backend="file")
    for path in sorted((root / FOLDER / "t" / "1").iterdir()):
        path.write_bytes(bytes(range(200)) * 2)
    with MessageStore.open(
        root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES), housekeeping=False
    ) as store:
        assert [finding for finding in store.check() if finding.damage] == []
    assert served(root) == before


def test_its_queues_are_read_by_name(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL, backend="other", housekeeping=False) as store:
        kept = components_of(store).queues.queue("t", 0)
        assert kept.pull(0, 32)[:2] == kept.ends() == (0, 0)
        for count in (3, 1):
            for _ in range(count):
                assert store.put_message(Message("t", b"x")).ok
            assert store.max_offset("t", 0) == kept.max_offset() == count
            block = kept.pull(0, 32).block
            assert block is not None
            assert block.count == count
            store.delete_topic("t")
            assert kept.pull(0, 32)[:2] == (0, 0)


def test_the_configuration_names_it(tmp_path: Path) -> None:
    settings = {"storeType": "Other"}
    with MessageStore.open(tmp_path / "new", StoreConfig.from_mapping(settings)) as store:
        assert components_of(store).queues.name == "other"
    root = filled(tmp_path / "store", "file")
    both = StoreConfig.from_mapping({
        "rocksdbCQDoubleWriteEnable": "true", "combineCQLoadingCQTypes": "default;other",
        "combineCQPreferCQType": "other", "readTopics": "t=file",
    })  # fmt: skip
    put(root, 6, config=both)
    assert parts(root, both) == ["other", "file"]
    with MessageStore.open(root, both, read_only=True) as store:
        assert store.verify().is_clean
        assert store.verify().units == 36
    with pytest.raises(StoreConfigError, match=r"expected default or other or defaultRocksDB"):
        StoreConfig.from_mapping({"combineCQLoadingCQTypes": "none"})
    with pytest.raises(StoreConfigError, match=r"is not in combineCQLoadingCQTypes"):
        StoreConfig.from_mapping({"combineCQPreferCQType": "other"})
    assert backends_of("OTHER; defaultRocksDB;file") == ["other", "rocksdb"]
    assert "storeType=other" in sentence("other", 1, 2, "file")


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["file", "rocksdb"])
def test_a_store_goes_over_double_write_there_and_back(tmp_path: Path, beside: str) -> None:
    root = filled(tmp_path / "store", beside)
    before = served(root)
    names = [beside, f"double-write-{beside}+other", f"double-write-other+{beside}", "other"]
    for name in [*names[1:], *reversed(names[:-1])]:
        assert name in {step.to for step in possible_steps(root) if step.is_possible}
        assert change_mode(root, StoreMode(name)).after == name
        put(root, 3, "later")
        assert parts(root) == list(StoreMode(name).backends)
        assert served(root).items() >= before.items()
    with pytest.raises(RefusedStoreError, match=r"to other in one step: expected "):
        change_mode(root, StoreMode("other"))


def test_states_are_read_as_they_are_written() -> None:
    assert [mode for mode in store_modes() if "other" not in mode.backends] == [
        "file", "double-write-file", "double-write-rocksdb", "rocksdb",
    ]  # fmt: skip
    for mode in store_modes():
        assert StoreMode.of(*mode.backends) == mode
        assert all(mode in neighbour.neighbours for neighbour in mode.neighbours)
        for goal in store_modes():
            steps = [mode]
            while steps[-1] != goal:
                steps.append(steps[-1].toward(goal))
                assert steps[-1] in steps[-2].reachable
            assert len(steps) <= 5
    assert StoreMode("file").toward(StoreMode("rocksdb")) == "double-write-file"
    assert StoreMode("double-write-file").toward(StoreMode("rocksdb")) == "rocksdb"
    with pytest.raises(
        ValueError, match=r"invalid store state 'double-write-other': expected one of file, "
    ):
        StoreMode("double-write-other")


@pytest.mark.long
@pytest.mark.parametrize(("source", "target"), [("file", "other"), ("other", "rocksdb")])
def test_queues_are_moved_to_it_and_from_it(tmp_path: Path, source: str, target: str) -> None:
    root = filled(tmp_path / "store", source)
    before = served(root)
    report = preflight(root, to=target)
    assert [finding.code for finding in report.refusals] == []
    assert report.surveyed == source
    move(root, target)
    assert verify_migration(root, master=NO_SPARK).equal
    put(root, 5, "since")
    whole = served(root)
    assert switch(root).state == target
    assert (parts(root), served(root)) == ([target], whole)
    back = rollback(root)
    assert back is not None
    assert (back.state, parts(root), served(root)) == (source, [source], whole)
    assert not backend(target).present(StorePaths(root))
    assert whole.items() >= before.items()


@pytest.mark.long
def test_a_migration_to_it_is_finished_by_processes_and_commands(tmp_path: Path) -> None:
    root = filled(tmp_path / "store", "file")
    make_plan(root, target="other", segment_units=10)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    assert read_plan(Workspace.of(root)).target == "other"
    switch(root)
    assert list(finish(root)) == ["file"]
    assert parts(root) == ["other"]
    assert not (root / "consumequeue" / "t").exists()
    command = Path(sys.executable).parent / "cqstore"
    done = subprocess.run(
        [command, "mode", root, "--output", "json"], check=True, capture_output=True
    )
    facts = json.loads(done.stdout)
    assert facts["state"] == "other"
    assert "step to double-write-other+rocksdb" in facts
    bad = subprocess.run([command, "mode", root, "--to", "x"], check=False, capture_output=True)
    assert bad.returncode == 2


@pytest.mark.parametrize("count", [2, 3])
def test_a_state_keeps_two_backends_at_most(tmp_path: Path, count: int) -> None:
    found = sorted(BACKENDS[-count:])
    layout = StoreLayout(
        StorePaths(tmp_path), log_paths(tmp_path, StoreConfig()), has_log=True, backends=found
    )
    if count == 2:
        assert current_mode(layout, StoreConfig()) == "double-write-other+rocksdb"
        return
    with pytest.raises(RefusedStoreError, match=r"no state keeps the queues in file and other"):
        current_mode(layout, StoreConfig())


def test_its_folders_are_synced_and_measured_with_the_others(tmp_path: Path) -> None:
    names = [folder.name for folder in queue_folders(StorePaths(tmp_path))]
    assert sorted(names) == [
        "batchconsumequeue", "consumequeue", "consumequeue_ext", "consumequeue_rocksdb", FOLDER,
    ]  # fmt: skip


def test_two_backends_of_one_word_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherFiles, "store_types", ("Default",))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StoreConfigError, match=r"'file' and 'other' both use the name"):
        StoreConfig()
    monkeypatch.setattr(OtherFiles, "store_types", ())
    monkeypatch.setattr(OtherFiles, "name", "another")
    with pytest.raises(StoreConfigError, match=r"has another name, 'another'"):
        StoreConfig()


def test_a_state_of_a_backend_that_is_gone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = filled(tmp_path / "store", "file")
    change_mode(root, StoreMode("double-write-file+other"))
    monkeypatch.undo()  # not installed any more
    with pytest.raises(CorruptionError, match=r"state 'double-write-file\+other': expected one of"):
        MessageStore.open(root)
