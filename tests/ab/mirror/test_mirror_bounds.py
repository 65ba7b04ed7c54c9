"""A mirror that has too much to do, fails, or has nothing to ask; and the shares of reads."""

from pathlib import Path
from typing import Any

import pytest

from cqstore.ab.mirror import mirror as mirror_module
from cqstore.ab.mirror.mirror import MirrorSnapshot
from cqstore.ab.mirror.mismatches import read_mismatches
from cqstore.ab.mirror.shares import Shares
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.double_write import OTHER, StoredOffsets, open_store, refuse
from tests.kit.mirrored import (
    by_hand,
    drive,
    figures,
    mirror_of,
    open_mirrored,
    outcomes,
    outcomes_of,
    read_all,
)
from tests.kit.queue_of import QUEUES_OF
from tests.kit.waiting import until

BOTH = list(OTHER)
SAME, EXPLAINED, DIFFERENT = ReadOutcome.SAME, ReadOutcome.EXPLAINED, ReadOutcome.DIFFERENT


def test_more_reads_than_can_wait_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "MAX_WAITING", 5)
    for opening in (1, 2):
        with open_mirrored(tmp_path) as store:
            for _ in range(12):
                store.max_offset("t", 0)
            assert drive(store) == 5
            assert figures(store).dropped == 7 * opening
            assert figures(store).dropped == 7 * opening
    assert outcomes_of(tmp_path) == {SAME: 10}


@pytest.mark.parametrize(("bound", "most"), [("MAX_KEPT", 3), ("MAX_BYTES", 450)])
def test_the_journal_keeps_the_first_of_each_place_and_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(f"cqstore.ab.mirror.mismatches.{bound}", most)
    for opening in (1, 2):
        with open_mirrored(tmp_path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(QUEUES_OF["rocksdb"], "min_offset", lambda *_: 7)
                for queue_id in (0, 0, 1, 2, 3):
                    store.min_offset(f"t{opening}", queue_id)
                drive(store)
            assert outcomes(store) == {DIFFERENT: 5 * opening}
            kept = read_mismatches(components_of(store).paths.ab_differences)
            assert [each.queue for each in kept] == [("t1", 0), ("t1", 1), ("t1", 2)]


def test_a_mirror_that_fails_ends_and_the_store_goes_on(tmp_path: Path) -> None:
    with open_mirrored(tmp_path) as store:
        StoredOffsets().put(store, 5)
        figures_file = components_of(store).paths.ab_figures
    figures_file.write_bytes(b"no figures\n")
    with open_mirrored(tmp_path) as store:
        until(lambda: bool(mirror_of(store).snapshot().failure))
        snapshot = store.metrics.snapshot().interceptor
        assert isinstance(snapshot, MirrorSnapshot)
        assert "figures" in snapshot.failure
        read_all(store)
        assert snapshot.waiting == len(mirror_of(store)._waiting) == 0
        assert store.put_message(Message("t", b"x")).ok
    assert figures_file.read_bytes() == b"no figures\n"
    figures_file.unlink()
    with open_mirrored(tmp_path) as store:
        assert store.last_exit_ok
        assert store.max_offset("t", 0) == 2
        until(lambda: outcomes(store) == {SAME: 1})


def test_a_torn_end_of_the_journal_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    for opening in (1, 2):
        with open_mirrored(tmp_path) as store, monkeypatch.context() as patch:
            patch.setattr(QUEUES_OF["rocksdb"], "min_offset", lambda *_: 7)
            store.min_offset(f"t{opening}", 0)
            drive(store)
        journal = components_of(store).paths.ab_differences
        kept = read_mismatches(journal)
        assert [each.queue.topic for each in kept] == [f"t{n + 1}" for n in range(opening)]
        with journal.open("ab") as file:
            file.write(journal.read_bytes()[:40])
        assert read_mismatches(journal) == kept


def test_a_journal_that_is_damaged_ends_the_mirror_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        monkeypatch.setattr(QUEUES_OF["rocksdb"], "min_offset", lambda *_: 7)
        store.min_offset("t", 0)
        store.min_offset("u", 0)
        drive(store)
    data = components_of(store).paths.ab_differences.read_bytes()
    components_of(store).paths.ab_differences.write_bytes(data[:20] + b"?" + data[21:])
    with open_mirrored(tmp_path) as store:
        assert "journal" in mirror_of(store).snapshot().failure
        assert store.put_message(Message("t", b"x")).ok


def test_a_backend_that_is_detached_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path) as store:
        StoredOffsets().put(store, 5)
        drive(store)
        store.max_offset("t", 0)
        with monkeypatch.context() as patch:
            refuse(patch, "rocksdb", "put_batch")
            store.put_message(Message("t", b"x"))
            assert store.max_offset("t", 0) == 2
        assert list(store.detached_backends()) == ["rocksdb"]
        store.max_offset("t", 0)
        assert drive(store) == 1
        assert outcomes(store) == {SAME: 1, ReadOutcome.GONE: 1}


