"""The figures as Prometheus reads them."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.metrics.prometheus import register
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.double_write import StoredOffsets
from tests.kit.mirrored import open_mirrored, outcomes
from tests.kit.waiting import until

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, rocksdb_memory_bytes=16 << 20)


def scrape(registry: Collector) -> list[Sample]:
    text = generate_latest(registry).decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation for family in families)
    return [sample for family in families for sample in family.samples]


def one(samples: list[Sample], name: str, **labels: str) -> float:
    wanted = labels.items()
    (value,) = [s.value for s in samples if s.name == name and wanted <= s.labels.items()]
    return value


def test_what_was_done_is_what_is_scraped(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    roots = [tmp_path / "a", tmp_path / "b"]
    with (
        MessageStore.open(roots[0], CONFIG) as first,
        MessageStore.open(roots[1], CONFIG, backend="rocksdb") as second,
    ):
        collector = register(first, second, registry=registry)
        done = first.put_message(Message("t", b"x"))
        first.put_message(Message("", b"x"))
        first.put_messages([Message("t", b"x")] * 2)
        second.get_message("none", 0, 0)
        samples = scrape(registry)
        a, b = map(str, roots)
        assert done.appended is not None
        assert one(samples, "cqstore_up", store=a) == one(samples, "cqstore_up", store=b) == 1
        assert one(samples, "cqstore_put_messages_total", store=a) == 3
        assert one(samples, "cqstore_put_bytes_total", store=a) == 3 * done.appended.size
        assert one(samples, "cqstore_put_fallbacks_total", store=a) == 1  # the first of its queue
        assert one(samples, "cqstore_put_messages_total", store=b) == 0
        assert one(samples, "cqstore_put_fallbacks_total", store=b) == 0
        assert one(samples, "cqstore_put_not_ok_total", store=a, status="MESSAGE_ILLEGAL") == 1
        assert one(samples, "cqstore_gets_total", store=b, status="NO_MESSAGE_IN_QUEUE") == 1
        assert one(samples, "cqstore_rocksdb_memtable_bytes", store=b, part="offset") > 0
        assert 0 < one(samples, "cqstore_disk_used_ratio", store=a, folder="queues") < 1
        for call, count in (("one", 1), ("list", 1)):
            buckets = [
                sample.value
                for sample in samples
                if sample.name == "cqstore_put_seconds_bucket"
                and sample.labels.items() >= {"store": a, "call": call}.items()
            ]
            assert buckets == sorted(buckets)
            assert buckets[-1] == one(samples, "cqstore_put_seconds_count", store=a, call=call)
            assert buckets[-1] == count
    samples = scrape(registry)
    assert [s.value for s in samples if s.name == "cqstore_up"] == [0, 0]
    assert {s.name for s in samples} == {"cqstore_up"}
    registry.unregister(collector)
    assert scrape(registry) == []


def test_a_registry_takes_one_collector(tmp_path: Path) -> None:
    registry = CollectorRegistry(auto_describe=True)
    with MessageStore.open(tmp_path, CONFIG) as store:
        register(store, registry=registry)
        with pytest.raises(StoreConfigError, match="Register all stores of a process in one call"):
            register(store, registry=registry)
        assert one(scrape(registry), "cqstore_up") == 1


def test_a_mirror_is_scraped_beside_the_rest(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with open_mirrored(tmp_path / "a") as store, MessageStore.open(tmp_path / "b") as plain:
        register(store, plain, registry=registry)
        StoredOffsets().put(store, 10)
        for number in range(50):
            store.get_message("t", number % 5, 0)
        until(lambda: outcomes(store) == {ReadOutcome.SAME: 51})
        samples = scrape(registry)
        root, names = str(store.root), ("cqstore_ab_waiting", "cqstore_ab_failed")
        assert one(samples, "cqstore_ab_reads_total", op="pull", outcome="same") == 50
        assert one(samples, "cqstore_ab_dropped_total") == 0
        assert [one(samples, name) for name in names] == [0, 0]
        labels = {"op": "pull", "side": "file", "way": "served"}
        assert one(samples, "cqstore_ab_seconds_count", **labels) == 50
        assert one(samples, "cqstore_ab_seconds_bucket", le="+Inf", **labels) == 50
        mine = [each for each in samples if each.name.startswith("cqstore_ab_")]
        assert {each.labels["store"] for each in mine} == {root}
