"""RocketMQ's broker is recorded while it runs, and notices nothing but a connection."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from cqstore.ab.record.broker_recording import BrokerRecording, RecordingPlan
from cqstore.ab.record.missing import Ending
from cqstore.ab.trace.operations import Pull, Put, read_trace
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.follow.master_port import MasterPort
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Broker, Brokers
from tests.kit.waiting import becomes

pytestmark = [pytest.mark.interop, pytest.mark.disk]
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 300}
QUEUES, BEFORE, DURING = 2, 6, 14


async def recorded(broker: Broker, path: Path) -> Ending:
    """Put and consume while a recording runs."""
    plan = RecordingPlan(
        MasterPort("127.0.0.1", broker.ha_port), ("127.0.0.1", broker.port), path, 3600.0, 1 << 20,
        poll_seconds=0.1, timing=Timing(report=0.2),
    )  # fmt: skip
    async with BrokerRecording(plan, print) as recording:
        await recording.begin()
        running = asyncio.create_task(recording.run(lambda _: None))
        found = await asyncio.to_thread(broker.do, "put", "n0", QUEUES, DURING)
        assert found["statuses"] == {"FLUSH_SLAVE_TIMEOUT": DURING}, "nobody acknowledged them"
        await becomes(lambda: recording.facts()["puts"] == DURING)
        await asyncio.to_thread(broker.do, "offset", "n0", "g", 0, 9)
        await becomes(lambda: recording._lines.counts.pulls > 0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return recording.end()


@pytest.mark.parametrize("kind", ["default", "defaultRocksDB"])
def test_a_running_broker_is_recorded(tmp_path: Path, brokers: Brokers, kind: str) -> None:
    root, path = tmp_path / "theirs", tmp_path / "trace"
    with brokers.running(root, storeType=kind, **SIZES, **SYNC) as broker:
        broker.do("topics", "n", 1)
        broker.do("put", "n0", QUEUES, BEFORE)
        broker.do("offset", "n0", "g", 0, 2)
        ending = asyncio.run(recorded(broker, path))
    assert (ending.lost_bytes, ending.resets, ending.failed_polls) == (0, 0, 0)
    operations = read_trace(path).operations
    puts = [each for each in operations if isinstance(each, Put)]
    pulls = [each for each in operations if isinstance(each, Pull)]
    shutil.copytree(root, tmp_path / "copy")
    with MessageStore.open(tmp_path / "copy", StoreConfig.from_mapping(SIZES)) as store:
        sizes: dict[int, list[int]] = {}
        for queue_id in range(QUEUES):
            found = store.get_message("n0", queue_id, 0, 64)
            stored = [StoredMessage(record) for record in found.records][BEFORE // QUEUES :]
            sizes[queue_id] = [len(each.body) for each in stored]
    for queue_id, expected in sizes.items():
        assert [each.size for each in puts if each.queue_id == queue_id] == expected
    assert {each.topic for each in puts} == {"n0"}
    assert sum(map(len, sizes.values())) == DURING
    consumed = [at for each in pulls for at in range(each.offset, each.offset + each.count)]
    assert consumed == list(range(2, 9))
    first = json.loads(path.read_text().splitlines()[0])
    assert first["source"] == "master"
