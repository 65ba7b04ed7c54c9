"""``cqstore topics --clean``: shown first, done with ``--yes``, once or at intervals."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from tests.broker.cleaning.kit import fill, there
from tests.cli.test_commands import lines
from tests.kit.commands import COMMAND, cqstore
from tests.kit.tree import tree_digest, unchanged

pytestmark = pytest.mark.disk
GONE = {"gone", "gone-read"}
UNUSED = ["--clean", "--unused"]


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    fill(tmp_path / "s", request.param)
    return tmp_path / "s"


def topics(root: Path) -> set[str]:
    with MessageStore.open(root, read_only=True) as store:
        return set(there(store))


def test_topics_are_listed_first_and_deleted_with_yes(root: Path) -> None:
    before, every = tree_digest(root), topics(root)
    shown = cqstore("topics", root, *UNUSED, "--output", "jsonl")
    found = {str(row["topic"]): (row["result"], row["reason"]) for row in lines(shown)}
    assert found == {
        "gone": ("selected", None), "gone-read": ("selected", None),
        "gone-lag": ("kept", "backlog"), "%RETRY%g": ("kept", "backlog"),
        "%DLQ%g": ("kept", "dead-letters"), "RMQ_SYS_mine": ("kept", "system-topic"),
    }  # fmt: skip
    size = sum(int(str(row["queueBytes"])) for row in lines(shown) if row["result"] == "selected")
    sentence = f"2 of {len(every)} topics with 4 queues, 4 messages and {size} bytes in queues"
    assert f"{sentence} would be deleted (use --yes to delete them)" in shown.stderr
    assert "4 topics kept: 2 backlog, 1 dead-letters, 1 system-topic" in shown.stderr
    assert tree_digest(root) == before
    done = cqstore("topics", root, *UNUSED, "--yes", "--output", "jsonl")
    assert {row["topic"] for row in lines(done) if row["result"] == "deleted"} == GONE
    assert f"{sentence} deleted" in done.stderr
    assert topics(root) == every - GONE
    assert "gone-read@billing" not in (root / "config" / "consumerOffset.json").read_text()
    cqstore("check", root)

    with unchanged(root):  # not even opened for writing
        nothing = cqstore("topics", root, *UNUSED, "--yes", "--output", "jsonl")
        assert {row["result"] for row in lines(nothing)} == {"kept"}
        assert "0 of 23 topics" in nothing.stderr


def test_the_settings_of_the_broker_count(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("minLiteTTl=7200000\n")
    assert lines(cqstore("topics", root, "--clean", "--lite", "--config", conf)) == []
    shown = cqstore("topics", root, "--clean", "--lite", "--lagging", "--output", "jsonl")
    assert {row["topic"] for row in lines(shown)} == {"%LMQ%$brief$old", "%LMQ%$brief$lag"}


def test_of_several_forms_one_has_to_be_named(root: Path) -> None:
    cqstore("meta", "convert", root, "--to", "v2", "--yes")
    table = root / "config" / "topics.json"
    table.write_text('{"topicConfigTable":{"gone":{"topicName":"gone"}}}')
    refused = cqstore("topics", root, *UNUSED, code=2)
    assert "found metadata in several forms (json, v2)" in refused.stderr
    shown = cqstore("topics", root, *UNUSED, "--form", "v2", "--lagging", "--output", "jsonl")
    assert {row["topic"] for row in lines(shown) if not row["reason"]} == {
        *GONE, "gone-lag", "%RETRY%g", "%DLQ%g",
    }  # fmt: skip


def test_a_store_that_is_open_elsewhere_is_refused(root: Path) -> None:
    with MessageStore.open(root, housekeeping=False):
        refused = cqstore("topics", root, *UNUSED, "--yes", code=2)
    assert "has the store open" in refused.stderr
    assert topics(root) >= GONE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_rounds_are_repeated_until_a_signal(root: Path, number: int) -> None:
    words = ["topics", root, *UNUSED, "--yes", "--every", "0.1s", "--output", "jsonl"]
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found: set[str] = set()
        while not found >= GONE:
            row = json.loads(process.stdout.readline())
            found |= {row["topic"]} if row["result"] == "deleted" else set()
        notes = iter(process.stderr.readline, "")
        assert "2 of 25 topics" in next(notes)
        assert "4 topics kept" in next(notes)
        assert "0 of 23 topics" in next(notes)
        with MessageStore.open(root, housekeeping=False):
            assert any("this round is left out" in line for line in notes)
        process.send_signal(number)
        assert process.wait(60) == 0
    assert not topics(root) & GONE
