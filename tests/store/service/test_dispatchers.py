"""Dispatchers: which records they are called with, in what order, and again after what."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cqstore import (
    DispatcherError,
    DispatchRequest,
    Message,
    MessageStore,
    PutMessageResult,
    PutMessageStatus,
    RefusedStoreError,
    StoreError,
)
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import MessageProperty, SysFlag
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions, StoreHooks
from cqstore.store.service.recovering.replacement import Rebuild
from tests.kit.call_order import CallOrder
from tests.kit.crash_images import crash_image
from tests.kit.engines import ENGINES
from tests.kit.hooks import (
    ILLEGAL,
    KINDS,
    SECONDS,
    Hook,
    Placed,
    Taker,
    batch_of,
    bodies_of,
    numbered,
    opened,
    put,
    put_task,
)
from tests.kit.logged import logged
from tests.kit.waiting import until


@pytest.fixture(params=KINDS)
def fed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MessageStore, Taker]]:
    taker = Taker()
    with opened(tmp_path / "s", request.param, hooks=StoreHooks(dispatchers=[taker])) as store:
        yield store, taker


def expected_requests(store: MessageStore) -> list[DispatchRequest]:
    """Make the requests by hand of what the log decodes."""
    made: list[DispatchRequest] = []
    for record in components_of(store).log.scan(0):
        message = components_of(store).log.message(record.phy_offset)
        known = dict(message.properties)
        made.append(
            DispatchRequest(
                message.topic, message.queue_id, message.queue_offset, message.phy_offset,
                record.size, java_hash(known.get("TAGS", "")), message.store_timestamp,
                message.sys_flag, known.get("KEYS"), known.get("UNIQ_KEY"), known,
                components_of(store).log,
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
    store.put_message_future(Message("t", b"later")).result(SECONDS)
    asyncio.run(put_task(store, Message("t", b"task")))
    store.put_message(Message("half", b"h", 0, {}, 0, int(SysFlag.TRANSACTION_PREPARED)))
    store.put_message(Message("t", b"light", 0, light))
    for number in range(3):
        store.put_message(Message("big", b"%d" % number * 7_000))  # into the next files
    records = 14
    until(lambda: len(taker.taken) == records)  # nothing reads, and no thread flushes
    assert taker.taken == expected_requests(store)
    assert taker.bodies[:2] == [b"plain", b"rich"]
    assert "CommitLog" not in repr(taker.taken[0])
    assert {request.topic for request in taker.taken} == {"t", "l", "half", "big"}
    snapshot = store.metrics.snapshot()
    assert (snapshot.dispatcher_records, snapshot.dispatcher_failures) == (records, 0)
    assert store.max_offset("%LMQ%b", 0) == 1


def test_a_dispatcher_is_called_before_readers_see_the_record(tmp_path: Path) -> None:
    seen: list[int] = []

    def look(request: DispatchRequest) -> None:
        seen.append(
            components_of(store).queues.queue("t", 0).max_offset()
        )  # the backend, past all guards

    with opened(tmp_path, hooks=StoreHooks(dispatchers=[Taker(look)])) as store:
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

    with opened(tmp_path, hooks=StoreHooks(dispatchers=[Taker(work)])) as store:
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

    with opened(tmp_path, hooks=StoreHooks(dispatchers=[Taker(read)])) as store:
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
    with logged("cqstore.store") as lines:
        store.put_messages([Message("t", body) for body in numbered(3, 6)])  # one batch
        until(lambda: store.metrics.snapshot().dispatch_stalled)
    assert "the dispatcher 'taker' failed: OSError('no route to host')" in lines.getvalue()
    assert store.max_offset("t", 0) == 3  # of the batch nothing is seen
    refused = store.put_message(Message("t", b"6"))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "once the dispatcher accepts the record" in refused.reason
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

    with opened(
        tmp_path, hooks=StoreHooks(dispatchers=[Taker(note(name)) for name in "abc"])
    ) as store:
        put(store, b"x")
        until(lambda: store.metrics.snapshot().dispatch_stalled)
        while not store.put_message(Message("t", b"y")).ok:
            pass
        assert store.max_offset("t", 0) == 2
        assert store.metrics.snapshot().dispatcher_failures == 2
    assert calls == [*"abbbc", *"abc"]


def test_a_close_with_a_dispatcher_that_fails_loses_nothing(tmp_path: Path) -> None:
    def fail(request: DispatchRequest) -> None:
        raise OSError("gone")

    store = opened(tmp_path, hooks=StoreHooks(dispatchers=[Taker(fail)]))
    put(store, b"a", b"b")
    with pytest.raises(DispatcherError):
        store.close()
    with pytest.raises(DispatcherError):
        opened(tmp_path, hooks=StoreHooks(dispatchers=[Taker(fail)]))
    taker = Taker()
    with opened(tmp_path, hooks=StoreHooks(dispatchers=[taker])) as store:
        assert bodies_of(store) == taker.bodies == [b"a", b"b"]
        put(store, b"c")
    assert taker.bodies == [b"a", b"b", b"c"]


def test_an_interrupt_in_a_dispatcher_fails_the_store(tmp_path: Path) -> None:
    def interrupt(request: DispatchRequest) -> None:
        raise KeyboardInterrupt

    store = opened(tmp_path, hooks=StoreHooks(dispatchers=[Taker(interrupt)]))
    with components_of(store).dispatcher.owner.entry():  # so that no thread comes first
        put(store, b"a")
        with pytest.raises(KeyboardInterrupt):
            components_of(store).dispatcher._drain()
    assert store.metrics.snapshot().failed
    store.close()
    taker = Taker()
    with opened(tmp_path, hooks=StoreHooks(dispatchers=[taker])):
        assert taker.bodies == [b"a"]


# ---- recovery


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_stop_dispatches_nothing_again(tmp_path: Path, kind: Any) -> None:
    for first in (0, 3, 6):
        taker = Taker()
        with opened(tmp_path, kind, hooks=StoreHooks(dispatchers=[taker])) as store:
            assert taker.bodies == []
            put(store, *numbered(first, first + 3))
        assert taker.bodies == numbered(first, first + 3)


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_all_comes_that_no_flush_covered(tmp_path: Path, kind: Any) -> None:
    with opened(tmp_path / "s", kind, hooks=StoreHooks(dispatchers=[Taker()])) as store:
        put(store, *numbered(0, 3))
        store.flush()
        put(store, *numbered(3, 6))
        assert store.max_offset("t", 0) == 6
        image = crash_image(tmp_path / "s", tmp_path / "image")
    taker = Taker()
    with opened(image, kind, hooks=StoreHooks(dispatchers=[taker])) as store:
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
    with (
        opened(tmp_path / "s", kind, hooks=StoreHooks(dispatchers=[taker])) as store,
        calls.watching(),
    ):
        put(store, *numbered(0, 3))
        assert store.max_offset("t", 0) == 3
        store.flush()
        store.put_messages([Message("t", b"x" * 4_000, at) for at in range(6)])  # two files
        store.flush()
        put(store, *numbered(3, 6))
    assert len(images) > 5
    for image, before in images:
        after = Taker()
        with opened(image, kind, hooks=StoreHooks(dispatchers=[after])) as store:
            there = {record.phy_offset for record in components_of(store).log.scan(0)}
        again = [request.phy_offset for request in after.taken]
        assert again == sorted(again)
        assert there <= before.union(again)


def test_a_rebuild_of_all_queues_dispatches_all(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *numbered(0, 3))
    taker, placed = Taker(), Placed(0)
    recovery = RecoveryOptions(rebuild=Rebuild.QUEUES)
    hooks = StoreHooks(dispatchers=[taker, placed])
    with opened(tmp_path, recovery=recovery, hooks=hooks) as store:
        assert taker.bodies == placed.bodies == bodies_of(store) == numbered(0, 3)


def test_one_that_knows_its_place_gets_all_from_there(tmp_path: Path) -> None:
    with opened(tmp_path) as store:  # by a program that does not have it
        put(store, *numbered(0, 6))
        offsets = [each.phy_offset for each in store.get_message("t", 0, 0).messages()]
        end = store.max_phy_offset()
    with logged("cqstore.store.service.dispatching") as lines:
        for at, first in [(0, 0), (offsets[4], 4), (end, 6)]:
            placed, plain = Placed(at), Taker()
            with opened(tmp_path, hooks=StoreHooks(dispatchers=[plain, placed])):
                assert placed.bodies == numbered(first, 6)
                assert plain.bodies == []
    assert lines.getvalue() == ""
    placed, plain = Placed(end), Taker()
    with opened(tmp_path, hooks=StoreHooks(dispatchers=[placed, plain])) as store:
        put(store, b"6")
        assert store.max_offset("t", 0) == 7
        assert (placed.bodies, plain.bodies) == ([b"6"], [b"6"])


def test_one_without_a_place_never_gets_what_others_dispatched(tmp_path: Path) -> None:
    """Another program recovers what a kill left behind, and puts: a broker, or a command."""
    plain, placed = Taker(), Placed(0)
    with opened(tmp_path / "s", hooks=StoreHooks(dispatchers=[plain, placed])) as store:
        put(store, *numbered(0, 2))
        store.flush()
        with components_of(
            store
        ).dispatcher.owner.entry():  # so that nothing is dispatched before the kill
            put(store, *numbered(2, 4))
            image = crash_image(tmp_path / "s", tmp_path / "image")
            assert plain.bodies == placed.bodies == numbered(0, 2)
            place = placed.taken[-1].phy_offset + placed.taken[-1].size
    with opened(image) as store:
        put(store, b"4")
        assert bodies_of(store) == numbered(0, 5)
    plain, placed = Taker(), Placed(place)
    with opened(image, hooks=StoreHooks(dispatchers=[plain, placed])) as store:
        put(store, b"5")
        assert bodies_of(store) == numbered(0, 6)
    assert plain.bodies == [b"5"]
    assert placed.bodies == numbered(2, 6)


def test_one_that_cannot_say_its_place_refuses_the_opening(tmp_path: Path) -> None:
    class Lost(Placed):
        def dispatch_from_phy_offset(self) -> int:
            raise LookupError("no database")

    with pytest.raises(DispatcherError, match=r"'taker' failed: LookupError\('no database'\)"):
        opened(tmp_path, hooks=StoreHooks(dispatchers=[Lost(0)]))


def test_a_place_behind_the_log_is_its_end(tmp_path: Path) -> None:
    """As where a power cut took what the dispatcher had taken."""
    placed = Placed(1 << 30)
    with (
        logged("cqstore.store") as lines,
        opened(tmp_path, hooks=StoreHooks(dispatchers=[placed])) as store,
    ):
        put(store, b"a")
        assert store.max_offset("t", 0) == 1
    assert placed.bodies == [b"a"]
    assert "starts at phy offset 0, the end of the log, not at 1073741824" in lines.getvalue()


def test_a_place_that_has_expired_is_said(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number in range(4):
            put(store, b"%d" % number * 7_000)
        store.delete_expired_files(1 << 14)
    placed = Placed(0)
    with logged("cqstore.store") as lines, opened(tmp_path, hooks=StoreHooks(dispatchers=[placed])):
        pass
    assert [body[:1] for body in placed.bodies] == [b"2", b"3"]
    assert "starts at phy offset 16384, not at 0: the log before has expired" in lines.getvalue()


@pytest.mark.parametrize("place", [7, -1, None, 1.5])
def test_a_place_that_is_none_is_refused(tmp_path: Path, place: Any) -> None:
    with opened(tmp_path) as store:
        put(store, b"a", b"b")
    with pytest.raises(RefusedStoreError, match="the dispatcher 'taker' cannot start"):
        opened(tmp_path, hooks=StoreHooks(dispatchers=[Placed(place)]))
    with opened(tmp_path) as store:
        assert bodies_of(store) == [b"a", b"b"]


def test_a_new_index_dispatches_only_what_queues_may_lack(tmp_path: Path) -> None:
    """The log is scanned from its begin then, for the index alone."""
    with opened(tmp_path) as store:
        for body in numbered(0, 3):
            store.put_message(Message("t", body, 0, {"KEYS": "k"}))
    taker = Taker()
    with opened(
        tmp_path,
        recovery=RecoveryOptions(rebuild=Rebuild.INDEX),
        hooks=StoreHooks(dispatchers=[taker]),
    ) as store:
        assert len(store.query_message("t", "k")) == 3
        put(store, b"3")
        assert store.max_offset("t", 0) == 4
    assert taker.bodies in ([b"3"], [b"2", b"3"])  # the last one that was vouched for


def test_what_was_given_up_is_dispatched_to_none(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        put(store, *numbered(0, 4))
        (_, lost, *_) = [record.phy_offset for record in components_of(store).log.scan(0)]
        image = crash_image(tmp_path / "s", tmp_path / "image")
    path = image / "commitlog" / ("0" * 20)
    log = bytearray(path.read_bytes())
    log[log.index(b"1", lost + 80)] ^= 2  # in the body
    path.write_bytes(log)
    plain, placed = Taker(), Placed(0)
    with opened(
        image,
        recovery=RecoveryOptions(pass_over=[lost]),
        hooks=StoreHooks(dispatchers=[plain, placed]),
    ) as store:
        assert [each.phy_offset for each in store.report.passed_over] == [lost]
        assert plain.bodies == placed.bodies == [b"0", b"2", b"3"]


def test_a_dispatcher_sees_what_maintenance_dispatches(tmp_path: Path) -> None:
    """A deletion, a rebuild and an expiry dispatch what waits, under the append lock."""
    inside: list[bool] = []

    def look(request: DispatchRequest) -> None:
        inside.append(components_of(store).pending.owner.is_mine())
        if request.topic == "t":  # a put that comes before the append lock is taken
            put(store, b"derived", topic="d")

    taker = Taker(look)
    with opened(tmp_path, hooks=StoreHooks(dispatchers=[taker])) as store:
        components_of(store).dispatcher.arrivals.stop()  # so that these find something that waits
        for step in (
            lambda: store.delete_topic("u"),
            lambda: store.rebuild_queues("t"),
            lambda: store.delete_expired_files(1 << 14),
        ):
            put(store, b"x" * 7_000)
            put(store, b"y" * 7_000, topic="u")
            before = len(taker.taken)
            step()
            assert len(taker.taken) >= before + 3
        assert store.min_phy_offset() == 1 << 14
        assert store.max_offset("d", 0) == 3
    assert inside == [False] * 9


def test_records_of_a_master_are_dispatched(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as store:
        put(store, *numbered(0, 5))
        end = store.max_phy_offset()
        data = (components_of(store).paths.commit_log / ("0" * 20)).read_bytes()[:end]
    taker = Taker()
    hook = Hook(lambda _: PutMessageResult(ILLEGAL))
    with opened(tmp_path / "own", hooks=StoreHooks(dispatchers=[taker], put_hooks=[hook])) as store:
        store.append_to_commit_log(0, data)
        assert bodies_of(store) == taker.bodies == numbered(0, 5)
    assert hook.given == []
