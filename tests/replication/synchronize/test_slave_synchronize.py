"""What a master has beside its log comes to ``config/``, and nothing goes that it still has."""

import asyncio
import dataclasses
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.metadata.config_files import TIMER_CHECK_POINT, TimerCheck
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.synchronize.broker_client import BrokerClient
from cqstore.replication.synchronize.slave_synchronize import Intervals, SlaveSynchronize
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.log_bytes import log_of
from tests.kit.waiting import becomes
from tests.kit.wire_broker import WireBroker, command, group, topic
from tests.kit.wire_master import WireMaster
from tests.replication.conftest import CONFIG

FAST = Timing(report=0.05, first_retry=0.001, last_retry=0.004, quiet=0.03)
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 7}


@dataclass
class Scene:
    """A follower that has all of its master's log, and the broker that the master is."""

    store: MessageStore
    master: WireMaster
    broker: WireBroker
    follower: Follower
    beside: SlaveSynchronize
    client: BrokerClient
    reported: list[str] = field(default_factory=list)

    async def rounds(self, count: int = 1) -> None:
        """Ask for every table, so many times."""
        for _ in range(count):
            await self.beside.bring_tables(self.client)

    def config(self, name: str) -> Any:
        return json.loads((components_of(self.store).paths.config / name).read_text())

    def topics(self) -> set[str]:
        return set(self.config("topics.json")["topicConfigTable"])


@asynccontextmanager
async def scene(
    root: Path, log: bytes, backend: str | None = None, *, accept_lower: bool = False
) -> AsyncIterator[Scene]:
    reported = list[str]()
    with MessageStore.open(root, CONFIG, backend=backend, housekeeping=False) as store:
        async with WireMaster(log) as master, WireBroker() as broker:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            following = asyncio.create_task(follower.run())
            await becomes(lambda: follower.progress.caught_up)
            broker.slaves = [f"127.0.0.1:{follower.progress.port}"]
            broker.log_end = len(log)
            broker.topics |= {name: topic(name) for name in ("a", "b")}
            beside = SlaveSynchronize(
                store, follower, "127.0.0.1", broker.port, on_event=reported.append,
                intervals=Intervals(0.01, 0.01, 0.2), accept_lower_offsets=accept_lower,
            )  # fmt: skip
            async with BrokerClient("127.0.0.1", broker.port, answer_seconds=30) as client:
                yield Scene(store, master, broker, follower, beside, client, reported)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of one file with topics ``a`` and ``b``."""
    with MessageStore.open(tmp_path_factory.mktemp("ab"), CONFIG) as store:
        for number in range(12):
            assert store.put_message(Message("ab"[number % 2], b"x" * number, number % 3)).ok
        return log_of(store)


def half(log: bytes) -> bytes:
    """Return the records that begin in the first half of ``log``."""
    end = 0
    while end < len(log) // 2:
        end += int.from_bytes(log[end : end + 4], "big")
    return log[:end]


def next_records(root: Path, log: bytes, name: str) -> bytes:
    """Return what a master's log goes on with that puts to ``name`` after its deletion."""
    with MessageStore.open(root, CONFIG) as store:
        store.append_to_commit_log(0, log)
        store.delete_topic(name)
        for number in range(6):
            assert store.put_message(Message(name, b"anew", number % 3)).ok
        return log_of(store)[len(log) :]


# ---- what is written


