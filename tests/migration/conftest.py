"""Tables that a test has just written are those of a broker that has ended."""

import pytest

from migration.metadata import stopped


@pytest.fixture(autouse=True)
def _tables_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the wait sets its own time."""
    monkeypatch.setattr(stopped, "_SETTLE_SECONDS", 0.0)
