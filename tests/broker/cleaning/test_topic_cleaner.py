"""The service: rounds of an open store, its report and figures, its end with the store."""

import gc
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cqstore import CleaningRule, CleaningRules, clean_topics
from cqstore.broker.cleaning import report as report_module
from cqstore.broker.cleaning.cleaning_round import delete_from_store
from cqstore.broker.cleaning.tables import newest_tables
from cqstore.broker.cleaning.topic_cleaner import TopicCleaner
from cqstore.metrics.prometheus import register
from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import (
    ReadOnlyStoreError,
    RefusedStoreError,
    StoreClosedError,
    StoreConfigError,
    StoreIOError,
)
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.runtime.environment import Environment
from tests.broker.cleaning.kit import fill, there
from tests.kit.waiting import until
from tests.store.service.test_prometheus import one, scrape

UNUSED = CleaningRules(unused=True)
GONE = {"gone", "gone-read"}
KEPT = {"backlog": 2, "dead-letters": 1, "system-topic": 1}
LATER = 3600.0


@pytest.fixture(params=backend_names())
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    fill(tmp_path / "s", request.param)
    with MessageStore.open(tmp_path / "s", housekeeping=False) as opened:
        yield opened


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "cqstore-clean"]


def test_a_round_at_once_has_a_report_and_figures(store: MessageStore) -> None:
    before = there(store)
    cleaner = clean_topics(store, UNUSED, every=LATER)
    first = cleaner.report
    assert first is None
    assert store.metrics.snapshot().cleaning == (True, 0, 0, {}, 0, 0, {}, 0.0)
    began = time.time()
    report = cleaner.run()
    assert cleaner.report is report
    assert (report.is_dry_run, report.is_complete, report.error) == (True, True, None)
    assert began <= report.began <= report.ended <= time.time()
    assert (report.examined, report.selected) == (len(before), {CleaningRule.UNUSED: 2})
    assert (report.queues, report.messages, report.omitted) == (4, 4, 0)
    assert report.queue_bytes == sum(each.queue_bytes for each in report.topics if not each.kept)
    assert {kept.value: count for kept, count in report.kept.items()} == KEPT
    assert there(store) == before
    found = store.metrics.snapshot().cleaning
    assert found == (True, 1, 0, {}, 0, 2, KEPT, report.ended)
    cleaner.stop()
    with pytest.raises(StoreClosedError):
        cleaner.run()
    assert cleaner.report is report


def test_a_round_that_deletes_is_counted(store: MessageStore) -> None:
    before = there(store)
    cleaner = clean_topics(store, UNUSED, every=LATER, dry_run=False)
    report = cleaner.run()
    assert before.keys() - there(store).keys() == GONE
    assert {each.topic for each in report.topics if each.kept is None} == GONE
    found = store.metrics.snapshot().cleaning
    assert found is not None
    assert (found.topics, found.queue_bytes) == ({"unused": 2}, report.queue_bytes)
    assert cleaner.run().selected == {}
    found = store.metrics.snapshot().cleaning
    assert found is not None
    assert (found.rounds, found.topics, found.selected) == (2, {"unused": 2}, 0)


