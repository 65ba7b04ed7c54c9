"""A test that stands where no signal's handler runs is named, and its process ends.

A plugin of pytest. pytest-timeout interrupts a test by a signal, which reaches neither native code
nor a finalizer that swallows what its handler raises. A minute later the frames of all threads are
written to standard error and the process ends: pytest-xdist names the test and ends the run.
"""

import faulthandler
from collections.abc import Generator
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

_MORE_SECONDS = 60.0
_seconds = pytest.StashKey[float]()


def _arm(item: pytest.Item) -> None:
    if seconds := item.stash.get(_seconds, 0.0):
        stderr = item.config.stash.get(fault_handler_stderr_fd_key, 2)  # not the captured one
        faulthandler.dump_traceback_later(seconds, exit=True, file=stderr)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Limit the process where pytest-timeout limits a test."""
    result = yield
    item.stash[_seconds] = settings.timeout + _MORE_SECONDS
    _arm(item)
    return result


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Limit the process once more: pytest calls the limit off for a test that fails."""
    if isinstance(node, pytest.Item):
        _arm(node)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> Generator[None, object, object]:
    """Call it off when the test is over."""
    _ = item
    faulthandler.cancel_dump_traceback_later()
    return (yield)
