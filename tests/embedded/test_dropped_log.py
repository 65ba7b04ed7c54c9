"""An embedded log that is dropped without a close: it is released, and left as a kill leaves it."""

import gc
import threading
from pathlib import Path

import pytest

from cqstore import StoreLockedError
from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from cqstore.store.queue.backends import backend_names
from tests.kit.descriptors import descriptors_of
from tests.kit.dropped import dropped, state_of
from tests.kit.metadata_forms import databases, raw_rows
from tests.kit.quiet_config import quiet_config
from tests.kit.waiting import until

CONFIG = quiet_config(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=400)


def opened(root: Path, backend: str) -> list[EmbeddedLog]:
    return [open_log(root, CONFIG, backend=backend, queues=1)]


def apart_from_tables(root: Path) -> dict[str, str]:
    """Return the state of all files except the databases of tables, which rocksdict flushes."""
    folders = [str(each.relative_to(root)) for each in databases(root / "config")]
    return {
        name: state for name, state in state_of(root).items()
        if not any(name.startswith(f"{folder}/") for folder in folders)
    }  # fmt: skip


@pytest.mark.parametrize("backend", backend_names())
def test_a_dropped_log_is_released_and_no_byte_changes(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "s"
    holder = opened(root, backend)
    holder[0].put("t", b"1")
    holder[0].put("t", b"2")
    with holder[0].tail("t", group="g") as tail:
        assert next(tail.messages(timeout=0)).body == b"1"
    holder[0].flush()
    holder[0].put("t", b"3")
    del tail
    with pytest.raises(StoreLockedError):
        open_log(root, CONFIG)
    until(lambda: not any(each.name == "cqstore-allocate" for each in threading.enumerate()))
    before, tables = apart_from_tables(root), raw_rows(root)
    reported = dropped(holder.clear)
    assert len(reported) == 1
    assert reported[0].startswith(f"store {root} was not closed: ")
    assert apart_from_tables(root) == before
    assert raw_rows(root) == tables
    assert bool(tables) == (backend == "rocksdb")
    assert descriptors_of(root) == []
    with open_log(root, CONFIG) as log:
        assert [message.body for message in log.read("t")] == [b"1", b"2", b"3"]
        assert log.committed("g", "t") == {0: 1}


@pytest.mark.parametrize("backend", backend_names())
def test_a_tail_or_a_reader_keeps_the_log(tmp_path: Path, backend: str) -> None:
    holder = opened(tmp_path / "s", backend)
    holder[0].put("t", b"1")
    tails, reader = [holder[0].tail("t", group="g")], holder[0].read("t")
    holder.clear()
    gc.collect()
    assert next(tails[0].messages(timeout=0)).body == b"1"
    assert [message.body for message in reader] == [b"1"]
    del reader
    assert len(dropped(tails.clear)) == 1
    open_log(tmp_path / "s", CONFIG).close()


def test_a_message_of_a_dropped_log_stays_valid(tmp_path: Path) -> None:
    holder = opened(tmp_path / "s", "file")
    holder[0].put("t", b"1")
    (message,) = holder[0].read("t")
    dropped(holder.clear)
    assert message.body == b"1"


def test_a_closed_log_is_dropped_without_a_warning(tmp_path: Path) -> None:
    holder = opened(tmp_path / "s", "file")
    holder[0].close()
    assert dropped(holder.clear) == []
