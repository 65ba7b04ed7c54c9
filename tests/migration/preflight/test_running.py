"""A store that another process has open and writes to is examined with ``running``."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.migration.commands import app
from cqstore.migration.preflight import PreflightReport, Severity, examine, preflight
from cqstore.migration.preflight import topics_check as metadata
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.opening import open_store
from tests.kit.product_tree import ROOT
from tests.kit.stopped import stopped
from tests.kit.tree import tree_digest
from tests.migration.preflight.kit import FakeMachine, codes, first_file, overwrite, rows_of, the

CHILD = """
import sys
from cqstore.store.settings.config import StoreConfig
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
root, backend = sys.argv[1:]
config = StoreConfig(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=2000, max_hash_slot_num=50,
    max_index_num=200, rocksdb_memory_bytes=16 << 20,
)
with MessageStore.open(root, config, backend=backend, housekeeping=False) as store:
    for line in sys.stdin:
        for number in range(int(line)):
            assert store.put_message(Message(f"t{number % 3}", b"x" * 90, number % 2)).ok
        store.flush()
        print("put", flush=True)
"""


class Writer:
    """A process that has a store open and puts to it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin, process.stdout

    def begin(self, count: int) -> None:
        self._to.write(f"{count}\n")
        self._to.flush()

    def put(self, count: int) -> None:
        self.begin(count)
        self.wait()

    def wait(self) -> None:
        assert self._from.readline() == "put\n"


@contextmanager
def writing(root: Path, backend: str) -> Iterator[Writer]:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, root, backend],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            writer = Writer(process)
            writer.put(600)
            yield writer
        finally:
            process.communicate()
        assert process.returncode == 0


def examined(root: Path, backend: str) -> PreflightReport:
    to = next(name for name in backend_names() if name != backend)
    return preflight(root, to=to, machine=FakeMachine(), running=True)


@pytest.mark.parametrize("backend", backend_names())
def test_a_running_store_is_examined_and_keeps_every_byte(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "store"
    with writing(root, backend) as writer:
        with stopped(writer.process.pid):  # its threads flush at times of their own
            before = tree_digest(root)
            report = examined(root, backend)
            assert tree_digest(root) == before
        assert the(report, "in-use").figures == {"pid": writer.process.pid}
        assert the(report, "in-use").severity is Severity.WARN
        assert "again after the process has stopped" in the(report, "in-use").sentence
        assert report.find("needs-recovery") is None  # abort is there as long as it runs
        assert (report.surveyed, report.units, report.queues) == (backend, 600, 6)
        assert report.may_go_on
    ended = examined(root, backend)
    found = codes(report.findings)
    found.remove("in-use")
    assert codes(ended.findings) == found


@pytest.mark.parametrize("backend", backend_names())
def test_offsets_are_not_held_against_what_a_broker_has_in_memory(
    tmp_path: Path, backend: str
) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"t0@g":{"0":10000}}}')
    with writing(root, backend):
        found = codes(examined(root, backend).findings)
        hides = backend == "rocksdb"
        assert ("offsets-not-compared" in found, "consumers-beyond-max" in found) == (
            hides, not hides,
        )  # fmt: skip
    assert the(examined(root, backend), "consumers-beyond-max").severity is Severity.WARN


@pytest.mark.parametrize("backend", backend_names())
def test_it_is_examined_again_and_again_while_messages_are_put(
    tmp_path: Path, backend: str
) -> None:
    root = tmp_path / "store"
    with writing(root, backend) as writer:
        writer.begin(20_000)
        reports = [examined(root, backend) for _ in range(8)]
        writer.wait()
    assert [codes(report.refusals) for report in reports] == [[]] * 8
    units = [report.units for report in reports]
    assert units == sorted(units)
    assert units[0] >= 600


def during_each_pass(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], object]) -> list[int]:
    """Call ``action`` with the number of the pass when the store is open and no queue is read."""
    passes: list[int] = []
    read = metadata.read_topic_table

    def between(paths):  # type: ignore[no-untyped-def]
        passes.append(len(passes))
        action(passes[-1])
        return read(paths)

    monkeypatch.setattr(examine, "read_topic_table", between)
    return passes


@pytest.mark.parametrize("backend", backend_names())
def test_units_newer_than_the_opened_log_are_not_outside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """The log's files are listed before the queues are opened: the writer fills the next ones."""
    root = tmp_path / "store"
    with writing(root, backend) as writer:
        make = open_store._queues
        made = []

        def behind_more_log(*given):  # type: ignore[no-untyped-def]
            writer.put(300)
            made.append(make(*given))
            return made[-1]

        monkeypatch.setattr(open_store, "_queues", behind_more_log)
        report = examined(root, backend)
        assert (codes(report.refusals), len(made)) == ([], 1)
        assert 600 < report.units <= 900


def test_what_is_found_once_only_was_the_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with writing(root, "file"):
        path = first_file(root, "t1")
        whole = rows_of(path)[3]
        far = (whole[0], 1 << 20, whole[2])
        passes = during_each_pass(
            monkeypatch, lambda number: overwrite(path, 3, [whole if number else far])
        )
        assert examined(root, "file").may_go_on
        assert passes == [0, 1]


def test_what_each_pass_finds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    with writing(root, "file"):
        path = first_file(root, "t1")
        whole = rows_of(path)[3]
        overwrite(path, 3, [(whole[0], 1 << 20, whole[2])])
        passes = during_each_pass(monkeypatch, lambda _: None)
        assert codes(examined(root, "file").refusals) == ["units-outside-log"]
        assert passes == [0, 1, 2]
        overwrite(path, 3, [whole])


def test_the_command_refuses_a_running_store_and_names_the_option(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with writing(root, "file") as writer:
        refused = CliRunner().invoke(app, ["preflight", str(root)])
        assert refused.exit_code == 1
        assert "--running" in refused.output
        done = CliRunner().invoke(app, ["preflight", str(root), "--running"])
        assert done.exit_code == 0
        said = " ".join(done.output.split())
        assert f"process {writer.process.pid} has the store open: run preflight again after" in said