async def test_all_tables_are_written_as_rocketmq_reads_them(tmp_path: Path, log: bytes) -> None:
    async with scene(tmp_path, log) as now:
        broker = now.broker
        broker.mappings = {"a": {"topic": "a"}}
        broker.groups["g"] = group("g")
        broker.forbidden = {"g": {"a": 2}}
        broker.offsets, broker.delays = '{"a@g":{0:1,1:2}}', "{3:7}"
        broker.modes = {"a": {"g": {"mode": "POP"}}}
        broker.timer = TIMER_CHECK_POINT.pack(TimerCheck(1, 2, 3, 4, 5, 6, 7))
        broker.timings = {"a": {"count": 3, "timeStamp": 9}}
        await now.rounds()
        assert now.reported == []
        assert now.follower.progress.metadata_time > 0
        assert now.config("topics.json") == {
            "dataVersion": VERSION, "topicConfigTable": broker.topics,
        }  # fmt: skip
        assert now.config("topicQueueMapping.json") == {
            "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 3},
            "topicQueueMappingInfoMap": {"a": {"topic": "a"}},
        }
        assert now.config("subscriptionGroup.json") == {
            "dataVersion": VERSION, "subscriptionGroupTable": broker.groups,
            "forbiddenTable": {"g": {"a": 2}},
        }  # fmt: skip
        assert now.config("consumerOffset.json") == {
            "dataVersion": VERSION, "offsetTable": {"a@g": {"0": 1, "1": 2}},
        }  # fmt: skip
        assert now.config("delayOffset.json") == {
            "dataVersion": VERSION, "offsetTable": {"3": 7},
        }  # fmt: skip
        assert now.config("messageRequestMode.json") == {"messageRequestModeMap": broker.modes}
        assert now.config("timermetrics")["timingCount"] == broker.timings
        timer = (tmp_path / "config" / "timercheck").read_bytes()
        assert TIMER_CHECK_POINT.unpack_from(timer) == (1, 0, 0, 4, 5, 6, 7)
        assert timer[TIMER_CHECK_POINT.size :] == bytes(4096 - TIMER_CHECK_POINT.size)


async def test_a_file_is_replaced_when_it_changes_and_its_former_content_stays_beside(
    tmp_path: Path, log: bytes
) -> None:
    async with scene(tmp_path, log) as now:
        await now.rounds(2)
        folder = tmp_path / "config"
        before = {path.name: path.stat().st_ino for path in folder.iterdir()}
        assert [name for name in before if name.endswith(".bak")] == []
        text = (folder / "topics.json").read_bytes()
        now.broker.topics["c"] = topic("c")
        now.broker.versions[21] += 1
        await now.rounds(2)
        after = {path.name: path.stat().st_ino for path in folder.iterdir()}
        assert {name for name in after if before.get(name) != after[name]} == {
            "topics.json", "topics.json.bak",
        }  # fmt: skip
        assert (folder / "topics.json.bak").read_bytes() == text
        assert now.topics() == {*now.broker.topics}


@pytest.mark.parametrize("before", [True, False])
async def test_offsets_of_a_master_with_light_queues_are_in_both_files(
    tmp_path: Path, log: bytes, *, before: bool
) -> None:
    """A broker reads one of them, by its settings; with RocksDB queues it is the plain one."""
    plain, light = tmp_path / "config" / "consumerOffset.json", "%LMQ%a@%LMQ%g"
    lmq = plain.with_name("lmqConsumerOffset.json")
    if before:
        lmq.parent.mkdir()
        lmq.write_text('{"offsetTable":{},"lmqOffsetTable":{"%LMQ%a@%LMQ%g":3,"%LMQ%b@%LMQ%g":8}}')
    async with scene(tmp_path, log) as here:
        here.broker.offsets = '{"a@g":{0:5}}, "lmqOffsetTable":{"%LMQ%a@%LMQ%g":4}'
        await here.beside.bring_tables(here.client)
    flat = {light: 4} | ({"%LMQ%b@%LMQ%g": 8} if before else {})
    found = json.loads(plain.read_text())
    assert found["offsetTable"] == {"a@g": {"0": 5}} | {key: {"0": at} for key, at in flat.items()}
    assert found["dataVersion"]["counter"] > 0
    found = json.loads(lmq.read_text())
    assert (found["offsetTable"], found["lmqOffsetTable"]) == ({"a@g": {"0": 5}}, flat)


