"""Tasks run here, one after the other, unless a test wants processes or Spark."""

from collections.abc import Callable, Sequence

import pytest


def in_this_process(
    task: Callable[[str], str],
    items: Sequence[str],
    master: str,
    tick: Callable[[int], object] = bool,
) -> list[str]:
    """As ``run_tasks``; Spark's start costs seconds."""
    assert master == "none"
    tick(0)
    return [task(item) for item in items]


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run tasks in this process."""
    monkeypatch.setattr("cqstore.migration.from_log.rebuild_plan.run_tasks", in_this_process)
    monkeypatch.setattr("cqstore.migration.run.run.run_tasks", in_this_process)
