"""An empty path is refused by every public function that takes one; it never means the folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cqstore
from cqstore.analysis.options import SourceOptions
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import named_path

OPENINGS: dict[str, Callable[[], Any]] = {
    "MessageStore.open": lambda: cqstore.MessageStore.open(""),
    "read-only": lambda: cqstore.MessageStore.open("", read_only=True),
    "cqstore.open": lambda: cqstore.open(""),
    "scan": lambda: cqstore.scan(""),
    "Spark": lambda: SourceOptions.parse({"path": ""}),
    "Spark's log": lambda: SourceOptions.parse({"path": "s", "commitlog": ""}),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_an_empty_path_is_refused_and_nothing_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedStoreError, match="the path is empty"):
        OPENINGS[name]()
    assert not [*tmp_path.iterdir()]


def test_other_paths_are_taken_as_they_are() -> None:
    assert named_path(".") == Path()
    assert named_path(Path("a/b")) == named_path("a/b") == Path("a/b")
