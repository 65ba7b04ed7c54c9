"""The tables' way to the next broker, cut short at every write: done again it is whole.

By a kill before each change of a name and each opening of a file to write, by a refusal of each
such call and of each write and sync, by an exception at every place where Python looks for signals.
No former table is lost by it, and no file is ever there in part.
"""

import errno
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import cqstore.migration
from cqstore.broker.conversion.conversion import NextBroker
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.rocksdb_v1 import read_v1
from cqstore.broker.metadata.writing import write_form
from cqstore.migration.follow.beside import copy_tables
from cqstore.migration.switch.metadata_steps import prepare
from cqstore.store.errors import StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.kit import interrupts
from tests.kit.call_order import CallOrder
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.killed_at_change import is_change
from tests.kit.mutations import in_time
from tests.kit.nth_call import Case, NthCall

SECONDS = 60
SHARE, ALL = 5, 1 << 30
"""Places that the normal run takes of each kind, and the long one."""
PARTS = 12
"""Of the long one, where each of its places takes seconds."""
OURS = (*interrupts._OURS, f"{cqstore.migration.__path__[0]}/", shutil.__file__)
IGNORED = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # a file that the interrupt left unclosed
)
LMQ = StoreConfig(enable_lmq=True)
REFUSED = 3
"""How a child ends."""
SPAWNING = get_context("forkserver")
SPAWNING.set_forkserver_preload([__name__])
"""A fork of this process would lack the threads of RocksDB that it has begun."""
KILL = 0
"""In the place of an error's number."""
VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 5}
OFFSETS = {"t@g": {"0": 7}, "%LMQ%a@%LMQ%g": {"0": 3}}
LIGHT = {
    "offsetTable": {"t@g": {"0": 7}}, "lmqOffsetTable": {"%LMQ%a@%LMQ%g": 3}, "dataVersion": VERSION
}  # fmt: skip
FILES = {
    "topics.json": {"topicConfigTable": {"t": {}}, "dataVersion": VERSION},
    "subscriptionGroup.json": {"subscriptionGroupTable": {"g": {}}, "dataVersion": VERSION},
    "consumerOffset.json": {"offsetTable": {"t@g": {"0": 1}}, "dataVersion": VERSION},
    "consumerOffset.json.bak": {"offsetTable": {}, "dataVersion": VERSION},
    "lmqConsumerOffset.json": LIGHT,
    "delayOffset.json": {"offsetTable": {"3": 9}},
}
DATABASES = ("topics", "subscriptionGroups", "consumerOffsets")
Tree = dict[str, bytes]


def make_broker(root: Path) -> None:
    """Make the tables and the timer's files of a broker with light queues in files."""
    for at, (name, content) in enumerate(FILES.items()):
        write(root / "config" / name, json.dumps(content).encode(), 20 + at)
    for database in ("topics", "consumerOffsets"):
        for name in ("CURRENT", "MANIFEST-000004", "000009.log"):
            write(root / "config" / database / name, b"%s" % database.encode(), 10)
    write(root / "timerwheel", b"wheel" * 100, 30)
    write(root / "timerlog" / f"{0:020d}", b"timer" * 100, 30)


def write(path: Path, data: bytes, at: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))


def tree(root: Path) -> Tree:
    """Return the files below ``root`` by name; the folder of what was moved away has no time.

    Of databases of tables that were made, what they hold.
    """
    found, databases = {}, set[Path]()
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.name == "lock":
            continue
        data, folder = path.read_bytes(), path.parent
        if folder.name not in DATABASES or data == folder.name.encode():
            found[name_below(root, path)] = data
        elif (folder / "CURRENT").exists() and folder.parent.parent.name != "new-metadata":
            databases.add(folder)
    held = {config: read_v1(config) for config in {each.parent for each in databases}}
    return found | {name_below(root, each): rows_of(each, held[each.parent]) for each in databases}


def name_below(root: Path, path: Path) -> str:
    parts = ["TIME" if re.search(r"-(migrated|metadata)(-\d+)?$", part) else part
             for part in path.relative_to(root).parts]  # fmt: skip
    return "/".join(parts)


def rows_of(database: Path, found: BrokerMetadata | None) -> bytes:
    """Return what a database of one table holds, of what all in its folder do."""
    assert found is not None
    tables = {
        "topics": (found.topics, found.versions.get(Table.TOPICS)),
        "subscriptionGroups": (found.groups, found.forbidden, found.versions.get(Table.GROUPS)),
        "consumerOffsets": (found.offsets, found.versions.get(Table.OFFSETS)),
    }
    return repr(tables[database.name]).encode()


