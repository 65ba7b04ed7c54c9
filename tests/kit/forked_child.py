"""A store that is open when its process forks.

``python -m tests.kit.forked_child DIR BACKEND ENGINE``, ``both`` for double write with a mirror:
The child tries everything and ends as a process ends, with what it inherited; the parent then goes
on. What either found is printed, a line each.
"""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.forks import fork

TOPIC = "t"
_Calls = dict[str, Callable[[], object]]


def report(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def main() -> None:
    root, given, engine = sys.argv[1:]
    backend = None if given == "both" else given
    config = StoreConfig(
        rocksdb_engine=RocksDBEngine(engine), mapped_file_size_commit_log=4096,
        rocksdb_cq_double_write_enable=backend is None, ab_share=1.0,
    )  # fmt: skip
    store = MessageStore.open(Path(root), config, backend=backend)
    assert store.put_message(Message(TOPIC, b"before")).ok
    reader = MessageStore.open(Path(root), config, read_only=True)
    sys.stdout.flush()
    child = fork()
    if not child:
        _be_the_child(store, reader, Path(root))
        return  # by the way of every program: what is left is collected
    _, status = os.waitpid(child, 0)
    report("child", os.waitstatus_to_exitcode(status))
    report("abort", (Path(root) / "abort").exists())
    for number in range(100):
        assert store.put_message(Message(TOPIC, b"after %d" % number * 9)).ok
    reader.close()
    store.close()
    with MessageStore.open(Path(root), config) as store:
        report("clean", store.last_exit_ok)
        report("damage", sum(finding.damage for finding in store.check()))
        report("messages", store.max_offset(TOPIC, 0))


def _be_the_child(store: MessageStore, reader: MessageStore, root: Path) -> None:
    message = Message(TOPIC, b"child")
    calls: _Calls = {
        "put": lambda: store.put_message(message),
        "async": lambda: store.put_message_future(message),
        "list": lambda: store.put_messages([message]),
        "get": lambda: store.get_message(TOPIC, 0, 0),
        "max": lambda: store.max_offset(TOPIC, 0),
        "read-only": lambda: reader.max_offset(TOPIC, 0),
        "query": lambda: store.query_message(TOPIC, "k"),
        "queues": lambda: list(store.queue_keys()),
        "flush": store.flush,
        "delete": lambda: store.delete_topic(TOPIC),
        "rebuild": lambda: store.rebuild_queues(TOPIC),
        "metrics": store.metrics.snapshot,
        "open": lambda: MessageStore.open(root),
    }
    for name, call in calls.items():
        try:
            call()
            report(name, "went through")
        except StoreError as exc:
            report(name, type(exc).__name__)
    with store:
        pass
    store.close()
    reader.close()
    del calls
    gc.collect()
    report("left")


if __name__ == "__main__":
    main()
