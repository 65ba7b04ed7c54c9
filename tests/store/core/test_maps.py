"""Files that the core reads through maps: what is cut or cannot be read ends no process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.core._maps import FileMap
from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.chains import walk_chain
from tests.kit.declining import Declines, decline_walks
from tests.kit.waiting import running_threads

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 16, max_hash_slot_num=2000, max_index_num=2000,
    mapped_file_size_consume_queue=20 * 2000,
)  # fmt: skip
COUNT = 300
NEVER = 1 << 62


def filled(root: Path) -> MessageStore:
    store = MessageStore.open(root, CONFIG, backend="file", housekeeping=False)
    for number in range(COUNT):
        assert store.put_message(Message("t", b"x", 0, {"KEYS": f"k{number}"})).ok
    store.flush()
    return store


def outcome(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except StoreError as exc:
        return type(exc), str(exc)


def keyed(store: MessageStore, number: int) -> list[int]:
    return [message.queue_offset for message in store.query_message("t", f"k{number}")]


def pulled(store: MessageStore, offset: int) -> list[int]:
    result = store.get_message("t", 0, offset, 5)
    return [message.queue_offset for message in result.messages()]


def test_an_index_file_that_is_cut_is_told_as_the_twin_tells_it(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        assert keyed(store, 7) == [7]
        (path,) = (tmp_path / "index").iterdir()
        size = path.stat().st_size
        os.truncate(path, 4096)
        found = outcome(lambda: keyed(store, 7))
        assert found != [7]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._queries, "fast", Declines())
            decline_walks(patch)
            assert outcome(lambda: keyed(store, 7)) == found
        os.truncate(path, size)  # with zeros behind
        found = outcome(lambda: keyed(store, 7))
        assert isinstance(found, tuple)
        assert found[0] is CorruptionError
        assert "position 8200): expected entry 8, to which its slot points, found zeros" in found[1]


def opened_queue(store: MessageStore) -> Any:
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    (opened,) = queues._cache.entries.values()
    return opened


def test_a_queue_file_that_is_cut_is_told_as_the_twin_tells_it(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        for _ in range(8):
            assert pulled(store, 290) == [290, 291, 292, 293, 294]
        assert opened_queue(store).mapped is not None
        path = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
        os.truncate(path, 4096)
        found = outcome(lambda: pulled(store, 290))
        assert found != [290, 291, 292, 293, 294]
        queues = components_of(store).queues
        assert isinstance(queues, FileConsumeQueueStore)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queues._table, "fast", Declines())
            assert outcome(lambda: pulled(store, 290)) == found
        assert pulled(store, 3) == [3, 4, 5, 6, 7]


def test_what_is_written_to_a_mapped_queue_is_seen(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        for _ in range(8):
            assert pulled(store, 290) == [290, 291, 292, 293, 294]
        assert opened_queue(store).mapped is not None
        for number in range(COUNT, COUNT + 250):  # the page that was read, and the next
            assert store.put_message(Message("t", b"y")).ok
            assert pulled(store, number) == [number]
        assert pulled(store, 297) == [297, 298, 299, 300, 301]
        path = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
        with path.open("r+b") as file:
            before = os.pread(file.fileno(), 100, 20 * 290)
            os.pwrite(file.fileno(), before[20:40] + before[:20], 20 * 290)
        assert pulled(store, 290)[:2] == [291, 290]


def test_a_mapped_queue_needs_no_system_call_for_what_was_read(tmp_path: Path) -> None:
    with filled(tmp_path) as store, (tmp_path / "empty").open("wb+") as empty:
        for _ in range(8):
            assert pulled(store, 290) == [290, 291, 292, 293, 294]
        opened = opened_queue(store)
        kept = os.dup(opened.number)
        os.dup2(empty.fileno(), opened.number)
        assert pulled(store, 285) == [285, 286, 287, 288, 289]
        os.dup2(kept, opened.number)
        os.close(kept)


def test_a_file_that_is_read_once_is_not_mapped(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        pulled(store, 0)
        assert opened_queue(store).mapped is None


def test_a_map_of_nothing_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))
    with path.open("rb") as file:
        for fd, size in ((file.fileno(), 0), (file.fileno(), -1), (99_999, 5000)):
            mapped = FileMap(fd, size)
            assert walk_chain([], mapped, 1, 9, 7, 32, 0, NEVER, 5, 9, read_only=False) is None
        mapped = FileMap(file.fileno(), 5000)
        with pytest.raises(TypeError, match="already"):
            mapped.__init__(file.fileno(), 5000)  # type: ignore[misc]
    assert (
        walk_chain([], mapped, 1, 9, 7, 32, 0, NEVER, 5, 9, read_only=False) == []
    )  # closed by now


def test_threads_meet_the_end_of_a_file_each_by_itself(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        for _ in range(8):
            pulled(store, 290)
            keyed(store, 7)
        (index,) = (tmp_path / "index").iterdir()
        queue = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
        sizes = {path: path.stat().st_size for path in (index, queue)}
        stop, wrong = threading.Event(), list[BaseException]()

        def ask() -> None:
            try:
                while not stop.is_set():
                    outcome(lambda: keyed(store, 7))
                    outcome(lambda: pulled(store, 290))
            except BaseException as exc:  # noqa: BLE001 - told below
                wrong.append(exc)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        with running_threads(threads):
            for _ in range(200):
                for path, size in sizes.items():
                    os.truncate(path, 100)
                    os.truncate(path, size)
            stop.set()
        assert wrong == []


DIES = """
import faulthandler, mmap, os, signal, sys
from pathlib import Path
from tests.store.core.test_maps import filled, keyed
if "faulthandler" in sys.argv:
    faulthandler.enable()
store = filled(Path(sys.argv[1]))
assert keyed(store, 7) == [7]
print("asked", flush=True)
if "sent" in sys.argv:
    os.kill(os.getpid(), signal.SIGBUS)
else:
    path = Path(sys.argv[1]) / "cut"
    path.write_bytes(bytes(9000))
    with path.open("r+b") as file:
        view = mmap.mmap(file.fileno(), 9000)
        os.truncate(path, 0)
        view[5000]
"""


@pytest.mark.parametrize("how", ["sent", "met"])
@pytest.mark.parametrize("also", ["faulthandler", "nobody"])
def test_a_bus_error_of_others_is_what_it_was(tmp_path: Path, how: str, also: str) -> None:
    command = [sys.executable, "-c", DIES, str(tmp_path / "store"), how, also]
    sanitizer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_sigbus=0"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | sanitizer,
    )  # fmt: skip
    assert done.stdout == "asked\n"
    assert done.returncode == -signal.SIGBUS
    assert ("Bus error" in done.stderr) == (also == "faulthandler")


def test_a_process_maps_so_many_files_and_no_more(tmp_path: Path) -> None:
    """The rest is read by system calls: the kernel has a limit, which others need too."""
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))

    def is_read(mapped: Any) -> bool:
        found = walk_chain([], mapped, 1, 9, 7, 32, 0, NEVER, 5, 9, read_only=False)
        return found is not None

    with path.open("rb") as file:
        maps = [FileMap(file.fileno(), 5000) for _ in range(8192)]
        refused = FileMap(file.fileno(), 5000)
        assert is_read(maps[0])
        assert not is_read(refused)
        maps.clear()
        assert is_read(FileMap(file.fileno(), 5000))
