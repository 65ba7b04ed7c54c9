"""Whole queues made into a database: what is in it, where its files go, and in which order."""

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from cqstore.cq_rocksdb.bulk import RocksDBBulk, RocksDBUnitSink
from cqstore.cq_rocksdb.bulk_source import RocksDBUnitSource
from cqstore.cq_rocksdb.engine.errors import RocksDBError, RocksDBFullError
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.folders import separate_folder
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, queue_prefix
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import (
    IllegalMessageError,
    RefusedStoreError,
    StoreClosedError,
    StoreIOError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.descriptors import descriptors_of
from tests.kit.engines import engine_in_use, put_raw
from tests.kit.rocksdb_queues import RocksDBQueues, engine_of, lose, phys, put

pytestmark = pytest.mark.usefixtures("engine")

BULK = RocksDBBulk()
Step = Callable[[], object]
A, B, C = QueueKey("A", 0), QueueKey("B", 1), QueueKey("C", 0)


def config(**settings: object) -> StoreConfig:
    fixed = {"rocksdb_memory_bytes": 16 << 20, "rocksdb_engine": engine_in_use()}
    return StoreConfig.from_mapping({**fixed, **settings})


def units(first_phy: int, count: int) -> UnitRows:
    rows = np.zeros(count, UNIT_ROWS)
    rows["phy_offset"] = np.arange(first_phy, first_phy + 100 * count, 100)
    rows["size"], rows["store_timestamp"] = 100, 7
    return rows


def sink(folder: Path) -> RocksDBUnitSink:
    folder.mkdir()
    return BULK.sink(folder, config())


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """What three sinks wrote: units 5 to 9 of A and the end of B, nothing, units 10 to 11 of A."""
    folders = [tmp_path / name for name in ("first", "second", "third")]
    first, second, third = map(sink, folders)
    first.add(A, 5, units(500, 3))
    first.add(A, 8, units(0, 0))
    first.add(A, 8, units(800, 2))
    assert first.finish() == (folders[0] / "units.sst").stat().st_size
    assert second.finish() == 0
    third.add(A, 10, units(1000, 2))
    third.end(A, 12)
    third.end(B, 4)
    third.add(C, 0, units(2000, 1))
    third.end(C, 1)
    calls = CallOrder(tmp_path)
    with calls.watching():
        size = third.finish()
    assert calls.made[-1] == ("sync", "third")
    assert size == sum(path.stat().st_size for path in folders[2].iterdir())
    assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == [
        ["units.sst"],
        [],
        ["offset.sst", "units.sst"],
    ]
    return folders


def assembled(parts: list[Path], root: Path, phy_offset: int = 2100) -> StorePaths:
    paths = StorePaths(root)
    BULK.assemble(parts, paths, config(), phy_offset)
    return paths


def assert_whole(store: RocksDBConsumeQueueStore) -> None:
    assert list(store.queues()) == [A, B, C]
    assert phys(store, *A) == list(range(500, 1200, 100))
    assert phys(store, *C) == [2000]
    ends = {A: (1100, 11), B: (-1, 3), C: (2000, 0)}
    for queue, entry in ends.items():
        value = engine_of(store).get(Family.OFFSET, max_key(queue_prefix(*queue)))
        assert value == OFFSET_ENTRY.pack(OffsetEntry(*entry))
    assert store.queue(*A).unit_timestamp(7) == 7
    assert store.dispatch_from_phy_offset() == 2100
    assert list(store.check_files()) == []


def test_queues_of_several_sinks_are_one_database(parts: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "made"
    (root / "old").mkdir(parents=True)  # of an assembly that was cut short
    calls = CallOrder(tmp_path)
    with calls.watching():
        assembled(parts, root)
    assert calls.made[-3:] == [
        ("remove", "made/ingest"),
        ("sync", "made/consumequeue"),
        ("sync", "made"),
    ]
    assert {path.name for path in root.iterdir()} == {"consumequeue", "cqstore"}
    assert len(list(tmp_path.glob("*/*.sst"))) == 3, "the parts are linked to, not moved"
    store = RocksDBQueues(root).open()
    assert_whole(store)
    store.close()
    assembled(parts, root, 300)  # again, and over what was made
    store = RocksDBQueues(root).open()
    assert store.dispatch_from_phy_offset() == 300
    store.close()


def test_without_any_queue_there_is_an_empty_database(tmp_path: Path) -> None:
    assembled([], tmp_path / "made", 700)
    store = RocksDBQueues(tmp_path / "made").open()
    assert list(store.queues()) == []
    assert store.dispatch_from_phy_offset() == 700
    store.close()


def test_a_part_that_is_no_table_is_refused_and_nothing_is_held_open(
    parts: list[Path], tmp_path: Path
) -> None:
    (parts[0] / "units.sst").write_bytes(b"no table")
    with pytest.raises(RocksDBError, match="Corruption"):
        assembled(parts, tmp_path / "made")
    (parts[0] / "units.sst").unlink()
    assembled(parts, tmp_path / "made")  # nothing of it is still open


@pytest.mark.parametrize("name", ["units.sst", "offset.sst"])
def test_a_disk_that_is_full_is_told_as_one(tmp_path: Path, name: str) -> None:
    """Else a task ends with an unknown error, and is retried again and again."""
    made = sink(tmp_path / "part")
    (tmp_path / "part" / name).symlink_to("/dev/full")
    with pytest.raises(RocksDBFullError) as found:
        fill_and_finish(made)
    assert "No space left on device" in found.value.reason
    assert found.value.path == tmp_path / "part"
    made.abandon()


def fill_and_finish(made: RocksDBUnitSink) -> None:
    made.add(A, 0, units(0, 3))
    made.end(A, 3)
    made.finish()


def test_a_sink_that_is_abandoned_leaves_no_database_behind(tmp_path: Path) -> None:
    begun = sink(tmp_path / "part")
    begun.add(A, 0, units(0, 3))
    begun.abandon()
    begun.abandon()
    assert not (tmp_path / "part" / "scratch").exists()
    with pytest.raises(StoreClosedError):
        begun.add(A, 3, units(300, 1))


def test_a_queue_that_no_key_can_hold_is_refused_by_name(tmp_path: Path) -> None:
    BULK.check_queue(A)
    BULK.check_queue(QueueKey("x" * 281, (1 << 31) - 1))
    with pytest.raises(IllegalMessageError, match="queue id -1 of topic 'A'"):
        BULK.check_queue(QueueKey("A", -1))
    with pytest.raises(IllegalMessageError, match="282 bytes"):
        BULK.check_queue(QueueKey("x" * 282, 0))
    assert BULK.slice_units(config()) == 1
    store = RocksDBQueues(tmp_path).open()
    store.close()
    shutil.rmtree(store.folder)
    with pytest.raises(RefusedStoreError, match="no RocksDB consume queue found") as caught:
        BULK.source(store.context)
    assert caught.value.path == tmp_path


@pytest.mark.parametrize(
    ("name", "problem", "place"),
    [
        ("link", "link a table", "first/units.sst"),
        ("rmdir", "sync the new database", "made"),
        ("mkdir", "create the folder of the new database", "made"),
        ("listdir", "remove an unfinished database", "made"),
        ("fsync", "sync the tables", "fourth"),
        ("rename", "move the RocksDB queues away", "made/consumequeue"),
    ],
)
def test_a_step_that_the_system_refuses_is_named_with_its_place(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    name: str, problem: str, place: str,
) -> None:  # fmt: skip
    if name in {"rename", "listdir"}:
        assembled(parts, tmp_path / "made")
    fourth = sink(tmp_path / "fourth")
    steps: defaultdict[str, Step] = defaultdict(
        lambda: lambda: assembled(parts, tmp_path / "made"),
        fsync=fourth.finish,
        rename=lambda: BULK.withdraw(StorePaths(tmp_path / "made"), tmp_path / "away"),
    )
    failing = {"listdir": (shutil, "rmtree")}.get(name, (os, name))

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(*failing, refuse)
        with pytest.raises(StoreIOError, match=f"cannot {problem}") as caught:
            steps[name]()
    assert caught.value.path == tmp_path / place
    fourth.abandon()
    shutil.rmtree(tmp_path / "made", ignore_errors=True)
    assembled(parts, tmp_path / "made")  # nothing is held


# ---- where its files go

NOT_PUBLISHED = {"LOCK", "LOG", "rocksdict-config.json"}


def serve(root: Path, *, separate: bool) -> None:
    queues = RocksDBQueues(root)
    store = queues.open(read_only=True, use_separate_store_path_for_rocksdb_cq=separate)
    assert store.folder.name == ("consumequeue_rocksdb" if separate else "consumequeue")
    assert_whole(store)
    store.close()


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_what_was_made_is_published_with_current_last_and_durably(
    parts: list[Path], tmp_path: Path, *, separate: bool, there: bool
) -> None:
    made, paths = assembled(parts, tmp_path / "made"), StorePaths(tmp_path / "root")
    names = {path.name for path in made.consume_queue.iterdir()} - NOT_PUBLISHED
    folder = separate_folder(paths) if separate else paths.consume_queue
    paths.root.mkdir()
    if there:
        (folder / "Topic").mkdir(parents=True)
        for name in (next(iter(names - {"CURRENT"})), "CURRENT.dbtmp"):
            (folder / name).write_bytes(b"of a publishing that was cut short")
    settings = config(use_separate_store_path_for_rocksdb_cq=separate)
    calls = CallOrder(paths.root)
    at_end: list[set[str]] = []

    def look(call: tuple[str, str]) -> None:
        if call[0] == "rename" and (call[1] == folder.name or call[1].endswith("/CURRENT")):
            at_end.append({path.name for path in folder.iterdir()} if folder.exists() else set())
        assert not (folder / "CURRENT").exists() or call[0] == "sync"

    calls.at_each = look
    with calls.watching():
        BULK.publish(made, paths, settings)
    if separate and not there:
        assert at_end == []  # the rename begins outside of the root
        assert calls.made == [("sync", ".")]
    else:
        assert at_end == [(names - {"CURRENT"}) | {"CURRENT.dbtmp"} | ({"Topic"} & set(at_end[0]))]
        current = f"{folder.name}/CURRENT"
        changes = [call for call in calls.made if call[0] in {"sync", "rename"}]
        made_folder = [] if there else [("sync", ".")]
        wanted = [("sync", folder.name), ("rename", current), ("sync", folder.name)]
        assert changes == [*made_folder, *wanted]
        assert not NOT_PUBLISHED & {path.name for path in folder.iterdir()}
    serve(paths.root, separate=separate)
    again = CallOrder(paths.root)
    with again.watching():
        BULK.publish(made, paths, settings)
    assert again.places("remove", "") == [], "existing files stay"
    serve(paths.root, separate=separate)


def test_a_second_publishing_changes_no_file_that_is_there(
    parts: list[Path], tmp_path: Path
) -> None:
    made, paths = assembled(parts, tmp_path / "made"), StorePaths(tmp_path / "root")
    BULK.publish(made, paths, config())
    (made.consume_queue / "CURRENT").unlink()
    calls = CallOrder(paths.root)
    with calls.watching():
        BULK.publish(made, paths, config())
    assert calls.made == []
    serve(paths.root, separate=False)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EIO])
