"""Openings and closes of a whole store, cut short between any two instructions."""

import gc
import shutil
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from cqstore.store.errors import StoreClosedError, StoreError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.store_lock import locked_by
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.descriptors import descriptors_of
from tests.kit.engines import ENGINES
from tests.kit.forks import forked
from tests.kit.interrupts import IGNORED, Interrupted, first_places, run_interrupted
from tests.kit.long_too import long_too
from tests.kit.mutations import in_time
from tests.kit.own_threads import own_threads

SECONDS = 60
MESSAGES = 10
SHARE = 60
CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=200, max_hash_slot_num=20,
    max_index_num=10,
)  # fmt: skip
KINDS = ["file", *(engine.value for engine in ENGINES), "both"]
kinds = pytest.mark.parametrize("kind", KINDS)


def opened(root: Path, kind: str) -> MessageStore:
    if kind == "file":
        return MessageStore.open(root, CONFIG, backend="file")
    if kind == "both":
        double = {"store_type": "default", "rocksdb_cq_double_write_enable": True}
        return MessageStore.open(root, CONFIG.model_copy(update=double))
    config = CONFIG.model_copy(update={"rocksdb_engine": RocksDBEngine(kind)})
    return MessageStore.open(root, config, backend="rocksdb")


def put(store: MessageStore) -> None:
    for number in range(MESSAGES):
        assert store.put_message(Message("t", b"m" * 400, number % 2, {"KEYS": f"k{number}"})).ok


def is_locked_by_another(root: Path) -> bool:
    """Return what another process sees."""
    code = forked(lambda: int(locked_by(StorePaths(root)) != 0))
    assert code in {0, 1}
    return bool(code)


def check_whole(store: MessageStore, number: int, messages: int) -> None:
    found = [store.max_offset("t", queue) for queue in range(2)]
    assert found == [messages // 2] * 2, number
    assert not any(finding.damage for finding in store.check()), number
    for queue in range(2):
        assert len(store.get_message("t", queue, 0, 99).messages()) == messages // 2


def check_released(root: Path, number: int, lost: int) -> None:
    """The number of a file that was being opened may be lost between two calls of the system's."""
    assert own_threads() == [], number
    gc.collect()
    still = descriptors_of(root)
    assert len(still) <= (lost if number else 0), (number, still)
    assert not is_locked_by_another(root), number


def numbers_of(places: list[int], share: int, last: int) -> list[int]:
    """Return ``share`` of the places, drawn evenly, and each of the ``last`` ones."""
    return sorted({*places[:: max(1, len(places) // share)], *places[-last:]})


def interrupt_opening(root: Path, kind: str, share: int, *, crashed: bool = False) -> None:
    first = root / "first"
    with opened(first, kind) as store:
        put(store)
    if crashed:
        (first / "abort").write_bytes(b"1")

    def case(number: int) -> None:
        at = root / str(number)
        shutil.copytree(first, at)
        made: list[MessageStore] = []
        try:
            run_interrupted(lambda: made.append(opened(at, kind)), number)
            store = made[0]
        except Interrupted:  # its frames are there as long as it is
            store = opened(at, kind)
        check_whole(store, number, MESSAGES)
        store.close()
        check_released(at, number, 1)
        assert not (at / "abort").exists()
        shutil.rmtree(at)

    shutil.copytree(first, root / "whole")
    whole: list[MessageStore] = []
    places = first_places(lambda: whole.append(opened(root / "whole", kind)))
    whole[0].close()
    assert len(places) > 300
    for number in numbers_of(places, share, 2):
        with in_time(SECONDS):
            case(number)


def interrupt_close(root: Path, kind: str, share: int) -> None:
    def case(number: int) -> None:
        at = root / str(number)
        store = opened(at, kind)
        put(store)
        try:
            run_interrupted(store.close, number)
        except Interrupted:
            with suppress(StoreError):
                store.close()
        store.close()
        with pytest.raises(StoreClosedError):
            store.put_message(Message("t", b"late"))
        check_released(at, number, 2)  # the store keeps its failure, and that the frames
        del store
        with opened(at, kind) as again:
            check_whole(again, number, MESSAGES)
            put(again)
            check_whole(again, number, 2 * MESSAGES)
        check_released(at, number, 1)
        shutil.rmtree(at)

    store = opened(root / "whole", kind)
    put(store)
    places = first_places(store.close)
    assert len(places) > 300
    for number in numbers_of(places, share, 1):
        with in_time(SECONDS):
            case(number)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "share", "crashed"),
    [(KINDS[-1], 2, False), *long_too(product(KINDS, [SHARE], [False, True]))],
)
def test_a_store_opens_where_its_opening_was_interrupted(
    tmp_path: Path, kind: str, share: int, *, crashed: bool
) -> None:
    interrupt_opening(tmp_path, kind, share, crashed=crashed)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "share"), [(KINDS[-1], 2), *long_too(product(KINDS, [SHARE]))])
def test_a_store_closes_where_its_close_was_interrupted(
    tmp_path: Path, kind: str, share: int
) -> None:
    interrupt_close(tmp_path, kind, share)


def test_a_log_is_closed_where_its_close_was_interrupted(tmp_path: Path) -> None:
    """With a file that was made ahead: that one has been deleted, or is with the next close."""

    def case(number: int) -> int:
        folder = tmp_path / str(number)
        files = MappedFileQueue((folder,), 4096, mapped_max=4, read_only=False)
        files.append_file().hold_open()
        files.make_ahead()
        assert files._ahead is not None
        files._ahead._join()
        assert len([*folder.iterdir()]) == 2
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(files.close, number)
        files.close()
        assert [each.name for each in folder.iterdir()] == ["0" * 20]
        assert descriptors_of(folder) == []
        return places

    places = case(0)
    assert places > 20
    for number in range(1, places + 1):
        case(number)


def test_an_index_is_released_where_its_close_was_interrupted(tmp_path: Path) -> None:
    """All of its files, and the thread that syncs a full one."""

    def case(number: int) -> int:
        folder = tmp_path / str(number)
        index = IndexService(folder, 20, 10, read_only=False)
        index.load(True, 0)  # noqa: FBT003 - after a clean stop
        batch = IndexBatch()
        for at in range(25):
            batch.add("t", f"k{at}", at * 100, 1_700_000_000_000)
        index.put_batch(batch)
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(index.close, number)
        index.close()
        assert own_threads() == []
        assert len(descriptors_of(folder)) <= (number > 0), number
        return places

    places = case(0)
    assert places > 50
    for number in range(1, places + 1):
        case(number)


@pytest.mark.slow
def test_queue_files_are_released_where_their_close_was_interrupted(tmp_path: Path) -> None:
    def case(number: int) -> int:
        store = opened(tmp_path / str(number), "file")
        put(store)
        store.flush()
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(components_of(store).queues.close, number)
        components_of(store).queues.close()
        assert descriptors_of(tmp_path / str(number) / "consumequeue") == [], number
        with suppress(StoreClosedError):
            store.close()
        store.close()
        return places

    places = case(0)
    for number in range(places - 12, places + 1):
        case(number)
