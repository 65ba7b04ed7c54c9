"""A store follows a master through cuts, silence and bytes that no master sends."""

import asyncio
import dataclasses
import errno
import random
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cqstore.remoting.command import Command
from cqstore.remoting.frame import encode
from cqstore.replication.errors import DivergedError, WireError
from cqstore.replication.follow import master_session as session
from cqstore.replication.follow.default_protocol import DefaultProtocol
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing, Until
from cqstore.replication.follow.last_file import last_file
from cqstore.replication.follow.master_port import MasterPort
from cqstore.store.errors import CorruptionError, DiskFullError, StoreIOError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching.dispatcher_list import DispatchRequest
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.both_backends import compare_backends
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import StoreHooks
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.faults import Faults
from tests.kit.hooks import Taker
from tests.kit.log_bytes import log_of
from tests.kit.parted import log_in
from tests.kit.served import served
from tests.kit.waiting import becomes, run
from tests.kit.wire_master import WireMaster, frame
from tests.kit.wire_server import Cut
from tests.replication.conftest import CONFIG, Led

if TYPE_CHECKING:
    from collections.abc import Callable

FAST = Timing(report=0.05, housekeeping=20.0, first_retry=0.001, last_retry=0.004, quiet=0.03)
ENDED = dataclasses.replace(FAST, stopping=0.5)
"""Where the master has no more to send: it is not waited for as if it were being stopped."""


def caught_up(progress: FollowerProgress) -> bool:
    return progress.caught_up


def at_end(phy_offset: int) -> Until:
    return lambda progress: progress.end >= phy_offset


def follow(
    root: Path,
    master: WireMaster,
    until: Until = caught_up,
    config: StoreConfig = CONFIG,
    backend: str | None = None,
    timing: Timing = FAST,
    reported: list[str] | None = None,
) -> FollowerProgress:
    """Follow ``master`` into ``root`` until ``until`` says so."""

    async def story() -> FollowerProgress:
        with MessageStore.open(root, config, backend=backend, housekeeping=False) as store:
            async with master:
                reported_here: list[str] = [] if reported is None else reported
                follower = Follower(
                    store, "127.0.0.1", master.port, timing=timing, on_event=reported_here.append
                )
                await follower.run(until)
                await master.reported(follower.progress.reported)
                return follower.progress

    return run(story())


@pytest.mark.parametrize("backend", backend_names())
def test_a_log_is_followed_to_its_end_through_cuts_at_any_byte(
    led: Led, tmp_path: Path, backend: str
) -> None:
    draw, reported = random.Random(7), list[str]()
    cuts = [draw.randint(1, 3000) for _ in range(40)]
    master = WireMaster(led.log[:4000], cuts=cuts)
    follow(tmp_path / "own", master, at_end(led.starts[20]), backend=backend)
    master = WireMaster(led.log, cuts=cuts)
    progress = follow(tmp_path / "own", master, backend=backend, reported=reported)
    assert progress.end == progress.reported == max(master.reports) == len(led.log)
    assert progress.connections == len(master.requests) - 1 == 41  # and one for the last file
    assert log_in(tmp_path / "own") == led.log
    assert served(tmp_path / "own") == served(led.root)
    assert any("the master closed the connection; retrying" in sentence for sentence in reported)


@pytest.mark.parametrize(
    ("flush", "at_once"),
    [
        (FlushDiskType.ASYNC_FLUSH, 1 << 16),
        (FlushDiskType.ASYNC_FLUSH, 300),
        (FlushDiskType.SYNC_FLUSH, 1 << 16),
    ],
)
def test_small_pieces_are_taken_within_the_loop_unless_a_disk_is_waited_for(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType, at_once: int
) -> None:
    taken: list[tuple[int, bool]] = []
    take = DefaultProtocol.receive

    def noted(protocol: DefaultProtocol, data: bytes) -> None:
        taken.append((len(data), threading.current_thread() is threading.main_thread()))
        take(protocol, data)

    monkeypatch.setattr(DefaultProtocol, "receive", noted)
    monkeypatch.setattr(session, "TAKEN_AT_ONCE_BYTES", at_once)
    config = CONFIG.model_copy(update={"flush_disk_type": flush})
    last = len(led.log) - len(led.log) % 4096
    cuts = [200, 2000]  # one piece of each size at least
    follow(tmp_path / "own", WireMaster(led.log, cuts=cuts), config=config)
    assert log_in(tmp_path / "own") == led.log[last:]
    small = {size <= at_once for size, _ in taken}
    assert small == ({True, False} if at_once == 300 else {True})
    for size, within in taken:
        assert within == (size <= at_once and flush is FlushDiskType.ASYNC_FLUSH), size