async def test_a_timers_own_log_keeps_its_places(tmp_path: Path, log: bytes) -> None:
    async with scene(tmp_path, log) as now:
        path = tmp_path / "config" / "timercheck"
        path.parent.mkdir()
        own = TIMER_CHECK_POINT.pack(TimerCheck(1, 22, 33, 1, 1, 1, 1))
        path.write_bytes(own.ljust(4096, b"z"))
        now.broker.timer = TIMER_CHECK_POINT.pack(TimerCheck(9, 8, 7, 6, 5, 4, 3))
        await now.rounds()
        data = path.read_bytes()
        assert TIMER_CHECK_POINT.unpack_from(data) == (9, 22, 33, 6, 5, 4, 3)
        assert data[TIMER_CHECK_POINT.size :] == b"z" * (4096 - TIMER_CHECK_POINT.size)
        path.write_bytes(b"short")
        await now.rounds()
        assert "expected 4096 bytes, found 5 bytes" in now.reported[0]
        assert path.read_bytes() == b"short"


async def test_a_broker_without_modes_or_timer_is_none_to_complain_of(
    tmp_path: Path, log: bytes
) -> None:
    async with scene(tmp_path, log) as now:
        for code, answer in ((402, 3), (60, 1), (61, 1)):
            refusal = partial(WireBroker.say, code=answer)
            now.broker.instead[code] = lambda number, _, say=refusal: say(number)  # type: ignore[misc]
        await now.rounds()
        assert (now.reported, now.follower.progress.metadata_fault) == ([], "")
        names = {path.name for path in (tmp_path / "config").iterdir()}
        assert not names & {"messageRequestMode.json", "timercheck", "timermetrics"}


# ---- what goes


@pytest.mark.parametrize("backend", backend_names())
async def test_a_topic_goes_when_two_answers_in_a_row_lack_it(
    tmp_path: Path, log: bytes, backend: str
) -> None:
    async with scene(tmp_path / "own", log, backend) as now:
        broker, store = now.broker, now.store
        broker.topics["unused"] = topic("unused")
        broker.offsets = '{"a@g":{0:1},"b@g":{0:1}}'
        await now.rounds(2)
        del broker.topics["a"], broker.topics["unused"]
        broker.versions[21] += 1
        broker.offsets = '{"b@g":{0:1}}'
        await now.rounds()
        assert {"a", "b", "unused"} <= now.topics()
        assert store.max_offset("a", 0) == 2
        await now.rounds()
        assert now.topics() == {*broker.topics}
        assert {key.topic for key in store.queue_keys()} == {"b"}
        assert now.config("consumerOffset.json")["offsetTable"] == {"b@g": {"0": 1}}
        assert now.reported == [
            f"127.0.0.1:{broker.port}: deleted because the master has deleted them: the topics"
            " a, unused"
        ]
        # Its next incarnation begins at 0, here as there.
        broker.topics["a"] = topic("a")
        broker.versions[21] += 1
        more = next_records(tmp_path / "like", log, "a")
        now.master.append(more)
        await becomes(lambda: now.follower.progress.end == len(log + more))
        await now.rounds(3)
        bodies = [each.body for each in store.get_message("a", 0, 0).messages()]
        assert bodies == [b"anew", b"anew"]
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert [store.max_offset("a", number) for number in range(3)] == [2, 2, 2]
        assert list(store.check()) == []


def without(now: Scene, *names: str) -> None:
    """Let the master lack topics that it had."""
    for name in names:
        del now.broker.topics[name]
    now.broker.versions[21] += 1


async def lost_nothing(now: Scene, rounds: int = 4) -> None:
    await now.rounds(rounds)
    assert {key.topic for key in now.store.queue_keys()} == {"a", "b"}
    assert {"a", "b"} <= now.topics()


