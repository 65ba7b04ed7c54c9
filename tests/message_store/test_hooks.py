"""Put hooks and dispatchers: what they are called with, when, and what their failures do."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cqstore import (
    DispatcherError,
    DispatchRequest,
    IllegalMessageError,
    Message,
    MessageStore,
    PutHookError,
    PutMessageResult,
    PutMessageStatus,
    RefusedStoreError,
    StoreConfig,
    StoreConfigError,
    StoreError,
)
from store.record.client_batch import encode_client_batch
from store.record.java_hash import java_hash
from store.record.message import MessageProperty, SysFlag
from store.service.opening.installed_hooks import DISPATCHERS, PUT_HOOKS
from store.service.recovering.replacement import Rebuild
from store.service.writing.putter import Putter
from tests.kit.call_order import CallOrder
from tests.kit.crash_images import crash_image
from tests.kit.double_write import config as combined_config
from tests.kit.engines import ENGINES
from tests.kit.logged import logged
from tests.kit.own_threads import own_threads
from tests.kit.waiting import until

HOUR = 3_600_000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 14, dispatch_slice=64, rocksdb_memory_bytes=16 << 20,
    flush_interval_commit_log=HOUR, flush_interval_consume_queue=HOUR,
    flush_commit_log_thorough_interval=HOUR, flush_consume_queue_thorough_interval=HOUR,
    enable_lmq=True, enable_multi_dispatch=True, max_index_num=200, max_hash_slot_num=50,
    mapped_file_size_consume_queue=20 * 50,
)  # fmt: skip
KINDS = ["file", *ENGINES, "combined"]
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
SECONDS = 60.0


class Hook:
    """Does ``step`` with each message, and notes what it was given."""

    def __init__(self, step: Callable[[Message], Any] = lambda _: None, name: str = "h") -> None:
        self.hook_name = name
        self._step = step
        self.given: list[bytes] = []

    def execute_before_put_message(self, message: Message) -> PutMessageResult | None:
        self.given.append(bytes(message.body))
        result: PutMessageResult | None = self._step(message)
        return result


class Taker:
    """A dispatcher that notes what it takes, and fails where it is told to."""

    name = "taker"

    def __init__(self, fails: Callable[[DispatchRequest], object] = lambda _: None) -> None:
        self.taken: list[DispatchRequest] = []
        self.bodies: list[bytes] = []
        self.fails = fails

    def dispatch(self, request: DispatchRequest) -> None:
        self.fails(request)
        self.taken.append(request)
        self.bodies.append(bytes(request.message().body))


class Placed(Taker):
    """One that knows how far it is."""

    def __init__(self, phy_offset: Any) -> None:
        super().__init__()
        self.phy_offset = phy_offset

    def dispatch_from_phy_offset(self) -> int:
        place: int = self.phy_offset
        return place


def opened(root: Path, kind: Any = "file", **options: Any) -> MessageStore:
    if kind == "combined":
        config = combined_config("rocksdb").model_copy(
            update={"enable_lmq": True, "enable_multi_dispatch": True}
        )
        return MessageStore.open(root, config, housekeeping=False, **options)
    config, backend = CONFIG, "file"
    if kind != "file":
        config, backend = CONFIG.model_copy(update={"rocksdb_engine": kind}), "rocksdb"
    config = options.pop("config", config)
    return MessageStore.open(root, config, backend=backend, housekeeping=False, **options)


def put(store: MessageStore, *bodies: bytes, topic: str = "t") -> None:
    for body in bodies:
        assert store.put_message(Message(topic, body)).ok


def bodies_of(store: MessageStore, topic: str = "t") -> list[bytes]:
    found = store.get_message(topic, 0, 0, 1000)
    return [bytes(message.body) for message in found.messages()]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def refuse(message: Message, *wanted: bytes) -> PutMessageResult | None:
    return PutMessageResult(ILLEGAL, reason="not that one") if message.body in wanted else None


async def put_task(store: MessageStore, message: Message) -> PutMessageResult:
    return await store.put(message)


PUTS: dict[str, Callable[[MessageStore, Message], PutMessageResult]] = {
    "put_message": lambda store, message: store.put_message(message),
    "put_messages": lambda store, message: store.put_messages([message])[0],
    "put_message_async": lambda store, message: store.put_message_async(message).result(SECONDS),
    "put": lambda store, message: asyncio.run(put_task(store, message)),
    "put_client_batch": lambda store, message: store.put_client_batch(
        Message(message.topic, encode_client_batch([message]))
    )[0],
}


# ---- put hooks


@pytest.mark.parametrize("way", PUTS)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_hooks_are_asked_in_order_by_each_put(tmp_path: Path, way: str, flush: str) -> None:
    def upper(message: Message) -> None:
        message.body = message.body.upper()
        message.properties["by"] = "first"

    first, second = Hook(upper, "first"), Hook(lambda message: refuse(message, b"B"), "second")
    config = StoreConfig.model_validate({**CONFIG.model_dump(), "flush_disk_type": flush})
    with opened(tmp_path, config=config, put_hooks=[first, second]) as store:
        mine = Message("t", b"a", 0, {})
        assert PUTS[way](store, mine).ok
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
    with opened(tmp_path, put_hooks=[Hook(fail, "customers"), after]) as store:
        end = store.commit_log.max_phy_offset()
        with pytest.raises(PutHookError, match=r"'customers' failed: ValueError\('no such") as met:
            PUTS[way](store, Message("t", b"x"))
        assert isinstance(met.value.__cause__, ValueError)
        assert store.commit_log.max_phy_offset() == end
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
    with opened(tmp_path, put_hooks=[Hook(lambda _: answer, "odd")]) as store:
        with pytest.raises(PutHookError, match="the put hook 'odd' returned"):
            store.put_message(Message("t", b"x"))
        assert bodies_of(store) == []


def test_a_refusal_without_a_reason_names_the_hook(tmp_path: Path) -> None:
    status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    with opened(tmp_path, put_hooks=[Hook(lambda _: PutMessageResult(status), "night")]) as store:
        refused = store.put_message(Message("t", b"x"))
        assert refused == PutMessageResult(status, reason="the put hook 'night' refused it")


def test_of_a_list_each_message_is_asked_for(tmp_path: Path) -> None:
    hook = Hook(lambda message: refuse(message, b"1", b"3"))
    messages = [Message("t", body) for body in numbered(0, 5)]
    with opened(tmp_path, put_hooks=[hook]) as store:
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

    with opened(tmp_path, put_hooks=[Hook(fail)]) as store:
        with pytest.raises(PutHookError):
            store.put_messages([Message("t", body) for body in numbered(0, 5)])
        assert bodies_of(store) == []


def batch_of(*bodies: bytes) -> Message:
    return Message("t", encode_client_batch([Message("t", body) for body in bodies]), 2)


def test_of_a_client_batch_each_message_is_asked_for(tmp_path: Path) -> None:
    def change(message: Message) -> PutMessageResult | None:
        assert (message.topic, message.queue_id) == ("t", 2)
        if message.body == b"b":
            message.body, message.flag = b"longer than b", 7
            message.properties["k"] = "v"
        return refuse(message, b"z")

    hook = Hook(change)
    with opened(tmp_path, put_hooks=[hook]) as store:
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
    with opened(tmp_path, put_hooks=[hook]) as store:
        with pytest.raises(PutHookError, match=f"'mover' changed {field} of a message of a client"):
            store.put_client_batch(batch_of(b"a"))
        assert store.max_offset("t", 2) == 0


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\x7f" + bytes(30)])
def test_a_client_batch_that_is_none_is_refused_as_ever(tmp_path: Path, body: bytes) -> None:
    with opened(tmp_path / "plain") as store:
        expected = store.put_client_batch(Message("t", body))
    with opened(tmp_path / "hooked", put_hooks=[Hook()]) as store:
        assert store.put_client_batch(Message("t", body)) == expected
        assert not expected[0].ok
        assert store.metrics.snapshot().put_not_ok[ILLEGAL] == 1


def test_what_a_hook_makes_of_a_message_is_checked(tmp_path: Path) -> None:
    def spoil(message: Message) -> None:
        message.topic, message.queue_id = "a/b" if message.body == b"x" else "moved", 3

    with opened(tmp_path, put_hooks=[Hook(spoil)]) as store:
        assert store.put_message(Message("t", b"x")).status is ILLEGAL
        assert store.put_message(Message("t", b"y")).ok
        assert store.max_offset("moved", 3) == 1
        assert store.max_offset("t", 0) == 0


@pytest.mark.parametrize("way", ["put_message", "put_messages", "put"])
def test_a_message_that_is_none_is_to_blame_itself(tmp_path: Path, way: str) -> None:
    hook = Hook(lambda message: message.topic.upper() and None)
    with opened(tmp_path, put_hooks=[hook]) as store:
        refused = PUTS[way](store, Message(5, b"x"))  # type: ignore[arg-type]
        assert (refused.status, refused.reason) == (ILLEGAL, "topic is 5, not str")
        with pytest.raises(TypeError, match="not a Message"):
            PUTS[way](store, "text")  # type: ignore[arg-type]
        assert store.metrics.snapshot().put_hook_failures == 0


def test_a_hook_may_read_and_put(tmp_path: Path) -> None:
    def count(message: Message) -> None:
        if message.topic == "t":
            at = store.max_offset("t", 0)
            assert store.put_message(Message("audit", b"%d" % at)).ok

    with opened(tmp_path, put_hooks=[Hook(count)]) as store:
        put(store, b"a", b"b", b"c")
        assert bodies_of(store, "audit") == numbered(0, 3)


def test_an_interrupt_in_a_hook_is_an_interrupt(tmp_path: Path) -> None:
    def interrupt(message: Message) -> None:
        raise KeyboardInterrupt

    with opened(tmp_path, put_hooks=[Hook(interrupt)]) as store:
        with pytest.raises(KeyboardInterrupt):
            store.put_message(Message("t", b"x"))
        assert bodies_of(store) == []


def test_a_trace_and_hooks_stand_behind_each_other(tmp_path: Path) -> None:
    hook = Hook(lambda message: refuse(message, b"b"))
    with opened(tmp_path / "s", put_hooks=[hook]) as store:
        with store.record_trace(tmp_path / "trace"):
            put(store, b"a")
            assert not store.put_message(Message("t", b"b")).ok
        put(store, b"c")
        assert hook.given == [b"a", b"b", b"c"]
    assert (tmp_path / "trace").read_text().count('"put"') == 1


def test_without_hooks_nothing_stands_in_the_way(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert isinstance(store._putter, Putter)
        assert store._dispatcher.dispatchers is None
        assert "cqstore-arrivals" not in own_threads()
        put(store, b"a")
        snapshot = store.metrics.snapshot()
        assert (snapshot.put_hooked, snapshot.dispatcher_records) == (0, 0)


# ---- dispatchers


@pytest.fixture(params=KINDS)
def fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MessageStore, Taker]]:
    taker = Taker()
    with opened(tmp_path / "s", request.param, dispatchers=[taker]) as store:
        yield store, taker


def expected_requests(store: MessageStore) -> list[DispatchRequest]:
    """Make the requests by hand of what the log decodes."""
    made: list[DispatchRequest] = []
    for record in store.commit_log.scan(0):
        message = store.commit_log.message(record.phy_offset)
        known = dict(message.properties)
        made.append(
            DispatchRequest(
                message.topic, message.queue_id, message.queue_offset, message.phy_offset,
                record.size, java_hash(known.get("TAGS", "")), message.store_timestamp,
                message.sys_flag, known.get("KEYS"), known.get("UNIQ_KEY"), known, store.commit_log,
            )
        )  # fmt: skip
    return made


def test_a_dispatcher_gets_each_record_of_the_log_in_order(
    fed: tuple[MessageStore, Taker],
) -> None:
    store, taker = fed
    light = {MessageProperty.INNER_MULTI_DISPATCH: "%LMQ%a,%LMQ%b"}
    put(store, b"plain")
    rich = {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "u", "mine": "é"}
    store.put_message(Message("t", b"rich", 3, rich))
    store.put_messages([Message("l", b"list", at, {"TAGS": "b"}) for at in range(3)])
    store.put_client_batch(batch_of(b"in", b"batch"))
    store.put_message_async(Message("t", b"later")).result(SECONDS)
    asyncio.run(put_task(store, Message("t", b"task")))
    store.put_message(Message("half", b"h", 0, {}, 0, int(SysFlag.TRANSACTION_PREPARED)))
    store.put_message(Message("t", b"light", 0, light))
    for number in range(3):
        store.put_message(Message("big", b"%d" % number * 7_000))  # into the next files
    records = 14
    until(lambda: len(taker.taken) == records)  # nothing reads, and no thread flushes
    assert taker.taken == expected_requests(store)
    assert taker.bodies[:2] == [b"plain", b"rich"]
    assert {request.topic for request in taker.taken} == {"t", "l", "half", "big"}
    snapshot = store.metrics.snapshot()
    assert (snapshot.dispatcher_records, snapshot.dispatcher_failures) == (records, 0)
    assert store.max_offset("%LMQ%b", 0) == 1


def test_a_dispatcher_is_called_before_readers_see_the_record(tmp_path: Path) -> None:
    seen: list[int] = []

    def look(request: DispatchRequest) -> None:
        seen.append(store.queues.queue("t", 0).max_offset())  # the backend, past all guards

    with opened(tmp_path, dispatchers=[Taker(look)]) as store:
        for number in range(3):
            put(store, b"x")
            assert store.max_offset("t", 0) == number + 1
    assert seen == [0, 1, 2]


def test_no_lock_of_an_append_is_held(tmp_path: Path) -> None:
    """Other threads put while a dispatcher is at its record, and so may the dispatcher."""
    entered, leave = threading.Event(), threading.Event()

    def work(request: DispatchRequest) -> None:
        if request.topic == "t":
            assert store.put_message(Message("derived", b"%d" % request.queue_offset)).ok
        if not entered.is_set():
            entered.set()
            assert leave.wait(SECONDS)

    with opened(tmp_path, dispatchers=[Taker(work)]) as store:
        put(store, b"a")
        assert entered.wait(SECONDS)
        put(store, b"b")
        leave.set()
        assert store.max_offset("t", 0) == 2
        until(lambda: bodies_of(store, "derived") == [b"0", b"1"])


def test_a_dispatcher_that_reads_queues_gets_an_error(tmp_path: Path) -> None:
    met: list[str] = []

    def read(request: DispatchRequest) -> None:
        try:
            store.max_offset("t", 0)
        except StoreError as exc:
            met.append(type(exc).__name__)

    with opened(tmp_path, dispatchers=[Taker(read)]) as store:
        put(store, b"a")
        assert store.max_offset("t", 0) == 1
    assert met == ["NestedCallError"]


def test_a_dispatcher_that_fails_stalls_the_dispatch_and_skips_nothing(
    fed: tuple[MessageStore, Taker],
) -> None:
    store, taker = fed
    put(store, *numbered(0, 3))
    until(lambda: len(taker.taken) == 3)
    is_well = threading.Event()

    def fail(request: DispatchRequest) -> None:
        if request.message().body == b"4" and not is_well.is_set():
            raise OSError("no route to host")

    taker.fails = fail
    with logged("store") as lines:
        store.put_messages([Message("t", body) for body in numbered(3, 6)])  # one batch
        until(lambda: store.metrics.snapshot().dispatch_stalled)
    assert "the dispatcher 'taker' failed: OSError('no route to host')" in lines.getvalue()
    assert store.max_offset("t", 0) == 3  # of the batch nothing is seen
    refused = store.put_message(Message("t", b"6"))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "when the dispatcher takes the record" in refused.reason
    with pytest.raises(DispatcherError, match="'taker' failed") as met:
        store.flush()
    assert met.value.phy_offset == store.get_message("t", 0, 0).messages()[0].phy_offset + 4 * (
        taker.taken[0].size
    )
    assert taker.bodies == numbered(0, 4)  # b"3" once
    is_well.set()
    put(store, b"6")
    assert bodies_of(store) == numbered(0, 7)
    assert taker.bodies == numbered(0, 7)
    snapshot = store.metrics.snapshot()
    assert not snapshot.dispatch_stalled
    assert snapshot.dispatcher_failures >= 3
    assert snapshot.dispatcher_records == 7


def test_the_others_are_not_called_again_for_one_that_fails(tmp_path: Path) -> None:
    calls: list[str] = []
    left = [2]

    def note(name: str) -> Callable[[DispatchRequest], None]:
        def step(request: DispatchRequest) -> None:
            calls.append(name)
            if name == "b" and left[0]:
                left[0] -= 1
                raise RuntimeError

        return step

    with opened(tmp_path, dispatchers=[Taker(note(name)) for name in "abc"]) as store:
        put(store, b"x")
        until(lambda: store.metrics.snapshot().dispatch_stalled)
        while not store.put_message(Message("t", b"y")).ok:
            pass
        assert store.max_offset("t", 0) == 2
    assert calls == [*"abbbc", *"abc"]


def test_a_close_with_a_dispatcher_that_fails_loses_nothing(tmp_path: Path) -> None:
    def fail(request: DispatchRequest) -> None:
        raise OSError("gone")

    store = opened(tmp_path, dispatchers=[Taker(fail)])
    put(store, b"a", b"b")
    with pytest.raises(DispatcherError):
        store.close()
    with pytest.raises(DispatcherError):
        opened(tmp_path, dispatchers=[Taker(fail)])
    taker = Taker()
    with opened(tmp_path, dispatchers=[taker]) as store:
        assert bodies_of(store) == taker.bodies == [b"a", b"b"]
        put(store, b"c")
    assert taker.bodies == [b"a", b"b", b"c"]


def test_an_interrupt_in_a_dispatcher_fails_the_store(tmp_path: Path) -> None:
    def interrupt(request: DispatchRequest) -> None:
        raise KeyboardInterrupt

    store = opened(tmp_path, dispatchers=[Taker(interrupt)])
    with store._dispatcher.owner.entry():  # so that no thread comes first
        put(store, b"a")
        with pytest.raises(KeyboardInterrupt):
            store._dispatcher._drain()
    assert store.metrics.snapshot().failed
    store.close()
    taker = Taker()
    with opened(tmp_path, dispatchers=[taker]):
        assert taker.bodies == [b"a"]


# ---- recovery


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_stop_dispatches_nothing_again(tmp_path: Path, kind: Any) -> None:
    for first in (0, 3, 6):
        taker = Taker()
        with opened(tmp_path, kind, dispatchers=[taker]) as store:
            assert taker.bodies == []
            put(store, *numbered(first, first + 3))
        assert taker.bodies == numbered(first, first + 3)


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_all_comes_that_no_flush_covered(tmp_path: Path, kind: Any) -> None:
    with opened(tmp_path / "s", kind, dispatchers=[Taker()]) as store:
        put(store, *numbered(0, 3))
        store.flush()
        put(store, *numbered(3, 6))
        assert store.max_offset("t", 0) == 6
        image = crash_image(tmp_path / "s", tmp_path / "image")
    taker = Taker()
    with opened(image, kind, dispatchers=[taker]) as store:
        assert taker.bodies in (numbered(3, 6), numbered(2, 6))  # the last one that was vouched for
        put(store, b"6")
        assert bodies_of(store) == numbered(0, 7)
    assert taker.bodies[-4:] == numbered(3, 7)


@pytest.mark.parametrize("kind", ["file", ENGINES[-1]])
def test_a_kill_anywhere_skips_no_record(tmp_path: Path, kind: Any) -> None:
    """The store is copied at calls of the system and of the dispatcher, and each copy is opened."""
    images: list[tuple[Path, set[int]]] = []
    numbers, guard = count(), threading.Lock()

    def take(_: object) -> None:
        with guard:
            number = next(numbers)
            if number % 3 == 0:
                image = crash_image(tmp_path / "s", tmp_path / str(number))
                images.append((image, {request.phy_offset for request in taker.taken}))

    taker, calls = Taker(take), CallOrder(tmp_path / "s")
    calls.at_each = take
    with opened(tmp_path / "s", kind, dispatchers=[taker]) as store, calls.watching():
        put(store, *numbered(0, 3))
        assert store.max_offset("t", 0) == 3
        store.flush()
        store.put_messages([Message("t", b"x" * 4_000, at) for at in range(6)])  # two files
        store.flush()
        put(store, *numbered(3, 6))
    assert len(images) > 5
    for image, before in images:
        after = Taker()
        with opened(image, kind, dispatchers=[after]) as store:
            there = {record.phy_offset for record in store.commit_log.scan(0)}
        again = [request.phy_offset for request in after.taken]
        assert again == sorted(again)
        assert there <= before.union(again)


def test_a_rebuild_of_all_queues_dispatches_all(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *numbered(0, 3))
    taker, placed = Taker(), Placed(0)
    rebuilt = {"rebuild": Rebuild.QUEUES, "dispatchers": [taker, placed]}
    with opened(tmp_path, **rebuilt) as store:
        assert taker.bodies == placed.bodies == bodies_of(store) == numbered(0, 3)


def test_one_that_knows_its_place_gets_all_from_there(tmp_path: Path) -> None:
    with opened(tmp_path) as store:  # by a program that does not have it
        put(store, *numbered(0, 6))
        offsets = [each.phy_offset for each in store.get_message("t", 0, 0).messages()]
        end = store.commit_log.max_phy_offset()
    for at, first in [(0, 0), (offsets[4], 4), (end, 6)]:
        placed, plain = Placed(at), Taker()
        with opened(tmp_path, dispatchers=[plain, placed]) as store:
            assert placed.bodies == numbered(first, 6)
            assert plain.bodies == []
    placed, plain = Placed(end), Taker()
    with opened(tmp_path, dispatchers=[placed, plain]) as store:
        put(store, b"6")
        assert store.max_offset("t", 0) == 7
        assert (placed.bodies, plain.bodies) == ([b"6"], [b"6"])


def test_a_place_behind_the_log_is_its_end(tmp_path: Path) -> None:
    """As where a power cut took what the dispatcher had taken."""
    placed = Placed(1 << 30)
    with logged("store") as lines, opened(tmp_path, dispatchers=[placed]) as store:
        put(store, b"a")
        assert store.max_offset("t", 0) == 1
    assert placed.bodies == [b"a"]
    assert "goes on at 0, the end of the log, not at 1073741824" in lines.getvalue()


def test_a_place_that_has_expired_is_said(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number in range(4):
            put(store, b"%d" % number * 7_000)
        store.delete_expired_files(1 << 14)
    placed = Placed(0)
    with logged("store") as lines, opened(tmp_path, dispatchers=[placed]):
        pass
    assert [body[:1] for body in placed.bodies] == [b"2", b"3"]
    assert "goes on at 16384: the log from 0 on has expired" in lines.getvalue()


@pytest.mark.parametrize("place", [7, -1, None, 1.5])
def test_a_place_that_is_none_is_refused(tmp_path: Path, place: Any) -> None:
    with opened(tmp_path) as store:
        put(store, b"a", b"b")
    with pytest.raises(RefusedStoreError, match="the dispatcher 'taker' goes on"):
        opened(tmp_path, dispatchers=[Placed(place)])
    with opened(tmp_path) as store:
        assert bodies_of(store) == [b"a", b"b"]


def test_a_dispatcher_sees_what_maintenance_dispatches(tmp_path: Path) -> None:
    """A deletion, a rebuild and an expiry dispatch what waits, under the append lock."""
    inside: list[bool] = []

    def look(request: DispatchRequest) -> None:
        inside.append(store._pending.owner.is_mine())

    taker = Taker(look)
    with opened(tmp_path, dispatchers=[taker]) as store:
        store._dispatcher.arrivals.stop()  # so that these find something that waits
        for step in (
            lambda: store.delete_topic("u"),
            lambda: store.rebuild_queues("t"),
            lambda: store.delete_expired_files(1 << 14),
        ):
            put(store, b"x" * 7_000)
            put(store, b"y" * 7_000, topic="u")
            before = len(taker.taken)
            step()
            assert len(taker.taken) == before + 2
        assert store.commit_log.min_phy_offset() == 1 << 14
    assert inside == [False] * 6


def test_records_of_a_master_are_dispatched(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        put(store, *numbered(0, 5))
        end = store.commit_log.max_phy_offset()
        data = (store.paths.commit_log / ("0" * 20)).read_bytes()[:end]
    taker = Taker()
    hook = Hook(lambda _: PutMessageResult(ILLEGAL))
    with opened(tmp_path / "own", dispatchers=[taker], put_hooks=[hook]) as store:
        store.append_to_commit_log(0, data)
        assert bodies_of(store) == taker.bodies == numbered(0, 5)
    assert hook.given == []


# ---- opening


@pytest.mark.parametrize(
    "options",
    [{"put_hooks": [object()]}, {"dispatchers": [object()]}, {"put_hooks": [Hook(name=5)]}],  # type: ignore[arg-type]
)
def test_what_is_no_hook_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(StoreConfigError, match="is no"):
        opened(tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_a_store_that_is_opened_to_read_calls_none(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"a")
    for options in ({"put_hooks": [Hook()]}, {"dispatchers": [Taker()]}):
        with pytest.raises(StoreConfigError, match="opened to read"):
            MessageStore.open(tmp_path, read_only=True, **options)


class Installed:
    """What the entry points of ``install`` make, by name."""

    made: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def make(name: str, root: Path) -> Any:
        if name.startswith("broken"):
            raise LookupError(name)
        Installed.made[name] = (Hook if name.startswith("hook") else Taker)()
        Installed.made[name].hook_name = name
        return None if root.name == "without" else Installed.made[name]


def hook_a(root: Path) -> Any:
    return Installed.make("hook_a", root)


def hook_b(root: Path) -> Any:
    return Installed.make("hook_b", root)


def taker(root: Path) -> Any:
    return Installed.make("taker", root)


def broken(root: Path) -> Any:
    return Installed.make("broken", root)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, hooks: list[str]) -> None:
    """Make the entry points known to this process, hooks in an order that is not theirs."""
    info = folder / "cqstore_hooks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cqstore-hooks\nVersion: 1.0\n")
    lines = [f"[{PUT_HOOKS}]", *(f"{name} = {__name__}:{name}" for name in hooks)]
    lines += [f"[{DISPATCHERS}]", f"taker = {__name__}:taker", ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(Installed, "made", {})


def test_hooks_of_installed_packages_come_first_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, ["hook_b", "hook_a"])
    order: list[str] = []
    own, own_taker = Hook(lambda _: order.append("own"), "own"), Taker()
    with opened(tmp_path / "s", put_hooks=[own], dispatchers=[own_taker]) as store:
        for name in ("hook_a", "hook_b"):
            Installed.made[name]._step = lambda _, name=name: order.append(name)
        put(store, b"x")
        assert store.max_offset("t", 0) == 1
        assert order == ["hook_a", "hook_b", "own"]
        assert Installed.made["taker"].bodies == own_taker.bodies == [b"x"]
    for root, installed in (("without", True), ("off", False)):
        with opened(tmp_path / root, installed_hooks=installed) as store:
            assert isinstance(store._putter, Putter)
            assert store._dispatcher.dispatchers is None


def test_a_hook_that_cannot_be_made_refuses_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, ["broken"])
    with pytest.raises(StoreConfigError, match=r"'broken' of cqstore\.put_hooks .*LookupError"):
        opened(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    with opened(tmp_path / "s", installed_hooks=False) as store:
        put(store, b"x")
    with MessageStore.open(tmp_path / "s", read_only=True) as store:
        assert bodies_of(store) == [b"x"]


def test_errors_are_of_the_tree() -> None:
    assert not issubclass(PutHookError, IllegalMessageError)
    assert issubclass(DispatcherError, StoreError)
