"""Every public method, with arguments that no signature allows: a sentence, and an unharmed store.

Each argument of each method of ``MessageStore`` and ``EmbeddedLog`` in turn gets each odd value; a
new method or argument is found by its signature. The call may return, for some of the values are
right there; else it raises an error of the store, or one that names the argument.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore import CleaningRules
from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from cqstore.store.errors import StoreError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.reading.store_times import TimeRange
from cqstore.store.settings.config import StoreConfig
from tests.kit.mutations import in_time

SECONDS = 300
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000, max_hash_slot_num=20,
    max_index_num=400, enable_schedule_message_service=True, rocksdb_cq_double_write_enable=True,
)  # fmt: skip


def takes_any(*_: object) -> None:
    """Be called."""


ODD: list[object] = [
    None, "", "x", "a\nb", "a b", "\ud800", b"x", 1.5, math.nan, math.inf, -1, 0, 1 << 31, 1 << 63,
    1 << 100, -(1 << 63) - 1, True, np.int64(0), np.float64(1), [], [1], ["x"], {}, {"t": 1},
    {1: 1},
    {QueueKey("t", 0): "x"}, {QueueKey("t", 0): math.nan}, ("t", 0), object(), Path("x"),
    Message("t", b"x"), takes_any,
]  # fmt: skip
VALID: dict[str, object] = {
    "topic": "t", "queue_id": 0, "offset": 0, "phy_offset": 0, "message_id": "", "key": "k",
    "phy_offsets": [], "timestamp": 1, "from_offset": 0, "to_offset": 1, "tags": TagFilter("a"),
    "timeout": 0.001, "offsets": {QueueKey("t", 0): 0}, "listener": takes_any, "topics": ["zz"],
    "retain": ["t"], "message": Message("u", b"x"), "messages": [Message("u", b"x")],
    "batch": Message("u", b"x"), "data": b"", "body": b"x", "group": "g", "source": "g2",
    "poll_seconds": 0.1, "time": 1, "times": TimeRange(), "first": 0, "end": 1,
    "rules": CleaningRules(unused=True),
}  # fmt: skip
OF_LOG: dict[str, object] = {"tags": "a", "to": "earliest"}
LEFT_OUT = {"open", "close"}
"""What begins and ends a store; ``test_the_arguments_of_an_opening_are_named`` has the first."""


def methods(kind: type) -> list[str]:
    """Return the public methods."""
    return [
        name for name, each in vars(kind).items()
        if not name.startswith("_") and callable(each) and name not in LEFT_OUT
    ]  # fmt: skip


def arguments(method: Callable[..., object]) -> list[inspect.Parameter]:
    return [*inspect.signature(method).parameters.values()]


def finish(result: Any) -> None:
    """Await, iterate or run what a call has returned."""
    if inspect.iscoroutine(result):
        asyncio.run(result)
    elif isinstance(result, Iterator):
        for _ in result:
            pass
    elif hasattr(result, "stop"):
        result.stop()
    elif hasattr(result, "run"):
        finish(result.run())
    elif hasattr(result, "close"):
        result.close()


def check_outcome(method: Callable[..., object], given: dict[str, object], odd: str) -> None:
    """Call ``method``; what it raises is the store's, or names the argument ``odd``."""
    try:
        finish(method(**given))
    except StoreError:
        return
    except (TypeError, ValueError) as exc:
        sentence = str(exc)
    else:
        return
    assert sentence.startswith((odd, "element")), (odd, given[odd])


def check_usable(store: MessageStore) -> None:
    """Put a message, and find it by its offset and its key."""
    done = store.put_message(Message("t", b"x", 0, {"KEYS": "k"}))
    assert done.ok, done.reason
    assert store.get_message("t", 0, done.queue_offset).messages()
    assert done.phy_offset in [each.phy_offset for each in store.query_message("t", "k")]


def try_all(subject: object, name: str, valid: dict[str, object], store: MessageStore) -> int:
    method = getattr(subject, name)
    given = {
        each.name: valid[each.name]
        for each in arguments(method)
        if each.default is each.empty or each.name in {"timeout", "poll_seconds"}
    }
    tried = 0
    for argument in arguments(method):
        for odd in ODD:
            check_outcome(method, given | {argument.name: odd}, argument.name)
            check_usable(store)
            tried += 1
    return tried


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with in_time(SECONDS), MessageStore.open(tmp_path / "s", CONFIG) as opened:
        check_usable(opened)
        yield opened
        assert [each for each in opened.check() if each.damage] == []


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with in_time(SECONDS), open_log(tmp_path / "s", CONFIG) as opened:
        check_usable(opened.store)
        yield opened
        assert [each for each in opened.store.check() if each.damage] == []


@pytest.mark.parametrize("name", methods(MessageStore))
def test_odd_arguments_leave_a_store_as_it_was(store: MessageStore, name: str) -> None:
    if name == "wait_for":  # a thread that waits for ever is right where there is no such message
        assert store.wait_for("t", 0, 0, None)
    tried = try_all(store, name, VALID, store)
    assert tried == len(ODD) * len(arguments(getattr(store, name)))


@pytest.mark.parametrize("name", methods(EmbeddedLog))
def test_odd_arguments_leave_a_log_as_it_was(log: EmbeddedLog, name: str) -> None:
    log.put("t", b"x")
    (message,) = [*log.read("t", queue_ids=[0])][-1:]
    valid = VALID | OF_LOG | {"message": message}
    assert try_all(log, name, valid, log.store) == len(ODD) * len(arguments(getattr(log, name)))


@pytest.mark.parametrize("opening", [MessageStore.open, open_log])
def test_the_arguments_of_an_opening_are_named(
    tmp_path: Path, opening: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for those that are names of folders
    for argument in arguments(opening):
        for odd in ODD:
            given: dict[str, object] = {"root": "s", "config": CONFIG}
            check_outcome(opening, given | {argument.name: odd}, argument.name)
    with MessageStore.open("s", CONFIG) as store:
        check_usable(store)
