"""Tables that a test has just written are those of a broker that has ended; workers are forks."""

from collections.abc import Iterator

import pytest

from cqstore.broker.conversion import broker_process as stopped
from tests.kit.forked_workers import forked_workers

STARTED = "test_tasks"
"""The module in which processes are started as a user's are."""


@pytest.fixture(autouse=True, scope="module")
def _workers_are_forked(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.stem == STARTED:
        yield
        return
    with forked_workers():
        yield


@pytest.fixture(autouse=True)
def _tables_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the wait sets its own time."""
    monkeypatch.setattr(stopped, "_SETTLE_SECONDS", 0.0)
