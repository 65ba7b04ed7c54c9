"""What preflight says of lite queues is what a broker of RocketMQ's then deletes."""

import struct
import time
from pathlib import Path

import pytest

from cqstore.migration.preflight import preflight
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Brokers
from tests.kit.verbs import rows
from tests.kit.waiting import until
from tests.migration.preflight.kit import FakeMachine, names, the
from tests.migration.preflight.test_lite_queues import write_lite_topics

pytestmark = [pytest.mark.interop, pytest.mark.long]
SIZE = 1 << 20
STORE_TIMESTAMP_AT = 56
"""In a record whose hosts are IPv4."""
HOUR_MS = 3_600_000
MIN_TTL_MS = 1000
OLD = (
    "%LMQ%$brief$a", "%LMQ%$brief$b", "%LMQ%$long$a", "%LMQ%$never$a", "%LMQ%$unknown$a",
    "%LMQ%$brief$a$b", "%LMQ%brief$a", "brief",
)  # fmt: skip
"""Topics whose newest message is an hour old."""


def with_old_messages(root: Path) -> None:
    """A store of messages that are an hour old, but for one lite queue's."""
    config = StoreConfig(mapped_file_size_commit_log=SIZE, mapped_file_size_consume_queue=20_000)
    with MessageStore.open(root, config, backend="file") as store:
        at = [store.put_message(Message(topic, b"x")).phy_offset for topic in OLD for _ in range(3)]
        assert store.put_message(Message("%LMQ%$brief$new", b"x")).ok
    then = struct.pack(">q", int(time.time() * 1000) - HOUR_MS)
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        for phy_offset in at:
            file.seek(phy_offset + STORE_TIMESTAMP_AT)
            file.write(then)


def test_a_broker_deletes_the_lite_queues_that_preflight_has_named(
    tmp_path: Path, brokers: Brokers
) -> None:
    root, conf = tmp_path / "s", tmp_path / "broker.conf"
    with_old_messages(root)
    write_lite_topics(root, {"brief": "10", "long": "90", "never": None})
    settings = {
        "minLiteTTl": MIN_TTL_MS, "mappedFileSizeCommitLog": SIZE,
        "mappedFileSizeConsumeQueue": 20_000,
    }  # fmt: skip
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    found = the(preflight(root, broker_conf=conf, machine=FakeMachine()), "lite-queues-expire")
    queues = root / "consumequeue"
    folders = {path.name for path in queues.iterdir()}
    assert folders == {*OLD, "%LMQ%$brief$new"}
    words = ["--clean", "--lite", "--config", conf]
    ours = rows("topics", root, *words)
    with brokers.running(root, **settings):
        until(lambda: not any((queues / name.partition("/")[0]).exists() for name in names(found)))
    gone = folders - {path.name for path in queues.iterdir()}
    assert sorted(f"{name}/0" for name in gone) == sorted(names(found)) != []
    assert gone == {"%LMQ%$brief$a", "%LMQ%$brief$b"}
    assert {row["topic"] for row in ours} == gone
    assert {row["result"] for row in ours} == {"selected"}
