"""Each of our own files is lost in turn, in each state: harmless, or refused with what it means."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.ab.mirror.mismatches import Mismatch, MismatchJournal
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend as backend_class
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from tests.kit.crash_images import crash_image
from tests.kit.faults import EIO, Faults
from tests.kit.migrations import NO_SPARK, move
from tests.kit.told import CONFIG, AcknowledgedWrites

DOUBLE = CONFIG.model_copy(
    update={
        "rocksdb_cq_double_write_enable": True,
        "combine_cq_prefer_cq_type": "defaultRocksDB",
        "ab_share": 1.0,
    }
)
SIZED = CONFIG.model_copy()
SIZED.model_fields_set.discard("mapped_file_size_consume_queue")
MUST_BE_THERE = {"deleted-topics", "expired-queues", "mode", "rebuilding", "replacing"}


def open_store(root: Path, **options: object) -> MessageStore:
    """Open by the files: sizes are theirs, double write is a setting."""
    config = DOUBLE if root.name.startswith("double") else SIZED
    return MessageStore.open(root, config, housekeeping=False, **options)  # type: ignore[arg-type]


class Stop(Exception):  # noqa: N818 - not an error, an instant
    """Ends a step in the middle."""


def stop(*_: object) -> None:
    raise Stop


def worked(root: Path, kind: str) -> AcknowledgedWrites:
    written = AcknowledgedWrites()
    backend = None if kind == "double" else kind
    config = DOUBLE if kind == "double" else CONFIG
    for _ in range(2):
        with MessageStore.open(root, config, backend=backend) as store:
            written.work(store)
    if kind == "double":
        MismatchJournal(StorePaths(root).ab_differences).add(
            Mismatch(1.8e9, "minOffset", QueueKey("t", 0), {}, -1, -1, {"file": "0"}, "")
        )
    return written


def closed(root: Path, kind: str, _: pytest.MonkeyPatch) -> AcknowledgedWrites:
    return worked(root, kind)


def crashed(root: Path, kind: str, _: pytest.MonkeyPatch) -> AcknowledgedWrites:
    living = root.with_name(f"{root.name}-living")
    written = worked(living, kind)
    with open_store(living) as store:
        written.work(store)
        store.flush()
        crash_image(store.root, root)
    return written


def detach_files(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> AcknowledgedWrites:
    written = worked(root, kind)
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        with open_store(root) as store:
            faults.fail("write", EIO, "/consumequeue/t/0")
            written.work(store)
            assert list(store.detached_backends()) == ["file"]
    return written


def half_rebuilt(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> AcknowledgedWrites:
    reported = worked(root, kind)
    store = open_store(root)
    with monkeypatch.context() as patch:
        patch.setattr(backend_class(kind), "put_batch", stop)
        with pytest.raises(Stop):
            store.rebuild_queues("t", 0)
    store.close()
    return reported


def half_replaced(root: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> AcknowledgedWrites:
    reported = worked(root, kind)
    with monkeypatch.context() as patch:
        patch.setattr(backend_class(kind), "put_batch", stop)
        with pytest.raises(Stop):
            open_store(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES), backend=kind)
    return reported


def switched(root: Path, kind: str, _: pytest.MonkeyPatch) -> AcknowledgedWrites:
    reported = worked(root, kind)
    move(root, target={"file": "rocksdb", "rocksdb": "file"}[kind])
    verify_migration(root, master=NO_SPARK)
    switch(root)
    return reported


Make = Callable[[Path, str, pytest.MonkeyPatch], AcknowledgedWrites]
EACH = backend_names()
STATES: list[tuple[Make, str]] = [
    *((state, kind) for state in (closed, crashed, half_rebuilt) for kind in EACH),
    (detach_files, "double"),
]
LONG_STATES: list[tuple[Make, str]] = [
    *((state, kind) for state in (half_replaced, switched) for kind in EACH),
    *((state, "double") for state in (closed, crashed)),
]


def use(root: Path, written: AcknowledgedWrites) -> None:
    """Open, compare, go on; rebuild all queues, compare, go on."""
    with open_store(root) as store:
        written.check(store)
        written.work(store)
    with open_store(root, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES)) as store:
        written.check(store)
        written.work(store)
        written.check(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *(pytest.param(*state, id=f"{state[0].__name__}-{state[1]}") for state in STATES),
        *(
            pytest.param(*state, id=f"{state[0].__name__}-{state[1]}", marks=pytest.mark.long)
            for state in LONG_STATES
        ),
    ],
)
def test_a_lost_file_of_ours_is_harmless_or_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, kind: str
) -> None:
    root = tmp_path / f"{kind}-store"
    reported = make(root, kind, monkeypatch)
    own = root / "cqstore"
    names = sorted(str(path.relative_to(own)) for path in own.rglob("*") if path.is_file())
    assert "kept" in names
    if kind == "double":
        assert {"ab/figures", "ab/differences"} <= set(names)
    for name in names:
        again = tmp_path / f"{kind}-again"
        shutil.copytree(root, again, symlinks=True)
        (again / "cqstore" / name).unlink()
        if name in MUST_BE_THERE:
            for read_only in (True, False):
                with pytest.raises(RefusedStoreError, match="is missing; without it, ") as caught:
                    open_store(again, read_only=read_only)
                assert caught.value.path == again / "cqstore" / name
        else:
            use(again, reported.copy())
        shutil.rmtree(again)


@pytest.mark.parametrize("name", ["deleted-topics", "expired-queues"])
def test_a_journal_that_was_emptied_or_cut_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else deleted topics would come back; a cut at the end of a line looks like no damage."""
    root = tmp_path / "file-store"
    closed(root, "file", monkeypatch)
    journal = root / "cqstore" / name
    data = journal.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for length in (0, *ends[:-1], len(data) - 1):
        journal.write_bytes(data[:length])
        for read_only in (True, False):
            with pytest.raises(
                RefusedStoreError, match=f"is truncated: .*found {length} bytes"
            ) as caught:
                open_store(root, read_only=read_only)
            assert caught.value.path == journal
    journal.write_bytes(data)
    open_store(root).close()
    with open_store(root) as store:  # a journal that the log's expiry empties is not cut
        store.delete_topic("t" if name == "deleted-topics" else "u")
    open_store(root).close()


def test_without_the_whole_folder_a_store_is_as_rocketmq_knows_it(tmp_path: Path) -> None:
    root = tmp_path / "file-store"
    worked(root, "file")
    shutil.rmtree(root / "cqstore")
    with open_store(root) as store:
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("kind", [*backend_names(), "double"])
def test_a_journal_is_missed_whose_maker_ended_before_its_note(tmp_path: Path, kind: str) -> None:
    """From the next opening on."""
    root = tmp_path / kind
    worked(root, kind)
    own = StorePaths(root).own
    there = sorted(MUST_BE_THERE & {path.name for path in own.iterdir()})
    assert {"deleted-topics", "expired-queues"} <= set(there)
    (own / "kept").unlink()
    open_store(root).close()
    for name in there:
        (own / name).rename(tmp_path / name)
        with pytest.raises(RefusedStoreError, match="is missing; without it"):
            open_store(root)
        (tmp_path / name).rename(own / name)
    open_store(root).close()
