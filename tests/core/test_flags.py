"""The flags that puts and reads ask for: true or false, and nothing that is only like it."""

from pathlib import Path
from typing import Any

import pytest

from store.core import LONG_WAY, READS
from store.record.message import Message
from store.service.dispatching.pending import NOTHING
from store.service.message_store import MessageStore
from store.service.running._flags import SectionFlag, StateFlags
from tests.core.test_plain_puts import CONFIG

FLAGS = [
    (StateFlags, "closed"), (StateFlags, "forked"), (StateFlags, "unwritable"),
    (SectionFlag, "begun"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), FLAGS)
def test_a_flag_is_true_or_false(owner: type, name: str) -> None:
    one: Any = owner()
    assert getattr(one, name) is False
    for held in (True, False, True):
        setattr(one, name, held)
        assert getattr(one, name) is held
        for other in {each for each_owner, each in FLAGS if each_owner is owner} - {name}:
            assert getattr(one, other) is False
    odd: object
    for odd in (None, 0, 1, "", "x", [], 0.0):
        with pytest.raises(TypeError, match=f"{name} is True or False"):
            setattr(one, name, odd)
        assert getattr(one, name) is True
    with pytest.raises((AttributeError, NotImplementedError)):
        delattr(one, name)


@pytest.mark.skipif(LONG_WAY, reason="calls go the long way")
@pytest.mark.parametrize("flag", ["closed", "forked", "unwritable"])
def test_what_python_sets_the_core_sees(tmp_path: Path, flag: str) -> None:
    """There is one flag, not two that are kept alike."""
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store:
        message = Message("t", b"x")
        store.put_message(message)
        puts, asked = store._parts.putter._plain, list[int]()
        ready = READS.Ready(store._state, store._dispatcher, NOTHING, lambda: asked.append(1))
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


def test_a_state_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError):
        READS.Ready(object(), object(), object(), lambda: None)  # type: ignore[arg-type]
