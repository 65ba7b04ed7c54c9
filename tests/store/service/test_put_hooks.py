"""Put hooks: what they are asked, when, and what their answers and failures do."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore import (
    Message,
    MessageStore,
    PutHookError,
    PutMessageResult,
    PutMessageStatus,
    StoreConfig,
)
from cqstore.ab.trace.trace_control import record_trace
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import StoreHooks
from cqstore.store.service.writing.putter import Putter
from tests.kit.hooks import (
    CONFIG,
    ILLEGAL,
    SECONDS,
    Hook,
    batch_of,
    bodies_of,
    numbered,
    opened,
    put,
    put_task,
    refuse,
)
from tests.kit.own_threads import own_threads

PUTS: dict[str, Callable[[MessageStore, Message], PutMessageResult]] = {
    "put_message": lambda store, message: store.put_message(message),
    "put_messages": lambda store, message: store.put_messages([message])[0],
    "put_message_async": lambda store, message: store.put_message_future(message).result(SECONDS),
    "put": lambda store, message: asyncio.run(put_task(store, message)),
    "put_client_batch": lambda store, message: store.put_client_batch(
        Message(message.topic, encode_client_batch([message]))
    )[0],
}


@pytest.mark.parametrize("way", PUTS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_hooks_are_asked_in_order_by_each_put(tmp_path: Path, way: str, flush: str) -> None:
    def upper(message: Message) -> None:
        message.body = message.body.upper()
        message.properties["by"] = "first"

    first, second = Hook(upper, "first"), Hook(lambda message: refuse(message, b"B"), "second")
    config = StoreConfig.model_validate({**CONFIG.model_dump(), "flush_disk_type": flush})
    with opened(tmp_path, config=config, hooks=StoreHooks(put_hooks=[first, second])) as store:
        mine = Message("t", b"a", 0, {})
        assert PUTS[way](store, mine).ok
        if flush == "SYNC_FLUSH":
            assert store.flushed_phy_offset() == components_of(store).log.max_phy_offset() > 0
        refused = PUTS[way](store, Message("t", b"b"))
        assert (refused.status, refused.reason) == (ILLEGAL, "not that one")
        assert refused.appended is None
        assert (first.given, second.given) == ([b"a", b"b"], [b"A", b"B"])
        (found,) = store.get_message("t", 0, 0).messages()
        assert (bytes(found.body), found.properties["by"]) == (b"A", "first")
        assert (mine.body, mine.properties) == (b"a", {})  # the caller's own is left alone
        snapshot = store.metrics.snapshot()
        assert (snapshot.put_hooked, snapshot.put_hook_refusals) == (2, 1)
        assert snapshot.put_not_ok[ILLEGAL] == 1
        assert (snapshot.put_messages, snapshot.put_hook_failures) == (1, 0)


@pytest.mark.parametrize("way", PUTS)
def test_a_hook_that_fails_refuses_the_put_by_its_name(tmp_path: Path, way: str) -> None:
    def fail(message: Message) -> None:
        raise ValueError("no such customer")

    after = Hook()
    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(fail, "customers"), after])) as store:
        end = store.max_phy_offset()
        with pytest.raises(PutHookError, match=r"'customers' failed: ValueError\('no such") as met:
            PUTS[way](store, Message("t", b"x"))
        assert isinstance(met.value.__cause__, ValueError)
        assert store.max_phy_offset() == end
        assert after.given == []
        assert store.metrics.snapshot().put_hook_failures == 1
        assert store.metrics.snapshot().failed is False


@pytest.mark.parametrize(
    "answer",
    [
        PutMessageResult(PutMessageStatus.PUT_OK),
        PutMessageResult(PutMessageStatus.FLUSH_DISK_TIMEOUT),
        False,
        "no",
        (ILLEGAL, None, -1, None, ""),
    ],
)
def test_a_hook_acknowledges_nothing(tmp_path: Path, answer: Any) -> None:
    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(lambda _: answer, "odd")])) as store:
        with pytest.raises(PutHookError, match="the put hook 'odd' returned"):
            store.put_message(Message("t", b"x"))
        assert bodies_of(store) == []


def test_a_refusal_without_a_reason_names_the_hook(tmp_path: Path) -> None:
    status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    with opened(
        tmp_path, hooks=StoreHooks(put_hooks=[Hook(lambda _: PutMessageResult(status), "night")])
    ) as store:
        refused = store.put_message(Message("t", b"x"))
        assert refused == PutMessageResult(
            status, reason="the put hook 'night' refused the message"
        )


def test_of_a_list_each_message_is_asked_for(tmp_path: Path) -> None:
    hook = Hook(lambda message: refuse(message, b"1", b"3"))
    messages = [Message("t", body) for body in numbered(0, 5)]
    with opened(tmp_path, hooks=StoreHooks(put_hooks=[hook])) as store:
        results = store.put_messages(messages)
        assert [result.ok for result in results] == [True, False, True, False, True]
        assert [result.queue_offset for result in results] == [0, -1, 1, -1, 2]
        assert hook.given == numbered(0, 5)
        assert bodies_of(store) == [b"0", b"2", b"4"]
        assert [each.ok for each in store.put_messages([Message("t", b"1")])] == [False]
        assert store.put_messages([]) == []


def test_a_hook_that_fails_at_one_of_a_list_lets_none_in(tmp_path: Path) -> None:
    def fail(message: Message) -> None:
        if message.body == b"3":
            raise KeyError(3)

    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(fail)])) as store:
        with pytest.raises(PutHookError):
            store.put_messages([Message("t", body) for body in numbered(0, 5)])
        assert bodies_of(store) == []


def test_of_a_client_batch_each_message_is_asked_for(tmp_path: Path) -> None:
    def change(message: Message) -> PutMessageResult | None:
        assert (message.topic, message.queue_id) == ("t", 2)
        if message.body == b"b":
            message.body, message.flag = b"longer than b", 7
            message.properties["k"] = "v"
        return refuse(message, b"z")

    hook = Hook(change)
    with opened(tmp_path, hooks=StoreHooks(put_hooks=[hook])) as store:
        assert [each.ok for each in store.put_client_batch(batch_of(b"a", b"b", b"c"))] == [
            True
        ] * 3
        found = store.get_message("t", 2, 0).messages()
        assert [bytes(each.body) for each in found] == [b"a", b"longer than b", b"c"]
        assert [each.head.flag for each in found] == [0, 7, 0]
        assert [dict(each.properties) for each in found] == [{}, {"k": "v"}, {}]
        assert hook.given == [b"a", b"b", b"c"]
        (refused,) = store.put_client_batch(batch_of(b"d", b"z", b"e"))
        assert (refused.status, refused.reason) == (ILLEGAL, "not that one")
        assert hook.given[3:] == [b"d", b"z"]
        assert store.max_offset("t", 2) == 3


@pytest.mark.parametrize(
    ("field", "value"), [("topic", "u"), ("queue_id", 1), ("sys_flag", 8), ("born_timestamp", 5)]
)
def test_a_message_of_a_client_batch_stays_in_it(tmp_path: Path, field: str, value: Any) -> None:
    hook = Hook(lambda message: setattr(message, field, value), "mover")
    with opened(tmp_path, hooks=StoreHooks(put_hooks=[hook])) as store:
        with pytest.raises(PutHookError, match=f"'mover' changed {field} of a message of a client"):
            store.put_client_batch(batch_of(b"a"))
        assert store.max_offset("t", 2) == 0


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\x7f" + bytes(30)])
def test_a_client_batch_that_is_none_is_refused_as_ever(tmp_path: Path, body: bytes) -> None:
    with opened(tmp_path / "plain") as store:
        expected = store.put_client_batch(Message("t", body))
    with opened(tmp_path / "hooked", hooks=StoreHooks(put_hooks=[Hook()])) as store:
        assert store.put_client_batch(Message("t", body)) == expected
        assert not expected[0].ok
        assert store.metrics.snapshot().put_not_ok[ILLEGAL] == 1


def test_what_a_hook_makes_of_a_message_is_checked(tmp_path: Path) -> None:
    def spoil(message: Message) -> None:
        message.topic, message.queue_id = "a/b" if message.body == b"x" else "moved", 3

    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(spoil)])) as store:
        assert store.put_message(Message("t", b"x")).status is ILLEGAL
        assert store.put_message(Message("t", b"y")).ok
        assert store.max_offset("moved", 3) == 1
        assert store.max_offset("t", 0) == 0


@pytest.mark.parametrize("way", ["put_message", "put_messages", "put"])
def test_a_message_that_is_none_is_to_blame_itself(tmp_path: Path, way: str) -> None:
    hook = Hook(lambda message: message.topic.upper() and None)
    with opened(tmp_path, hooks=StoreHooks(put_hooks=[hook])) as store:
        refused = PUTS[way](store, Message(5, b"x"))  # type: ignore[arg-type]
        assert (refused.status, refused.reason) == (ILLEGAL, "topic is 5, not str")
        with pytest.raises(TypeError, match="must be a Message"):
            PUTS[way](store, "text")  # type: ignore[arg-type]
        assert store.metrics.snapshot().put_hook_failures == 0


def test_a_hook_that_mends_a_message_and_fails_lets_none_in(tmp_path: Path) -> None:
    def mend(message: Message) -> None:
        message.topic = "t"
        raise ValueError

    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(mend)])) as store:
        assert store.put_message(Message(5, b"x")).status is ILLEGAL  # type: ignore[arg-type]
        assert bodies_of(store) == []


def test_a_hook_may_read_and_put(tmp_path: Path) -> None:
    def count(message: Message) -> None:
        if message.topic == "t":
            at = store.max_offset("t", 0)
            assert store.put_message(Message("audit", b"%d" % at)).ok

    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(count)])) as store:
        put(store, b"a", b"b", b"c")
        assert bodies_of(store, "audit") == numbered(0, 3)


def test_an_interrupt_in_a_hook_is_an_interrupt(tmp_path: Path) -> None:
    def interrupt(message: Message) -> None:
        raise KeyboardInterrupt

    with opened(tmp_path, hooks=StoreHooks(put_hooks=[Hook(interrupt)])) as store:
        with pytest.raises(KeyboardInterrupt):
            store.put_message(Message("t", b"x"))
        assert bodies_of(store) == []


def test_a_trace_and_hooks_stand_behind_each_other(tmp_path: Path) -> None:
    hook = Hook(lambda message: refuse(message, b"b"))
    with opened(tmp_path / "s", hooks=StoreHooks(put_hooks=[hook])) as store:
        with record_trace(store, tmp_path / "trace"):
            put(store, b"a")
            assert not store.put_message(Message("t", b"b")).ok
        put(store, b"c")
        assert hook.given == [b"a", b"b", b"c"]
    assert (tmp_path / "trace").read_text().count('"put"') == 1


def test_without_hooks_nothing_stands_in_the_way(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert isinstance(store._putter, Putter)
        assert components_of(store).dispatcher.dispatchers is None
        assert "cqstore-arrivals" not in own_threads()
        put(store, b"a")
        snapshot = store.metrics.snapshot()
        assert (snapshot.put_hooked, snapshot.dispatcher_records) == (0, 0)
