"""``ab live --client-command``: RocketMQ's Java clients are the load of both backends."""

import shlex
import sys
from pathlib import Path

import pytest

from cqstore.ab.live.client_costs import RUN
from cqstore.ab.live.client_run import ClientPlan, ClientRun
from cqstore.ab.sides.side import parse_sides
from cqstore.serve.client_command import ClientCommand
from cqstore.serve.store_writer import WriteSettings
from tests.interop.consumers import NEWEST
from tests.serve.conftest import CONFIG
from tools.bench.peer.maven import JavaProgram

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 500


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """The program that the command runs, built for it."""
    JavaProgram.build(Path(__file__).parent / "clients", "interop.Writers", NEWEST)


def test_both_backends_serve_the_same_load_of_java_clients(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.interop.load_by_java", "{address}", str(COUNT)]
    config = CONFIG.model_copy(update={"enable_schedule_message_service": True})
    plan = ClientPlan(
        ClientCommand(shlex.join(words), 300), parse_sides(["file", "rocksdb"], config),
        tmp_path / "work", 2, WriteSettings(),
    )  # fmt: skip
    found = ClientRun(plan).measure(lambda *_: None)
    run = found.workloads[0]
    assert run.name == RUN
    assert [turn.operations for turn in run.rounds] == [2 * COUNT] * 6
    assert (run.answers.compared, run.answers.different) == (4 * COUNT, 0)
    assert (found.store.units, found.store.topics) == (COUNT, 1)
    assert (
        found.not_measured[0] == f"Load of the first run: {COUNT} messages sent, {COUNT} received."
    )
    assert not (tmp_path / "work").exists()
