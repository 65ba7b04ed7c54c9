"""A plugin of pytest: which test is at work, what it took, did it pass.

Below ``coverage run``, lines are noted for the test that runs them, its fixtures included; a
process that a test starts takes the test's name from the environment (``coverage.ini``).
"""

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

OUTCOMES = "CQSTORE_MUTANTS_OUTCOMES"
"""The variable that names the file which is written: seconds by test, of those that passed."""
DATA = "CQSTORE_MUTANTS_DATA"
"""The variable that names the file of coverage's data, to which each process adds a suffix."""
RULES = Path(__file__).with_name("coverage.ini")
_seconds: dict[str, float] = {}
_failed: set[str] = set()


def pytest_configure() -> None:
    """Have coverage begin in each process that is started from here on, if it is used."""
    if coverage.Coverage.current() is not None:
        os.environ["COVERAGE_PROCESS_START"] = str(RULES)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note lines for this test from here on."""
    running = coverage.Coverage.current()
    if running is None:
        return (yield)
    if sys.gettrace() is None:  # a test has put one of its own in the place, and taken that away
        running.stop()
        running.start()
    running.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Sum up what a test took with its fixtures."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the outcome of each test, once all have run."""
    passed = {test: spent for test, spent in _seconds.items() if test not in _failed}
    Path(os.environ[OUTCOMES]).write_text(json.dumps(passed))
