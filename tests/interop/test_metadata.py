"""A whole broker of RocketMQ's is followed with its metadata; another one then starts on ours."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.synchronize.slave_synchronize import Intervals, SlaveSynchronize
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Broker, Brokers
from tests.kit.long_too import long_too
from tests.kit.running import COMMAND
from tests.kit.waiting import becomes

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
MASTER = {**SIZES, "haSendHeartbeatInterval": 700}
CONFIG = StoreConfig().from_mapping({key: str(value) for key, value in SIZES.items()})
KINDS = {"file": "default", "rocksdb": "defaultRocksDB"}
LIMIT_SECONDS = 200


def filled(broker: Broker, names: int) -> None:
    """Let the broker have ``names`` topics and groups in all, and some of everything else."""
    for what in ("topics", "groups"):
        count = broker.do(what, "first", 1)["count"]
        assert broker.do(what, "n", names - count)["count"] == names
    assert broker.do("put", "n0", 2, 40)["statuses"] == {"PUT_OK": 40}
    for words in (
        ("offset", "n0", "n1", 0, 7), ("offset", "n0", "n1", 1, 9), ("offset", "n2", "n1", 0, 1),
        ("delay", 3, 7), ("delay", 4, 1), ("mode", "n0", "n1"), ("forbid", "n1", "n0"),
    ):  # fmt: skip
        broker.do(*words)


@pytest.mark.parametrize(
    ("backend", "names"),
    [("file", 60), ("rocksdb", 2001), *long_too([("file", 2001), ("rocksdb", 60)])],
)
def test_a_broker_starts_on_what_was_followed_and_knows_all_that_its_master_knew(
    tmp_path: Path, brokers: Brokers, backend: str, names: int
) -> None:
    """A slave of RocketMQ's gets 2000 of 2001 names."""
    conf, own = tmp_path / "broker.conf", tmp_path / "own"
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    with brokers.running(tmp_path / "theirs", **MASTER) as master:
        filled(master, names)
        done = subprocess.run(
            [*COMMAND[:1], "follow", f"127.0.0.1:{master.ha_port}", str(own), "--broker",
             f"127.0.0.1:{master.port}", "--config", str(conf), "--backend", backend,
             "--until-quiet", "--output", "json"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        end = master.do("end")["end"]
        theirs = master.do("metadata")
    assert json.loads(done.stdout)["end"] == end
    assert "the local tables are kept" not in done.stderr
    delays = json.loads((own / "config" / "delayOffset.json").read_text())["offsetTable"]
    assert {level: str(each) for level, each in delays.items()} == theirs.pop("delays")
    with brokers.running(own, storeType=KINDS[backend], **MASTER) as ours:
        assert ours.do("end")["end"] == end
        found = ours.do("metadata")
        found.pop("delays")  # a broker that starts fits them to its queues, and there are none
        versions, known = found.pop("versions"), theirs.pop("versions")
        assert found == theirs
        if backend == "file":  # one that keeps them in RocksDB takes the files in, and counts on
            assert {**versions, "offsets": known["offsets"]} == known
        assert len(found["topics"]) == len(found["groups"]) == names
        assert found["offsets"] == {"n0@n1": "{0=7, 1=9}", "n2@n1": "{0=1}"}
        assert ours.do("put", "n0", 2, 1)["statuses"] == {"PUT_OK": 1}


@pytest.mark.parametrize("backend", backend_names())
def test_a_topic_that_a_broker_deletes_goes_and_its_next_incarnation_comes(
    tmp_path: Path, brokers: Brokers, backend: str
) -> None:
    reported = list[str]()

    async def story(master: Broker) -> None:
        with MessageStore.open(tmp_path / "own", CONFIG, backend=backend) as store:
            follower = Follower(store, "127.0.0.1", master.ha_port, timing=Timing(first_retry=0.01))
            beside = SlaveSynchronize(
                store, follower, "127.0.0.1", master.port, intervals=Intervals(0.1, 0.1),
                on_event=reported.append,
            )  # fmt: skip
            tasks = [asyncio.create_task(follower.run()), asyncio.create_task(beside.run())]
            end = (await asyncio.to_thread(master.do, "end"))["end"]
            await becomes(lambda: follower.progress.end == end)
            await becomes(lambda: follower.progress.master_end == end)
            assert follower.progress.lag_bytes == 0
            await asyncio.to_thread(master.do, "delete", "n0")
            await becomes(lambda: not [*store.queue_keys("n0")])
            assert [*store.queue_keys("n1")]
            await asyncio.to_thread(master.do, "topics", "n", 1)
            end = (await asyncio.to_thread(master.do, "put", "n0", 2, 6))["end"]
            await becomes(lambda: follower.progress.end == end)
            await becomes(lambda: beside._leaving == {} and "n0" in topics(store))
            spans = [(store.min_offset("n0", at), store.max_offset("n0", at)) for at in (0, 1)]
            assert spans == [(0, 3), (0, 3)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    with brokers.running(tmp_path / "theirs", **MASTER) as master:
        filled(master, 60)
        master.do("put", "n1", 2, 10)
        asyncio.run(asyncio.wait_for(story(master), LIMIT_SECONDS))
    assert [
        sentence for sentence in reported if "the master has deleted them" not in sentence
    ] == []
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert store.max_offset("n0", 0) == 3
        assert list(store.check()) == []


def topics(store: MessageStore) -> set[str]:
    return {*json.loads(components_of(store).paths.topics.read_text())["topicConfigTable"]}
