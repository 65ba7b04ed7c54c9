"""What a comparison says of a recorded trace before it runs it."""

from pathlib import Path

import pytest

from cqstore.ab.run import unknown_queues as module
from cqstore.ab.run.comparison import Run
from cqstore.ab.trace.operation_lines import (
    MASTER,
    StoreOp,
    first_line,
    last_line,
    operation_line,
)
from tests.ab.made_store import make_varied_store
from tests.ab.running import options

PULL = ("hot", 1, 5, 32, None)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded") / "s"
    make_varied_store(root, 200)
    return root


def said(root: Path, path: Path, *lines: bytes) -> list[str]:
    path.write_bytes(b"".join(lines))
    run = Run(options(root, trace=path, speed=1.0))
    run.prepare()
    return run._not_measured


def test_what_the_recording_lacks_is_said(root: Path, tmp_path: Path) -> None:
    lines = [operation_line(StoreOp.PULL, PULL, at / 10) for at in range(5)]
    begin = first_line(17, MASTER)
    whole = said(root, tmp_path / "trace", begin, *lines, last_line(1, []))
    assert whole == []
    lacking = said(root, tmp_path / "trace", begin, *lines, last_line(1, ["2 puts are missing."]))
    assert lacking == ["In the trace: 2 puts are missing."]
    (killed,) = said(root, tmp_path / "trace", begin, *lines)
    assert killed.startswith("In the trace: The trace has no last line")


def test_operations_on_queues_of_another_store_are_counted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace"
    lines = [
        operation_line(StoreOp.PULL, PULL, 0.1),
        operation_line(StoreOp.PULL, ("hot", 7, 5, 32, None), 0.2),
        operation_line(StoreOp.PULL, ("new", 0, 5, 32, None), 0.3),
        operation_line(StoreOp.MAX_OFFSET, ("none", 0), 0.4),
        operation_line(StoreOp.LIST_TOPICS, ("",), 0.5),
        operation_line(StoreOp.PUT, ("new", 0, 10, None), 0.6),
    ]
    (sentence,) = said(root, path, first_line(17), *lines)
    assert sentence.startswith("2 of 6 operations of the trace are on queues without a message")
    assert said(root, path, *lines) == [], "a given trace may ask for anything"
    monkeypatch.setattr(module, "MAX_QUEUES", 1)
    assert said(root, path, first_line(17), *lines) == [], "not all names are known"
