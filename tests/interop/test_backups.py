"""A real broker is backed up while it takes messages; one that starts on the backup goes on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cqstore.broker.metadata.forms import read_forms
from cqstore.store.paths import StorePaths
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.backup import back_up
from cqstore.store.service.offline.backup_manifest import compare
from cqstore.store.settings.config import StoreConfig
from tests.interop.asking import consumer_offset, max_offset
from tests.interop.brokers import Brokers
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.long]
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
SOON = {"flushConsumerOffsetInterval": 200}
QUEUES = (0, 1)


def is_written(root: Path) -> bool:
    """Return whether the broker has written the offset of its only group, in whatever form."""
    forms = read_forms(StorePaths(root))
    return any("n0@g" in each.offsets for each in forms if not each.faults)


@pytest.mark.parametrize("kind", ["default", "defaultRocksDB"])
def test_a_broker_goes_on_on_the_backup_of_a_running_one(
    tmp_path: Path, brokers: Brokers, kind: str
) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    config = StoreConfig.from_mapping({key: str(value) for key, value in SIZES.items()})
    with brokers.running(root, storeType=kind, **SIZES, **SOON) as broker:
        broker.do("topics", "n", 2)
        broker.do("put", "n0", 2, 400)
        broker.do("offset", "n0", "g", 0, 7)
        until(lambda: is_written(root))
        count = 400
        before = [max_offset(broker, "n0", queue_id) for queue_id in QUEUES]
        with ThreadPoolExecutor(1) as pool:
            backup = pool.submit(back_up, root, copy, config)
            while not backup.done():
                broker.do("put", "n0", 2, 50)
                count += 50
    manifest = backup.result()
    assert (manifest.was_open, manifest.damaged_at) == (True, None)
    assert list(compare(copy, manifest)) == []
    with brokers.running(copy, storeType=kind, **SIZES) as broker:
        found = [max_offset(broker, "n0", queue_id) for queue_id in QUEUES]
        assert consumer_offset(broker, "g", "n0", 0) == 7
        assert broker.do("put", "n0", 2, 10)["statuses"] == {"PUT_OK": 10}
    assert all(map(int.__le__, before, found))
    assert sum(found) <= count
    with MessageStore.open(copy, config, read_only=True) as store:
        for queue_id, end in zip(QUEUES, found, strict=True):
            offset, bodies = 0, []
            while pulled := store.get_message("n0", queue_id, offset).messages():
                bodies += [message.body for message in pulled]
                offset = pulled[-1].queue_offset + 1
            assert len(bodies) == end + 5
        assert [finding for finding in store.check() if finding.damage] == []
