"""A whole broker with double write: what it needs to start, and its queues in both backends."""

from pathlib import Path

import pytest

from cqstore.migration.preflight.broker_conf_check import lint
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.broker_keys import parse_version
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import VERSION, Brokers

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
DOUBLE = {"rocksdbCQDoubleWriteEnable": "true"}
STARTS = DOUBLE | {"combineCQUseRocksdbForLmq": "true"}
ASSIGNS = {"combineAssignOffsetCQType": "defaultRocksDB"}
READS = {"combineCQPreferCQType": "defaultRocksDB"}


@pytest.mark.parametrize("read", [{}, READS], ids=["file", "rocksdb"])
def test_both_backends_have_what_a_broker_with_double_write_put(
    tmp_path: Path, brokers: Brokers, read: dict[str, str]
) -> None:
    settings = SIZES | STARTS | read
    with brokers.running(tmp_path, **settings) as broker:
        assert broker.do("put", "orders", 2, 400)["statuses"] == {"PUT_OK": 400}
        keys = broker.do("read", "orders")["keys"]
    config = StoreConfig.from_mapping({key: str(value) for key, value in settings.items()})
    found = {}
    for backend in backend_names():
        with MessageStore.open(tmp_path, config, backend=backend, read_only=True) as store:
            assert [finding for finding in store.check() if finding.damage] == []
            queues = {}
            for queue in range(2):
                low, high = store.min_offset("orders", queue), store.max_offset("orders", queue)
                assert (low, high) == (0, 200)
                messages: list[tuple[str, bytes]] = []
                while len(messages) < high:
                    got = store.get_message("orders", queue, len(messages), 32)
                    messages += [(each.properties["KEYS"], bytes(each.body))
                                 for each in got.messages()]  # fmt: skip
                queues[queue] = messages
            found[backend] = queues
    assert found["file"] == found["rocksdb"]
    assert [key for queue in found["file"].values() for key, _ in queue] == keys
    with MessageStore.open(tmp_path, config) as store:
        assert store.verify().is_clean
    with brokers.running(tmp_path, **settings) as broker:
        assert broker.do("put", "orders", 2, 2)["statuses"] == {"PUT_OK": 2}
        assert len(broker.do("read", "orders")["keys"]) == 402


@pytest.mark.parametrize("settings", [DOUBLE, STARTS | ASSIGNS, STARTS])
def test_preflight_warns_of_the_settings_with_which_a_broker_ends(
    tmp_path: Path, brokers: Brokers, settings: dict[str, str]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    conf = BrokerConf.read(path)
    warned = [each.code for each in lint(conf, parse_version(VERSION), "rocksdb")]
    try:
        with brokers.running(tmp_path / "store", **SIZES, **settings) as broker:
            started = broker.do("put", "orders", 2, 1)["statuses"] == {"PUT_OK": 1}
    except AssertionError as exc:
        assert "the broker has ended" in str(exc)  # noqa: PT017 - it ends before its first answer
        started = False
    assert started == (settings == STARTS) == ("double-write-no-start" not in warned)
