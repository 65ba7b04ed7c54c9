"""Whole queues written as files, moved together, published and withdrawn: bytes, order of calls."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from cqstore.cq_file.bulk import FileBulk
from cqstore.cq_file.bulk_source import FileUnitSource
from cqstore.cq_file.known_ends import ends_path
from cqstore.store.errors import IllegalMessageError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import Call, CallOrder
from tests.kit.faults import EACCES, Faults
from tests.kit.file_queues import (
    PRE_BLANK,
    UNIT,
    Disk,
    NoLog,
    Row,
    open_below,
    rows,
)  # fmt: skip
from tests.kit.no_log import NoCheckpoint

CONFIG = StoreConfig(mapped_file_size_consume_queue=200)
BULK = FileBulk()
ZERO = (0, 0, 0)


def table(units: Iterable[Row]) -> UnitRows:
    return np.array([(*unit, 5) for unit in units], UNIT_ROWS)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_a_sink_writes_the_files_that_the_queues_would_have_and_syncs_all_of_them(
    tmp_path: Path,
) -> None:
    calls, sink = CallOrder(tmp_path), BULK.sink(tmp_path, CONFIG)
    with calls.watching():
        sink.add(QueueKey("a", 0), 13, table(rows(1, 4)))
        sink.add(QueueKey("a", 0), 17, table(rows(5, 10)))
        sink.add(QueueKey("a", 0), 27, table([]))
        sink.end(QueueKey("a", 0), 27)
        sink.add(QueueKey("a", 1), 10, table(rows(20, 10)))
        sink.add(QueueKey("b", 0), 0, table([]))
        sink.end(QueueKey("b", 1), 20)
        sink.end(QueueKey("b", 2), 24)
        sink.add(QueueKey("b", 3), 2, table(rows(40, 1)))
        assert sink.finish() == 20 * (3 + 14 + 10 + 3)
    made: dict[str, list[Row]] = {
        f"a/0/{200:020d}": [PRE_BLANK] * 3 + rows(1, 7),
        f"a/0/{400:020d}": rows(8, 7),
        f"a/1/{200:020d}": rows(20, 10),
        f"b/1/{200:020d}": [PRE_BLANK] * 10,
        f"b/2/{400:020d}": [PRE_BLANK] * 4,
        f"b/3/{0:020d}": [PRE_BLANK] * 2 + rows(40, 1),
    }
    assert files(tmp_path) == {
        path: b"".join(UNIT.pack(*row) for row in units).ljust(200, b"\0")
        for path, units in made.items()
    }
    for path in tmp_path.rglob("*"):
        name = str(path.relative_to(tmp_path))
        assert ("sync", name) in calls.made
        written = calls.places("write", name) if path.is_file() else [0]
        assert max(written) < max(calls.places("sync", name))
    assert ("sync", ".") in calls.made
    assert open_below(tmp_path) == []


def test_an_abandoned_sink_has_nothing_open(tmp_path: Path) -> None:
    sink = BULK.sink(tmp_path, CONFIG)
    sink.add(QueueKey("a", 0), 0, table(rows(1, 4)))
    assert open_below(tmp_path) == [str(tmp_path / "a" / "0" / f"{0:020d}")]
    sink.abandon()
    assert open_below(tmp_path) == []


def test_queues_that_no_folder_could_hold_are_refused_by_name(tmp_path: Path) -> None:
    BULK.check_queue(QueueKey("主题", 3))
    with pytest.raises(IllegalMessageError, match=r"^queue 3: invalid topic name 'a/b': queue"):
        BULK.check_queue(QueueKey("a/b", 3))
    assert BULK.slice_units(CONFIG) == 10
    context = QueueStoreContext(
        StorePaths(tmp_path), CONFIG, NoLog(), NoCheckpoint(), last_exit_ok=True, read_only=True
    )
    assert isinstance(BULK.source(context), FileUnitSource)


def parts(root: Path) -> tuple[list[Path], dict[str, bytes]]:
    """Write three sinks' folders, queue 0 of ``a`` in two of them; return what they hold."""
    found: dict[str, bytes] = {}
    for number, paths in enumerate((["a/0/0"], ["a/0/200", "a/1/0"], ["b/0/0", "b/0/200"])):
        for path in paths:
            queue, _, start = path.rpartition("/")
            file = root / f"part-{number}" / queue / f"{int(start):020d}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(path.encode())
            found[f"{queue}/{file.name}"] = path.encode()
    return [root / f"part-{number}" for number in range(3)], found


