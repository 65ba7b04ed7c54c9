"""Recordings of a running master: small peers that speak RocketMQ's wire, and our own feed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.ab.record.broker_recording import BrokerRecording, RecordingPlan
from cqstore.ab.record.missing import Ending
from cqstore.ab.record.names import AnonymousNames
from cqstore.ab.trace.operations import read_trace
from cqstore.ab.trace.trace_marks import KILLED
from cqstore.replication.errors import BrokerError, WireError
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.master_port import MasterPort
from cqstore.store.errors import MagicCodeError, StoreConfigError, StoreIOError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from tests.ab.record.conftest import put
from tests.kit.log_bytes import log_of
from tests.kit.waiting import becomes, run
from tests.kit.wire_broker import WireBroker
from tests.kit.wire_master import WireMaster
from tests.replication.feed.conftest import leading
from tests.replication.feed.test_sync_master import message, sync

QUICK = Timing(connect=5, report=0.05, housekeeping=5, first_retry=0.01, last_retry=0.05, quiet=0.1)
Story = Callable[[BrokerRecording], Awaitable[object]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def operations(path: Path) -> list[dict[str, Any]]:
    """The operations of a trace without their times."""
    found = [line for line in lines(path) if "op" in line]
    return [{name: each for name, each in line.items() if name != "at"} for line in found]


def plan(path: Path, port: int, broker: WireBroker | None = None, **given: Any) -> RecordingPlan:
    defaults: dict[str, Any] = {
        "seconds": 60.0, "max_bytes": 1 << 20, "poll_seconds": 0.05, "timing": QUICK,
    }  # fmt: skip
    return RecordingPlan(
        MasterPort("127.0.0.1", port), None if broker is None else ("127.0.0.1", broker.port), path,
        **(defaults | given),
    )  # fmt: skip


async def recorded(
    given: RecordingPlan, story: Story, said: list[str], master: WireMaster | None = None
) -> Ending:
    """Record while ``story`` runs, and stop when it has ended; it begins when ``master`` sends."""
    async with BrokerRecording(given, said.append) as recording:
        await recording.begin()
        running = asyncio.create_task(recording.run(lambda _: None))
        if master is not None:  # the first connection was a check
            await becomes(lambda: len(master.requests) == 2)
        told = asyncio.ensure_future(story(recording))
        done, _ = await asyncio.wait([running, told], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return recording.end()


def as_lines(asked: list[tuple[str, int, int, str | None]]) -> list[dict[str, object]]:
    return [
        {"op": "put", "topic": topic, "queueId": queue_id, "size": size}
        | ({} if tag is None else {"tags": tag})
        for topic, queue_id, size, tag in asked
    ]


def test_puts_and_pulls_of_a_running_broker_become_a_trace(
    tmp_path: Path, store: MessageStore
) -> None:
    """What was stored before the recording is not in it, and nothing is acknowledged."""
    path, said = tmp_path / "trace", list[str]()
    first = store.max_offset("orders", 1)
    broker = WireBroker()
    broker.offsets = f'{{"orders@billing":{{0:3,1:{first}}}}}'
    master = WireMaster(log_of(store))
    asked: list[tuple[str, int, int, str | None]] = []

    async def story(recording: BrokerRecording) -> None:
        asked.extend(put(store, 12, 90))
        master.append(log_of(store)[len(master.log) :])
        await becomes(lambda: recording.facts()["puts"] == 12)
        broker.offsets = f'{{"orders@billing":{{0:73,1:{first + 2}}}}}'
        await becomes(lambda: recording._lines.counts.pulls >= 4)

    async def whole() -> Ending:
        async with master, broker:
            return await recorded(plan(path, master.port, broker), story, said, master)

    ending = run(whole())
    found = operations(path)
    assert found[:12] == as_lines(asked)
    old, new = (
        [(each["offset"], each["count"]) for each in found[12:] if each["queueId"] == queue_id]
        for queue_id in (0, 1)
    )
    assert old == [(3, 32), (35, 32), (67, 6)]
    assert new in ([(first, 2)], [(first, 1), (first + 1, 1)]), "one pull for one millisecond"
    assert {(each["op"], each["topic"]) for each in found[12:]} == {("pull", "orders")}
    tail = [line["at"] for line in lines(path) if line.get("queueId") == 1]
    assert set(tail[-len(new) :]) <= set(tail[: -len(new)]), "pulled when they were put"
    assert set(master.reports) == {0}
    assert ending.counts.pulls == len(found) - 12
    (stopped,) = ending.missing()
    assert stopped.startswith("The recording was stopped after ")
    assert list(ending.limits()) == said == []
    assert read_trace(path).missing == [stopped]
    assert read_trace(path).recorded


def test_after_lost_connections_each_put_is_there_once(tmp_path: Path, store: MessageStore) -> None:
    path, said = tmp_path / "trace", list[str]()
    begin = len(log_of(store))
    cuts = (1 << 20, *(begin + more for more in (2000, 3000, 5000, 9000)))
    master = WireMaster(log_of(store), cuts=cuts, file_size=1 << 20)
    asked: list[tuple[str, int, int, str | None]] = []

    async def story(recording: BrokerRecording) -> None:
        for number in range(90, 110, 5):
            asked.extend(put(store, 5, number))
            master.append(log_of(store)[len(master.log) :])
            await becomes(lambda: recording.facts()["puts"] == len(asked))

    async def whole() -> Ending:
        async with master:
            return await recorded(plan(path, master.port), story, said, master)

    ending = run(whole())
    assert operations(path) == as_lines(asked)
    assert ending.lost_bytes == 0
    assert len(master.requests) > 3
    assert "the master closed the connection; retrying" in said[0]


def test_a_new_file_after_a_lost_connection_is_a_gap_that_is_told(
    tmp_path: Path, store: MessageStore
) -> None:
    path = tmp_path / "trace"
    master = WireMaster(log_of(store), cuts=(1 << 20, 9000))

    async def story(recording: BrokerRecording) -> None:
        put(store, 25, 90)
        whole = log_of(store)
        assert len(whole) - len(whole) % 4096 > master.end
        master.append(whole[len(master.log) :])
        await becomes(lambda: len(master.requests) == 3 and recording.facts()["puts"])

    async def whole() -> Ending:
        async with master:
            return await recorded(plan(path, master.port), story, [], master)

    ending = run(whole())
    assert ending.lost_bytes > 0
    assert f"{ending.lost_bytes:,} bytes of the log are missing" in " ".join(ending.missing())


def test_it_ends_by_itself_when_the_time_is_over(tmp_path: Path, store: MessageStore) -> None:
    path, seconds = tmp_path / "trace", list[int]()
    master = WireMaster(log_of(store))

    async def whole() -> Ending:
        async with master, BrokerRecording(plan(path, master.port, seconds=0.2), print) as one:
            await one.begin()
            await one.run(seconds.append)
            return one.end()

    ending = run(whole())
    assert list(ending.missing()) == []
    assert "was stored" in " ".join(ending.limits()), "no put since the start"
    first, last = lines(path)
    assert (first["source"], last["trace"]) == ("master", "end")
    assert 0.2 <= last["at"] < 60
    with pytest.raises(StoreConfigError, match="no operation to run"):
        read_trace(path)


def test_puts_that_do_not_arrive_in_time_are_told(tmp_path: Path, store: MessageStore) -> None:
    master = WireMaster(log_of(store), heartbeat=3600)

    async def whole() -> Ending:
        async with master:
            given = plan(tmp_path / "trace", master.port, seconds=0.05, grace_seconds=0.1)
            return await alone(given)

    async def alone(given: RecordingPlan) -> Ending:
        async with BrokerRecording(given, print) as one:
            await one.begin()
            await one.run(lambda _: None)
            return one.end()

    assert list(run(whole()).missing()) == [
        "Puts after 0 s are missing: they did not arrive in time."
    ]


def test_a_full_file_ends_the_recording_and_says_so(tmp_path: Path, store: MessageStore) -> None:
    path = tmp_path / "trace"
    master = WireMaster(log_of(store))

    async def story(recording: BrokerRecording) -> None:
        put(store, 60, 90)
        master.append(log_of(store)[len(master.log) :])
        await becomes(lambda: recording._output.full)

    async def whole() -> Ending:
        async with master:
            return await recorded(plan(path, master.port, max_bytes=6000), story, [], master)

    ending = run(whole())
    assert path.stat().st_size <= 6000
    found = read_trace(path)
    assert 0 < len(found.operations) == ending.counts.puts < 60
    assert ending.counts.puts + ending.counts.unwritten <= 60
    assert "The file was full after " in found.missing[-1]
    assert f"at least {ending.counts.unwritten} operations are missing" in found.missing[-1]


def test_an_anonymous_trace_names_nothing(tmp_path: Path, store: MessageStore) -> None:
    path, broker, master = tmp_path / "trace", WireBroker(), WireMaster(log_of(store))
    broker.offsets = '{"orders@billing":{0:3},"%RETRY%billing@billing":{0:0}}'

    async def story(recording: BrokerRecording) -> None:
        put(store, 12, 90)
        master.append(log_of(store)[len(master.log) :])
        broker.offsets = '{"orders@billing":{0:4},"%RETRY%billing@billing":{0:1}}'
        await becomes(lambda: recording.facts()["pulls"] == 2 and recording.facts()["puts"] == 12)

    async def whole() -> Ending:
        async with master, broker:
            given = plan(path, master.port, broker, names=AnonymousNames(b"key"))
            return await recorded(given, story, [], master)

    run(whole())
    names = AnonymousNames(b"key")
    topics = {each["topic"] for each in operations(path)}
    assert topics == {names.topic("orders"), names.topic("%RETRY%billing")}
    assert {each.get("tags") for each in operations(path)} == {names.tag("paid"), None}
    assert not any(word in path.read_text() for word in ("orders", "billing", "paid"))


def test_a_broker_that_fails_meanwhile_is_asked_again(tmp_path: Path, store: MessageStore) -> None:
    broker, master, said = WireBroker(), WireMaster(log_of(store)), list[str]()
    broker.offsets = '{"orders@billing":{0:3}}'

    async def story(recording: BrokerRecording) -> None:
        broker.instead[43] = lambda number, _: broker.say(number, code=1, remark="busy")
        await becomes(lambda: recording._failed_polls >= 2)
        broker.instead.clear()
        broker.offsets = '{"orders@billing":{0:4}}'
        await becomes(lambda: recording.facts()["pulls"] == 1)

    async def whole() -> Ending:
        async with master, broker:
            return await recorded(
                plan(tmp_path / "trace", master.port, broker), story, said, master
            )

    ending = run(whole())
    assert ending.failed_polls >= 2
    limit, *_ = ending.limits()
    assert limit.startswith(f"{ending.failed_polls} requests for consumer offsets failed")
    (sentence,) = said
    assert "busy; retrying" in sentence


@pytest.mark.parametrize("what", ["refused", "silent", "no master", "slave", "there"])
async def test_nothing_is_written_before_both_addresses_answer(
    tmp_path: Path, store: MessageStore, what: str
) -> None:
    path, broker = tmp_path / "trace", WireBroker()
    master = WireMaster(log_of(store), instead=b"HTTP/1.1 400 Bad Request\r\n")
    if what not in {"silent", "no master"}:
        master.instead = None
    timing = QUICK if what != "silent" else Timing(housekeeping=0.01)
    if what == "silent":
        master.instead = b""
    if what == "slave":
        broker.instead[907] = lambda number, _: broker.say(number, b'{"master":false}')
    if what == "there":
        path.write_bytes(b"mine")
    errors: dict[str, tuple[type[Exception], str]] = {
        "refused": (StoreIOError, "connection refused"),
        "silent": (StoreIOError, "haListenPort"),
        "no master": (WireError, "haListenPort"),
        "slave": (BrokerError, "not a master"),
        "there": (StoreConfigError, "the file already exists"),
    }
    error, sentence = errors[what]
    async with master, broker:
        port = master.port if what != "refused" else 1
        given = plan(path, port, broker, timing=timing)
        async with BrokerRecording(given, print) as recording:
            with pytest.raises(error, match=sentence):
                await recording.begin()
    assert path.exists() is (what == "there")
    assert what != "there" or path.read_bytes() == b"mine"


def test_damage_ends_the_recording_with_a_whole_file(tmp_path: Path, store: MessageStore) -> None:
    path, master = tmp_path / "trace", WireMaster(log_of(store))

    async def whole() -> Ending:
        async with master, BrokerRecording(plan(path, master.port), print) as recording:
            await recording.begin()
            put(store, 1, 90)
            master.append(log_of(store)[len(master.log) :] + bytes(100))
            with pytest.raises(MagicCodeError):
                await recording.run(lambda _: None)
            return recording.end()

    ending = run(whole())
    assert ending.stopped_at is not None
    assert len(operations(path)) == 1
    assert lines(path)[-1]["trace"] == "end"


@pytest.mark.slow
def test_our_own_feed_is_recorded_and_a_put_never_counts_the_recorder(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with leading(tmp_path / "store", sync()) as master:

        async def story(recording: BrokerRecording) -> None:
            links = master.feeder.followers.links
            await becomes(lambda: any(link.position == 0 for link in links()))
            result = await asyncio.to_thread(master.store.put_message, message())
            assert result.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            await becomes(lambda: recording.facts()["puts"] == 1)

        ending = run(recorded(plan(path, master.port), story, []))
    assert operations(path) == [{"op": "put", "topic": "t", "queueId": 0, "size": 100}]
    assert ending.lost_bytes == 0


async def test_a_recording_that_was_killed_says_so(tmp_path: Path, store: MessageStore) -> None:
    path, master = tmp_path / "trace", WireMaster(log_of(store))
    async with master, BrokerRecording(plan(path, master.port), print) as recording:
        await recording.begin()
        task = asyncio.create_task(recording.run(lambda _: None))
        await becomes(lambda: len(master.requests) == 2)
        put(store, 3, 90)
        master.append(log_of(store)[len(master.log) :])
        await becomes(lambda: recording.facts()["puts"] == 3)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        recording._output.close()
    assert read_trace(path).missing == (KILLED,)
    assert read_trace(path, limit=1).missing == (KILLED,)
