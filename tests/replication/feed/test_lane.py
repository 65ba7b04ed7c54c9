"""What a put waits for is sent by its thread, and its answer heard by another, without the loop."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.replication.errors import OutsideLogError
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.followers import Followers, Link
from cqstore.replication.feed.lane import MAX_BYTES, Lane, ReceiverThread
from cqstore.replication.feed.served_log import ServedLog
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from tests.kit.own_threads import own_threads
from tests.kit.waiting import until
from tests.kit.wire_slave import HEAD, WireSlave, acknowledging
from tests.replication.feed.conftest import CONFIG, Master, leading
from tests.replication.feed.test_sync_master import PATIENT, in_sync, message, sync

OK = PutMessageStatus.PUT_OK
LARGE = CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 22})


def put_by_thread(store: MessageStore) -> PutMessageResult:
    answers: list[PutMessageResult] = []
    thread = threading.Thread(target=lambda: answers.append(store.put_message(message())))
    thread.start()
    thread.join()
    return answers[0]


@contextmanager
def held_up(master: Master) -> Iterator[None]:
    """The feeder's loop comes to nothing during the block."""
    loop = master.feeder._own[0].get_loop()
    begun, ended = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        ended.wait(60)

    loop.call_soon_threadsafe(wait)
    assert begun.wait(60)
    try:
        yield
    finally:
        ended.set()


def test_a_put_of_a_thread_is_replicated_while_the_loop_is_held_up(tmp_path: Path) -> None:
    quiet = FeedSettings(ha_send_heartbeat_interval=3_600_000)  # the lane is open for good
    with leading(tmp_path / "m", sync(**PATIENT), quiet) as master, acknowledging(master.port):
        in_sync(master, 1)
        assert put_by_thread(master.store).status is OK  # now the follower has all
        until(lambda: not lanes(master)[0]._turn.locked())
        with held_up(master):
            for _ in range(50):  # of several files
                assert put_by_thread(master.store).status is OK
        (link,) = master.feeder.followers.links()
        assert link.acknowledged == link.sent == master.end > 4096


def test_a_put_of_the_main_thread_leaves_it_to_the_loop(tmp_path: Path) -> None:
    """A signal's handler that raises there would cut a frame short."""
    with leading(tmp_path / "m", sync(slave_timeout=100)) as master, acknowledging(master.port):
        in_sync(master, 1)
        until(lambda: master.store.put_message(message()).status is OK)
        until(lambda: not lanes(master)[0]._turn.locked())
        (link,) = master.feeder.followers.links()
        sent = link.sent
        with held_up(master):
            late = master.store.put_message(message())
            assert (late.status, link.sent) == (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, sent)
        until(lambda: link.acknowledged == master.end)


def lanes(master: Master) -> tuple[Lane, ...]:
    growth = master.feeder._growth
    assert growth is not None
    return growth._lanes


def test_connections_that_have_gone_leave_no_lane_and_no_thread(tmp_path: Path) -> None:
    with leading(tmp_path / "m", count=5) as master:
        slaves = [WireSlave(master.port) for _ in range(5)]
        for slave in slaves:
            slave.report(0)
            slave.frame()
        until(lambda: len(lanes(master)) == 5)
        until(lambda: own_threads().count("cqstore-hear") == 5)
        for slave in slaves:
            slave.peer.close()
        until(lambda: not lanes(master) and "cqstore-hear" not in own_threads())


# ---- one lane


class Laid:
    """A lane into one end of a pair of sockets; the loop has let it go."""

    def __init__(self, store: MessageStore, batch: int = 1 << 20) -> None:
        self.near, self.far = socket.socketpair()
        self.near.settimeout(0)
        self.far.settimeout(30)
        self.link = Link("a", 1, 0, 0, store.max_phy_offset())
        self.lane = Lane(ServedLog(store), self.link, self.near, batch)
        self.lane.open()

    def __enter__(self) -> "Laid":
        return self

    def __exit__(self, *_: object) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, LARGE, housekeeping=False) as store:
        yield store


def put(store: MessageStore, size: int) -> None:
    assert store.put_message(Message("t", b"x" * size, 0)).ok


def test_what_is_new_goes_out_once_in_frames(store: MessageStore) -> None:
    with Laid(store, batch=100) as laid:
        assert laid.lane.send()  # nothing is new
        put(store, 150)
        end = store.max_phy_offset()
        assert laid.lane.send()
        assert laid.lane.send()
        data = laid.far.recv(1 << 16)
        at, log = 0, b""
        while at < len(data):
            phy_offset, size = HEAD.unpack_from(data, at)
            assert phy_offset == len(log)
            assert size <= 100
            log += data[at + HEAD.size : at + HEAD.size + size]
            at += HEAD.size + size
        assert log == bytes(components_of(store).log.view(0, end))
        assert (laid.link.sent, laid.lane.sent_bytes) == (end, len(data))
        assert laid.lane.reclaim() == b""


