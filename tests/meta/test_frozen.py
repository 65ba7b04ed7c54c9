"""A collection of garbage does not look at what earlier modules of tests have left."""

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit import frozen


def end(item: str, following: str | None) -> None:
    """Let the test of a file end, before that of another."""
    items: list[Any] = [name and SimpleNamespace(path=Path(name)) for name in (item, following)]
    hook = frozen.pytest_runtest_teardown(*items)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(None)


def is_frozen(what: object) -> bool:
    return all(each is not what for each in gc.get_objects())


def test_what_a_module_leaves_is_frozen_behind_enough_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frozen._Count, "tests", 0)
    left = ["of this module"]
    for _ in range(frozen._TESTS):
        end("a.py", "a.py")
    end("a.py", None)
    assert not is_frozen(left)
    end("a.py", "b.py")
    assert is_frozen(left)
    other = ["of the next"]
    end("b.py", "c.py")
    assert not is_frozen(other)