def test_what_is_reported_never_goes_beyond_what_is_there(led: Led, tmp_path: Path) -> None:
    master = WireMaster(led.log, cuts=[700, 900, 4000])
    follow(tmp_path / "own", master)
    assert set(master.reports) <= {0, *led.starts, *range(0, len(led.log), 4096), len(led.log)} | {
        *master.requests
    }
    ends = [report for report in master.reports if report not in master.requests]
    assert ends == sorted(ends)


def test_a_new_follower_gets_the_last_file(led: Led, tmp_path: Path) -> None:
    begin = len(led.log) - len(led.log) % 4096
    assert begin >= 8192
    timing = dataclasses.replace(FAST, report=60)
    progress = follow(tmp_path / "own", master := WireMaster(led.log), timing=timing)
    assert (progress.body_bytes, progress.connections) == (len(led.log) - begin, 1)
    assert master.reports.count(len(led.log)) == 1  # though heartbeats came behind it
    assert log_in(tmp_path / "own") == led.log[begin:]


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize("begin", [0, 4096])
def test_a_log_whose_file_has_no_record_is_an_empty_one(
    led: Led, tmp_path: Path, backend: str, begin: int
) -> None:
    """As an opening leaves it that was killed before its first record was whole."""
    (tmp_path / "own" / "commitlog").mkdir(parents=True)
    (tmp_path / "own" / "commitlog" / f"{begin:020d}").write_bytes(bytes(4096))
    follow(tmp_path / "own", master := WireMaster(led.log), backend=backend)
    last = len(led.log) - len(led.log) % 4096
    assert master.requests[0] == 0
    assert log_in(tmp_path / "own") == led.log[last:]
    names = {path.name for path in (tmp_path / "own" / "commitlog").iterdir()}
    assert f"{begin:020d}" not in names
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert (store.report.needed, store.min_phy_offset()) == (False, last)
        assert list(store.check()) == []


async def test_a_master_that_grows_is_followed_from_nothing_on(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with WireMaster(b"") as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run())
            await becomes(lambda: follower.progress.verified)  # by a heartbeat
            at = 0
            for end in (50, 4096, 5000, len(led.log)):
                master.append(led.log[at:end])
                at = end
                await master.reported(
                    max(place for place in {0, 4096, len(led.log), *led.starts} if place <= end)
                )
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert log_of(store) == led.log
            assert store.get_message("t", 0, 0).messages()


# ---- logs that have parted


def follow_apart(
    root: Path, own: bytes, master: WireMaster, kind: type[Exception] = DivergedError
) -> str:
    """Follow ``master`` with a store that has ``own``; return why it was refused."""
    with MessageStore.open(root, CONFIG) as store:
        if not store.max_phy_offset():
            assert store.append_to_commit_log(0, own) == len(own)
    with pytest.raises(kind) as caught:
        follow(root, master, timing=ENDED)
    assert log_in(root) == own
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert not store.report.needed
    return str(caught.value)


@pytest.mark.parametrize("hasty", [0, 3])
def test_a_log_that_is_longer_than_the_masters_is_told_with_both_ends(
    led: Led, tmp_path: Path, hasty: int
) -> None:
    own, end = led.starts[70], led.starts[60]
    error = follow_apart(tmp_path / "own", led.log[:own], WireMaster(led.log[:end], hasty=hasty))
    assert f"this log ends at {own}, but the master's ends at {end}" in error


