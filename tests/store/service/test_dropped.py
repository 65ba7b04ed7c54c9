"""A store that is dropped without a close: it is released, and left as a kill leaves it."""

import gc
import subprocess
import sys
import threading
from collections.abc import Container
from pathlib import Path

import pytest

from cqstore import Message, MessageStore, StoreClosedError, StoreConfig, StoreLockedError
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.descriptors import descriptors_of
from tests.kit.dropped import dropped, state_of
from tests.kit.forks import forked
from tests.kit.quiet_config import quiet_config
from tests.kit.waiting import until

BODIES = [b"%d" % number for number in range(20)]
SMALL = {"mapped_file_size_commit_log": 4096, "max_hash_slot_num": 100, "max_index_num": 400}
NATIVE = quiet_config(**SMALL, rocksdb_engine=RocksDBEngine.NATIVE)


class Holder:
    """Holds a store, for the one reference to it."""

    def __init__(self, root: Path, backend: str, config: StoreConfig = NATIVE) -> None:
        others = {*threading.enumerate()}
        self.store: MessageStore | None = MessageStore.open(root, config, backend=backend)
        assert all(self.store.put_message(Message("t", body)).ok for body in BODIES)
        self.store.get_message("t", 0, 0)  # units in the queues, not flushed
        self.store.put_message(Message("t", b"waits"))
        until(lambda: "cqstore-allocate" not in names_of_threads(others))  # the next file is whole

    def drop(self) -> None:
        self.store = None


def bodies(store: MessageStore) -> list[bytes]:
    found = store.get_message("t", 0, 0, max_msgs=100)
    return [bytes(message.body) for message in found.messages()]


def refuse_open(root: Path) -> None:
    with pytest.raises(StoreLockedError):
        MessageStore.open(root, NATIVE)


def names_of_threads(others: Container[threading.Thread] = ()) -> list[str]:
    names = (thread.name for thread in threading.enumerate() if thread not in others)
    return sorted(name for name in names if name.startswith("cqstore-"))


@pytest.mark.parametrize("backend", backend_names())
def test_a_dropped_store_is_released_and_no_byte_changes(tmp_path: Path, backend: str) -> None:
    root, threads = tmp_path / "s", names_of_threads()
    held = Holder(root, backend)
    refuse_open(root)
    before = state_of(root)
    assert len(names_of_threads()) > len(threads)
    reported = dropped(held.drop)
    assert len(reported) == 1
    assert reported[0].startswith(f"store {root} was not closed: ")
    assert (state_of(root), names_of_threads()) == (before, threads)
    assert descriptors_of(root) == []
    assert str(root) not in Path("/proc/self/maps").read_text()
    assert (root / "abort").exists()
    with MessageStore.open(root, NATIVE) as store:
        assert not store.last_exit_ok
        assert bodies(store) == [*BODIES, b"waits"]


@pytest.mark.parametrize("engine", list(RocksDBEngine))
def test_a_dropped_store_of_any_engine_can_be_opened_again(
    tmp_path: Path, engine: RocksDBEngine
) -> None:
    config = quiet_config(**SMALL, rocksdb_engine=engine)
    held = Holder(tmp_path / "s", "rocksdb", config)
    dropped(held.drop)
    with MessageStore.open(tmp_path / "s", config) as store:
        assert bodies(store) == [*BODIES, b"waits"]


def test_a_dropped_store_with_two_backends_can_be_opened_again(tmp_path: Path) -> None:
    config = quiet_config(
        **SMALL, rocksdb_cq_double_write_enable=True, rocksdb_engine=RocksDBEngine.NATIVE
    )
    holder = [MessageStore.open(tmp_path / "s", config)]
    holder[0].put_message(Message("t", b"x"))
    holder[0].get_message("t", 0, 0)
    until(lambda: "cqstore-allocate" not in names_of_threads())
    before = state_of(tmp_path / "s")
    assert len(dropped(holder.clear)) == 1
    assert state_of(tmp_path / "s") == before
    with MessageStore.open(tmp_path / "s", config) as store:
        assert bodies(store) == [b"x"]


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_that_was_closed_is_dropped_without_a_warning(tmp_path: Path, backend: str) -> None:
    held = Holder(tmp_path / "s", backend)
    assert held.store is not None
    held.store.close()
    assert dropped(held.drop) == []


@pytest.mark.parametrize("backend", backend_names())
def test_a_read_only_store_is_released_too(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path / "s", NATIVE, backend=backend) as store:
        store.put_message(Message("t", b"x"))
    del store
    holder = [MessageStore.open(tmp_path / "s", read_only=True)]
    reported = dropped(holder.clear)
    assert len(reported) == 1
    assert "recovers" not in reported[0]


