"""Pytest plugin: run each failed test once more, alone.

``--retry-failed`` is for the long runs of CI, where one unlucky test among thousands would fail the
whole run. After the summary each failed test runs again in a process of its own, with the same
options and environment but without pytest-xdist. A test that passes is reported as
``FLAKY: <test id>``. If all of them pass, so does the run.

The run fails without a retry if

- more than ``MAX_RETRIES`` tests failed: that is a defect and not bad luck;
- a worker of pytest-xdist crashed: compiled code ends like this, and seldom twice in one place;
- a file could not be collected, no test ran, or pytest was stopped before all tests had run.
"""

import argparse
import subprocess
import sys
from collections.abc import Generator, Iterator

import pytest

from tests.kit.node_ids import without_group

MAX_RETRIES = 5
ALL_PASSED = 97
"""Exit code of a retry that passed: a test that ends its process with 0 must not look like one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option, and the one that the process of a retry gets."""
    group = parser.getgroup("retry")
    group.addoption(
        "--retry-failed", action="store_true",
        help=f"Run each failed test once more, alone, if at most {MAX_RETRIES} failed.",
    )  # fmt: skip
    group.addoption("--must-pass", action="store_true", help=argparse.SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Register what the options ask for; in a worker of pytest-xdist nothing."""
    if hasattr(config, "workerinput"):
        return
    if config.option.must_pass:
        config.pluginmanager.register(_MustPass())
    elif config.option.retry_failed:
        config.pluginmanager.register(_Retry(config))


class _Retry:
    """Collects the failed tests and runs them again when the session ends."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._failed: dict[str, None] = {}
        self._defect = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[without_group(report.nodeid)] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._defect = "a file could not be collected"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        if error:
            self._defect = "a worker crashed"

    # The outermost wrapper: the summary is printed, and what unconfiguring removes is still there.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not self._failed:
            return
        if session.shouldfail or session.shouldstop:
            self._defect = "not all tests have run"
        if len(self._failed) > MAX_RETRIES:
            self._defect = (
                f"{len(self._failed)} tests failed, and at most {MAX_RETRIES} are retried"
            )
        if self._defect:
            self._report(f"NOT RETRIED: {self._defect}")
            return
        passed = [self._passes(node_id) for node_id in self._failed]
        self._report("")  # a test that ended its process has left half a line
        for node_id, now in zip(self._failed, passed, strict=True):
            self._report(f"{'FLAKY' if now else 'FAILED AGAIN'}: {node_id}")
        if all(passed):
            session.exitstatus = pytest.ExitCode.OK

    def _passes(self, node_id: str) -> bool:
        """Run a test alone; return whether it passed."""
        self._report(f"retrying {node_id}")
        self._terminal.flush()
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        assert capture is not None
        command = [sys.executable, "-m", "pytest", *self._options(), "--must-pass"]
        place = f"{self._config.rootpath}/{node_id}"  # not by Path, which would tidy up parameters
        with capture.global_and_fixture_disabled():
            done = subprocess.run(
                [*command, place], cwd=self._config.invocation_params.dir, check=False
            )
        return done.returncode == ALL_PASSED

    def _options(self) -> Iterator[str]:
        """Yield the options of this run without its paths, and with no workers."""
        option = self._config.option
        for word in map(str, self._config.invocation_params.args):
            if word not in option.file_or_dir:
                yield word
        if hasattr(option, "numprocesses"):
            yield "-n0"

    def _report(self, line: str) -> None:
        self._terminal.write_line(line)

    @property
    def _terminal(self) -> pytest.TerminalReporter:
        found = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(found, pytest.TerminalReporter)
        return found


class _MustPass:
    """Ends with ``ALL_PASSED`` if each test passed: none was skipped, or failed as expected."""

    def __init__(self) -> None:
        self._passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed += report.when == "call" and report.passed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self._passed == session.testscollected:
            session.exitstatus = ALL_PASSED
