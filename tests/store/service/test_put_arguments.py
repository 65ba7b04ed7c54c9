"""What may be put as several messages: any iterable, iterated once, with and without the core."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult
from cqstore.store.settings.config import FlushDiskType
from tests.kit.quiet_config import quiet_config

CONFIG = quiet_config(
    mapped_file_size_commit_log=65536,
)
SYNC = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
Given = Iterable[Message]
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a"}


class Emptied(list[Message]):
    """A list that another thread empties once it was iterated."""

    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from [*super().__iter__()]
        self.clear()


def one_by_one(messages: list[Message]) -> Given:
    return (message for message in messages)


SHAPES: dict[str, Callable[[list[Message]], Given]] = {
    "list": list,
    "tuple": tuple,
    "generator": one_by_one,
    "emptied": Emptied,
    "iterator": iter,
    "dict": lambda messages: dict(enumerate(messages)).values(),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("properties", [{}, {"INNER_X": "1"}])
def test_several_messages_are_durable_whatever_they_come_in(
    tmp_path: Path, shape: str, properties: dict[str, str]
) -> None:
    messages = [Message("orders", bytes([n]), 0, dict(properties)) for n in range(5)]
    with MessageStore.open(tmp_path, SYNC) as store:
        results = store.put_messages(SHAPES[shape](messages))
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
        assert all(result.ok for result in results)
        last = results[-1]
        assert last.appended is not None
        assert store.flushed_phy_offset() >= last.phy_offset + last.appended.size


def put_one(store: MessageStore, message: Message) -> PutMessageResult:
    return store.put_message(message)


def put_async(store: MessageStore, message: Message) -> PutMessageResult:
    return store.put_message_future(message).result()


def put_several(store: MessageStore, message: Message) -> PutMessageResult:
    return store.put_messages([message])[0]


@pytest.mark.parametrize("put", [put_one, put_async, put_several])
def test_what_becomes_of_the_properties_later_does_not_end_the_wait(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[MessageStore, Message], PutMessageResult],
) -> None:
    properties = {"INNER_X": "1"}  # the first of its queue: the fast path does not take it
    with MessageStore.open(tmp_path, SYNC) as store:
        append = components_of(store).putter._append
        real = append.encoded

        def changed(*given: Any, **also: Any) -> Any:
            done = real(*given, **also)
            properties["WAIT"] = "false"  # by another thread
            return done

        monkeypatch.setattr(append, "encoded", changed)
        result = put(store, Message("orders", b"x", 0, properties))
        assert properties["WAIT"] == "false"
        assert result.appended is not None
        assert store.flushed_phy_offset() >= result.phy_offset + result.appended.size
        (found,) = store.get_message("orders", 0, 0, 32).messages()
        assert found.properties == {"INNER_X": "1"}, "its producer waits"


@pytest.mark.parametrize(
    "given",
    ["", "ab", b"", b"ab", bytearray(b"a"), {}, {"a": 1}, Message("orders", b"x")],
    ids=repr,
)
def test_what_is_no_iterable_of_messages_is_refused(tmp_path: Path, given: Given) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        with pytest.raises(TypeError, match="must be an iterable of messages"):
            store.put_messages(given)
        assert store.max_phy_offset() == 0


@pytest.mark.parametrize("given", [["ab"], [b"ab"], [{"a": 1}], [None], [1, 2], [["x"]]], ids=repr)
def test_what_is_no_message_is_refused_before_anything_is_put(
    tmp_path: Path, given: list[Message]
) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        with pytest.raises(TypeError, match=r"element 0 must be a Message"):
            store.put_messages(given)
        mixed = [Message("orders", b"x"), Message("orders", b"y", 0, LIGHT), *given]
        with pytest.raises(TypeError, match=r"element 2 must be a Message"):
            store.put_messages(mixed)
        assert store.max_phy_offset() == 0


@pytest.mark.parametrize("given", ["ab", None, [Message("orders", b"x")]], ids=repr)
def test_one_message_is_a_message(tmp_path: Path, given: Message) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for put in (store.put_message, store.put_message_future, store.put_client_batch):
            with pytest.raises(TypeError, match=r"(message|batch) must be a Message"):
                put(given)
        assert store.max_phy_offset() == 0


def test_a_store_that_takes_no_puts_answers_for_each_of_an_iterator(tmp_path: Path) -> None:
    messages = [Message("orders", b"x")] * 3
    with MessageStore.open(tmp_path, CONFIG) as store:
        components_of(store).state.set_disk_full("no room")
        results = store.put_messages(one_by_one(messages))
        assert [result.reason for result in results] == ["no room"] * 3
        assert not any(result.ok for result in results)
