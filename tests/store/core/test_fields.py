"""Fields that compiled code owns and Python sees: they hold what fits, and refuse what does not."""

import gc
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore.cq_file._table import FileRow, OpenFile, QueueEnds, SimpleQueues
from cqstore.store.core._maps import FileMap
from cqstore.store.index._chain import ChainFile, ChainFiles
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.log._tail import FilePositions, FilesByStart, LogTail
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching._waiting import InFlight, Waiting
from cqstore.store.service.dispatching.pending import NOTHING
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading._ready import Ready
from cqstore.store.service.runtime._flags import EnteredFlag, StateFlags
from tests.kit.compared_puts import CONFIG

NUMBERS = [
    (FilePositions, "file_from_offset"), (FilePositions, "wrote_position"),
    (FilesByStart, "file_size"), (LogTail, "end"), (LogTail, "appended_records"),
    (InFlight, "full_at"), (FileRow, "generation"), (QueueEnds, "first_offset"),
    (QueueEnds, "max_offset"), (QueueEnds, "_tail_position"),
]  # fmt: skip
SIGNED = [
    (QueueEnds, "last_phy"), (QueueEnds, "end_phy"), (ChainFile, "begin_timestamp"),
    (ChainFile, "end_timestamp"),
]  # fmt: skip
FLAGS = [
    (StateFlags, "closed"), (StateFlags, "forked"), (StateFlags, "unwritable"),
    (EnteredFlag, "begun"), (SimpleQueues, "closed"), (ChainFile, "read_only"),
    (ChainFiles, "closed"),
]  # fmt: skip
OBJECTS: list[tuple[type, str, object]] = [
    (FilesByStart, "by_start", {}), (LogTail, "current", FilePositions()),
    (LogTail, "prepared", FilePositions()), (Waiting, "units", UnitBatch()),
    (FileRow, "topic", "a"), (FileRow, "starts", [20]), (QueueEnds, "_tail_path", "b"),
    (SimpleQueues, "simple", {}), (ChainFile, "mapped", FileMap(-1, 0)),
    (ChainFiles, "files", ()),
]  # fmt: skip
AT_ONCE: list[tuple[type, str, object, list[object]]] = [
    (QueueEnds, "known_min", (1, 2, 3), [(5, 6), (4, 5, 6, 7), (5, 6, "x"), (5, 1 << 63, 7), 5]),
    (QueueEnds, "known_path", (40, "a"), [(7,), (7, 5), ("x", "b"), (1 << 64, "b"), None]),
    (ChainFile, "geometry", (5, 6), [(7,), (7, "x"), (1 << 63, 8), ("x", 8), None]),
    (ChainFile, "waiting", (IndexBatch(), 7), [(IndexBatch(),), (5, 8), (IndexBatch(), "x"), None]),
]
"""Fields that are set in one step."""
ODD_NUMBERS = [1.0, None, "1", b"1", True, -1, 1 << 63, -(1 << 63) - 1, 1 << 200, np.float64(1)]


def others(fields: Sequence[tuple[type, str]], owner: type, name: str) -> list[str]:
    return [field for has, field in fields if has is owner and field != name]


@pytest.mark.parametrize(("owner", "name"), NUMBERS)
def test_a_number_is_held_as_it_is_or_refused_by_name(owner: type, name: str) -> None:
    one: Any = owner()
    for held in (0, 1, (1 << 63) - 1, 7):
        setattr(one, name, held)
        assert getattr(one, name) == held
        assert not any(getattr(one, other) for other in others(NUMBERS, owner, name))
    setattr(one, name, np.int64(9))
    assert (getattr(one, name), type(getattr(one, name))) == (9, int)
    for odd in ODD_NUMBERS:
        with pytest.raises((TypeError, OverflowError), match=name):
            setattr(one, name, odd)
        assert getattr(one, name) == 9
    with pytest.raises((AttributeError, NotImplementedError)):
        delattr(one, name)
    assert getattr(one, name) == 9


@pytest.mark.parametrize(("owner", "name"), SIGNED)
def test_a_number_below_zero_is_held_where_it_can_be_one(owner: type, name: str) -> None:
    one: Any = owner()
    for held in (0, -1, (1 << 63) - 1, -(1 << 63), np.int64(-9)):
        setattr(one, name, held)
        assert (getattr(one, name), type(getattr(one, name))) == (held, int)
        assert not any(getattr(one, other) for other in others(SIGNED, owner, name))
    for odd in (each for each in ODD_NUMBERS if each != -1):
        with pytest.raises((TypeError, OverflowError), match=name):
            setattr(one, name, odd)
        assert getattr(one, name) == -9