def assemble(root: Path) -> dict[str, bytes]:
    made, found = parts(root)
    BULK.assemble(made, StorePaths(root), CONFIG, 99)
    return found


def withdraw(root: Path) -> dict[str, bytes]:
    Disk(root).write(0, rows(1, 3), "a")
    BULK.withdraw(StorePaths(root), root / "aside")
    return {}


def publish(root: Path) -> dict[str, bytes]:
    """Publish all at once; a topic's folder of an earlier attempt is there."""
    made, found = parts(root)
    new = StorePaths(root / "new")
    for part in made:
        shutil.copytree(part, new.consume_queue, dirs_exist_ok=True)
        shutil.rmtree(part)
    BULK.publish(new, StorePaths(root), CONFIG)
    return found


@pytest.mark.parametrize("move", [assemble, publish])
@pytest.mark.parametrize("stop", [None, *range(1, 9)])
def test_folders_move_together_durably_and_interrupted_the_same_call_goes_on(
    tmp_path: Path, move: Callable[[Path], dict[str, bytes]], stop: int | None
) -> None:
    found = parts(tmp_path / "known")[1]
    target = tmp_path / "consumequeue"
    calls, renames = CallOrder(tmp_path), []

    def look(call: Call) -> None:
        if call[0] == "rename":
            renames.append(call[1])
            if len(renames) == stop:
                raise KeyboardInterrupt

    calls.at_each = look
    with calls.watching():
        try:
            move(tmp_path)
        except KeyboardInterrupt:
            if move is assemble:
                BULK.assemble([tmp_path / f"part-{at}" for at in range(3)],
                              StorePaths(tmp_path), CONFIG, 99)  # fmt: skip
            else:
                BULK.publish(StorePaths(tmp_path / "new"), StorePaths(tmp_path), CONFIG)
    assert files(target) == found
    moved = [at for at in calls.renamed if calls.made[at][1].startswith("consumequeue/")]
    assert moved
    for at in moved:
        assert ("sync", str(Path(calls.made[at][1]).parent)) in calls.made[at:]
    assert calls.made[-1] == ("sync", "consumequeue")
    assert ("sync", ".") in calls.made


def test_withdrawn_queues_are_no_more_known_then_moved_then_synced_on_both_sides(
    tmp_path: Path,
) -> None:
    disk, paths, aside = Disk(tmp_path), StorePaths(tmp_path), tmp_path / "aside"
    ends_path(paths).parent.mkdir()
    ends_path(paths).touch()
    for topic in "ab":
        disk.write(0, rows(1, 3), topic)
    (paths.consume_queue / "CURRENT").touch()
    before = files(tmp_path)
    calls = CallOrder(tmp_path)
    with calls.watching():
        BULK.withdraw(paths, aside)
    known = str(ends_path(paths).relative_to(tmp_path))
    assert files(tmp_path) == {
        f"aside/{path}" if path.startswith(("consumequeue/a", "consumequeue/b")) else path: data
        for path, data in before.items()
        if path != known
    }
    assert calls.places("remove", known)[0] < min(calls.renamed)
    assert {("sync", "consumequeue"), ("sync", "aside/consumequeue")} <= {
        *calls.made[max(calls.renamed) + 1 :]
    }
    ends_path(paths).touch()
    BULK.withdraw(paths, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert not ends_path(paths).exists()


@pytest.mark.parametrize(
    ("move", "action"),
    [
        (assemble, "combine the queue files"),
        (publish, "publish the file queues"),
        (withdraw, "move the file queues away"),
    ],
)
def test_what_the_disk_refuses_of_a_move_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[[Path], dict[str, bytes]],
    action: str,
) -> None:
    Faults(monkeypatch).fail("rename", EACCES, "/a")
    with pytest.raises(StoreIOError, match=f"cannot {action}: Permission denied") as caught:
        move(tmp_path)
    assert caught.value.path == tmp_path / "consumequeue"