async def test_no_topic_goes_by_an_answer_that_is_empty_partial_or_lacks_what_every_broker_has(
    tmp_path: Path, log: bytes
) -> None:
    async with scene(tmp_path, log) as now:
        broker = now.broker
        await now.rounds()
        full = dict(broker.topics)
        broker.topics, broker.versions[21] = {}, 2
        await lost_nothing(now)
        broker.topics, broker.versions[21] = {"b": topic("b")}, 3
        await lost_nothing(now)
        broker.topics, broker.versions[21] = {**full}, 4
        broker.page = 2
        plain = broker.plain
        broker.instead[21] = lambda number, fields: (
            plain(21, number, fields) if fields["topicSeq"] == "0"
            else WireBroker.say(number, code=1)
        )  # fmt: skip
        await lost_nothing(now)
        lacking = "lacks OFFSET_MOVED_EVENT, SCHEDULE_TOPIC_XXXX, SELF_TEST_TOPIC"
        assert lacking in now.reported[0]
        assert "(code 21) with response code 1" in now.reported[-1]
        assert len(now.reported) == 2
        assert now.follower.progress.metadata_fault


async def test_no_topic_goes_that_a_third_answer_has(tmp_path: Path, log: bytes) -> None:
    async with scene(tmp_path, log) as now:
        await now.rounds()
        for _ in range(3):
            without(now, "a")
            await now.rounds()
            now.broker.topics["a"] = topic("a")
            now.broker.versions[21] += 1
            await lost_nothing(now, 1)
        without(now, "a")
        now.broker.instead[351] = lambda number, _fields: WireBroker.say(number, b"{}")
        await lost_nothing(now)
        now.broker.instead[351] = lambda number, _fields: WireBroker.say(number, code=1)
        await lost_nothing(now)
        assert "the request for a topic (code 351) with response code 1" in now.reported[-1]


async def test_no_topic_goes_whose_records_may_be_on_their_way(tmp_path: Path, log: bytes) -> None:
    """What came of it later would leave a gap in a queue that has been deleted."""
    async with scene(tmp_path, half(log)) as now:
        broker = now.broker
        broker.log_end = len(log)
        await now.rounds()
        without(now, "a")
        await lost_nothing(now)
        now.master.append(log[len(half(log)) :])
        await becomes(lambda: now.follower.progress.end == len(log))
        await now.rounds()
        assert {key.topic for key in now.store.queue_keys()} == {"b"}


@pytest.mark.parametrize("known", [True, False])
async def test_no_topic_goes_by_the_word_of_a_broker_that_does_not_list_this_follower(
    tmp_path: Path, log: bytes, *, known: bool
) -> None:
    async with scene(tmp_path, log) as now:
        await now.rounds()
        without(now, "a")
        now.broker.slaves = ["127.0.0.1:1"]
        if not known:
            now.broker.instead[907] = lambda number, _fields: WireBroker.say(number, code=3)
        await lost_nothing(now)
        (reported,) = now.reported
        assert (
            "the master no longer has the topics a, but they are kept: the broker does not list"
            in reported
        )
        assert f"from port {now.follower.progress.port} as a slave" in reported


async def test_a_topic_that_is_newer_than_the_answer_stays(tmp_path: Path, log: bytes) -> None:
    async with scene(tmp_path, log) as now:
        broker, store = now.broker, now.store
        more = next_records(tmp_path / "like", log, "c")

        def grow(code: int, _fields: dict[str, str]) -> None:
            if code == 21 and now.master.end == len(log):
                now.master.append(more)

        broker.before = grow
        await now.rounds()
        await becomes(lambda: now.follower.progress.end == len(log + more))
        assert now.beside._leaving == {}
        assert {key.topic for key in store.queue_keys()} == {"a", "b", "c"}


