"""Stores go to and fro between us and the other releases of RocketMQ, written from nothing by both.

All that a broker puts is there: tags, keys, unique keys, both kinds of hosts, light queues, delays,
ends of transactions, and the blanks at the ends of files.
"""

import shutil
from itertools import product
from pathlib import Path

import pytest

from cqstore.cli.message_files.dump_rows import message_row, queue_row
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.interop.release import FILE, ROCKSDB, Release
from tests.interop.started import Row
from tests.interop.test_interop import QUEUES, SIZES, write
from tests.kit.commands import run
from tests.kit.long_too import long_too

pytestmark = pytest.mark.interop
BACKENDS = {FILE: "file", ROCKSDB: "rocksdb"}
SETTINGS = {**SIZES, "enableLmq": "true", "enableMultiDispatch": "true"}
CONFIG = StoreConfig.from_mapping(dict(SETTINGS))
DUMPED = [*QUEUES, ("%LMQ%a", 0), ("%LMQ%b", 0), ("SCHEDULE_TOPIC_XXXX", 17)]
RELEASES = [
    ("4.9.8", FILE),
    *(("5.5.0", kind) for kind in BACKENDS),
    ("5.3.3", ROCKSDB),
    *long_too([("5.3.3", FILE), *product(("5.3.4", "5.4.0"), BACKENDS)]),
]
BY_US = 200
_TRANSACTION = 0xC
"""Both bits: rolled back. Such a record has no unit, and no key in the index."""


def equal(root: Path, rows: list[Row]) -> list[Row]:
    """See that all that the release reads is what we read, and nothing else; return its records."""
    kinds: dict[str, list[Row]] = {"message": [], "queue": [], "key": []}
    for row in rows:
        kinds[row.pop("kind")].append(row)
    rolled_back = {
        (row["topic"], key)
        for row in kinds["message"]
        if row["sysFlag"] & _TRANSACTION == _TRANSACTION
        for key in [*row["properties"]["KEYS"].split(" "), row["properties"]["UNIQ_KEY"]]
    }
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        log = components_of(store).log
        records = [
            message_row(StoredMessage(log.view(record.phy_offset, record.size)))
            for record in log.scan(log.min_phy_offset())
        ]
        assert [{field: row[field] for field in kinds["message"][0]} for row in records] == kinds[
            "message"
        ]
        assert {(row["topic"], row["queueId"]) for row in kinds["queue"] if row["max"]} == {
            tuple(key) for key in store.queue_keys()
        }
        for row in kinds["queue"]:
            assert row["pulled"] == [unit[1] for unit in row["units"]]
            if row["max"]:
                ours = queue_row(
                    components_of(store).queues, QueueKey(row["topic"], row["queueId"])
                )
                assert [row[field] for field in ("min", "max", "units")] == [
                    ours[field] for field in ("min", "max", "units")
                ]
        for row in kinds["key"]:
            found = store.query_message(row["topic"], row["key"], 64)
            assert [message.phy_offset for message in found] == sorted(row["phy"])
            assert bool(found) is ((row["topic"], row["key"]) not in rolled_back)
        assert [finding for finding in store.check() if finding.damage] == []
    return kinds["message"]


@pytest.mark.parametrize(("release", "kind"), RELEASES, indirect=["release"])
def test_a_store_that_a_release_began_is_read_and_gone_on_with(
    tmp_path: Path, release: Release, kind: str
) -> None:
    root, copy = tmp_path / "store", tmp_path / "copy"
    written = release.write(root, kind, QUEUES, 400, crash=False, **SETTINGS)
    shutil.copytree(root, copy)
    rows = equal(root, release.dump(copy, kind, DUMPED, **SETTINGS))
    assert [row["phy"] for row in rows] == [row["phy"] for row in written]
    assert run(["check", root]).returncode == 0
    requested = run(["query", root, "--topic", "主题-é", "--key", "java395"])
    assert (requested.returncode, len(requested.stdout.splitlines())) == (0, 1)
    ours = write(root, BACKENDS[kind], BY_US)
    rows = equal(root, release.dump(root, kind, DUMPED, **SETTINGS))
    assert [row["phy"] for row in rows] == [*(row["phy"] for row in written), *ours]


@pytest.mark.parametrize(("release", "kind"), RELEASES, indirect=["release"])
def test_a_store_that_we_began_is_read_and_gone_on_with_by_a_release(
    tmp_path: Path, release: Release, kind: str
) -> None:
    root = tmp_path / "store"
    ours = write(root, BACKENDS[kind], BY_US)
    rows = equal(root, release.dump(root, kind, DUMPED, **SETTINGS))
    assert [row["phy"] for row in rows] == ours
    theirs = release.write(root, kind, QUEUES, 100, crash=True, **SETTINGS)
    with MessageStore.open(root, CONFIG) as store:
        assert not store.last_exit_ok
        for row in theirs:
            message = store.message_by_offset(row["phy"])
            assert (message.topic, message.queue_id) == (row["topic"], row["queueId"])
            assert (message.queue_offset, message.message_id) == (row["queueOffset"], row["msgId"])
    rows = equal(root, release.dump(root, kind, DUMPED, **SETTINGS))
    assert [row["phy"] for row in rows] == [*ours, *(row["phy"] for row in theirs)]