def with_databases(root: Path) -> None:
    """Put databases that are newer than the files in the place of the older ones."""
    paths = StorePaths(root)
    (found,) = [each for each in read_forms(paths) if each.form is Form.JSON]
    found.topics["later"], found.offsets["t@g"] = {"topicName": "later"}, {0: 19}
    for name in DATABASES:
        shutil.rmtree(root / "config" / name, ignore_errors=True)
    write_form(found, Form.V1, root)


@dataclass
class Step:
    """One step: makes the files before it in ``root``, does it, says what holds at any time."""

    name: str
    root: Path

    def begin(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        make_broker(self.root / "broker")
        if self.name == "beside":
            write(self.root / "own" / "config" / "topics.json", b'{"former": 1}', 5)
            write(self.root / "own" / "config" / "delayOffset.json", b'{"former": 2}', 5)
            write(self.root / "own" / "timerwheel.7", b"former", 5)
            (self.root / "own" / "commitlog").mkdir()
            # Of a call that was cut short; the broker has removed it since.
            write(self.root / "own" / "cqstore" / "beside" / "timerwheel.9", b"left", 5)
        if self.name == "to file":
            content = {"offsetTable": OFFSETS, "dataVersion": VERSION | {"counter": 4}}
            data = json.dumps(content).encode()
            write(self.root / "broker" / "config" / "consumerOffset.json", data, 50)
        if self.name == "to file from rocksdb":
            with_databases(self.root / "broker")
        self.former = tree(self.root)

    def do(self) -> None:
        broker = StorePaths(self.root / "broker")
        if self.name == "beside":
            copy_tables(broker, StorePaths(self.root / "own"), NextBroker(["rocksdb"], LMQ))
        else:
            prepare(broker, NextBroker([self.name.removeprefix("to ").partition(" ")[0]], LMQ))

    def check(self) -> None:
        """Check the files after a cut: all that was, and nothing in part."""
        found = tree(self.root)
        for name, data in found.items():
            if name.endswith((".json", ".bak")) and "/beside/" not in name:
                assert isinstance(json.loads(data), dict), name
        brokers = {name: data for name, data in self.former.items() if name.startswith("broker/")}
        if self.name == "beside":
            assert {name: data for name, data in found.items() if name in brokers} == brokers
            self.check_own(found)
        else:
            kept = [*found.values()]
            for name, data in brokers.items():
                if not name.endswith(".bak"):
                    assert data in kept, name

    def check_own(self, found: Tree) -> None:
        """The tables are the former ones, those of the broker, or none: never some of either."""
        config = {name: data for name, data in found.items() if name.startswith("own/config/")}
        former = {n: data for n, data in self.former.items() if n.startswith("own/config/")}
        whole = {name: data for name, data in self.whole.items() if name.startswith("own/config/")}
        assert config in ({}, former, whole)

    def finish(self) -> None:
        """Do it again; all must be as if it had not been cut short."""
        self.check()
        self.do()
        assert tree(self.root) == self.whole

    def learn(self) -> None:
        """Find out what the step makes when it is not cut short, twice."""
        self.begin()
        self.do()
        self.whole = tree(self.root)
        self.do()
        assert tree(self.root) == self.whole
        self.begin()


@pytest.fixture(params=["beside", "to rocksdb", "to file", "to file from rocksdb"])
def step(request: pytest.FixtureRequest, tmp_path: Path) -> Step:
    made = Step(request.param, tmp_path / "case")
    made.learn()
    return made


def in_child(step: Step, number: int, code: int) -> tuple[int, int]:
    """Do the step in a child; return how it ended and, of a whole one, how many changes it made.

    It is killed, or refused with ``code``, at change ``number``.
    """
    reads, writes = SPAWNING.Pipe(duplex=False)
    words = step, number, code, writes
    child = SPAWNING.Process(target=_child, args=words, daemon=True)  # killed when pytest ends
    child.start()
    writes.close()
    try:
        assert reads.poll(SECONDS), f"no word of the child that is cut short at change {number}"
        changes = int(reads.recv())
    except EOFError:
        changes = 0
    reads.close()
    child.join(SECONDS)
    assert child.exitcode is not None, f"the child that is cut short at change {number} goes on"
    return child.exitcode, changes


def _child(step: Step, number: int, code: int, writes: Connection) -> None:
    made = 0

    def hook(event: str, words: tuple[object, ...]) -> None:
        nonlocal made
        if is_change(event, words):
            made += 1
            if made == number and code == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            if made == number:
                raise OSError(code, os.strerror(code))

    sys.addaudithook(hook)
    try:
        step.do()
    except StoreIOError:
        sys.exit(REFUSED)
    writes.send(made)


def cut_at_changes(step: Step, code: int, most: int) -> None:
    ended, changes = in_child(step, 0, KILL)
    assert ended == 0
    assert changes > 8
    for at in range(1, changes + 1, -(-changes // most)):
        with in_time(SECONDS):
            step.begin()
            ended, _ = in_child(step, at, code)
            assert ended in {-signal.SIGKILL, 0, REFUSED}, ended
            if ended == 0:
                assert tree(step.root) == step.whole
            step.finish()


def fail_calls(step: Step, calls: NthCall, most: int, part: int = 0, parts: int = 1) -> None:
    """Fail ``most`` of the calls, evenly drawn, or of ``parts`` such draws this one."""
    cases = [*nth_cases(calls, step)][part::parts]
    struck = 0
    for case in cases[:: -(-len(cases) // most)]:
        with in_time(SECONDS):
            step.begin()
            calls.arm(case)
            with suppress(StoreIOError):
                step.do()
            calls.heal()
            struck += bool(calls.struck)
            step.finish()
    assert struck > min(most, len(cases)) // 3


def nth_cases(calls: NthCall, step: Step) -> Iterator[Case]:
    calls.count()
    step.do()
    calls.heal()
    yield from calls.cases()


def interrupt_some(step: Step, most: int) -> None:
    places = run_interrupted(step.do)
    assert places > 100
    for number in range(1, places + 1, -(-places // most)):
        with in_time(SECONDS):
            step.begin()
            with suppress(Interrupted, StoreIOError), interrupted_in_shutil():
                run_interrupted(step.do, number)
            step.finish()


@contextmanager
def interrupted_in_shutil() -> Iterator[None]:
    """Pass over the error that covers an interrupt in ``shutil.rmtree``.

    Between a descriptor's closing and the note of it, CPython 3.11 closes it twice.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EBADF or not isinstance(error.__context__, Interrupted):
            raise


CODES = pytest.mark.parametrize("code", [KILL, errno.EIO, errno.ENOSPC])


@CODES
@pytest.mark.slow
def test_tables_cut_short_at_a_change_are_whole_when_it_is_done_again(
    step: Step, code: int
) -> None:
    cut_at_changes(step, code, SHARE)


@CODES
@pytest.mark.long
def test_tables_cut_short_at_any_change_are_whole_when_it_is_done_again(
    step: Step, code: int
) -> None:
    cut_at_changes(step, code, ALL)


@pytest.mark.slow
def test_tables_of_which_a_call_fails_are_whole_when_it_is_done_again(step: Step) -> None:
    with NthCall(step.root) as calls:
        fail_calls(step, calls, 2 * SHARE)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_tables_of_which_any_call_fails_are_whole_when_it_is_done_again(
    step: Step, part: int
) -> None:
    """In parts: RocksDB sleeps for a second behind each call of its own that fails."""
    with NthCall(step.root) as calls:
        fail_calls(step, calls, ALL, part, PARTS)


@pytest.mark.slow
@IGNORED
def test_tables_interrupted_are_whole_when_it_is_done_again(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_OURS", OURS)
    interrupt_some(step, 2 * SHARE)


@pytest.mark.long
@IGNORED
def test_tables_interrupted_anywhere_are_whole_when_it_is_done_again(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_OURS", OURS)
    interrupt_some(step, 28 * SHARE)


def test_a_database_that_is_moved_away_is_on_disk_there_before_it_is_gone_here(
    tmp_path: Path,
) -> None:
    step = Step("to rocksdb", tmp_path / "case")
    step.begin()
    calls = CallOrder(step.root)
    with calls.watching():
        step.do()
    moved = [path for what, path in calls.made if what == "rename" and "-migrated/" in path]
    assert {Path(path).name for path in moved} == {"topics", "consumerOffsets"}
    for path in moved:
        behind = [
            each
            for what, each in calls.made[calls.made.index(("rename", path)) :]
            if what == "sync"
        ]
        assert behind[:2] == [str(Path(path).parent), "broker/config"]
