"""The fast path of plain messages: the same bytes, units, keys and answers as by the oracle."""

import gc
import itertools
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.store.errors import StoreFailedError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.writing.encoded import Encoded
from cqstore.store.service.writing.fast_put import SAMPLED_PUTS, PutFastPath
from cqstore.store.settings.config import FlushDiskType
from tests.kit.compared_puts import CONFIG, NOW, core_and_oracle, log_bytes, stop_clock, waiting
from tests.kit.messages import MAX_BODY, WAYS, messages, plain, put

calls = st.lists(
    st.tuples(st.sampled_from(WAYS), st.lists(st.one_of(plain, messages), min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


class Counted:
    """Counts which way messages go."""

    def __init__(self, real: PutFastPath) -> None:
        self._real = real
        self.taken = self.requested_again = 0

    def quick(self, message: Message) -> PutMessageResult | Literal[False] | None:
        found = self._real.quick(message)
        self.taken += bool(found)
        return found

    def one(self, message: Message) -> PutMessageResult | None:
        self.requested_again += 1
        found = self._real.one(message)
        self.taken += found is not None
        return found

    def several(self, given: Any) -> list[PutMessageResult] | None:
        found = self._real.several(given)
        self.taken += len(found or ())
        return found

    def batch(self, batch: Message) -> list[PutMessageResult] | None:
        found = self._real.batch(batch)
        self.taken += len(found or ())
        return found

    def encoded(self) -> Encoded:
        return self._real.encoded()


@pytest.fixture(autouse=True)
def _at_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_clock(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as opened:
        yield opened


def outcome(store: MessageStore, way: str, given_messages: list[Message]) -> object:
    try:
        return put(store, way, given_messages)
    except Exception as exc:  # noqa: BLE001 - of the other way the same is asked
        return type(exc), str(exc)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    calls=calls, tags=st.booleans(), lmq=st.booleans(), is_sealed=st.booleans(),
    later=st.booleans(), is_indexed=st.sampled_from([True, True, False]),
)  # fmt: skip
def test_core_and_oracle_leave_the_same(
    calls: list[tuple[str, list[Message]]], *, tags: bool, lmq: bool, is_sealed: bool, later: bool,
    is_indexed: bool,
) -> None:  # fmt: skip
    config = CONFIG.model_copy(
        update={
            "enable_lmq": lmq, "enable_multi_dispatch": lmq, "message_index_tags": tags,
            "enabled_append_prop_crc": is_sealed, "allow_delay_without_service": later,
            "message_index_enable": is_indexed,
        }
    )  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as folder,
        core_and_oracle(Path(folder), config) as (core, oracle),
    ):
        for way, given_messages in calls:
            assert outcome(core, way, given_messages) == outcome(oracle, way, given_messages)
            assert waiting(core) == waiting(oracle)
        assert log_bytes(core) == log_bytes(oracle)


@pytest.mark.parametrize("sizes", [range(40), (63, 64, 65, 255, 256, 4096), [0]])
def test_bodies_of_any_length_have_their_checksum(store: MessageStore, sizes: range) -> None:
    store.put_message(Message("t", b""))
    for size in sizes:
        body = bytes(itertools.islice(itertools.cycle(b"\x00\xff\x80abc"), size))
        done = components_of(store).putter._fast.one(Message("t", body))
        assert done is not None
        assert components_of(store).log.message(done.phy_offset).stored_body == body
    assert [each for each in store.check() if each.damage] == []


def test_no_line_of_python_runs_in_a_plain_put(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no thread can append between the store time that a record gets and its place."""
    monkeypatch.undo()
    message = Message("t", b"x", 0, {"TAGS": "a", "KEYS": "k  l", "UNIQ_KEY": "u"})
    batch = Message("t", batch_body([(b"x", b"TAGS\x01a\x02", 0)]))
    store.put_message(message)
    puts, called = components_of(store).putter._fast, list[str]()
    gc.disable()  # a collection between two calls has call-backs of others', Hypothesis's say
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name)
                   if event == "call" else None)  # fmt: skip
    try:
        done = puts.one(message), puts.several([message] * 3), puts.batch(batch)
        quick = puts.quick(message)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert None not in done
    assert quick
    assert called == []


@pytest.mark.parametrize("count", [1, 3])
def test_plain_messages_take_the_short_way(store: MessageStore, count: int) -> None:
    counted = components_of(store).putter._fast = Counted(components_of(store).putter._fast)
    given_messages = [Message("t", b"x", 0, {"TAGS": "a", "KEYS": "k  l", "UNIQ_KEY": "u"})]
    store.put_messages(given_messages * count)
    assert counted.taken == 0  # the topic is unknown yet, and the queue's next offset
    store.put_messages(given_messages * count)
    store.put_message(given_messages[0])
    assert counted.taken == count + 1


def test_a_plain_message_is_put_without_keys_if_there_is_no_index(tmp_path: Path) -> None:
    """By each way of the fast path; with an index all three texts are keys."""
    given_message = Message("t", b"x", 0, {"TAGS": "a", "KEYS": "k  l", "UNIQ_KEY": "u"})
    batch = Message("t", batch_body([(b"x", b"KEYS\x01k\x02", 0)]))
    for is_indexed, expected in ((False, 0), (True, 4 + 4 + 2 * 4 + 1)):
        config = CONFIG.model_copy(
            update={"message_index_enable": is_indexed, "message_index_tags": True}
        )
        root = tmp_path / str(is_indexed)
        with MessageStore.open(root, config, housekeeping=False) as store:
            store.put_message(Message("t", b""))
            puts = components_of(store).putter._fast
            done = [puts.quick(given_message), puts.one(given_message)]
            done += puts.several([given_message] * 2) or [None]
            done += puts.batch(batch) or [None]
            assert [found and found.queue_offset for found in done] == [1, 2, 3, 4, 5]
            assert len(waiting(store)[6]) == expected  # type: ignore[arg-type]
            assert store.max_offset("t", 0) == 6
            store.flush()
            assert (root / "index").exists() == is_indexed


def test_a_put_with_which_something_is_due_is_not_quick(tmp_path: Path) -> None:
    """A sample of the time, a full batch, and a wait for the disk are Python's to do."""
    config = CONFIG.model_copy(update={"dispatch_slice": 100})
    with MessageStore.open(tmp_path / "a", config, housekeeping=False) as store:
        store.put_message(Message("t", b""))  # a sample; the next one is due SAMPLED_PUTS later
        puts = components_of(store).putter._fast
        quick = [puts.quick(Message("t", b"")) for _ in range(SAMPLED_PUTS)]
        assert [at for at, found in enumerate(quick) if found is None] == [SAMPLED_PUTS - 1]
        assert [found.queue_offset for found in quick if found] == list(range(1, SAMPLED_PUTS))
        for _ in range(99 - len(components_of(store).pending.units)):
            assert puts.quick(Message("t", b""))
        assert puts.quick(Message("t", b"")) is None  # the batch is full with it
        store.put_message(Message("t", b""))
        assert len(components_of(store).pending.units) == 0
        assert puts.quick(Message("t", b""))
    syncing = config.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    with MessageStore.open(tmp_path / "b", syncing, housekeeping=False) as store:
        store.put_message(Message("t", b""))
        puts = components_of(store).putter._fast
        assert puts.one(Message("t", b"")) is not None
        assert [puts.quick(Message("t", b"")) for _ in range(3)] == [None] * 3


def test_queues_that_share_a_place_at_hand_are_told_apart(store: MessageStore) -> None:
    """Their ids lie as far apart as there are places (``KNOWN_QUEUES``)."""
    far = [0, 1 << 15, 1 << 16]
    given_messages = [Message("t", b"%d" % queue, queue) for queue in far * 3]
    for message in given_messages[:3]:
        store.put_message(message)
    puts = components_of(store).putter._fast
    done = [
        *(puts.one(message) for message in given_messages),
        *(puts.several(given_messages) or ()),
    ]
    offsets = [found.queue_offset for found in done if found]
    assert offsets == [offset for offset in range(1, 7) for _ in far]
    for queue in far:
        found = store.get_message("t", queue, 0).messages()
        assert [each.stored_body for each in found] == [b"%d" % queue] * 7


def place_of(text: str) -> int:
    """Where the core has queue 0 of a topic with this very text."""
    return ((id(text) >> 4) * 0x9E3779B97F4A7C15 >> 32) & (1 << 15) - 1


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[MessageStore]:
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 20})
    with MessageStore.open(tmp_path, config, housekeeping=False) as opened:
        yield opened


def test_topics_that_share_a_place_at_hand_are_told_apart(roomy: MessageStore) -> None:
    names = [f"topic-{number}-{'x' * (number * 7919 % 80)}" for number in range(3000)]
    roomy.put_messages([Message(name, b"") for name in names])
    learnt = components_of(roomy).putter._rules.topics
    groups: dict[int, list[str]] = {}
    for name in names:
        groups.setdefault(place_of(learnt[name][2]), []).append(name)
    shared = [name for group in groups.values() if len(group) > 1 for name in group][:40]
    assert len(shared) > 1  # of three thousand in 32,768 places hundreds
    puts = components_of(roomy).putter._fast
    for turn in range(3):
        for name in shared:
            found = puts.one(Message(name, name.encode()))
            assert found is not None
            assert found.queue_offset == turn + 1
    for name in shared:
        bodies = [each.stored_body for each in roomy.get_message(name, 0, 1).messages()]
        assert bodies == [name.encode()] * 3


def test_tags_that_share_a_place_at_hand_are_told_apart(roomy: MessageStore) -> None:
    roomy.put_message(Message("t", b""))
    puts = components_of(roomy).putter._fast
    tags = [f"tag-{number}" for number in range(200)]  # more than there are places for
    for tag in tags * 2:
        assert puts.one(Message("t", b"", 0, {"TAGS": tag})) is not None
    index = components_of(roomy).index
    assert index is not None
    for tag in tags:
        pulled = roomy.get_message("t", 0, 0, 32, TagFilter(tag)).messages()
        assert [each.properties["TAGS"] for each in pulled] == [tag, tag]
        found = index.query("t", f"T#{tag}", 32, 0, NOW * 2)
        assert found == [each.phy_offset for each in pulled][::-1]


def changed(**fields: object) -> Message:
    return Message(**{"topic": "t", "body": b"x", **fields})  # type: ignore[arg-type]


class Text(str):
    __slots__ = ()


class Many(int):
    __slots__ = ()


def test_a_topic_that_compares_by_a_line_of_python_lets_nobody_in_between(
    store: MessageStore,
) -> None:
    """A put from within a look at a message would take the place of what was looked at."""

    class Puts(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            store.put_messages([Message("x", b"another")] * 3)
            return str.__eq__(self, other)

    store.put_messages([Message("x", b"")] * 2)
    store.put_message(Message(Puts("t"), b"0"))
    bodies = [store.put_message(Message("t", body)) and body for body in (b"1", b"2")]
    found = store.get_message("t", 0, 1).messages()
    assert [each.stored_body for each in found] == bodies


def test_the_names_of_light_queues_are_plain_text(tmp_path: Path) -> None:
    """They stand among the next offsets, which the core looks through."""

    class Splits(str):
        __slots__ = ()

        def split(self, *_: object) -> list[str]:
            return [Text("%LMQ%a")]

    config = CONFIG.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    with MessageStore.open(tmp_path, config, housekeeping=False) as store:
        refused = store.put_message(
            Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": Splits("%LMQ%a")})
        )
        assert not refused.ok
        assert {type(topic) for topic, _ in components_of(store).pending.offsets.next} <= {str}


V6 = Host.of("::1", 1)
ODD: list[Any] = [
    None, "t", Message("not-yet", b"x"), Message("t", b"x", 5),
    changed(topic=Text("t")), changed(topic=b"t"), changed(body=bytearray(b"x")),
    changed(body=b"x" * 5000), changed(queue_id=-1), changed(queue_id=1 << 31),
    changed(queue_id=Many(0)), changed(queue_id=True), changed(flag=1 << 31),
    changed(flag=-(1 << 31) - 1), changed(flag=1 << 70), changed(flag=None),
    changed(sys_flag=0x80), changed(sys_flag=0x4000_0000), changed(sys_flag=-1),
    changed(born_timestamp=1 << 63), changed(born_timestamp=1.5), changed(reconsume_times=1 << 31),
    changed(prepared_transaction_offset=-(1 << 63) - 1), changed(born_host=None),
    changed(store_host=b"x" * 8), changed(properties=None),
    changed(properties={"": "a"}), changed(properties={"a": ""}), changed(properties={"a": 1}),
    changed(properties={1: "a"}), changed(properties={"a\x01": "b"}),
    changed(properties={"a": "b\x02"}), changed(properties={"a": "\ud800"}),
    changed(properties={"a": "x" * 32_765}), changed(properties={"INNER_NUM": "1"}),
    changed(properties={"INNER_MULTI_DISPATCH": "a", "INNER_MULTI_QUEUE_OFFSET": "0"}),
    changed(properties={Text("a"): "b"}), changed(properties={"DELAY": "1"}),
    changed(properties={"DELAY": "00000000001"}), changed(properties={"DELAY": "-"}),
    changed(properties={"TIMER_DELIVER_MS": "0"}), changed(properties={"TIMER_DELAY_MS": "0"}),
    changed(properties={"TIMER_DELAY_SEC": "0"}),
    changed(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "0"}),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda each: repr(each)[:60])
def test_whatever_is_odd_is_left_alone(store: MessageStore, odd: Any) -> None:
    good = Message("t", b"x")
    store.put_messages([good, Message("SCHEDULE_TOPIC_XXXX", b"x")])
    before = waiting(store), log_bytes(store)
    assert components_of(store).putter._fast.one(odd) is None
    assert components_of(store).putter._fast.several([good, odd, good]) is None
    assert (waiting(store), log_bytes(store)) == before


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("way", ["one", "list"])
def test_whatever_is_odd_is_refused_or_put_alike(
    tmp_path: Path, way: str, *, is_later: bool
) -> None:
    config = CONFIG.model_copy(update={"allow_delay_without_service": is_later})
    with core_and_oracle(tmp_path, config) as (core, oracle):
        for each in ODD:
            assert outcome(core, way, [each]) == outcome(oracle, way, [each]), each
            assert waiting(core) == waiting(oracle), each
        assert log_bytes(core) == log_bytes(oracle)


WELL_FORMED = [
    *[changed(sys_flag=flag) for flag in (4, 8, 12, 0x10, 0x20, 0x30, 0x700, -(1 << 31))],
    *[changed(sys_flag=flag, properties={"KEYS": f"k{flag}"}) for flag in (4, 8, 12)],
    changed(born_host=V6), changed(store_host=V6), changed(born_host=V6, store_host=V6, sys_flag=4),
    changed(topic="SCHEDULE_TOPIC_XXXX"), changed(topic="%RETRY%" + "r" * 248),
]  # fmt: skip
INNER = [
    changed(properties={"INNER_X": "1"}), changed(properties={"INNER_MULTI_DISPATCH": "a"}),
    changed(properties={"INNER_BASE": "1"}), changed(properties={"INNER_MULTI_QUEUE_OFFSET": "0"}),
]  # fmt: skip
NOT_DELAYED = [
    *[changed(properties={"DELAY": level}) for level in ("0", "+0", "-7", "000000000")],
    changed(properties={"DELAY": "3"}, sys_flag=4), changed(properties={"DELAYED": "3"}),
    changed(properties={"TIMER_X": "1"}), changed(properties={"TIMER_OUT_MS": "1"}),
    changed(properties={"TIMER_DELAY_MS": "1", "TIMER_OUT_MS": "1"}),
    changed(topic="rmq_sys_wheel_timer", properties={"DELAY": "3", "TIMER_DELAY_MS": "1"}),
]  # fmt: skip


@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_is_well_formed_is_taken_and_put_alike(tmp_path: Path, *, is_sealed: bool) -> None:
    config = CONFIG.model_copy(update={"enabled_append_prop_crc": is_sealed})
    with core_and_oracle(tmp_path, config) as (core, oracle):
        for each in WELL_FORMED:
            first = changed(topic=each.topic)
            assert core.put_message(first) == oracle.put_message(first)
            taken = components_of(core).putter._fast.one(each)
            assert taken is not None, each
            assert taken == oracle.put_message(each)
            assert components_of(core).putter._fast.several([each]) == oracle.put_messages([each])
            assert waiting(core) == waiting(oracle)
        assert log_bytes(core) == log_bytes(oracle)


@pytest.mark.parametrize("is_later", [False, True])
def test_names_of_requests_take_the_slow_path_unless_delays_are_stored_as_they_are(
    tmp_path: Path, *, is_later: bool
) -> None:
    """Whether such a property requests anything, Python alone decides."""
    config = CONFIG.model_copy(update={"allow_delay_without_service": is_later})
    with core_and_oracle(tmp_path, config) as (core, oracle):
        for each in [*INNER, *NOT_DELAYED]:
            assert core.put_message(changed(topic=each.topic)).ok
            assert oracle.put_message(changed(topic=each.topic)).ok
            taken = components_of(core).putter._fast.one(each)
            assert (taken is not None) == (is_later and each in NOT_DELAYED), each
            result = taken or core.put_message(each)
            assert result.ok, each
            assert result == oracle.put_message(each)
            assert waiting(core) == waiting(oracle)
        assert log_bytes(core) == log_bytes(oracle)


def _hold_lock(store: MessageStore) -> None:
    components_of(store).pending.lock.acquire()


def _let_lock_go(store: MessageStore) -> None:
    if components_of(store).pending.lock.locked():
        components_of(store).pending.lock.release()
    components_of(store).pending.appending.begun = False


def _fill_disk(store: MessageStore) -> None:
    components_of(store).state.set_disk_full("nearly full")


def _begin(store: MessageStore) -> None:
    components_of(store).pending.appending.begun = True


def _unmap(store: MessageStore) -> None:
    log = components_of(store).log
    assert log.current is not None
    log.current.unmap()


def _unprepare(store: MessageStore) -> None:
    components_of(store).log.prepared = None


def _forget(store: MessageStore) -> None:
    components_of(store).pending.offsets.forget_all()


@pytest.mark.parametrize(
    "hinder",
    [_hold_lock, _fill_disk, _begin, _unmap, _unprepare, _forget],
    ids=lambda f: f.__name__,
)
def test_where_nothing_may_be_appended_the_message_takes_the_slow_path(
    store: MessageStore, hinder: Callable[[MessageStore], None]
) -> None:
    good = Message("t", b"x")
    store.put_message(good)
    hinder(store)
    before = waiting(store), store.max_phy_offset()
    assert components_of(store).putter._fast.one(good) is None
    assert (waiting(store), store.max_phy_offset()) == before
    _let_lock_go(store)


# ---- client batches

pieces = st.sampled_from([
    b"TAGS\x01a\x02", b"KEYS\x01k l\x02", b"UNIQ_KEY\x01u\x02", b"WAIT\x01true\x02", b"a\x01b\x02",
    b"INNER_NUM\x012\x02", b"a\x01b", b"\x01b\x02", b"a\x01\x02", b"a\x02", b"a\x01b\x01c\x02",
    "é".encode() + b"\x01b\x02", "𝄞\x01é\x02KEYS\x01é ü\x02".encode(), b"\xed\xa0\x80\x01b\x02",
    b"DELAY\x010\x02", b"DELAY\x013\x02", b"TIMER_DELAY_MS\x011\x02", b"TIMER_OUT_MS\x011\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02", b"INNER_MULTI_QUEUE_OFFSET\x010\x02",
    b"__CRC32#\x011\x02",
    b"\xff\x01b\x02", b"TAGS\x01\xc3\xa9\x02", b"",
    *[b"n%d\x01v\x02" % number for number in range(20)],
])  # fmt: skip
inner = st.tuples(
    st.binary(max_size=9), st.lists(pieces, max_size=19).map(b"".join), st.integers(-1, 1)
)


def batch_body(parts: list[tuple[bytes, bytes, int]]) -> bytes:
    """A body by hand: bodies, properties as they are, flags."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body + struct.pack(">h", len(properties)) + properties
        for body, properties, flag in parts
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=100)
@given(
    parts=st.lists(inner, min_size=1, max_size=4),
    change=st.none() | st.tuples(st.integers(0, 200), st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])),
    cut=st.sampled_from([None, None, None, -1, -3, 21]),
)
def test_a_client_batch_of_any_bytes_is_put_alike(
    parts: list[tuple[bytes, bytes, int]], change: tuple[int, int] | None, cut: int | None
) -> None:
    body = bytearray(batch_body(parts)[:cut])
    if change is not None and body:
        body[change[0] % len(body)] = change[1]
    batch = Message("t", bytes(body), 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        core_and_oracle(Path(folder)) as (core, oracle),
    ):
        for store in (core, oracle):
            store.put_message(Message("t", b"", 1))
        assert core.put_client_batch(batch) == oracle.put_client_batch(batch)
        assert waiting(core) == waiting(oracle)
        assert log_bytes(core) == log_bytes(oracle)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_a_plain_client_batch_takes_the_short_way(store: MessageStore, count: int) -> None:
    counted = components_of(store).putter._fast = Counted(components_of(store).putter._fast)
    store.put_message(Message("t", b"", 1))
    parts = [(b"%d" % number, b"TAGS\x01a\x02WAIT\x01true\x02", 7) for number in range(count)]
    results = store.put_client_batch(Message("t", batch_body(parts), 1))
    assert [result.queue_offset for result in results] == list(range(1, count + 1))
    assert counted.taken == count
    found = store.get_message("t", 1, 1, 64).messages()
    assert [each.stored_body for each in found] == [body for body, _, _ in parts][:32]
    assert {each.head.flag for each in found} == {7}


@pytest.mark.parametrize("over", [0, 1])
def test_what_is_put_while_nobody_else_runs_is_bounded(tmp_path: Path, over: int) -> None:
    """A longer list or batch takes the slow path, where checksums let other threads run."""
    most = 1 << 20
    config = CONFIG.model_copy(
        update={"mapped_file_size_commit_log": 1 << 22, "max_message_size": 1 << 21}
    )
    with MessageStore.open(tmp_path, config, housekeeping=False) as store:
        empty = store.put_message(Message("t", b"")).appended.size  # type: ignore[union-attr]
        puts, body = components_of(store).putter._fast, b"x" * ((most >> 4) - empty)
        bodies = [body] * 15 + [body[over:] + b"x" * over * 2]
        in_one = Message("t", batch_body([(each, b"", 0) for each in bodies]))
        taken = puts.several([Message("t", each) for each in bodies]), puts.batch(in_one)
        assert [found is None for found in taken] == [over == 1] * 2
        assert puts.several([Message("t", b"")] * (most // 88 + 1)) is None
        assert len(store.put_messages([Message("t", each) for each in bodies])) == len(bodies)


@pytest.mark.parametrize("count", [16, 17])
def test_more_names_than_are_kept_take_the_slow_path(store: MessageStore, count: int) -> None:
    store.put_message(Message("t", b""))
    properties = b"".join(b"n%d\x01v\x02" % number for number in range(count))
    batch = Message("t", batch_body([(b"x", properties, 0)]))
    assert (components_of(store).putter._fast.batch(batch) is None) == (count == 17)


@pytest.mark.parametrize("is_read", [False, True])
def test_what_waits_in_memory_is_put_there(tmp_path: Path, *, is_read: bool) -> None:
    """With the transient store pool a commit writes over what stands in the map."""
    config = CONFIG.model_copy(update={"transient_store_pool_enable": True})
    with MessageStore.open(tmp_path, config, housekeeping=False) as store:
        store.put_message(Message("t", b"0"))
        if is_read:
            assert len(store.get_message("t", 0, 0).messages()) == 1  # from a map
        assert components_of(store).putter._fast.one(Message("t", b"waits")) is not None
        assert b"waits" not in log_bytes(store)
        store.flush()
        found = store.get_message("t", 0, 0).messages()
        assert [each.stored_body for each in found] == [b"0", b"waits"]


def test_a_batch_without_a_body_is_none(store: MessageStore) -> None:
    store.put_message(Message("t", b""))
    batch = Message("t", b"")
    del batch.body
    assert components_of(store).putter._fast.batch(batch) is None


@pytest.mark.parametrize("left", range(-2, 3))
def test_a_record_leaves_room_for_the_blank_behind_it(store: MessageStore, left: int) -> None:
    """``left`` bytes more than the blank needs; below 0 the record goes into the next file."""
    size = store.put_message(Message("t", b"")).appended.size  # type: ignore[union-attr]
    file_size = store.config.mapped_file_size_commit_log
    while (room := file_size - store.max_phy_offset() - 8) > MAX_BODY:
        store.put_message(Message("t", b"x" * 1000))
    message = Message("t", b"x" * (room - size - left))
    assert (components_of(store).putter._fast.one(message) is not None) == (left >= 0)
    assert store.put_message(message).phy_offset == file_size


@pytest.mark.parametrize("column", ["units", "queue_index", "queue_offset"])
def test_who_looks_at_the_columns_stops_no_put_and_keeps_what_there_was(
    store: MessageStore, column: str
) -> None:
    store.put_message(Message("t", b"0"))
    with memoryview(getattr(components_of(store).pending.units, column)) as held:
        shown = bytes(held)
        for number in range(1, 200):  # the columns move meanwhile
            store.put_message(Message("t", b"%d" % number))
        assert (bytes(held), held.readonly) == (shown, True)
    found = store.get_message("t", 0, 190).messages()
    assert [each.stored_body for each in found] == [b"%d" % number for number in range(190, 200)]


def test_what_stops_behind_its_record_has_failed_the_store(
    store: MessageStore, tmp_path: Path
) -> None:
    """The record is whole then: an open may find it, with its unit and its key."""
    keyed = Message("t", b"kept", 0, {"KEYS": "k"})
    store.put_message(keyed)
    assert store.max_offset("t", 0) == 1  # what waits is handed on: the next batch knows no queue
    components_of(store).pending.units.index_of[QueueKey("t", 0)] = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        store.put_message(keyed)
    with pytest.raises(StoreFailedError):
        store.put_message(keyed)
    store.close()
    with MessageStore.open(tmp_path, CONFIG) as again:
        count = again.max_offset("t", 0)
        assert count in {1, 2}
        assert len(again.get_message("t", 0, 0).messages()) == count
        assert len(again.query_message("t", "k")) == count
        assert [each for each in again.check() if each.damage] == []


def test_a_close_tells_that_a_put_stopped_in_the_middle(
    store: MessageStore, tmp_path: Path
) -> None:
    """No caller came between the two: the store has failed only now."""
    store.put_message(Message("t", b"kept", 0, {"KEYS": "k"}))
    components_of(store).pending.offsets.next[QueueKey("t", 0)] = 1 << 70  # no queue is so long
    with pytest.raises(OverflowError):
        store.put_message(Message("t", b"lost", 0, {"KEYS": "k"}))
    with pytest.raises(StoreFailedError, match="an append was interrupted"):
        store.close()
    assert Path(tmp_path, "abort").exists()
    with MessageStore.open(tmp_path, CONFIG) as again:
        assert again.get_message("t", 0, 0).messages()[0].stored_body == b"kept"


def test_columns_are_what_numpy_reads(store: MessageStore) -> None:
    for _ in range(300):
        store.put_message(Message("t", b"x"))
    units = components_of(store).pending.units
    assert np.frombuffer(memoryview(units.queue_offset), np.int64).tolist() == [*range(300)]
    assert np.frombuffer(memoryview(units.queue_index), np.int32).tolist() == [0] * 300


def test_a_message_that_is_not_eligible_is_looked_at_once(store: MessageStore) -> None:
    scheduled = changed(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "0"})
    for topic in ("t", scheduled.topic):
        assert store.put_message(Message(topic, b"x")).ok  # the next put to the queue is eligible
    counted = components_of(store).putter._fast = Counted(components_of(store).putter._fast)
    results = [store.put_message(scheduled) for _ in range(50)]
    assert all(result.ok for result in results)
    assert counted.taken == 0
    assert counted.requested_again <= 1  # where a put is timed the fast path is asked by itself
    assert store.put_message(Message("t", b"x")).ok
    assert counted.taken == 1
