"""``python -m tests.kit.reput_child DIR exit|fork``: what a dispatch thread that is at work meets.

``exit``: the interpreter ends with the store open, while the thread is inside a batch. ``fork``:
the process forks then; what the child and the parent found is printed, a line each.
"""

import os
import sys
import threading
import time
from pathlib import Path

from cqstore.store.errors import StoreError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit import forks
from tests.kit.reput import THREAD, use_always

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 16, dispatch_slice=8)
PUTS = 20


class Last:
    """Reads when the interpreter takes its modules down: a lock that no thread releases ends it."""

    def __init__(self, store: MessageStore) -> None:
        self._store, self._write = store, os.write

    def __del__(self) -> None:
        self._write(1, b"%d\n" % self._store.max_offset("t", 0))


def report(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    root, what = sys.argv[1:]
    store = MessageStore.open(Path(root), CONFIG, backend="file", housekeeping=False)
    use_always(store)
    assert store.max_offset("t", 0) == 0  # what it imports is there at the end
    inside, real = threading.Event(), components_of(store).dispatcher.store

    def store_slowly(units: UnitBatch, keys: IndexBatch) -> object:
        if threading.current_thread().name == THREAD:
            inside.set()
            # For the main thread to get on to its end, which leaves nothing to wait for: behind
            # it no other thread of Python's runs.
            time.sleep(0.3)
        return real(units, keys)

    components_of(store).dispatcher.store = store_slowly  # type: ignore[method-assign, assignment]
    for number in range(PUTS):
        assert store.put_message(Message("t", b"%d" % number, 0)).ok
    assert inside.wait(30)
    if what == "fork":
        fork(store)
    else:
        vars(sys)["last"] = Last(store)


def fork(store: MessageStore) -> None:
    child = forks.fork()
    if not child:
        try:
            store.put_message(Message("t", b"child", 0))
            report("put")
        except StoreError as exc:
            report(type(exc).__name__)
        store.close()
        return  # to the end that every program has
    _, status = os.waitpid(child, 0)
    report("child", os.waitstatus_to_exitcode(status))
    assert store.put_message(Message("t", b"parent", 0)).ok
    report(store.max_offset("t", 0))
    store.close()


if __name__ == "__main__":
    main()
