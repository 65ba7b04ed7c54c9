"""A trace whose begin or end is interrupted: it ends with the store, and the next one is whole."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.ab.trace.trace import Trace
from cqstore.ab.trace.trace_control import record_trace, trace_control_of
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.descriptors import descriptors_of
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time

SECONDS = 30
SMALL = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=20, max_index_num=400)


def ask(store: MessageStore, number: int) -> list[str]:
    """Put, pull and ask; return what a trace is to have of it."""
    assert store.put_message(Message("t", b"x" * number)).ok
    store.get_message("t", 0, number)
    assert store.max_offset("t", 0) > 0
    return [f"put {number}", f"pull {number}", "maxOffset"]


def requested_in(path: Path) -> list[str]:
    """Return what a trace has, as ``ask`` says it."""
    found = []
    for line in path.read_text().splitlines()[1:]:
        row = json.loads(line)
        size = {"put": "size", "pull": "offset"}.get(row["op"])
        found.append(row["op"] if size is None else f"{row['op']} {row[size]}")
    return found


def begin(store: MessageStore, _: list[Trace], path: Path) -> None:
    record_trace(store, path)


def end(_: MessageStore, traces: list[Trace], __: Path) -> None:
    traces[0].stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "apart"), [(begin, 5), (end, 1), pytest.param(begin, 1, marks=pytest.mark.long)]
)
def test_a_trace_that_was_interrupted_ends_and_another_is_recorded(
    tmp_path: Path, step: Callable[[MessageStore, list[Trace], Path], None], apart: int
) -> None:
    """For a thread whose start came to nothing a second is waited, so not at every place."""
    before = {*threading.enumerate()}

    def case(number: int) -> int:
        root, places, traces = tmp_path / str(number), 0, list[Trace]()
        first: list[str] = []
        with in_time(SECONDS), MessageStore.open(root, SMALL, housekeeping=False) as store:
            if step is end:
                traces.append(record_trace(store, root / "first"))
                first = ask(store, 1)
            with suppress(Interrupted):
                places = run_interrupted(lambda: step(store, traces, root / "second"), number)
            if number == 0 and step is begin:
                trace_control_of(components_of(store)).stop()
            for trace in traces:  # what was interrupted is done again
                trace.stop()
            ask(store, 2)
            with record_trace(store, root / "third"):
                third = ask(store, 3)
            assert requested_in(root / "third") == third, number
            assert not any(each.name == "cqstore-trace" for each in threading.enumerate()), number
            if step is end:
                assert requested_in(root / "first")[:3] == first, number
            ask(store, 4)
            assert requested_in(root / "third") == third, number
        assert {*threading.enumerate()} <= before, number
        # The number of a file that was being made may be lost between two calls.
        assert len(descriptors_of(root)) <= (step is begin and number > 0), number
        return places

    places = case(0)
    assert places > 10
    for number in range(1, places + 1, apart):
        case(number)


@pytest.mark.slow
def test_a_store_ends_a_trace_whose_end_was_interrupted(tmp_path: Path) -> None:
    """Durably written, its thread and its file closed."""
    before = {*threading.enumerate()}

    def case(number: int) -> int:
        root, places = tmp_path / str(number), 0
        with in_time(SECONDS), MessageStore.open(root, SMALL, housekeeping=False) as store:
            trace = record_trace(store, root / "trace")
            requested = ask(store, 1)
            with suppress(Interrupted):
                places = run_interrupted(trace.stop, number)
        assert requested_in(root / "trace")[:3] == requested, number
        assert {*threading.enumerate()} <= before, number
        assert descriptors_of(root) == [], number
        return places

    places = case(0)
    assert places > 10
    for number in range(1, places + 1):
        case(number)
