"""An error of the operating system names the path that it met, whatever the store was doing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cqstore.store.errors import StoreIOError
from cqstore.store.journals.store_lock import lock_stamp, locked_by
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.metrics import disk_used_ratio
from cqstore.store.service.metrics.watch import StoreWatch, measure
from cqstore.store.service.offline.store_copy import copy_store
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from tests.kit.faults import EIO, Faults
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=1000,


)  # fmt: skip
LOG, LAST_LOG = f"commitlog/{0:020d}", f"commitlog/{16384:020d}"
INDEX = "index/" + "[0-9]" * 17
BAD = 5
NEXT_INDEX = "29991231235959999"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cleanly closed store of some records in two files."""
    with MessageStore.open(tmp_path / "store", CONFIG, backend="file", housekeeping=False) as store:
        for _ in range(20):
            assert store.put_message(Message("t", b"x" * 1000, 0, {"KEYS": "k"})).ok
    return tmp_path / "store"


def open_and_close(root: Path) -> None:
    MessageStore.open(root, CONFIG, housekeeping=False).close()


def build_anew(root: Path) -> None:
    MessageStore.open(
        root, CONFIG, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES), housekeeping=False
    ).close()


def build_anew_without_notes(root: Path) -> None:
    shutil.rmtree(root / "cqstore")
    build_anew(root)


def build_one_anew(root: Path) -> None:
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        store.rebuild_queues("t", 0)


