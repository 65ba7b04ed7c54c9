"""The garbage collector looks at what a test has made, not at what all tests before it have left.

A plugin of pytest. A whole collection by the collector takes as long as there are objects that it
knows: after some thousand tests, whose imports alone are half a million, a tenth of a second. Some
hundred tests ask for one, a few of them many times.
"""

import gc
from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis.strategies import none

_TESTS = 25
"""So many at least between two times that what is there is frozen."""


class _Count:
    """How many tests have ended since that was done."""

    tests = 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the collector not look at what is being collected: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Have the collector not look again and again at thousands of modules and tests."""
    _use_hypothesis()
    _freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)  # behind all that the test's end takes away
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """Likewise what tests have imported and kept, where no module's fixtures are there."""
    try:
        return (yield)
    finally:
        _Count.tests += 1
        if _Count.tests >= _TESTS and nextitem is not None and nextitem.path != item.path:
            _freeze()


@settings(max_examples=1, database=None)
@given(none())
def _use_hypothesis(_: None) -> None:
    """Have Hypothesis make its random generator while the collector finds what refers to it.

    Otherwise Hypothesis warns that nothing keeps the generator. Since CPython 3.14 the collector
    tracks every dict, so the one that keeps it would be frozen by then.
    """


def _freeze() -> None:
    gc.collect()
    gc.freeze()
    _Count.tests = 0