def test_where_no_link_can_be_made_files_are_copied_and_synced(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    made, paths = assembled(parts, tmp_path / "made"), StorePaths(tmp_path / "root")

    def refuse(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    calls = CallOrder(paths.root)
    if code == errno.EIO:
        with pytest.raises(StoreIOError, match="cannot publish the RocksDB queues") as caught:
            BULK.publish(made, paths, config())
        assert caught.value.path == paths.consume_queue
        return
    with calls.watching():
        BULK.publish(made, paths, config())
    assert descriptors_of(tmp_path) == []
    (placed,) = calls.places("rename", "CURRENT")
    names = {path.name for path in paths.consume_queue.iterdir()} - {"CURRENT"}
    synced = {path for what, path in calls.made[:placed] if what == "sync"}
    assert synced >= {f"consumequeue/{name}" for name in (*names, "CURRENT.dbtmp")}
    shutil.rmtree(made.root)
    serve(paths.root, separate=False)


def test_a_database_is_moved_away_current_first_and_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = RocksDBQueues(root).open()
    put(store, "T", 0, range(10), 0)
    store.close()
    second = root / "consumequeue_rocksdb"
    second.mkdir()
    (second / "000009.sst").touch()  # left of another one
    (store.folder / "Topic").mkdir()
    (store.folder / "note").touch()
    names = {path.name for path in store.folder.iterdir()} - {"Topic", "note"}
    calls = CallOrder(tmp_path)
    with calls.watching():
        BULK.withdraw(StorePaths(root), tmp_path / "away")
    moved = [Path(path).name for what, path in calls.made if what == "rename"]
    assert moved[0] == "CURRENT"
    (first, *_) = calls.renamed
    assert calls.made[first + 1] == ("sync", "root/consumequeue")
    for held in ("consumequeue", "consumequeue_rocksdb"):
        last = max(at for at, path in calls.renamed.items() if f"/{held}/" in path)
        wanted = [("sync", f"root/{held}"), ("sync", f"away/{held}")]
        assert calls.made[last + 1 : last + 3] == wanted
    assert {path.name for path in store.folder.iterdir()} == {"Topic", "note"}
    assert list(second.iterdir()) == []
    assert {path.name for path in (tmp_path / "away/consumequeue").iterdir()} == names
    again = CallOrder(tmp_path)
    with again.watching():
        BULK.withdraw(StorePaths(root), tmp_path / "away")
    assert again.made == []
    (tmp_path / "away").joinpath("consumequeue").rename(tmp_path / "consumequeue")
    store = RocksDBQueues(tmp_path).open(read_only=True)
    assert phys(store, "T", 0) == list(range(0, 1000, 100))
    store.close()


# ---- read whole


def test_a_source_reads_all_units_and_ends_that_are_there(tmp_path: Path, temporary: Path) -> None:
    store = RocksDBQueues(tmp_path / "root").open()
    for place, topic in enumerate(("T", "U", "LL")):
        put(store, topic, 0, range(3, 13), 2000 * place)
    lose(store, "T", 0, range(6, 9))
    lose(store, "U", 0, range(3, 13))
    odd = queue_prefix("S", 4)  # units without an end
    put_raw(engine_of(store), odd + (7).to_bytes(8, "big"), bytes(28), tmp_path / "odd.sst")
    short = queue_prefix("V", 0)
    engine_of(store).write(
        EngineBatch(puts=[(max_key(short), bytes(15)), (max_key(queue_prefix("W", 0)), bytes(16))])
    )
    store.close()
    source = BULK.source(store.context)
    assert isinstance(source, RocksDBUnitSource)
    assert source.has_timestamps
    queues = [QueueKey("S", 4), QueueKey("T", 0), QueueKey("U", 0), QueueKey("W", 0)]
    queues.append(QueueKey("LL", 0))
    assert list(source.queues(None, None)) == queues
    for first in range(5):
        assert list(source.queues(queues[first], None)) == queues[first + 1 :]
        for last in range(5):
            assert list(source.queues(queues[first], queues[last])) == queues[first + 1 : last + 1]
            assert list(source.queues(None, queues[last])) == queues[: last + 1]
    ends = [source.next_offset(queue) for queue in (*queues, QueueKey("V", 0), QueueKey("X", 0))]
    assert ends == [0, 13, 13, 1, 13, 0, 0]
    runs = {
        most: [(run.queue_offset, run.rows["phy_offset"].tolist()) for run in
               source.runs(QueueKey("T", 0), most)]
        for most in (2, 3, 100)
    }  # fmt: skip
    assert runs[100] == [(3, [0, 100, 200]), (9, [600, 700, 800, 900])]
    assert runs[3] == [(3, [0, 100, 200]), (9, [600, 700, 800]), (12, [900])]
    assert runs[2] == [(3, [0, 100]), (5, [200]), (9, [600, 700]), (11, [800, 900])]
    assert list(source.runs(QueueKey("U", 0), 5)) == []
    rows = np.zeros(5, UNIT_ROWS)
    assert source.fill(QueueKey("T", 0), 4, rows) == 2
    assert rows["phy_offset"].tolist() == [100, 200, 0, 0, 0]
    assert rows["store_timestamp"].tolist() == [107, 207, 0, 0, 0]
    assert source.behind(QueueKey("T", 0)) is None
    source.close()
    source.close()
    assert list(temporary.iterdir()) == []