@pytest.mark.parametrize(("owner", "name", "held", "odd"), AT_ONCE)
def test_what_is_set_in_one_step_is_set_whole_or_not_at_all(
    owner: type, name: str, held: object, odd: list[object]
) -> None:
    one: Any = owner()
    setattr(one, name, held)
    assert getattr(one, name) == held
    for each in odd:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            setattr(one, name, each)
        assert getattr(one, name) == held


def test_reads_of_an_open_file_are_counted_by_a_number() -> None:
    one: Any = OpenFile(os.open(os.devnull, os.O_RDONLY), os.devnull)
    one.reads = 3
    assert (one.path, one.used, one.mapped) == (os.devnull, False, None)
    for odd in ODD_NUMBERS:
        with pytest.raises((TypeError, OverflowError), match="reads"):
            one.reads = odd
    assert one.reads == 3
    with pytest.raises(TypeError, match="used is True or False"):
        one.used = 1
    for name in ("number", "path"):
        with pytest.raises(AttributeError):
            setattr(one, name, getattr(one, name))


@pytest.mark.parametrize(("owner", "name"), FLAGS)
def test_a_flag_is_true_or_false(owner: type, name: str) -> None:
    one: Any = owner()
    assert getattr(one, name) is False
    for held in (True, False, True):
        setattr(one, name, held)
        assert getattr(one, name) is held
        assert not any(getattr(one, other) for other in others(FLAGS, owner, name))
    odd: object
    for odd in (None, 0, 1, "", "x", [], 0.0):
        with pytest.raises(TypeError, match=f"{name} is True or False"):
            setattr(one, name, odd)
        assert getattr(one, name) is True
    with pytest.raises((AttributeError, NotImplementedError)):
        delattr(one, name)


@pytest.mark.parametrize(("owner", "name", "held"), OBJECTS)
def test_an_object_of_another_class_is_refused(owner: type, name: str, held: object) -> None:
    one: Any = owner()
    setattr(one, name, held)
    for odd in (5, object(), one, [], "x"):
        if type(odd) is type(held):
            continue
        with pytest.raises(TypeError):
            setattr(one, name, odd)
        assert getattr(one, name) is held


@pytest.mark.parametrize(("owner", "name"), [
    (FileRow, "access"), (QueueEnds, "starts"), (SimpleQueues, "simple"), (ChainFiles, "files"),
])  # fmt: skip
def test_what_leads_to_itself_goes(owner: type, name: str) -> None:
    """What compiled fields hold is seen by the collector, like what stands in a dict."""
    one: Any = type("Own", (owner,), {})()
    setattr(one, name, {"starts": [one], "simple": {0: one}, "files": (one,)}.get(name, one))
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("flag", ["closed", "forked", "unwritable"])
def test_what_python_sets_the_core_sees(tmp_path: Path, flag: str) -> None:
    """There is one flag, not two that are kept alike."""
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        message = Message("t", b"x")
        store.put_message(message)
        puts, requested = components_of(store).putter._fast, list[int]()
        ready = Ready(
            components_of(store).state,
            components_of(store).dispatcher,
            NOTHING,
            lambda: requested.append(1),
        )
        assert puts.one(message) is not None
        components_of(store).dispatcher.drain()
        ready()
        assert requested == []
        setattr(components_of(store).state, flag, True)
        ready()
        assert requested == ([] if flag == "unwritable" else [1])
        assert (puts.one(message) is None) == (flag == "unwritable")
        setattr(components_of(store).state, flag, False)
        assert puts.one(message) is not None


@pytest.mark.parametrize("field", ["current", "prepared", "units"])
def test_a_put_that_finds_nothing_there_does_nothing(tmp_path: Path, field: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        message = Message("t", b"x")
        store.put_message(message)
        puts = components_of(store).putter._fast
        owner: Any = components_of(store).pending if field == "units" else components_of(store).log
        held, end = getattr(owner, field), components_of(store).log.end
        delattr(owner, field)  # as the collector of garbage leaves it
        assert getattr(owner, field) is None
        assert not puts.quick(message)
        assert puts.one(message) is None
        assert puts.several([message] * 2) is None
        assert components_of(store).log.end == end
        setattr(owner, field, held)
        assert puts.one(message) is not None


def test_what_is_of_another_kind_is_refused() -> None:
    ready: Any = Ready
    for state, dispatcher in ((object(), InFlight()), (StateFlags(), object())):
        with pytest.raises(TypeError):
            ready(state, dispatcher, NOTHING, lambda: None)