def test_its_thread_makes_rounds_until_the_store_is_closed(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cqstore")
    before = there(store).keys()
    cleaner = clean_topics(store, UNUSED, every=0.001, dry_run=False)
    until(lambda: cleaner.figures().rounds >= 3)
    assert before - there(store).keys() == GONE
    assert "topic 'gone' deleted (unused)" in caplog.text
    assert f"2 of {len(before)} topics deleted, 4 kept" in caplog.text
    with pytest.raises(StoreConfigError, match="topics are already being cleaned"):
        clean_topics(store, UNUSED)
    store.close()
    assert threads() == []
    assert cleaner.is_stopped
    assert cleaner.figures().failures == 0
    with pytest.raises(StoreClosedError):
        clean_topics(store, UNUSED)
    with pytest.raises(StoreClosedError):
        cleaner.run()


def test_a_dropped_store_ends_its_service(tmp_path: Path) -> None:
    fill(tmp_path, "file")
    store = MessageStore.open(tmp_path, housekeeping=False)
    cleaner = clean_topics(store, UNUSED, every=LATER)
    cleaner.run()
    kept = [store]
    del store

    def drop() -> None:
        kept.clear()
        gc.collect()
        until(lambda: cleaner.is_stopped)  # its thread may still have held the store

    with pytest.warns(ResourceWarning, match="was not closed"):
        drop()
    assert cleaner.is_stopped
    until(lambda: threads() == [])


class _Stopping(Environment):
    """Stops a service when it waits between two slices."""

    def __init__(self) -> None:
        self.stops = False

    def wait(self, stop: Latch, seconds: float) -> bool:
        if seconds > 0 and self.stops:
            stop.set()
        return stop.is_set()


def test_a_stop_ends_a_round_after_the_slice_in_progress(store: MessageStore) -> None:
    machine, paths = _Stopping(), components_of(store).paths
    rules = CleaningRules(unused=True, lagging=True, topics_per_second=1)
    cleaner = TopicCleaner(
        store, rules, LATER, lambda: newest_tables(paths), delete_from_store, machine
    )
    machine.stops = True
    report = cleaner.run()
    assert (report.is_complete, report.error) == (False, None)
    assert report.selected == {CleaningRule.UNUSED: 1}


def test_a_damaged_table_fails_a_round_and_not_the_service(store: MessageStore) -> None:
    table = components_of(store).paths.config / "topics.json"
    whole, before = table.read_text(), there(store)
    table.write_text(whole[:-30])
    cleaner = clean_topics(store, UNUSED, every=0.001, dry_run=False)
    until(lambda: cleaner.figures().failures >= 2)
    report = cleaner.report
    assert report is not None
    assert isinstance(report.error, RefusedStoreError)
    assert not report.is_complete
    assert there(store) == before
    table.write_text(whole)
    until(lambda: there(store).keys() == before.keys() - GONE)
    cleaner.stop()
    table.write_text(whole[:-30])
    again = clean_topics(store, UNUSED, every=LATER, dry_run=False)
    with pytest.raises(RefusedStoreError, match="cannot clean topics"):
        again.run()


def test_a_failed_deletion_is_in_the_report_and_ends_the_service(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_topics: object) -> None:
        raise StoreIOError("no disk")

    monkeypatch.setattr(components_of(store).queues, "delete_topics", refuse)
    cleaner = clean_topics(store, UNUSED, every=0.001, dry_run=False)
    until(lambda: not cleaner.worker._thread.is_alive())
    assert cleaner.figures().failures == 2  # the disk, then a store that accepts no writes
    assert cleaner.figures().topics == {}
    assert store.metrics.snapshot().failed


def test_a_report_names_the_first_topics_and_counts_all(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_module, "MAX_TOPICS", 2)
    report = clean_topics(store, UNUSED, every=LATER).run()
    assert (len(report.topics), report.omitted) == (2, 4)
    assert sum(report.selected.values()) + sum(report.kept.values()) == 6


def test_what_it_did_is_scraped(store: MessageStore) -> None:
    registry, root = CollectorRegistry(), str(store.root)
    register(store, registry=registry)
    assert not [each for each in scrape(registry) if each.name.startswith("cqstore_clean")]
    cleaner = clean_topics(store, UNUSED, every=LATER, dry_run=False)
    report = cleaner.run()
    samples = scrape(registry)
    assert one(samples, "cqstore_cleaned_topics_total", store=root, rule="unused") == 2
    assert one(samples, "cqstore_cleaned_queue_bytes_total", store=root) == report.queue_bytes
    assert one(samples, "cqstore_clean_rounds_total", store=root) == 1
    assert one(samples, "cqstore_clean_failures_total", store=root) == 0
    assert one(samples, "cqstore_clean_selected", store=root) == 2
    assert one(samples, "cqstore_clean_kept", store=root, reason="backlog") == 2
    assert one(samples, "cqstore_clean_last_seconds", store=root) == report.ended


def test_a_read_only_store_can_only_be_reported(tmp_path: Path) -> None:
    fill(tmp_path, "file")
    with MessageStore.open(tmp_path, read_only=True) as store:
        with pytest.raises(ReadOnlyStoreError):
            clean_topics(store, UNUSED, dry_run=False)
        report = clean_topics(store, UNUSED, every=LATER).run()
        assert report.selected == {CleaningRule.UNUSED: 2}


@pytest.mark.parametrize("every", [0, -1.0])
def test_an_interval_is_above_zero(tmp_path: Path, every: float) -> None:
    with (
        MessageStore.open(tmp_path) as store,
        pytest.raises(StoreConfigError, match="expected more than 0 seconds"),
    ):
        clean_topics(store, UNUSED, every=every)
