"""RocksDB's own files are cut or gone: RocksDB notices, or the log makes up for it; it never lies.

An operator who does what the error says has every queue again.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.errors import RocksDBError
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.engines import ENGINES, hold_compactions
from tests.kit.long_too import long_too
from tests.kit.rocksdb_queues import engine_of

Answers = dict[QueueKey, tuple[int, int, list[tuple[int, int, int]]]]
ADVICE = "Move the folder away and open the store with the backend rocksdb"
REBUILD = "cqstore rebuild creates new queues from the commit log"


class Saved:
    """A store with several table files, and the database as it was at its last flush but one."""

    def __init__(self, folder: Path, engine: RocksDBEngine) -> None:
        self.root, self.older = folder / "store", folder / "older"
        self.config = StoreConfig(
            mapped_file_size_commit_log=16384, rocksdb_memory_bytes=16 << 20,
            rocksdb_engine=engine, max_index_num=500, max_hash_slot_num=100,
        )  # fmt: skip
        with MessageStore.open(self.root, self.config, backend="rocksdb") as store:
            hold_compactions(engine_of(components_of(store).queues))  # type: ignore[arg-type]
            for number in range(4):
                if number == 3:
                    crash_image(self.root / "consumequeue", self.older)
                for at in range(60):
                    assert store.put_message(Message(f"t{number}", b"x" * 100, at % 3)).ok
                if number == 1:
                    store.delete_topic("t0")
                    store.delete_expired_files(16384)
                store.flush()
            store.put_message(Message("t3", b"not flushed"))
            store.get_message("t3", 0, 0)
            self.killed = crash_image(self.root, folder / "killed")
        with MessageStore.open(self.root, self.config) as store:
            self.expected = answers(store)

    def copy(self, target: Path) -> Path:
        return Path(shutil.copytree(self.root, target))

    def opened(self, root: Path, backend: str | None = None) -> Answers:
        with MessageStore.open(root, self.config, backend=backend) as store:
            return answers(store)

    def survives(self, root: Path) -> bool:
        """Return whether the store opens, and is whole; if not, it is after the advice."""
        refusal = ""
        try:
            assert self.opened(root) == self.expected
        except (RocksDBError, RefusedStoreError) as exc:
            refusal = str(exc)
        if REBUILD in refusal:
            with MessageStore.open(
                root, self.config, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)
            ) as store:
                assert answers(store) == self.expected
        elif refusal:
            assert ADVICE in refusal
            (root / "consumequeue").rename(root.with_name("moved"))
            assert self.opened(root, "rocksdb") == self.expected
        return not refusal


@pytest.fixture(scope="module", params=ENGINES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("saved"), request.param)


def answers(store: MessageStore) -> Answers:
    assert [finding for finding in store.check() if finding.damage] == []
    found: Answers = {}
    for key in store.queue_keys():
        low, high = store.min_offset(*key), store.max_offset(*key)
        found[key] = (
            low,
            high,
            list(components_of(store).queues.queue(*key).read_units(low, 1000).rows()),
        )
    return found


def newest(root: Path, pattern: str) -> Path:
    return max((root / "consumequeue").glob(pattern))


def gone(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [gone, emptied, halved])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_a_file_that_is_gone_or_cut_is_noticed(
    saved: Saved, tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    root = saved.copy(tmp_path / "store")
    damage(newest(root, pattern))
    assert not saved.survives(root)


def test_any_table_file_counts(saved: Saved, tmp_path: Path) -> None:
    tables = sorted((saved.root / "consumequeue").glob("*.sst"))
    assert len(tables) > 1
    for number, table in enumerate(tables):
        root = saved.copy(tmp_path / str(number) / "store")
        gone(root / "consumequeue" / table.name)
        assert not saved.survives(root)


@pytest.mark.parametrize("crashed", [False, True])
def test_what_was_not_flushed_or_is_older_is_dispatched_again(
    saved: Saved, tmp_path: Path, *, crashed: bool
) -> None:
    root = saved.copy(tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    shutil.copytree(saved.older, root / "consumequeue")
    if crashed:
        (root / "abort").touch()
    assert saved.survives(root)
    assert saved.opened(Path(shutil.copytree(saved.killed, tmp_path / "killed"))) == saved.expected


def test_a_folder_in_which_rocksdb_was_never_made_is_no_database(
    saved: Saved, tmp_path: Path
) -> None:
    root = saved.copy(tmp_path / "store")
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "MANIFEST-000001").write_bytes(b"")
    assert saved.opened(root, "rocksdb") == saved.expected


def cut_somewhere(saved: Saved, folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    root = saved.copy(folder / "store")
    files = sorted(path for path in (root / "consumequeue").iterdir() if path.stat().st_size)
    path = draw.choice(files)
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])
    saved.survives(root)


@pytest.mark.parametrize("seed", [*range(6), *long_too(range(100, 300))])
def test_a_cut_anywhere_is_noticed_or_made_up_for(saved: Saved, tmp_path: Path, seed: int) -> None:
    cut_somewhere(saved, tmp_path, seed)