async def test_groups_and_modes_go_when_two_answers_in_a_row_lack_them(
    tmp_path: Path, log: bytes
) -> None:
    async with scene(tmp_path, log) as now:
        broker = now.broker
        broker.groups |= {name: group(name) for name in ("g", "h")}
        broker.modes = {"a": {"g": {}}, "b": {"g": {}}}
        await now.rounds(2)
        del broker.groups["g"], broker.modes["a"]
        broker.versions[201] += 1
        await now.rounds()
        assert "g" in now.config("subscriptionGroup.json")["subscriptionGroupTable"]
        assert set(now.config("messageRequestMode.json")["messageRequestModeMap"]) == {"a", "b"}
        await now.rounds()
        found = now.config("subscriptionGroup.json")["subscriptionGroupTable"]
        assert found == broker.groups
        assert set(now.config("messageRequestMode.json")["messageRequestModeMap"]) == {"b"}
        assert [reported.partition(": ")[2] for reported in now.reported] == [
            "deleted because the master has deleted them: the groups g",
            "deleted because the master has deleted them: the request modes a",
        ]
        broker.groups, broker.modes = {}, {}
        broker.versions[201] += 1
        await now.rounds(3)
        assert now.config("subscriptionGroup.json")["subscriptionGroupTable"] == found
        assert set(now.config("messageRequestMode.json")["messageRequestModeMap"]) == {"b"}


# ---- offsets


async def test_an_offset_that_is_lower_at_the_master_is_kept_and_told_once(
    tmp_path: Path, log: bytes
) -> None:
    async with scene(tmp_path, log) as now:
        broker = now.broker
        broker.offsets, broker.delays = '{"a@g":{0:2,1:1},"b@g":{0:9}}', "{3:7}"
        await now.rounds()
        broker.offsets, broker.delays = '{"a@g":{0:1,1:2,2:0}}', "{3:6,4:1}"
        await now.rounds(3)
        table = {"a@g": {"0": 2, "1": 2, "2": 0}, "b@g": {"0": 9}}
        assert now.config("consumerOffset.json")["offsetTable"] == table
        assert now.config("delayOffset.json")["offsetTable"] == {"3": 7, "4": 1}
        assert [reported.partition(": ")[2] for reported in now.reported] == [
            "1 consumer offsets are lower at the master than here: the local ones"
            " are kept (--accept-lower-offsets replaces them). a@g 0: 2 here, 1 at the master",
            "1 delay offsets are lower at the master than here: the local ones are kept"
            " (--accept-lower-offsets replaces them). level 3: 7 here, 6 at the master",
        ]
        broker.offsets = '{"a@g":{0:2,1:1}}'
        await now.rounds(2)
        assert "a@g 1: 2 here, 1 at the master" in now.reported[-1]
        broker.offsets = '{"a@g":{0:1,1:2}}'
        await now.rounds(2)
        assert "a@g 0: 2 here, 1 at the master" in now.reported[-1]
        assert len(now.reported) == 4


async def test_an_offset_beyond_the_end_of_its_queue_does_not_outlive_the_masters(
    tmp_path: Path, log: bytes
) -> None:
    """The master deleted the topic, and it is used again: the former offset would skip messages."""
    async with scene(tmp_path, log) as now:
        assert [now.store.max_offset("a", queue) for queue in range(3)] == [2, 2, 2]
        now.broker.offsets = '{"a@g":{0:3,1:2}}'
        await now.rounds()
        now.broker.offsets = '{"a@g":{0:1,1:1}}'
        await now.rounds(2)
        assert now.config("consumerOffset.json")["offsetTable"] == {"a@g": {"0": 1, "1": 2}}
        assert ["kept" in reported for reported in now.reported] == [True, False]
        assert "replaced by the master's. a@g 0: 3 here, 1 at the master" in now.reported[1]


async def test_a_lower_offset_is_taken_where_that_was_asked_for(tmp_path: Path, log: bytes) -> None:
    async with scene(tmp_path, log, accept_lower=True) as now:
        now.broker.offsets = '{"a@g":{0:5,1:5}}'
        await now.rounds()
        now.broker.offsets = '{"a@g":{0:4}}'
        await now.rounds(2)
        assert now.config("consumerOffset.json")["offsetTable"] == {"a@g": {"0": 4, "1": 5}}
        (reported,) = now.reported
        assert (
            "1 consumer offsets are lower at the master than here: replaced by the master's. a@g 0"
        ) in reported


