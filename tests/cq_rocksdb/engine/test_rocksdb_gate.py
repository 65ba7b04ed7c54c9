"""What stands around calls into RocksDB: the gate, the claim on a folder, the private folder."""

import gc
import tempfile
import threading
import weakref
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.call_gate import CallGate, gated
from cqstore.cq_rocksdb.engine.errors import (
    RocksDBDamagedError,
    RocksDBError,
    RocksDBFullError,
    RocksDBIOError,
    RocksDBStatus,
)
from cqstore.cq_rocksdb.engine.open_databases import Claim, HeldResources
from cqstore.cq_rocksdb.engine.private_folder import PrivateFolder
from cqstore.store.errors import (
    DiskFullError,
    NestedCallError,
    StoreClosedError,
    StoreIOError,
    StoreLockedError,
    StoreStateError,
)
from tests.kit.forks import forked
from tests.kit.interrupts import run_interrupted

FOLDER = Path("/of/the/database")


class OfRocksDBError(Exception):
    """As a binding raises it."""


class Made:
    """An object that a call makes."""


class Engine:
    """Makes calls through a gate, and notes what happens."""

    def __init__(self) -> None:
        self._gate = CallGate(FOLDER, lambda exc: isinstance(exc, OfRocksDBError))
        self.seen: list[str] = []
        self.inside, self.go_on = threading.Event(), threading.Event()

    @gated
    def add(self, first: int, *, second: int) -> int:
        """Return the sum."""
        return first + second

    @gated
    def fail(self, exc: BaseException, made: list[weakref.ref[Made]]) -> None:
        """Raise ``exc``, with an object in the frame."""
        local = Made()
        made.append(weakref.ref(local))
        raise exc

    @gated
    def stay(self) -> None:
        """Stay inside until released."""
        self.inside.set()
        assert self.go_on.wait(30)
        self.seen.append("left")

    def note(self, what: str, *, failing: bool = False) -> None:
        """Note ``what``."""
        self.seen.append(what)
        if failing:
            raise OfRocksDBError(f"IO error: {what}")

    def close(self, *failing: str) -> None:
        """Close, with what fails."""

        def step(what: str) -> None:
            self.note(what, failing=what in failing)

        self._gate.close(lambda: step("flush"), lambda: step("first"), lambda: step("second"))


def test_a_call_gives_what_its_method_gives() -> None:
    engine = Engine()
    assert engine.add(2, second=3) == 5
    assert Engine.add.__name__ == "add"
    engine.close()
    assert engine.seen == ["flush", "first", "second"]
    engine.close("flush", "first")
    assert engine.seen == ["flush", "first", "second"]
    with pytest.raises(StoreClosedError) as caught:
        engine.add(2, second=3)
    assert caught.value.path == FOLDER


@pytest.mark.parametrize("failing", ["flush", "first", "second"])
def test_a_close_lets_go_of_everything_whatever_fails_and_flushes_once(failing: str) -> None:
    engine = Engine()
    with pytest.raises(RocksDBIOError, match=failing):
        engine.close(failing)
    assert engine.seen == ["flush", "first", "second"]
    engine.close()
    assert engine.seen == ["flush", "first", "second", "first", "second"]
    engine.close()
    assert len(engine.seen) == 5
    unflushed = Engine()
    unflushed._gate.close(None, lambda: unflushed.note("first"))
    assert unflushed.seen == ["first"]


def test_a_close_waits_for_the_calls_that_are_inside() -> None:
    engine = Engine()
    caller = threading.Thread(target=engine.stay)
    caller.start()
    assert engine.inside.wait(30)
    closer = threading.Thread(target=engine.close)
    closer.start()
    while not engine._gate.shut:
        assert closer.is_alive()
    closer.join(0.05)
    assert engine.seen == []
    engine.go_on.set()
    closer.join(30)
    caller.join(30)
    assert engine.seen == ["left", "flush", "first", "second"]


def test_a_child_process_neither_calls_nor_closes_what_is_its_parents() -> None:
    engine = Engine()

    def be_child() -> None:
        with pytest.raises(StoreStateError) as caught:
            engine.add(1, second=2)
        engine.close()
        assert (caught.value.path, engine.seen) == (FOLDER, [])
        assert not isinstance(caught.value, StoreClosedError)

    assert forked(be_child) == 0
    assert engine.add(1, second=2) == 3
    engine.close()
    assert engine.seen == ["flush", "first", "second"]


