"""``cqstore rocksdb``: its answers about golden stores, and what it leaves alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.cq_rocksdb.folders import log_folder
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.cli.test_commands import lines
from tests.kit.commands import cqstore
from tests.kit.engines import ENGINES
from tests.kit.golden import load_dump
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
NAME = "basic-defaultRocksDB"


def facts(root: Path, *options: object) -> dict[tuple[str, str], object]:
    rows = lines(cqstore("rocksdb", "stats", root, "--output", "jsonl", *options))
    return {(str(row["part"]), str(row["fact"])): row["value"] for row in rows}


@pytest.mark.parametrize("engine", ENGINES)
def test_stats_and_audit_tell_of_rocketmqs_database_and_change_no_byte(
    golden: Golden, tmp_path: Path, engine: str
) -> None:
    root, dump = golden(NAME), load_dump(NAME)
    before = tree_digest(root)
    conf = tmp_path / "conf"
    conf.write_text(f"rocksdbEngine={engine}\n")
    found = facts(root, "--config", conf)
    (families,) = [raw for path, raw in dump["rocksdbRaw"].items() if path.startswith("consume")]
    for family, rows in families.items():
        assert found[family, "keys (estimate)"] == len(rows)
    assert found["database", "engine"] == engine
    done = cqstore("rocksdb", "audit", root, "--config", conf, "--output", "jsonl")
    assert lines(done) == []
    assert (
        f"{len(dump['queues'])} queues, {len(families['default'])} units; 0 units below"
        in done.stderr
    )
    assert tree_digest(root) == before


def test_stats_tell_of_cache_hits_as_rocksdb_logged_them(tmp_path: Path) -> None:
    root = tmp_path / "store"
    MessageStore.open(root, backend="rocksdb").close()
    log = log_folder(StorePaths(root)) / "x_LOG"
    log.write_text(
        "2026/11/21-07:52:24.003748 1397 [db/db_impl/db_impl.cc:795] STATISTICS:\n"
        " rocksdb.block.cache.miss COUNT : 3\nrocksdb.block.cache.hit COUNT : 0\n"
        "rocksdb.compaction.key.drop.user COUNT : 0\n"
        "rocksdb.db.get.micros P50 : 0.5 P95 : 0.9 P99 : 1 P100 : 1 COUNT : 3 SUM : 2\n"
    )
    logged = {fact: value for (part, fact), value in facts(root).items() if "logged at 20" in part}
    assert logged["block cache misses"] == 3
    assert logged["block cache hits"] == logged["units dropped by the filter"] == 0


def test_the_largest_topics_come_first(golden: Golden) -> None:
    found = facts(golden(NAME), "--topics", 2)
    sizes = [int(str(value)) for (part, _), value in found.items() if part.startswith("topic ")]
    assert len(sizes) == 2
    assert sizes == sorted(sizes, reverse=True)


def test_an_engine_that_knows_no_sizes_of_topics_says_so_once(
    golden: Golden, tmp_path: Path
) -> None:
    conf = tmp_path / "conf"
    conf.write_text("rocksdbEngine=rocksdict\n")
    done = cqstore("rocksdb", "stats", golden(NAME), "--topics", 2, "--config", conf)
    assert done.stderr.count("does not report topic sizes") == 1


def test_an_audit_finds_what_was_lost_and_what_nobody_owns(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536)
    with MessageStore.open(root, config, backend="rocksdb") as store:
        for topic in ("known", "unknown", "RMQ_SYS_TRACE_TOPIC"):
            assert store.put_message(Message(topic, b"x")).ok
        while store.max_phy_offset() < 2 * 65536:
            store.put_message(Message("known", b"x" * 1000))
    sorted((root / "commitlog").iterdir())[0].unlink()
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable": {"known": {}}}')
    done = cqstore("rocksdb", "audit", root, "--output", "jsonl")
    assert [(row["severity"], row["topic"]) for row in lines(done)] == [("note", "unknown")]
    assert "; 0 units below" not in done.stderr
    (root / "config" / "topics.json").write_text("[]")
    assert (
        "the broker's topics cannot be read from the form json"
        in cqstore("rocksdb", "audit", root, code=1).stderr
    )


def test_a_compaction_drops_what_expired_and_says_so(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = StoreConfig(mapped_file_size_commit_log=65536)
    with MessageStore.open(root, config, backend="rocksdb") as store:
        while store.max_phy_offset() < 2 * 65536:
            store.put_message(Message("t", b"x" * 1000))
        first_kept = next(components_of(store).log.scan(65536)).queue_offset
    sorted((root / "commitlog").iterdir())[0].unlink()
    report = json.loads(cqstore("rocksdb", "compact", root, "--output", "json").stdout)
    assert (report["ended"], report["droppedUnits"]) == ("done", first_kept)
    assert "; 0 units below" in cqstore("rocksdb", "audit", root).stderr
    with MessageStore.open(root, config) as store:
        assert store.min_offset("t", 0) == first_kept
