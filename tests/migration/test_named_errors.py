"""Every refusal of the disk names what was being done, and the file or folder that it met."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cqstore.migration.from_log.block_source import BlockUnitSource
from cqstore.migration.from_log.blocks import UNITS, BlockWriter, map_units, read_index
from cqstore.migration.from_log.merge import merge_indexes
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.from_log.scan_plan import ScanSpace
from cqstore.migration.markers import files_in
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight import preflight
from cqstore.migration.rollback import rollback
from cqstore.migration.run import run as run_module
from cqstore.migration.run import segment
from cqstore.migration.run.log_records import LogRecords
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch import switch
from cqstore.migration.verify.fingerprint import made_digest
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.queue.units import UnitBatch
from cqstore.store.settings.properties_file import read_properties
from tests.kit.migrations import NO_SPARK
from tests.migration.made import in_this_process
from tests.migration.made_log import Made, make_log
from tools.bench.sample_store import make_store


def named(work: Callable[[], object], what: str, path: Path) -> None:
    with pytest.raises(StoreIOError, match=what) as caught:
        work()
    assert caught.value.path == path
    assert caught.value.reason.startswith(what) or what in str(caught.value)


def refuse(*_: object, **__: object) -> None:
    raise OSError(5, "no more")


def keep(_: Path, *, ignore_errors: bool = False) -> None:
    if not ignore_errors:
        refuse()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


# ---- what is not there


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    none, space = tmp_path / "none", Workspace(tmp_path / "w")
    scan = ScanSpace(space)
    named(lambda: LogRecords([tmp_path, none]), "list the commit log", none)
    named(lambda: BlockUnitSource(space), "read the merged index", scan.merged)
    named(lambda: read_index(none, ""), "read the index of a block file", none)
    named(lambda: map_units(none), "read a block file", none / UNITS)
    named(scan.read_plan, "read the plan of a scan", scan.plan)
    named(lambda: switch._copy(none, tmp_path / "x"), "copy", none)
    named(lambda: files_in(none), "list the files of an attempt", none)
    named(lambda: read_properties(none), "read the configuration", none)
    make_log(tmp_path, [Made("t", 0, 1000 + at) for at in range(20)], 1024)
    records, gone = LogRecords([tmp_path / "commitlog"]), tmp_path / "commitlog" / f"{1024:020d}"
    gone.unlink()
    named(lambda: records._heads._files.file(1), "read the commit log", gone)
    scan.plan.parent.mkdir(parents=True)
    for text in ("", "{}", "[]", "\0"):
        scan.plan.write_text(text)
        with pytest.raises(CorruptionError, match="not a valid plan of a log scan") as caught:
            scan.read_plan()
        assert caught.value.path == scan.plan


def test_blocks_that_cannot_be_written_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        writer, units = BlockWriter(tmp_path), UnitBatch()
        units.add(("t", 0), 0, 0, 91, 0, 0)
        writer.abandon()
        writer._file = cast("Any", full)
        named(lambda: writer.add(units), "write a block file", tmp_path / UNITS)
    with monkeypatch.context() as patched:
        patched.setattr(np, "save", refuse)
        named(BlockWriter(tmp_path).finish, "write the index of a block file", tmp_path)
    scan = ScanSpace(Workspace(tmp_path))
    scan.root.mkdir()
    unfinished = scan.merged.with_name("merging")
    unfinished.touch()
    named(lambda: merge_indexes(scan, [], []), "write the merged index", unfinished)


# ---- steps


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
    make_store(tmp_path / "store", 100, 4)
    return tmp_path / "store"


def test_steps_of_a_move_that_the_disk_refuses_name_their_folders(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Workspace.of(root)
    space.slices.mkdir(parents=True)
    named(lambda: make_plan(root), "write the plan's queues", space.slices)
    space.slices.rmdir()
    plan = make_plan(root)
    space.segments.touch()
    named(lambda: run_plan(root, master=NO_SPARK), "clean up the workspace", space.segments)
    with monkeypatch.context() as patched:
        patched.setattr(
            "cqstore.migration.markers.uuid.uuid4", lambda: SimpleNamespace(hex="0" * 32)
        )
        attempt = space.segments / f"000000.{os.getpid()}-{'0' * 8}"
        named(lambda: segment.write_segment(space, plan, 0), "make the folder of an attempt",
              attempt)  # fmt: skip
    space.segments.unlink()
    first = segment.write_segment(space, plan, 0)
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.migration.markers.make_marker", lambda *_: first)
        patched.setattr("cqstore.migration.markers.shutil.rmtree", keep)
        segments, second = segment.segments_of(space, plan), replace(first, attempt="second")
        named(lambda: segments.make(0, second, lambda _: None),
              "remove the second attempt at a task", space.segments)  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "sync_folder", refuse)
        named(lambda: run_plan(root, master=NO_SPARK), "finish the new queues",
              space.made.root)  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.migration.verify.fingerprint._file_digest", refuse)
        named(lambda: made_digest(space), "read the new queues", space.made.root)
    with monkeypatch.context() as patched:
        patched.setattr(rollback, "sync_folder", refuse)
        named(lambda: rollback._clear(space, "dropped"), "empty the workspace", space.root)


def test_steps_of_a_scan_that_the_disk_refuses_name_their_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_log(root, [Made("t", 0, 1000 + at) for at in range(20)], 1024)
    scan = ScanSpace(Workspace.of(root))
    scan.root.mkdir(parents=True)

    def plan() -> object:
        return make_log_plan(root, target="file", master=NO_SPARK)

    where = "cqstore.migration.from_log.rebuild_plan.shutil.rmtree"
    with monkeypatch.context() as patched:
        patched.setattr(where, refuse)
        named(plan, "start a scan of the log", scan.root)
    with monkeypatch.context() as patched:
        patched.setattr("cqstore.migration.from_log.rebuild_plan.run_tasks", interrupt)
        with pytest.raises(KeyboardInterrupt):
            plan()
        (scan.root / "000000.left").mkdir()
        patched.setattr(where, refuse)
        named(plan, "clean up the workspace", scan.root)


def test_a_folder_that_cannot_be_looked_at_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.migration.preflight.examine.inspect_folder", refuse)
    named(lambda: preflight(root), "examine the store", root)