def cut_a_tail(root: Path) -> None:
    """Open a crashed store behind whose log something lies."""
    last = max((root / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"x")
    (root / "abort").touch()
    open_and_close(root)


def pass_over(root: Path) -> None:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        bad = [record.phy_offset for record in components_of(store).log.scan(0)][BAD]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(bad + 200)
        file.write(b"\xff")
    MessageStore.open(
        root, CONFIG, recovery=RecoveryOptions(pass_over=[bad]), housekeeping=False
    ).close()


def look_at_files(root: Path) -> None:
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        (root / "commitlog" / f"{0:020d}").unlink()
        store.expiring_files()


def watch(root: Path) -> None:
    StoreWatch(detect(root, CONFIG)).sample()


def open_with_an_empty_index_file(root: Path) -> None:
    (root / "index").mkdir(exist_ok=True)
    (root / "index" / NEXT_INDEX).touch()
    open_and_close(root)


def put(root: Path) -> None:
    """Put a message with a key into a store, a new one in most cases, and bring it to the disk."""
    with MessageStore.open(root, CONFIG, backend="file", housekeeping=False) as store:
        store.put_message(Message("t", b"x", 0, {"KEYS": "k"}))
        store.flush()


def put_anew(root: Path) -> None:
    put(root / "new")


def read_with_a_key(root: Path) -> None:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        store.message_by_offset(0)
        store.query_message("t", "k")


def open_after_a_crash(root: Path) -> None:
    (root / "abort").touch()
    open_and_close(root)


def delete_a_topic(root: Path) -> None:
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        store.delete_topic("t")


class Refusal(NamedTuple):
    """A call that is refused where a path holds ``part``, and the path that the error names."""

    call: str
    part: str
    act: Callable[[Path], object]
    named: str
    after: int = 0
    """Calls that are let through: what is rewritten is first made under another name."""


REFUSALS = [
    Refusal("mkdir", "/store/none", lambda root: open_and_close(root / "none"), "none"),
    Refusal("open", "/store/lock", open_and_close, "lock"),
    Refusal("open", "/store/lock", lambda root: locked_by(StorePaths(root)), "lock"),
    Refusal("stat", "/store/lock", lambda root: lock_stamp(StorePaths(root)), "lock"),
    Refusal("write", "/none/lock", lambda root: open_and_close(root / "none"), "none/lock"),
    Refusal("rename", "/store/abort", open_and_close, "abort"),
    Refusal("unlink", "/store/abort", open_and_close, "abort", after=2),
    Refusal("rename", "/store/consumequeue", build_anew, "consumequeue/t"),
    Refusal("mkdir", "/replaced", build_anew, "consumequeue/t"),
    Refusal("fsync", "/store/consumequeue", build_anew, "consumequeue"),
    Refusal("mkdir", "/store/cqstore", build_anew_without_notes, "cqstore"),
    Refusal("unlink", "/cqstore/replacing", build_anew, "cqstore/replacing", after=2),
    Refusal("unlink", "/cqstore/rebuilding", build_one_anew, "cqstore/rebuilding"),
    Refusal("mkdir", "/cqstore/cut", cut_a_tail, "cqstore/cut"),
    Refusal("fsync", "/cqstore/cut", cut_a_tail, "cqstore/cut"),
    Refusal("open", "/cqstore/passing-over", pass_over, "cqstore/passing-over"),
    Refusal("rename", "/cqstore/passing-over", pass_over, "cqstore/passing-over"),
    Refusal("unlink", "/cqstore/passing-over", pass_over, "cqstore/passing-over", after=1),
    Refusal("unlink", NEXT_INDEX, open_with_an_empty_index_file, f"index/{NEXT_INDEX}"),
    Refusal("list", "/store/index", lambda root: measure(root / "index"), "index"),
    Refusal("mkdir", ".partial", lambda root: copy_store(root, root.with_name("to")), "../to"),
    Refusal(
        "write",
        ".partial/index",
        lambda root: copy_store(root, root.with_name("to")),
        f"../to/{INDEX}",
    ),
    Refusal("list", "", look_at_files, f"commitlog/{0:020d}"),
    Refusal("list", "/store/commitlog", open_and_close, "commitlog"),
    Refusal("open", "/store/abort", watch, "abort"),
    Refusal("list", "/store/commitlog", watch, "commitlog"),
    Refusal("list", "/store/commitlog", watch, "commitlog", after=1),
    Refusal("open", LAST_LOG, watch, LAST_LOG),
    Refusal("open", "/store/checkpoint", watch, "checkpoint"),
    Refusal("mkdir", "/new/commitlog", put_anew, "new/commitlog"),
    Refusal("open", f"/new/{LOG}", put_anew, f"new/{LOG}"),
    Refusal("fsync", f"/new/{LOG}", put_anew, f"new/{LOG}", after=1),
    Refusal("mkdir", "/new/index", put_anew, "new/index"),
    Refusal("open", "/new/index/", put_anew, f"new/{INDEX}"),
    Refusal("write", "/new/index/", put_anew, f"new/{INDEX}", after=1),
    Refusal("fsync", "/new/index/", put_anew, f"new/{INDEX}", after=1),
    Refusal("rename", "/new/checkpoint", put_anew, "new/checkpoint"),
    Refusal("open", "/cqstore/synced", put_anew, "new/cqstore/synced"),
    Refusal("write", "/cqstore/synced", put_anew, "new/cqstore/synced"),
    Refusal("open", LOG, read_with_a_key, LOG),
    Refusal("open", LOG, read_with_a_key, LOG, after=1),
    Refusal("list", "/store/index", read_with_a_key, "index"),
    Refusal("open", "/store/index/", read_with_a_key, INDEX, after=1),
    Refusal("write", f"/store/{LAST_LOG}", open_after_a_crash, LAST_LOG),
    Refusal("unlink", "/store/index/", open_after_a_crash, INDEX),
    Refusal("fsync", "/store/index", open_after_a_crash, "index"),
    Refusal("open", "/cqstore/deleted-topics", delete_a_topic, "cqstore/deleted-topics"),
]


@pytest.mark.parametrize(
    "refusal", REFUSALS, ids=lambda one: f"{one.act.__name__} {one.call} {one.part}"
)
def test_the_path_is_named(root: Path, monkeypatch: pytest.MonkeyPatch, refusal: Refusal) -> None:
    faults = Faults(monkeypatch)
    if refusal.part:
        faults.fail(refusal.call, EIO, refusal.part, after=refusal.after)
    with pytest.raises(StoreIOError) as caught:
        refusal.act(root)
    assert caught.value.path is not None
    assert caught.value.path.match(os.path.normpath(root / refusal.named))


def test_the_folder_whose_disk_cannot_be_asked_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", refused)
    with pytest.raises(StoreIOError) as caught:
        disk_used_ratio(tmp_path / "not" / "yet")
    assert caught.value.path == tmp_path


def test_the_store_that_cannot_be_brought_to_the_disk_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "abort").touch()
    monkeypatch.setattr("cqstore.store.files.find_syncfs", lambda: lambda _: -1)
    with pytest.raises(StoreIOError, match="sync the files of the last writer") as caught:
        open_and_close(root)
    assert caught.value.path == root