# ---- faults


async def test_a_fault_leaves_what_is_there_and_the_other_tables_come(
    tmp_path: Path, log: bytes
) -> None:
    async with scene(tmp_path, log) as now:
        broker = now.broker
        broker.offsets = '{"a@g":{0:5}}'
        await now.rounds()
        broker.instead[201] = lambda number, _fields: WireBroker.say(number, b"{")
        broker.offsets = '{"a@g":{0:6}}'
        before = (tmp_path / "config" / "subscriptionGroup.json").read_bytes()
        await now.rounds(3)
        assert (tmp_path / "config" / "subscriptionGroup.json").read_bytes() == before
        assert now.config("consumerOffset.json")["offsetTable"] == {"a@g": {"0": 6}}
        (reported,) = now.reported
        assert "cannot read the broker's response for the groups" in reported
        assert reported.endswith("; the local tables are kept, retrying")
        del broker.instead[201]
        await now.rounds()
        assert now.follower.progress.metadata_fault == ""


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"offsetTable":5}', '{"offsetTable":{"a@g":7,"b":{}}}']
)
async def test_a_damaged_file_here_is_told_and_left(tmp_path: Path, log: bytes, text: str) -> None:
    async with scene(tmp_path, log) as now:
        path = tmp_path / "config" / "consumerOffset.json"
        path.parent.mkdir()
        path.write_text(text)
        await now.rounds(2)
        assert path.read_text() == text
        assert str(path) in now.reported[0]
        assert len(now.reported) == 1
        assert now.topics() == {*now.broker.topics}
        path.unlink()
        await now.rounds()
        assert now.config("consumerOffset.json")["offsetTable"] == {}


@pytest.mark.parametrize("how", ["absent", "silent", "cut", "wrong", "refuses"])
async def test_a_broken_broker_does_not_stop_the_log(tmp_path: Path, log: bytes, how: str) -> None:
    async with scene(tmp_path, half(log)) as now:
        broker = now.broker
        for code in (21, 43, 45, 60, 61, 201, 402, 907, 28):
            if how == "silent":
                broker.instead[code] = lambda number, _fields: command(b"{}")[:6]
            elif how == "cut":
                broker.instead[code] = lambda number, _fields: b""
            elif how == "wrong":
                broker.instead[code] = lambda number, _fields: os.urandom(50)
            elif how == "refuses":
                broker.instead[code] = lambda number, _fields: WireBroker.say(number, code=16)
        if how == "absent":
            await broker.__aexit__()
        task = asyncio.create_task(now.beside.run())
        await becomes(lambda: len(now.reported) >= 2)  # of the tables, and of the log's end
        now.master.append(log[len(half(log)) :])
        await becomes(lambda: now.follower.progress.end == len(log))
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert now.follower.progress.lag_bytes in {0, None}
        assert not [*(tmp_path / "config").glob("*")]


async def test_it_is_told_how_many_bytes_are_lacking(tmp_path: Path, log: bytes) -> None:
    async with scene(tmp_path, half(log)) as now:
        progress, broker = now.follower.progress, now.broker
        assert dataclasses.replace(progress, caught_up=True).lag_bytes == 0
        assert dataclasses.replace(progress, caught_up=False).lag_bytes is None
        broker.log_end = len(log)
        await now.beside.fetch_log_end(now.client)
        behind = dataclasses.replace(progress, caught_up=False)
        assert behind.lag_bytes == len(log) - progress.end > 0
        assert dataclasses.replace(behind, end=0).lag_bytes is None
        assert dataclasses.replace(behind, end=len(log) + 1).lag_bytes == 0
        broker.instead[907] = lambda number, _fields: WireBroker.say(number, code=1)
        for _ in range(2):
            await now.beside.fetch_log_end(now.client)
        assert progress.master_end == -1
        (reported,) = now.reported
        assert "the end of the master's log is unknown" in reported