def test_a_former_master_that_is_longer_is_told_and_nothing_is_mixed(
    led: Led, tmp_path: Path
) -> None:
    """RocketMQ's slave waits until the master is as long, and appends inside a record."""
    with MessageStore.open(tmp_path / "other", CONFIG, housekeeping=False) as store:
        for number in range(100):
            assert store.put_message(Message("t", b"other" * number, 0)).ok
        other = log_of(store)
    own = led.log[: led.starts[14]]
    error = follow_apart(tmp_path / "own", own, WireMaster(b""))
    assert f"this log ends at {len(own)}, but the master's ends at 0;" in error
    short = follow_apart(tmp_path / "own", own, WireMaster(other[:448]))
    grown = follow_apart(tmp_path / "own", own, WireMaster(other))
    assert short == grown
    assert f"the master's log differs from this log, which ends at {len(own)}" in grown


def test_the_masters_older_files_are_gone(led: Led, tmp_path: Path) -> None:
    begin = len(led.log) - len(led.log) % 4096
    own = led.log[: led.starts[20]]
    master = WireMaster(led.log[begin:], begin=begin)
    error = follow_apart(tmp_path / "own", own, master)
    assert f"this log ends at {len(own)}, but the master no longer has offset 1:" in error
    assert f"its last file begins at {begin}, its log ends at {len(led.log)}" in error
    assert master.requests == [1, 0]


@pytest.mark.parametrize("hasty", [0, 1])
def test_a_log_that_has_a_file_more_than_the_master_is_told_where_that_ends(
    led: Led, tmp_path: Path, hasty: int
) -> None:
    """More than is asked for again: the master has none of it, and is asked for its last file."""
    timing = dataclasses.replace(FAST, housekeeping=30)

    async def story(master: WireMaster) -> None:
        with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
            store.append_to_commit_log(0, led.log)
            async with master:
                await Follower(
                    store, "127.0.0.1", master.port, timing=timing, verify_tail_bytes=100
                ).run()

    end = led.starts[60]
    master = WireMaster(led.log[:end], hasty=hasty)
    with pytest.raises(DivergedError) as caught:
        run(story(master))
    assert f"this log ends at {len(led.log)}, but the master's ends at {end};" in str(caught.value)
    assert master.requests == [led.starts[-1], 0]


def test_a_file_that_leaves_the_log_while_it_is_followed_is_no_end(
    led: Led, tmp_path: Path
) -> None:
    """The master sends heartbeats then, as at the end of its log."""
    timing, end = dataclasses.replace(FAST, last_file=0), led.starts[5]

    async def story() -> None:
        with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
            async with WireMaster(led.log[: led.starts[4]]) as master:
                follower = Follower(store, "127.0.0.1", master.port, timing=timing)
                task = asyncio.create_task(follower.run())
                await becomes(lambda: follower.progress.caught_up)
                master.append(led.log[led.starts[4] : end])
                await master.reported(end)
                master.expire(led.log[8192:10_000], 8192)
                await task

    with pytest.raises(DivergedError) as caught:
        run(story())
    assert f"ends at {end}, but the master no longer has offset {end}:" in str(caught.value)
    assert "its last file begins at 8192, its log ends at 10000" in str(caught.value)


async def test_a_master_that_begins_a_file_while_it_is_asked_for_its_last_one_lacks_nothing(
    led: Led, tmp_path: Path
) -> None:
    class Rolling(WireMaster):
        async def _send(self, out: Cut, requested: int) -> None:
            if len(self.requests) == 2:  # the question for its last file
                self.append(led.log[len(self.log) :])
            await super()._send(out, requested)

    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with Rolling(led.log[: led.starts[4]]) as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            await follower.run(lambda progress: progress.end == len(led.log))
            assert master.requests == [0, 0]
    assert log_in(tmp_path / "own") == led.log


