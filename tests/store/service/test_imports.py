"""What an open store imports: nothing, for an interrupted import may break its module for good.

Each case is a new process: what it does first is what would import.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.engines import ENGINES
from tests.kit.product_tree import ROOT
from tests.kit.rocksdb_index import unpack_indexed

pytestmark = pytest.mark.slow
CALLS = """
import asyncio, json, sys
from cqstore import BoundaryType, Message, MessageStore, StoreConfig, TagFilter, read_topic

root, settings, backend, read_only = json.loads(sys.argv[1])
store = MessageStore.open(root, StoreConfig(**settings), backend=backend, read_only=read_only)


async def tasks():
    if not read_only:
        await store.put_message_async(Message("t", b"x", 1))
        await store.wait_for_async("t", 0, 0, 60)
        await store.wait_for_async("t", 0, 100, 0.001)


def message(topic):
    return Message(topic, bytes(10_000), 0, {"KEYS": "k", "TAGS": "a"})


puts = {
    "put": lambda: [store.put_message(message(topic)) for topic in ("t", "\\u00f6", "w" * 200)],
    "a list": lambda: store.put_messages([Message("t", b"x", 1), message("u")]),
    "a future": lambda: store.put_message_future(message("t")).result(),
    "expiry": lambda: store.delete_expired_files(0),
    "rebuild": lambda: store.rebuild_queues("t"),
    "wait": lambda: store.wait_for("t", 0, 0, 60),
    "flush": store.flush,
}
reads = {
    "pull": lambda: store.get_message("t", 0, 0, tags=TagFilter("a")).messages(),
    "query": lambda: store.query_message("orders", "many"),
    "query files": lambda: store.query_index_files("t", "k"),
    "time": lambda: store.offset_by_time("t", 0, 1, BoundaryType.UPPER),
    "spans": lambda: [*store.queue_spans()],
    "estimate": lambda: store.estimate_message_count("t", 0, 0, 5, TagFilter("a")),
    "topic": lambda: [*read_topic(store, "t")],
    "figures": store.metrics.snapshot,
}
found = {}
for name, call in {**({} if read_only else puts), **reads}.items():
    before = {*sys.modules}
    call()
    found[name] = sorted({*sys.modules} - before)
before = {*sys.modules}
asyncio.run(tasks())
found["tasks"] = sorted({*sys.modules} - before)
before = {*sys.modules}
if not read_only:
    store.delete_topic("u")  # reads a broker's tables, whose code comes whole
assert all(name.startswith(("cqstore.", "rocksdict")) for name in {*sys.modules} - before)
store.close()
print(json.dumps(found))
"""
INTERRUPTED = """
import json, sys, threading
from importlib.machinery import PathFinder, SourceFileLoader
from cqstore import Message, MessageStore, StoreConfig

root, settings, backend, sent = *json.loads(sys.argv[1]), []
assert "rocksdict" not in sys.modules
LINE = "from .rocksdict import *"
SIGNAL = LINE + "\\nimport signal\\nsignal.raise_signal(signal.SIGINT)"


class Loader(SourceFileLoader):
    def get_code(self, fullname):
        source = self.get_source(fullname)
        assert LINE in source
        if not sent:  # the first import alone, once its extension module is loaded
            sent.append(True)
            source = source.replace(LINE, SIGNAL)
        return compile(source, self.path, "exec")


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        found = super().find_spec(name, path, target) if name == "rocksdict" else None
        if found is not None:
            found.loader = Loader(found.loader.name, found.loader.path)
        return found


sys.meta_path.insert(0, Finder)


def opened():
    return MessageStore.open(root, StoreConfig(**settings), backend=backend)


try:
    opened()
except KeyboardInterrupt:
    print("interrupted")
with opened() as store:
    place = store.put_message(Message("t", b"x", 0, {"KEYS": "k"})).phy_offset
    assert [each.phy_offset for each in store.query_message("t", "k")] == [place]
    assert bool(store.query_message("orders", "many")) == (backend is None)
assert not [each for each in threading.enumerate() if each is not threading.main_thread()]
"""
_WRITE, _READ = False, True
SETTINGS = {
    "mapped_file_size_commit_log": 65536, "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 500, "max_index_num": 2000,
}  # fmt: skip


def run(code: str, *given: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([*given])], capture_output=True, text=True,
        check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["file", "both", *[engine.value for engine in ENGINES]])
def test_no_call_of_an_open_store_imports_anything(tmp_path: Path, kind: str) -> None:
    settings: dict[str, object] = dict(SETTINGS)
    backend = None if kind == "both" else "file" if kind == "file" else "rocksdb"
    if kind == "both":
        settings["rocksdb_cq_double_write_enable"] = True
    elif backend == "rocksdb":
        settings["rocksdb_engine"] = kind
    found = json.loads(run(CALLS, str(tmp_path / "s"), settings, backend, _WRITE))
    assert {name: modules for name, modules in found.items() if modules} == {}
    found = json.loads(run(CALLS, str(tmp_path / "s"), settings, backend, _READ))
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_query_of_a_brokers_index_imports_nothing(tmp_path: Path, *, read_only: bool) -> None:
    root = unpack_indexed(tmp_path)
    found = json.loads(run(CALLS, str(root), SETTINGS, None, read_only))
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize("settings", [{}, {"rocksdb_engine": "rocksdict"}])
def test_after_an_interrupted_import_of_rocksdict_a_store_opens_and_finds(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """A broker's index is found when its store is opened; an engine is chosen then."""
    root = tmp_path / "new" if settings else unpack_indexed(tmp_path)
    backend = "rocksdb" if settings else None
    assert run(INTERRUPTED, str(root), SETTINGS | settings, backend) == "interrupted\n"
