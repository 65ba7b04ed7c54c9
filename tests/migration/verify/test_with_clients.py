"""Clients read old and new queues over the remoting protocol: equal answers, and damage found."""

import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cqstore.cq_file.layout import FILE_UNIT
from cqstore.migration.commands import app
from cqstore.migration.commands.verify import both_backends
from cqstore.migration.verify import read_report, verified, verify_queues
from cqstore.migration.verify.client_command import run_client
from cqstore.migration.verify.clients_report import ClientDifference, ClientsReport
from cqstore.migration.verify.with_clients import Clients, compare_by_clients
from cqstore.serve.client_command import ClientCommand
from cqstore.store.errors import RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.golden import load_dump
from tests.kit.long_too import long_too
from tests.kit.tree import tree_digest
from tests.kit.waiting import run
from tests.migration.made import Made, in_this_process, migrate

QUEUE = QueueKey("p", 1)
Golden = Callable[[str], Path]
STORES = [
    ("basic-default", "rocksdb"), ("basic-defaultRocksDB", "file"), ("wide-default", "rocksdb"),
    ("ext-default", "rocksdb"), *long_too([("wide-defaultRocksDB", "file")]),
]  # fmt: skip


def clients_of(made: Made, **changes: Any) -> Callable[..., ClientsReport]:
    """Return what ``verify_migration`` calls."""

    def compare(*given: Any) -> ClientsReport:
        return compare_by_clients(Clients(made.root, **changes), *given)

    return compare


def compared(made: Made, **changes: Any) -> ClientsReport:
    report = made.verify(clients=clients_of(made, **changes))
    assert report.clients is not None
    assert (report.verdict == "equal") == (report.clients.equal and not report.result.differing)
    return report.clients