@pytest.mark.parametrize(
    ("text", "kind", "status"),
    [
        ("IO error: lock hold by current process: x", StoreLockedError, None),
        ("IO error: While lock file: /x/LOCK: Resource", StoreLockedError, None),
        ("IO error: While appending", RocksDBIOError, RocksDBStatus.IO_ERROR),
        ("IO error: No space left on device: x", RocksDBFullError, RocksDBStatus.NO_SPACE),
        ("Corruption: block", RocksDBDamagedError, RocksDBStatus.CORRUPTION),
        ("unheard of", RocksDBError, RocksDBStatus.OTHER),
    ],
)
def test_what_rocksdb_refuses_is_an_error_of_ours_that_keeps_nothing(
    text: str, kind: type[Exception], status: RocksDBStatus | None
) -> None:
    made: list[weakref.ref[Made]] = []
    refusal = OfRocksDBError(text)
    with pytest.raises(kind) as caught:
        Engine().fail(refusal, made)
    assert caught.type is kind
    assert text in str(caught.value)
    assert caught.value.__cause__ is refusal
    assert getattr(caught.value, "path", None) == FOLDER
    assert getattr(caught.value, "status", None) is status
    assert [ref() for ref in made] == [None]
    assert isinstance(caught.value, DiskFullError) == (kind is RocksDBFullError)


def test_what_is_not_rocksdbs_to_raise_stays_what_it_is() -> None:
    for error in (ValueError("IO error: no"), KeyboardInterrupt()):
        made: list[weakref.ref[Made]] = []
        with pytest.raises(type(error)) as caught:
            Engine().fail(error, made)
        assert caught.value is error
        assert [ref() for ref in made] == [None]
    gate = CallGate(FOLDER, lambda exc: isinstance(exc, OfRocksDBError))
    with pytest.raises(ValueError, match="other"), gate.translation():
        raise ValueError("other")
    with pytest.raises(RocksDBIOError), gate.translation():
        raise OfRocksDBError("IO error: x")


def test_a_folder_is_claimed_once_until_it_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    first = Claim(tmp_path)
    for name in (tmp_path, tmp_path / "link"):
        with pytest.raises(StoreLockedError, match="already in use by this process") as caught:
            Claim(name)
        assert caught.value.path == name
    first.release()
    second = Claim(tmp_path)
    first.release()  # once more, and it is another's by now
    with pytest.raises(StoreLockedError):
        Claim(tmp_path)
    second.release()
    Claim(tmp_path).release()
    with pytest.raises(StoreIOError, match="cannot access the folder") as missing:
        Claim(tmp_path / "missing")
    assert missing.value.path == tmp_path / "missing"


def test_a_claim_keeps_others_out_until_it_is_released_or_garbage(tmp_path: Path) -> None:
    folder, moved = tmp_path / "db", tmp_path / "moved"
    folder.mkdir()
    held = HeldResources()
    held.claim = Claim(folder)
    with pytest.raises(StoreLockedError):
        Claim(folder)
    held.release()
    held.release()
    Claim(folder)  # and forgotten
    held.claim = Claim(folder)
    del held
    last = Claim(folder)
    folder.rename(moved)
    with pytest.raises(StoreLockedError):
        Claim(moved)
    last.release()


def test_a_claim_in_the_middle_of_a_claim_is_refused(tmp_path: Path) -> None:
    """A signal's handler that opens a database waits for no lock of its own thread."""
    refused = 0

    def nested() -> None:
        nonlocal refused
        (tmp_path / "other").mkdir(exist_ok=True)
        try:
            Claim(tmp_path / "other").release()
        except NestedCallError:
            refused += 1

    places = run_interrupted(lambda: Claim(tmp_path).release())
    for number in range(1, places + 1):
        run_interrupted(lambda: Claim(tmp_path).release(), number, nested)
        Claim(tmp_path).release()
    assert 0 < refused < places


OF_A_DATABASE = ["CURRENT", "IDENTITY", "MANIFEST-000005", "OPTIONS-000007", "000009.sst"]
OF_ITS_OPENER = ["LOCK", "LOG", "LOG.old.17", "rocksdict-config.json"]


def test_a_private_folder_has_links_to_the_database_alone_and_goes_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, folder = tmp_path / "temporary", tmp_path / "db"
    temporary.mkdir()
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for name in (*OF_A_DATABASE[1:], *OF_ITS_OPENER, "note.txt"):
        (folder / name).write_text(name)
    (folder / "Topic").mkdir()
    empty = PrivateFolder(folder)
    assert not empty.holds_database
    assert list(empty.path.iterdir()) == []
    (folder / "CURRENT").write_text("CURRENT")
    monkeypatch.chdir(tmp_path)
    private = PrivateFolder(Path("db"))
    assert private.holds_database
    assert sorted(path.name for path in private.path.iterdir()) == sorted(OF_A_DATABASE)
    assert all(path.is_symlink() for path in private.path.iterdir())
    assert (private.path / "000009.sst").read_text() == "000009.sst"
    assert forked(private.release) == 0
    assert (private.path / "CURRENT").exists(), "of the parent, which still uses it"
    private.release()
    assert list(temporary.iterdir()) == [empty.path]
    del empty
    gc.collect()
    assert list(temporary.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(StoreIOError, match="cannot create a private folder") as caught:
        PrivateFolder(folder)
    assert caught.value.path == folder
