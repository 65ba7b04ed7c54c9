"""What a side writes by its backend's own count: over all of its stores, judged, and told."""

from pathlib import Path

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import ComparedFigure, Outcome
from cqstore.ab.judging.paired_rounds import written_by_cause
from cqstore.ab.report.report_page import page
from cqstore.ab.results.result import Result
from cqstore.ab.stores.side_store import SideStore
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.ab.made_result import Truth, made_result
from tests.ab.made_store import make_varied_store
from tests.ab.running import compare, workload


def put(store: MessageStore, count: int = 500) -> None:
    store.put_messages([Message("T", b"x", at % 4, {}, born_timestamp=1) for at in range(count)])
    store.max_offset("T", 0)
    store.flush()


@pytest.mark.disk
def test_what_stores_of_a_side_have_written_is_added_up(tmp_path: Path) -> None:
    side = SideStore(tmp_path / "side", "rocksdb", StoreConfig())
    assert not side.written()
    side.open()
    put(side.store)
    first = side.written()
    assert first["flush"] > 0
    side.close()
    assert side.written() == first
    with side.open_at(tmp_path / "other") as store:
        put(store)
        of_the_other = components_of(store).queues.written_bytes()
        side.count_written(store)
    side.open()  # counts from nothing again
    assert side.written()["flush"] == first["flush"] + of_the_other["flush"]
    side.close()


@pytest.mark.disk
def test_files_count_nothing(tmp_path: Path) -> None:
    side = SideStore(tmp_path / "side", "file", StoreConfig())
    side.open()
    put(side.store)
    assert not side.written()
    side.close()


def with_counts(made: Result, **counts: int) -> Result:
    """A result whose sides have flushed so many bytes an item, and compacted as many."""
    for each in made.workloads:
        each.rounds = [
            turn.model_copy(
                update={
                    "backend_written": {
                        "flush": counts[turn.side] * turn.items,
                        "compaction": counts[turn.side] * turn.items,
                    }
                }
            )
            if turn.side in counts
            else turn
            for turn in each.rounds
        ]
    return made


def counted(made: Result) -> ComparedFigure:
    (one,) = judge(made).workloads
    found = one.of("rocksdb", "counted")
    assert found is not None
    return found


@pytest.fixture
def made() -> Result:
    return made_result(3, Truth(), workloads=["dispatch"], histograms=False)


def test_a_side_that_counts_beside_one_that_does_not_is_shown_and_not_judged(made: Result) -> None:
    reported = counted(with_counts(made, rocksdb=21))
    assert reported.value == pytest.approx(42)
    assert (reported.reference, reported.ratio) == (None, None)
    assert reported.outcome is Outcome.SHOWN
    assert "does not count" in reported.why


def test_sides_that_both_count_are_compared(made: Result) -> None:
    given = {"files": 20, "files-again": 20, "rocksdb": 30}
    reported = counted(with_counts(made, **given))
    assert reported.ratio == pytest.approx(1.5)
    assert reported.outcome is Outcome.WORSE


def test_a_result_without_counts_says_nothing_of_them(made: Result) -> None:
    (one,) = judge(made).workloads
    assert one.of("rocksdb", "counted") is None
    assert "counted by the backend" not in page(made, judge(made))


def test_the_page_tells_the_causes(made: Result) -> None:
    made = with_counts(made, rocksdb=21)
    (one,) = made.workloads
    warm = sum(turn.items for turn in one.rounds if turn.side == "rocksdb" and not turn.warm_up)
    assert written_by_cause(one) == {"rocksdb": {"flush": 21 * warm, "compaction": 21 * warm}}
    text = page(made, judge(made))
    assert "Written by rocksdb, counted by the backend:" in text
    assert text.index("flush ") < text.index("compaction ")


@pytest.mark.long
def test_a_replay_tells_what_flushes_have_written(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "store")
    found = compare(tmp_path / "store", "dispatch", "offsets", sides=["files", "rocksdb"])
    turns = workload(found, "dispatch").rounds
    for turn in turns:
        assert turn.backend_written.keys() == (
            {"flush", "compaction", "wal"} if turn.side == "rocksdb" else set()
        )
        if turn.side == "rocksdb":
            assert turn.backend_written["flush"] > 2_000 * 8
    reads = workload(found, "offsets").rounds
    assert all(sum(turn.backend_written.values()) == 0 for turn in reads)
