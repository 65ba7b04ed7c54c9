"""What must be on disk before what: told from the order of the system calls themselves."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore.store.files import remove_file, replace_file
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.obstacles import Obstacle, ObstacleKind, clear
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.opening.unopened import begin_again
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import Call, CallOrder
from tests.kit.file_queues import SIZE, rows
from tests.kit.file_queues import Disk as Queues
from tests.kit.quiet_config import quiet_config

LOG_FILE = 8192
CONFIG = quiet_config(
    mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=200,
    max_hash_slot_num=10, max_index_num=50, rocksdb_memory_bytes=16 << 20,


)  # fmt: skip
"""Nothing is flushed by the clock."""
JOURNAL = "cqstore/deleted-topics"
FORGOTTEN = "cqstore/file-queue-ends.new"
"""May be lost with its name: without it the next open looks for itself."""


@pytest.fixture(params=backend_names())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MessageStore:
    """A store with messages that were read but never flushed."""
    opened = MessageStore.open(tmp_path / "store", CONFIG, backend=request.param)
    for topic in ("gone", "stays"):
        for number in range(30):
            assert opened.put_message(
                Message(topic, b"x" * 200, properties={"KEYS": str(number)})
            ).ok
    assert opened.get_message("gone", 0, 0).records
    return opened


def test_a_topic_goes_between_two_lines_of_a_log_that_is_durable(
    store: MessageStore, tmp_path: Path
) -> None:
    calls = CallOrder(tmp_path / "store")
    there: list[int] = []

    def look(call: Call) -> None:
        if call == ("sync", JOURNAL):
            there.append(components_of(store).queues.queue("gone", 0).max_offset())
            assert store.flushed_phy_offset() == store.max_phy_offset()

    calls.at_each = look
    with calls.watching():
        store.delete_topic("gone")
    assert there == [30, 0]
    begun, ended = calls.places("sync", JOURNAL)
    (last_of_log,) = calls.places("sync", f"commitlog/{LOG_FILE:020d}")
    assert last_of_log < begun
    removed = calls.places("remove", "consumequeue/gone/")
    assert all(begun < at < ended for at in removed)
    assert bool(removed) == (components_of(store).queues.name == "file")
    store.close()


def test_a_flush_syncs_the_log_then_queues_and_index_then_the_checkpoint(
    store: MessageStore, tmp_path: Path
) -> None:
    calls = CallOrder(tmp_path / "store")
    with calls.watching():
        store.flush()
    log, queues = calls.places("sync", "commitlog/"), calls.places("sync", "consumequeue/")
    index, checkpoint = calls.places("sync", "index/"), calls.places("sync", "checkpoint")
    assert bool(queues) == (components_of(store).queues.name == "file")
    assert len(log) >= 2
    assert max(log) < min([*queues, *index])
    assert index
    assert max([*queues, *index]) < min(checkpoint)
    folder = tmp_path / "store" / "consumequeue"
    if components_of(store).queues.name == "file":  # each file, and each folder that has got a name
        paths = [str(path.relative_to(folder.parent)) for path in folder.rglob("*")]
        assert {path for what, path in calls.made if what == "sync"} >= {"consumequeue", *paths}
    store.close()


def test_what_is_renamed_was_synced_and_the_new_name_is_synced_next(
    store: MessageStore, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    calls = CallOrder(root)
    with calls.watching():
        store.delete_topic("gone")
        for _ in range(60):
            assert store.put_message(Message("stays", b"x" * 200)).ok
        store.delete_expired_files(store.max_phy_offset())
        store.flush()
        store.close()
        with MessageStore.open(root, CONFIG) as again:  # fits the journals to the log
            again.flush()
    assert "cqstore/deleted-topics.new" in calls.renamed.values()
    for at, old in calls.renamed.items():
        changed = [place for what in ("write", "sync") for place in calls.places(what, old)]
        assert calls.made[max(place for place in changed if place < at)] == ("sync", old)
        if old != FORGOTTEN:
            following = next(call for call in calls.made[at + 1 :] if call[0] == "sync")
            assert following == ("sync", str(Path(calls.made[at][1]).parent))


def test_parts_are_moved_away_durably_before_the_journal_says_so(
    store: MessageStore, tmp_path: Path
) -> None:
    root, name = tmp_path / "store", components_of(store).queues.name
    store.close()
    calls = CallOrder(root)
    with (
        calls.watching(),
        MessageStore.open(
            root, CONFIG, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES), backend=name
        ),
    ):
        pass
    moved = {at: old for at, old in calls.renamed.items() if old.startswith("consumequeue")}
    assert moved
    moves = list(moved)
    noted = next(at for at in calls.places("sync", "cqstore/replacing") if at > max(moves))
    between = calls.made[max(moves) : noted]
    for at, old in moved.items():
        new, before = (("sync", str(Path(path).parent)) for path in (calls.made[at][1], old))
        assert between.index(new) < between.index(before)
    store.close()


def test_a_cut_saves_what_goes_then_takes_back_what_was_said_of_it_then_removes_it(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(40):
            assert store.put_message(Message("t", b"x" * 200, 0, {"KEYS": str(number)})).ok
        bad = [record.phy_offset for record in components_of(store).log.scan(0)][10]
    first_log = root / "commitlog" / f"{0:020d}"
    data = bytearray(first_log.read_bytes())
    data[bad + 100] ^= 1
    first_log.write_bytes(data)
    calls, vouched = CallOrder(root), list[int]()

    def look(call: Call) -> None:
        if call[0] in {"remove", "write"} and call[1].startswith(("commitlog/", "consumequeue/")):
            fields = StoreCheckpoint(root / "checkpoint").fields
            vouched.extend((fields.confirm_phy_offset, fields.logics_phy_offset))

    assert StoreCheckpoint(root / "checkpoint").fields.confirm_phy_offset > bad
    calls.at_each = look
    with calls.watching(), MessageStore.open(root, CONFIG, recovery=RecoveryOptions(cut_at=bad)):
        opened = len(calls.made)
        assert set(vouched) == {0}
    saved = calls.places("sync", "cqstore/cut")
    assert len(saved) == 4  # two files and their names
    taken_back, *_, anew = [at for at in calls.places("rename", "checkpoint") if at < opened]
    said = [taken_back, *calls.places("rename", "cqstore/synced")[:1]]
    gone = [at for at in calls.places("remove", "consumequeue/") if at < opened]
    gone += calls.places("remove", "commitlog/") + calls.places("write", "commitlog/")
    assert len(gone) == 5  # three files of the queue, a file of the log, the rest of the other
    assert max(saved) < min(said)
    assert calls.made.index(("sync", "cqstore"), max(said)) < min(gone)
    queue = [at for at in calls.places("sync", "consumequeue/") if at < opened]
    assert max(*gone, *queue) < anew  # it vouches again for what is left, once that is on disk
    assert StoreCheckpoint(root / "checkpoint").fields.logics_phy_offset > 0


def test_a_file_is_replaced_when_its_bytes_are_on_disk(tmp_path: Path) -> None:
    calls = CallOrder(tmp_path)
    with calls.watching():
        replace_file(tmp_path / "a", b"bytes")
    made = [call for call in calls.made if call[0] != "remove"]  # of what a crash has left
    assert made == [("sync", "a.new"), ("rename", "a"), ("sync", ".")]


def test_what_is_removed_is_gone_on_disk_and_stays_so(tmp_path: Path) -> None:
    """Also where it was gone already: perhaps not durably."""
    (tmp_path / "a").touch()
    calls = CallOrder(tmp_path)
    with calls.watching():
        remove_file(tmp_path / "a")
        remove_file(tmp_path / "a")
    assert calls.made == [("remove", "a"), ("sync", ".")] * 2


def test_what_a_killed_first_opening_has_made_is_gone_before_its_mark(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    for folder in (paths.consume_queue, paths.index, paths.own / "deep"):
        (folder / "t").mkdir(parents=True)
    for path in (paths.checkpoint, paths.unopened, paths.abort):
        path.touch()
    calls = CallOrder(tmp_path)
    with calls.watching():
        begin_again(paths)
    assert calls.made[-3:] == [("sync", "."), ("remove", "abort"), ("sync", ".")]
    assert [*tmp_path.rglob("*")] == [paths.own, paths.unopened]


def test_a_log_file_is_filled_up_when_no_clean_stop_is_known_any_more(tmp_path: Path) -> None:
    (tmp_path / "cut").touch()
    calls, layout = CallOrder(tmp_path), detect(tmp_path, StoreConfig())
    with calls.watching():
        clear(layout, 4096, [Obstacle(ObstacleKind.LOG_FILE, "", tmp_path / "cut")])
    (marked,) = calls.places("rename", "abort")[1:]  # after its backup
    assert calls.made[marked:] == [("rename", "abort"), ("sync", "."), ("sync", "cut")]


def test_a_new_log_file_has_blocks_and_a_name_on_disk_before_it_is_used(tmp_path: Path) -> None:
    calls = CallOrder(tmp_path)
    files = MappedFileQueue([tmp_path / "log"], 4096, mapped_max=8, read_only=False)
    with calls.watching():
        files.append_file()
    name = f"log/{0:020d}"
    assert calls.made[-3:] == [("reserve", name), ("sync", name), ("sync", "log")]
    files.close()


def cut(files: MappedFileQueue) -> list[int]:
    files.truncate(4096 + 100)
    return [3, 2]


def expire(files: MappedFileQueue) -> list[int]:
    assert files.delete_before(3 * 4096) is None
    return [0, 1, 2]


@pytest.mark.parametrize("remove", [cut, expire])
def test_log_files_go_one_by_one_so_that_no_power_cut_leaves_a_gap(
    tmp_path: Path, remove: Callable[[MappedFileQueue], list[int]]
) -> None:
    files = MappedFileQueue([tmp_path / "log"], 4096, mapped_max=8, read_only=False)
    for _ in range(4):
        files.append_file()
    calls = CallOrder(tmp_path)
    with calls.watching():
        order = remove(files)
    removed = [call for call in calls.made if call[0] == "remove"]
    assert removed == [("remove", f"log/{number * 4096:020d}") for number in order]
    for first, second in pairwise([*calls.places("remove", "log/"), len(calls.made)]):
        assert ("sync", "log") in calls.made[first:second]
    files.close()


def test_queue_files_behind_a_cut_go_from_the_back(tmp_path: Path) -> None:
    disk = Queues(tmp_path)
    for start in range(0, 40, 10):
        disk.write(start * 20, rows(start, 10))
    store = disk.open(crashed=True)
    calls = CallOrder(tmp_path)
    with calls.watching():
        assert store.truncate_dirty(5 * SIZE)
        store.flush()
    folder = "consumequeue/T/0"
    removed = [path for call, path in calls.made if call == "remove"]
    assert removed == [f"{folder}/{start:020d}" for start in (600, 400, 200)]
    assert max(calls.places("remove", folder)) < max(calls.places("sync", folder))
    assert ("sync", folder) in calls.made
    assert ("sync", f"{folder}/{0:020d}") in calls.made
    store.close()