async def test_one_look_at_the_last_file_holds_for_a_while(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with WireMaster(b"") as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run())
            for number in (3, 4, 40):
                master.append(led.log[len(master.log) : led.starts[number]])
                await master.reported(led.starts[number])
                await becomes(lambda: follower.progress.caught_up)
            assert master.requests == [0, 0, 0]  # one more for another file
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("instead", [b"HTTP/1.1 400 Bad Request", b""])
def test_a_last_file_that_is_not_told_is_not_known(led: Led, instead: bytes) -> None:
    async def story() -> list[range | None]:
        async with WireMaster(led.log, instead=instead) as master:
            port = master.port
            found = [await last_file(MasterPort("127.0.0.1", port), 0.1, whole=True)]
        return [*found, await last_file(MasterPort("127.0.0.1", port), 0.1, whole=True)]

    assert run(story()) == [None, None]


@pytest.mark.parametrize(
    ("instead", "kind", "words"),
    [
        (
            frame(99, b"x"),
            DivergedError,
            ["expected bytes from 1", "found bytes from 99", "haListenPort"],
        ),
        (frame(0), DivergedError, ["expected bytes from 1", "found bytes from 0"]),
        (frame(1, b"\xff" * 9), DivergedError, ["log differs from this log", "found byte 0xff"]),
        (b"\0" * 8 + b"\x7f\xff\xff\xff", WireError, ["0 to 4194304", "2147483647"]),
        (b"HTTP/1.1 400 Bad Request\r\n", WireError, ["invalid size", "text", "haListenPort"]),
        (encode(Command(1, 1)), WireError, ["invalid size", "text", "haListenPort"]),
    ],
)  # fmt: skip
def test_what_no_master_sends_is_refused_and_no_connection_is_tried_again(
    led: Led, tmp_path: Path, instead: bytes, kind: type[Exception], words: list[str]
) -> None:
    master = WireMaster(led.log, instead=instead)
    error = follow_apart(tmp_path / "own", led.log[: led.starts[5]], master, kind)
    assert [word for word in words if word not in error] == []
    assert master.requests == [1]


# ---- time


def test_heartbeats_before_the_first_bytes_say_nothing(led: Led, tmp_path: Path) -> None:
    """As a master sends after it was stopped for a while, or under flow control: all at once."""
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, led.log[: led.starts[40]])
    master = WireMaster(led.log, hasty=5)
    progress = follow(tmp_path / "own", master)
    assert progress.end == len(led.log)
    assert log_in(tmp_path / "own") == led.log


async def test_a_quiet_connection_is_kept_by_reports(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with WireMaster(led.log) as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run())
            await master.reported(len(led.log))
            count = len(master.reports)
            while len(master.reports) < count + 3:
                master.changed.clear()
                await master.changed.wait()
            assert set(master.reports[count:]) - {0} == {len(led.log)}  # 0: the last file?
            assert follower.progress.connections == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_no_second_report_comes_before_an_answer_but_the_same(
    led: Led, tmp_path: Path
) -> None:
    """RocketMQ takes the last report that waits for where to begin."""
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        store.append_to_commit_log(0, led.log)
        async with WireMaster(led.log, instead=b"") as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run())
            while len(master.reports) < 4:
                master.changed.clear()
                await master.changed.wait()
            assert set(master.reports) == {1}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_who_waits_for_the_end_of_a_record_is_not_caught_up(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with WireMaster(led.log[:600]) as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run(caught_up))
            await master.reported(max(start for start in led.starts if start <= 600))
            master.reports.clear()
            while len(master.reports) < 4:  # each after a time in which heartbeats came
                master.changed.clear()
                await master.changed.wait()
            assert not task.done()
            master.append(led.log[600:])
            await task
            assert follower.progress.end == len(led.log)


def test_a_port_that_sends_no_frame_is_told_as_such(led: Led, tmp_path: Path) -> None:
    reported = list[str]()
    master = WireMaster(led.log, cuts=[0, 3])
    follow(tmp_path / "own", master, reported=reported)
    assert (
        "closed the connection (no frame received: is this the haListenPort?); retrying"
        in reported[1]
    )
    assert len(reported) == 2  # nothing is told twice until a connection was of use