@pytest.mark.parametrize(("name", "target"), STORES)
def test_golden_stores_are_read_whole_and_equal(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    made = migrate(golden(name), target, monkeypatch)
    before = tree_digest(made.root / "commitlog"), tree_digest(made.space.made.root)
    steps = list[tuple[int, int]]()
    found = compared(made, progress=lambda done, of: steps.append((done, of)))
    queues = load_dump(name)["queues"]
    units = sum(len(each["units"]) for each in queues)
    # Topic A has one message in each of four queues that its row of the table does not have.
    refused = 4 if name.startswith("wide") else 0
    assert (found.messages, found.differing, found.refused) == (units - refused, 0, refused)
    assert found.client == "cqstore's client of the remoting protocol"
    assert steps[-1] == (found.queues, found.queues)
    assert (tree_digest(made.root / "commitlog"), tree_digest(made.space.made.root)) == before
    assert verified(made.space, made.plan) is None


@pytest.mark.parametrize("name", ["basic-combine", "special-combine", *long_too(["wide-combine"])])
def test_both_backends_of_a_store_are_read(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("cqstore.migration.verify.verification.run_tasks", in_this_process)
    root = golden(name)

    def compare(*given: Any) -> ClientsReport:
        return compare_by_clients(Clients(root), *given)

    before = tree_digest(root)
    report = verify_queues(*both_backends(root, None), master="none", clients=compare)
    assert report.clients is not None
    assert report.equal, report.clients.listed
    units = sum(len(each["units"]) for each in load_dump(name)["queues"])
    assert report.clients.messages == units - (4 if name.startswith("wide") else 0)
    assert tree_digest(root) == before


@pytest.mark.parametrize("target", ["rocksdb", "file"])
def test_what_a_consumer_would_not_get_is_found(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    source = "basic-default" if target == "rocksdb" else "basic-defaultRocksDB"
    made = migrate(golden(source), target, monkeypatch)
    if target == "rocksdb":
        other = made.unit(QUEUE, 41)
        assert len(other) == QUEUE_UNIT.size
        made.put_unit(QUEUE, 40, other)  # message 41 twice, message 40 not at all
    else:
        other = made.file_unit(QUEUE, 41)
        assert len(other) == FILE_UNIT.size
        made.write_file(QUEUE, 40, other)
    found = compared(made)
    assert found.differing == 1
    (difference,) = found.listed
    assert (difference.topic, difference.queue_id) == QUEUE
    assert (difference.request, difference.offset, difference.field) == ("PULL_MESSAGE", 0, "body")
    assert difference.source != difference.target
    report = read_report(made.space.report)
    assert report.verdict == "different"
    assert report.clients == found
    assert "p</td>" in made.space.report_page.read_text()


def test_a_queue_that_ends_earlier_is_found(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = migrate(golden("basic-default"), "rocksdb", monkeypatch)
    unit = QUEUE_UNIT.unpack_from(made.unit(QUEUE, 89))
    made.put_end(QUEUE, unit.phy_offset, 90)
    (difference,) = compared(made).listed
    assert difference == ClientDifference(
        topic="p", queue_id=1, request="GET_MAX_OFFSET", field="offset", source="95", target="90"
    )


def test_messages_after_the_plan_are_not_compared(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = migrate(golden("basic-default"), "rocksdb", monkeypatch)
    with MessageStore.open(made.root, made.plan.config, housekeeping=False) as store:
        for number in range(3):
            assert store.put_message(Message("p", b"late", number % 2)).ok
        assert store.put_message(Message("late", b"late", 0)).ok
    found = compared(made)
    assert (found.differing, found.later) == (0, 4)
    assert found.messages == len(load_dump("basic-default")["messages"])


def test_an_old_store_of_the_log_alone_is_refused(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = migrate(golden("basic-default"), "rocksdb", monkeypatch)
    monkeypatch.setattr("cqstore.migration.verify.with_clients.LOG", "file")
    with pytest.raises(RefusedStoreError, match="without --with-clients"):
        compared(made)


# ---- the operator's own client

PRINTS = """
import os, sys
assert os.environ["NAMESRV_ADDR"] == sys.argv[1]
host, port = sys.argv[1].split(":")
lines = ["broker " + sys.argv[1], "one", "two", "two"]
print("\\n".join(lines if int(port) % 2 else reversed(lines)))
"""


def client(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.py"
    path.write_text(text)
    return f"'{sys.executable}' '{path}' {{address}}"


def ran(command: str, folder: Path, seconds: float = 60) -> Any:
    async def story() -> Any:
        own = ClientCommand(command, seconds)
        return await run_client(own, "127.0.0.1:1", "127.0.0.1:2", folder)

    return run(story())


def test_a_client_that_prints_the_same_is_equal_in_any_order(tmp_path: Path) -> None:
    found = ran(client(tmp_path, PRINTS), tmp_path)
    assert (found.equal, found.source_exit, found.target_exit) == (True, 0, 0)
    assert (found.source_lines, found.target_lines) == (4, 4)


@pytest.mark.parametrize(
    ("text", "ends", "only"),
    [
        (
            "import sys; print('a'); print('b' if '1' in sys.argv[1][-1] else 'c')",
            (0, 0),
            ("b", "c"),
        ),
        ("import sys; print('a'); print('a') if sys.argv[1][-1] == '1' else 0", (0, 0), ("a", "")),
        ("import sys; sys.exit(3)", (3, 3), ("", "")),
    ],
)
def test_a_client_that_prints_more_or_fails_is_different(
    tmp_path: Path, text: str, ends: tuple[int, int], only: tuple[str, str]
) -> None:
    found = ran(client(tmp_path, text), tmp_path)
    assert not found.equal
    assert (found.source_exit, found.target_exit) == ends
    assert (" ".join(found.only_source), " ".join(found.only_target)) == only


def test_clients_that_cannot_run_or_do_not_end_are_named(tmp_path: Path) -> None:
    for command, words in (
        ("", "the command of the client is empty"),
        ("echo 'a", "No closing quotation"),
        (f"{tmp_path}/none", "cannot run the client"),
    ):
        with pytest.raises(StoreError, match=words):
            ran(command, tmp_path)
    with pytest.raises(StoreError, match=r"has not ended after 0\.1 s"):
        ran("sleep 600", tmp_path, 0.1)


def test_the_command_runs_clients_and_names_them(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = migrate(golden("basic-default"), "rocksdb", monkeypatch)
    words = ["verify", str(made.root), "--master", "none", "--with-clients"]
    count = len(load_dump("basic-default")["messages"])
    done = CliRunner().invoke(app, [*words, "--client-command", client(tmp_path, PRINTS)])
    assert done.exit_code == 0, done.output
    flat = " ".join(done.output.split())
    assert f"cqstore's client of the remoting protocol {count:,} messages" in flat
    assert "equal: exit codes 0 and 0, 4 and 4 lines" in flat
    report = read_report(made.space.report)
    assert report.clients is not None
    assert report.clients.command is not None
    assert report.clients.command.command in unescape(made.space.report_page.read_text())
    done = CliRunner().invoke(app, [*words, "--client-command", "false"])
    assert done.exit_code == 1
    assert read_report(made.space.report).verdict == "different"
    alone = CliRunner().invoke(app, ["verify", str(made.root), "--client-command", "true"])
    assert alone.exit_code == 2


def test_an_invalid_command_is_refused_before_the_stores_are_read(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = migrate(golden("basic-default"), "rocksdb", monkeypatch)
    steps = list[int]()
    with pytest.raises(StoreConfigError, match="invalid command"):
        compared(made, command=ClientCommand("'", 1), progress=lambda done, _: steps.append(done))
    assert not steps