def test_what_the_kernel_does_not_take_is_left_to_the_loop(store: MessageStore) -> None:
    """The follower that takes nothing holds up no thread, and not a byte is lost or sent twice."""
    with Laid(store) as laid:
        put(store, 30_000)
        while laid.lane.send():
            put(store, 30_000)
        put(store, 10)
        assert laid.lane.send()  # not this thread's: the loop has been asked
        rest = laid.lane.reclaim()
        assert rest
        assert laid.link.sent < store.max_phy_offset()
        laid.near.settimeout(30)
        thread = threading.Thread(target=laid.near.sendall, args=(rest,))
        thread.start()
        log = b""
        with laid.far.makefile("rb") as file:
            while len(log) < laid.link.sent:
                phy_offset, size = HEAD.unpack(file.read(HEAD.size))
                assert phy_offset == len(log)
                log += file.read(size)
        thread.join()
        assert log == bytes(components_of(store).log.view(0, laid.link.sent))


def test_a_follower_that_lags_far_is_left_to_the_loop(store: MessageStore) -> None:
    with Laid(store) as laid:
        while store.max_phy_offset() <= MAX_BYTES:
            put(store, 30_000)
        assert not laid.lane.send()
        assert laid.lane.reclaim() == b""
        assert laid.link.sent == 0


def test_while_the_loop_has_it_no_thread_sends(store: MessageStore) -> None:
    with Laid(store) as laid:
        assert laid.lane.reclaim() == b""
        put(store, 10)
        assert laid.lane.send()
        assert laid.link.sent == 0
        laid.lane.open()
        assert laid.lane.send()
        assert laid.link.sent == store.max_phy_offset()


def test_what_the_loop_has_sent_leaves_the_next_to_threads(store: MessageStore) -> None:
    with Laid(store) as laid:
        laid.near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        while not laid.lane.needs_loop:  # until the kernel takes no more
            put(store, 1000)
            laid.lane.send()
        assert laid.lane.reclaim()
        assert not laid.lane.needs_loop


def test_a_single_byte_is_read_as_any_number_is(store: MessageStore) -> None:
    put(store, 10)
    served, end = ServedLog(store), store.max_phy_offset()
    last = bytes(components_of(store).log.view(end - 1, 1))
    assert served.read_near(end - 1, 1) == last
    assert served.read_near(end - 2, 1) == served.read_near(end, 1) == b""


def test_who_asks_for_what_is_not_there_is_told_what_is(store: MessageStore) -> None:
    put(store, 10)
    served, end = ServedLog(store), store.max_phy_offset()
    assert [served.start(request) for request in (0, 1, end)] == [0, 1, end]
    for request in (-1, end + 1):
        with pytest.raises(OutsideLogError, match=f"from {request}, .* is from 0 to {end}:"):
            served.start(request)


def test_a_connection_that_is_gone_is_the_loops_to_end(store: MessageStore) -> None:
    with Laid(store) as laid:
        laid.far.close()
        put(store, 10)
        assert not laid.lane.send()
        assert laid.lane.needs_loop
        with pytest.raises(BrokenPipeError):
            laid.lane.reclaim()


# ---- one who hears


async def test_what_ends_the_hearing_is_raised_where_it_is_awaited() -> None:
    def take(peer: socket.socket) -> None:
        assert peer.recv(5) == b"hello"
        raise OutsideLogError("no such place")

    near, far = socket.socketpair()
    with near, far:
        far.send(b"hello")
        with pytest.raises(OutsideLogError, match="no such place"):
            await ReceiverThread(near, take).receive()


async def test_a_hearing_that_is_cancelled_ends_its_thread() -> None:
    received: list[bytes] = []
    near, far = socket.socketpair()
    with near, far:
        task = asyncio.create_task(
            ReceiverThread(near, lambda peer: received.append(peer.recv(1))).receive()
        )
        while "cqstore-hear" not in own_threads():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "cqstore-hear" not in own_threads()
    assert received == [b""]


# ---- who waits


def test_as_many_as_are_asked_for_have_the_log_up_to_there() -> None:
    followers = Followers()
    assert followers.reached(1) == -1
    for address, at in (("a", 50), ("a", 90), ("b", 70), ("c", 10)):
        link = followers.join(address, 1)
        followers.begin(link, 0, 0)
        followers.acknowledge(link, at)
    assert [followers.reached(count) for count in (1, 2, 3, 4)] == [90, 70, 10, -1]