@pytest.mark.parametrize(
    ("changes", "mirrors"),
    [
        ({}, 0),
        ({"ab_share": 0.5}, 1),
        ({"ab_shares": "orders=0.1"}, 1),
        ({"ab_shares": "orders=0"}, 0),
        ({"ab_share": 1, "rocksdb_cq_double_write_enable": False}, 0),
    ],
)
def test_nothing_is_made_or_asked_unless_a_share_is_given(
    tmp_path: Path, changes: dict[str, Any], mirrors: int
) -> None:
    with open_store(tmp_path, **changes) as store:
        assert (store._interceptor is not None) == bool(mirrors)
        assert (store.metrics.snapshot().interceptor is not None) == bool(mirrors)
        store.max_offset("t", 0)
    assert (tmp_path / "cqstore" / "ab").exists() == bool(mirrors)


def test_a_read_only_store_mirrors_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        StoredOffsets().put(store, 5)
    config = store.config.model_copy(update={"ab_share": 1.0})
    with MessageStore.open(tmp_path, config, read_only=True) as store:
        assert len(components_of(store).queues.backends()) == 2
        assert store._interceptor is None


def test_light_queues_that_lie_apart_have_no_other_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(
        tmp_path, enable_lmq=True, enable_multi_dispatch=True, combine_cq_use_rocksdb_for_lmq=True
    ) as store:
        store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%a"}))
        assert store.max_offset("%LMQ%a", 0) == 1
        assert store.get_message("%LMQ%a", 0, 0).queue_offsets == [0]
        assert drive(store) == 0
        assert store.max_offset("t", 0) == 1
        assert drive(store) == 1


# ---- shares


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_a_share_of_reads_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(mirror_module, "MAX_WAITING", 1 << 20)
    with open_mirrored(tmp_path, ab_share=share) as store:
        for _ in range(20_000):
            store.max_offset("t", 0)
        assert len(mirror_of(store)._waiting) == pytest.approx(20_000 * share, rel=0.4)


def test_classes_of_topics_have_shares_of_their_own() -> None:
    config = StoreConfig.from_mapping(
        {"abShare": "0.5", "abShares": "%RETRY%*=0; %DLQ%*=1 ;orders=0.25;a=b=0.1"}
    )
    shares = Shares(config.ab_share, config.ab_share_classes)
    topics = {"%RETRY%g": 0, "%DLQ%g": 1, "orders": 0.25, "orders2": 0.5, "a=b": 0.1, "x": 0.5}
    assert {topic: shares.of(topic) for topic in [*topics] * 2} == topics
    assert shares.max_share == 1
    drawn = sum(shares.samples("orders") for _ in range(20_000))
    assert drawn == pytest.approx(5_000, rel=0.2)
    assert not any(shares.samples("%RETRY%g") for _ in range(100))


@pytest.mark.parametrize("text", ["orders", "orders=", "=0.5", "orders=2", "orders=x", "a=1;b=-1"])
def test_shares_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(StoreConfigError, match="share"):
        StoreConfig.from_mapping({"abShares": text})
    for bad in ("-0.1", "1.1", "x"):
        with pytest.raises(StoreConfigError, match="abShare"):
            StoreConfig.from_mapping({"abShare": bad})