@pytest.mark.parametrize("selective", [False, True])
def test_both_backends_are_built_where_the_settings_say_so(
    led: Led, tmp_path: Path, *, selective: bool
) -> None:
    settings: dict[str, object] = {"rocksdb_cq_double_write_enable": True}
    if selective:
        settings |= {"rocksdb_cq_selective_double_write_enable": True, "double_write_topics": "t"}
    config = CONFIG.model_copy(update=settings)
    follow(tmp_path / "own", WireMaster(led.log, cuts=[5000, 4000]), config=config)
    with MessageStore.open(tmp_path / "own", config) as store:
        compared = compare_backends(store)
        assert (compared.is_clean, compared.queues) == (True, 2)


def test_nobody_there_is_told_once_and_an_unknown_name_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = list[str]()

    async def story() -> None:
        with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
            port = taken.getsockname()[1]
            follower = Follower(store, "127.0.0.1", port, timing=FAST, on_event=reported.append)
            task = asyncio.create_task(follower.run())
            tries = list[float]()
            plain = follower._next_wait

            def counted(wait: float, exc: Any, *, of_use: bool) -> float:
                tries.append(wait)
                return plain(wait, exc, of_use=of_use)

            monkeypatch.setattr(follower, "_next_wait", counted)
            await becomes(lambda: len(tries) > 5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with pytest.raises(
                StoreIOError,
                match=r"cannot resolve the host name 'no\.such\.invalid' of the master",
            ):
                await Follower(store, "no.such.invalid", 1, timing=FAST).run()

    with socket.socket() as taken:  # the port is taken, and nothing listens there
        taken.bind(("127.0.0.1", 0))
        run(story())
    assert len(reported) == 1
    assert "retrying" in reported[0]


async def test_each_wait_is_twice_the_last_one_until_a_connection_was_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        follower = Follower(store, "127.0.0.1", 1, timing=Timing(first_retry=1, last_retry=5))

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        async def lost(_: Until) -> None:
            follower.progress.verified = len(waits) < 5  # that alone is of no use
            follower.progress.end += len(waits) == 5
            follower.progress.caught_up = len(waits) == 8
            if len(waits) == 6:
                raise DiskFullError("no room")
            raise ConnectionError

        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(follower, "_connection", lost)
        await follower.run(lambda _: len(waits) == 10)
    assert waits == [1, 2, 4, 5, 5, 1, 5, 5, 1, 2]


# ---- what is acknowledged


@contextmanager
def syncing_elsewhere(store: MessageStore) -> Iterator[None]:
    """Another thread syncs the log, and the disk takes its time."""
    entered, leave = threading.Event(), threading.Event()
    log = components_of(store).log
    real = log.flush

    def flush() -> int:
        entered.set()
        assert leave.wait(30)
        return real()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "flush", flush)
        beyond = log.max_phy_offset() + 1  # else there is nothing to sync
        other = threading.Thread(target=components_of(store).commit.wait_for, args=(beyond,))
        other.start()
        try:
            assert entered.wait(30)
            yield
        finally:
            leave.set()
            other.join(30)