@pytest.mark.parametrize("backend", backend_names())
def test_what_a_dropped_store_returned_stays_valid(tmp_path: Path, backend: str) -> None:
    held = Holder(tmp_path / "s", backend)
    assert held.store is not None
    result = held.store.get_message("t", 0, 0, max_msgs=100)
    message = held.store.message_by_offset(0)
    log = components_of(held.store).log
    dropped(held.drop)
    assert [bytes(each.body) for each in result.messages()] == [*BODIES, b"waits"]
    assert bytes(message.body) == BODIES[0]
    with pytest.raises(StoreClosedError):
        log.message(0)


@pytest.mark.parametrize("backend", backend_names())
def test_an_iterator_keeps_the_store_open(tmp_path: Path, backend: str) -> None:
    held = Holder(tmp_path / "s", backend)
    assert held.store is not None
    spans = [held.store.queue_spans()]
    held.drop()
    gc.collect()
    refuse_open(tmp_path / "s")
    assert next(spans[0])[0] == ("t", 0)
    assert len(dropped(spans.clear)) == 1
    MessageStore.open(tmp_path / "s", NATIVE).close()


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_is_dropped_inside_a_reference_cycle(tmp_path: Path, backend: str) -> None:
    held = Holder(tmp_path / "s", backend)
    held.store.around = held  # type: ignore[union-attr]
    holder = [held]
    del held
    assert len(dropped(holder.clear)) == 1
    with MessageStore.open(tmp_path / "s", NATIVE) as store:
        assert bodies(store) == [*BODIES, b"waits"]


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_is_dropped_in_another_thread(tmp_path: Path, backend: str) -> None:
    held = Holder(tmp_path / "s", backend)

    def in_a_thread() -> None:
        thread = threading.Thread(target=held.drop)
        thread.start()
        thread.join()

    assert len(dropped(in_a_thread)) == 1
    MessageStore.open(tmp_path / "s", NATIVE).close()


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_is_dropped_in_a_thread_of_its_own(tmp_path: Path, backend: str) -> None:
    held, called, is_dropped = Holder(tmp_path / "s", backend), threading.Event(), threading.Event()
    assert held.store is not None

    def listener(_: object) -> None:
        called.wait()
        held.drop()
        is_dropped.set()

    subscription = held.store.add_arrival_listener(listener)
    held.store.put_message(Message("t", b"last"))
    called.set()
    assert is_dropped.wait(60)
    with MessageStore.open(tmp_path / "s", NATIVE) as store:
        assert bodies(store) == [*BODIES, b"waits", b"last"]
    del subscription


@pytest.mark.slow
def test_a_finalizer_that_holds_a_lock_of_the_store_does_not_wait_for_ever(tmp_path: Path) -> None:
    held = Holder(tmp_path / "s", "file")
    assert held.store is not None
    components = components_of(held.store)
    with components.flush._waiting_lock.entry():  # as amid a put
        assert len(dropped(held.drop)) == 1
        refused = components.lock is not None and not components.lock.is_released
    assert refused
    MessageStore.open(tmp_path / "s", NATIVE).close()


@pytest.mark.slow
def test_a_program_that_ends_warns_and_an_exit_handler_can_close(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: stores[0].close() if sys.argv[2:] else None)\n"
        "from cqstore import Message, MessageStore, StoreConfig\n"
        "stores = [MessageStore.open(sys.argv[1], StoreConfig(mapped_file_size_commit_log=4096))]\n"
        "stores[0].put_message(Message('t', b'x'))\n"
    )
    for close in ([], ["close"]):
        root = tmp_path / f"s{len(close)}"
        words = [sys.executable, "-W", "always::ResourceWarning", "-c", code, str(root), *close]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        assert f"store {root} was not closed: the interpreter ends" in done.stderr
        assert (root / "abort").exists() != bool(close)


@pytest.mark.parametrize("backend", backend_names())
def test_a_child_that_drops_the_store_of_its_parent_does_nothing(
    tmp_path: Path, backend: str
) -> None:
    held = Holder(tmp_path / "s", backend)
    before = state_of(tmp_path / "s")

    def child() -> int:
        return 0 if dropped(held.drop) == [] and state_of(tmp_path / "s") == before else 1

    assert forked(child) == 0
    refuse_open(tmp_path / "s")
    assert held.store is not None
    assert bodies(held.store) == [*BODIES, b"waits"]
    held.store.close()


def test_an_open_that_fails_gives_no_warning(tmp_path: Path) -> None:
    held = Holder(tmp_path / "s", "file")
    assert dropped(lambda: refuse_open(tmp_path / "s")) == []
    dropped(held.drop)
