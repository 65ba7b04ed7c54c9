"""Fields that compiled code owns and Python sees: they hold what fits, and refuse what does not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store.log._tail import FilePositions, FilesByStart, LogTail
from store.queue.units import UnitBatch
from store.record.message import Message
from store.service.dispatching._waiting import InFlight, Waiting
from store.service.dispatching.pending import NOTHING
from store.service.message_store import MessageStore
from store.service.reading._ready import Ready
from store.service.runtime._flags import EnteredFlag, StateFlags
from tests.kit.compared_puts import CONFIG

NUMBERS = [
    (FilePositions, "file_from_offset"), (FilePositions, "wrote_position"),
    (FilesByStart, "file_size"), (LogTail, "end"), (LogTail, "appended_records"),
    (InFlight, "full_at"),
]  # fmt: skip
FLAGS = [
    (StateFlags, "closed"), (StateFlags, "forked"), (StateFlags, "unwritable"),
    (EnteredFlag, "begun"),
]  # fmt: skip
OBJECTS: list[tuple[type, str, object]] = [
    (FilesByStart, "by_start", {}), (LogTail, "current", FilePositions()),
    (LogTail, "prepared", FilePositions()), (Waiting, "units", UnitBatch()),
]  # fmt: skip
ODD_NUMBERS = [1.0, None, "1", b"1", True, -1, 1 << 63, -(1 << 63) - 1, 1 << 200, np.float64(1)]


def others(fields: Sequence[tuple[type, str]], owner: type, name: str) -> list[str]:
    return [field for has, field in fields if has is owner and field != name]


@pytest.mark.parametrize(("owner", "name"), NUMBERS)
def test_a_number_is_held_as_it_is_or_refused_by_name(owner: type, name: str) -> None:
    one: Any = owner()
    for held in (0, 1, (1 << 63) - 1, 7):
        setattr(one, name, held)
        assert getattr(one, name) == held
        assert [getattr(one, other) for other in others(NUMBERS, owner, name)] in ([], [0])
    setattr(one, name, np.int64(9))
    assert (getattr(one, name), type(getattr(one, name))) == (9, int)
    for odd in ODD_NUMBERS:
        with pytest.raises((TypeError, OverflowError), match=name):
            setattr(one, name, odd)
        assert getattr(one, name) == 9
    with pytest.raises((AttributeError, NotImplementedError)):
        delattr(one, name)
    assert getattr(one, name) == 9


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
        with pytest.raises(TypeError):
            setattr(one, name, odd)
        assert getattr(one, name) is held


@pytest.mark.parametrize("flag", ["closed", "forked", "unwritable"])
def test_what_python_sets_the_core_sees(tmp_path: Path, flag: str) -> None:
    """There is one flag, not two that are kept alike."""
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        message = Message("t", b"x")
        store.put_message(message)
        puts, asked = store._parts.putter._plain, list[int]()
        ready = Ready(store._state, store._dispatcher, NOTHING, lambda: asked.append(1))
        assert puts.one(message) is not None
        store._dispatcher.drain()
        ready()
        assert asked == []
        setattr(store._state, flag, True)
        ready()
        assert asked == ([] if flag == "unwritable" else [1])
        assert (puts.one(message) is None) == (flag == "unwritable")
        setattr(store._state, flag, False)
        assert puts.one(message) is not None


@pytest.mark.parametrize("field", ["current", "prepared", "units"])
def test_a_put_that_finds_nothing_there_does_nothing(tmp_path: Path, field: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        message = Message("t", b"x")
        store.put_message(message)
        puts = store._parts.putter._plain
        owner: Any = store._pending if field == "units" else store.commit_log
        held, end = getattr(owner, field), store.commit_log.end
        delattr(owner, field)  # as the collector of garbage leaves it
        assert getattr(owner, field) is None
        assert not puts.quick(message)
        assert puts.one(message) is None
        assert puts.several([message] * 2) is None
        assert store.commit_log.end == end
        setattr(owner, field, held)
        assert puts.one(message) is not None


def test_what_is_of_another_kind_is_refused() -> None:
    ready: Any = Ready
    for state, dispatcher in ((object(), InFlight()), (StateFlags(), object())):
        with pytest.raises(TypeError):
            ready(state, dispatcher, NOTHING, lambda: None)