async def test_under_sync_flush_the_master_is_told_what_is_on_disk(
    led: Led, tmp_path: Path
) -> None:
    config = CONFIG.model_copy(
        update={"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout": 30}
    )
    with MessageStore.open(tmp_path / "own", config, housekeeping=False) as store:
        async with WireMaster(led.log[:3000]) as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            task = asyncio.create_task(follower.run())
            end = max(start for start in led.starts if start <= 3000)
            await master.reported(end)
            with syncing_elsewhere(store):
                master.append(led.log[3000:])
                await becomes(lambda: store.max_phy_offset() == len(led.log))
                master.reports.clear()
                await master.reported(end)
                assert set(master.reports) == {end}
            store.flush()
            await master.reported(len(led.log))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_a_follower_that_is_stopped_in_an_append_lets_it_come_to_its_end(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = list[int](), list[int]()
    plain = MessageStore.append_to_commit_log

    async def story() -> None:
        loop = asyncio.get_running_loop()
        stop: Callable[[], object]

        def slowly(store: MessageStore, phy_offset: int, data: bytes) -> int:
            began.append(phy_offset)
            loop.call_soon_threadsafe(stop)
            end = plain(store, phy_offset, data)
            ended.append(end)
            return end

        monkeypatch.setattr(MessageStore, "append_to_commit_log", slowly)
        with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
            async with WireMaster(led.log) as master:
                task = asyncio.create_task(
                    Follower(store, "127.0.0.1", master.port, timing=FAST).run()
                )
                stop = task.cancel
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert len(began) == len(ended)

    run(story())
    assert began
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert not store.report.needed
        assert store.max_phy_offset() == ended[-1]
    shutil.rmtree(tmp_path / "own")


# ---- the disk


async def test_a_full_disk_is_waited_for(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, reported = Faults(monkeypatch), list[str]()
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with WireMaster(b"") as master:
            follower = Follower(
                store, "127.0.0.1", master.port, timing=FAST, on_event=reported.append
            )
            task = asyncio.create_task(follower.run(at_end(len(led.log))))
            await becomes(lambda: follower.progress.verified)
            master.append(led.log[:500])
            await becomes(lambda: follower.progress.end)
            await asyncio.to_thread(store.flush)  # by now the next file was made ahead
            faults.fail("fallocate", errno.ENOSPC, "/commitlog/")
            master.append(led.log[500:])
            await becomes(lambda: follower.progress.connections >= 3)
            assert 0 < follower.progress.end < len(led.log)
            assert follower.progress.end % 4096 == 0
            faults.heal()
            await task
            assert log_of(store) == led.log
    assert served(tmp_path / "own") == served(led.root)
    assert any("No space left on device" in sentence for sentence in reported)


async def test_a_dispatcher_that_fails_is_waited_for(led: Led, tmp_path: Path) -> None:
    reported, is_well = list[str](), threading.Event()

    def fail(request: DispatchRequest) -> None:
        if request.phy_offset >= led.starts[20] and not is_well.is_set():
            raise OSError("no route to host")

    taker = Taker(fail)
    with MessageStore.open(
        tmp_path / "own", CONFIG, housekeeping=False, hooks=StoreHooks(dispatchers=[taker])
    ) as store:
        async with WireMaster(b"") as master:
            follower = Follower(
                store, "127.0.0.1", master.port, timing=FAST, on_event=reported.append
            )
            task = asyncio.create_task(follower.run(at_end(len(led.log))))
            await becomes(lambda: follower.progress.verified)
            master.append(led.log[: led.starts[30]])
            await becomes(lambda: store.metrics.snapshot().dispatch_stalled)
            master.append(led.log[led.starts[30] :])
            await becomes(lambda: any("no route to host" in sentence for sentence in reported))
            is_well.set()
            await task
            assert log_of(store) == led.log
    assert served(tmp_path / "own") == served(led.root)
    assert [request.phy_offset for request in taker.taken] == led.starts


def test_a_disk_that_refuses_ends_it_and_nothing_more_is_acknowledged(
    led: Led, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    faults, master = Faults(monkeypatch), WireMaster(led.log)
    faults.fail("fsync", errno.EIO, "/commitlog/")
    with pytest.raises(StoreIOError):
        follow(tmp_path / "own", master, config=config)
    assert set(master.reports) == {0}


def test_a_fault_of_the_queues_is_not_laid_to_the_master(led: Led, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"dispatch_slice": 1})

    async def story() -> None:
        with MessageStore.open(tmp_path / "own", config, backend="file") as store:
            (tmp_path / "own" / "consumequeue" / "t" / "0" / f"{0:020d}").mkdir(parents=True)
            async with WireMaster(led.log[:3000]) as master:
                await Follower(store, "127.0.0.1", master.port, timing=FAST).run()

    with pytest.raises(CorruptionError) as caught:
        run(story())
    assert type(caught.value) is CorruptionError
    assert "consumequeue/t/0" in str(caught.value)
