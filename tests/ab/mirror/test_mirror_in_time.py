"""Mirrored reads that differ: what time explains is forgiven, and nothing else."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.ab.mirror import mirror as mirror_module
from cqstore.ab.mirror import verdict as verdict_module
from cqstore.ab.mirror.mirrored_reads import Answer, FailedAnswer, MirroredRead, PullAnswer
from cqstore.ab.mirror.mismatches import read_mismatches
from cqstore.ab.mirror.moments import Moment, Moments
from cqstore.ab.mirror.verdict import ReadOutcome, Verdict, judge
from cqstore.ab.trace.operation_lines import StoreOp
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.queue.backends import backend
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.units import PACKED_PREFIX, QueueKey, UnitBatch, UnitBlock
from cqstore.store.record.message import Message
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.read_interceptor import max_offset_question
from tests.kit.double_write import OTHER, StoredOffsets
from tests.kit.mirrored import (
    another_phy,
    by_hand,
    drive,
    mirror_of,
    only,
    open_mirrored,
    outcomes,
    outcomes_of,
    read_all,
    wrong_units,
)
from tests.kit.queue_of import QUEUES_OF
from tests.kit.waiting import until

BOTH = list(OTHER)
SAME, EXPLAINED, DIFFERENT = ReadOutcome.SAME, ReadOutcome.EXPLAINED, ReadOutcome.DIFFERENT


@pytest.mark.parametrize("read", BOTH)
def test_what_was_put_since_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    stored = StoredOffsets()
    with open_mirrored(tmp_path, read) as store:
        stored.put(store, 50)
        requested = read_all(store)
        stored.put(store, 50)
        drive(store)
        assert outcomes(store).keys() == {SAME, EXPLAINED}
        assert outcomes(store)[EXPLAINED] >= requested / 2


@pytest.mark.parametrize("read", BOTH)
def test_deletion_expiry_and_a_rebuild_since_are_no_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        for topic in ("gone", "again", "expired", "rebuilt"):
            StoredOffsets().put(store, 200, topic)
        drive(store)
        for topic in ("gone", "again", "expired", "rebuilt"):
            read_all(store, topic)
        store.delete_topics(["gone", "again"])
        store.put_message(Message("again", b"of a new incarnation"))
        store.rebuild_queues("rebuilt")
        files = components_of(store).log.files.files()
        store.delete_expired_files(files[-2].file_from_offset)
        assert components_of(store).queues.queue("expired", 0).min_offset() > 0
        drive(store)
        assert outcomes(store).keys() == {SAME, EXPLAINED}
    assert not components_of(store).paths.ab_differences.exists()


@pytest.mark.parametrize("read", BOTH)
def test_a_backend_that_is_still_getting_its_units_is_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    monkeypatch.setattr(verdict_module, "_TRIES", 1 << 30)
    kind, arrived, go_on = backend(OTHER[read]), threading.Event(), threading.Event()
    real, differed = kind.put_batch, threading.Event()

    def put_batch(self: object, batch: UnitBatch) -> object:
        arrived.set()
        assert go_on.wait(60)
        return real(self, batch)  # type: ignore[arg-type]

    def judging(
        requested: MirroredRead,
        later: Answer,
        after: Moment,
        moments: Moments,
        pause: Callable[[float], object],
    ) -> Verdict:
        def noted(seconds: float) -> object:
            differed.set()
            return pause(seconds)

        return judge(requested, later, after, moments, noted)

    monkeypatch.setattr(mirror_module, "judge", judging)
    with open_mirrored(tmp_path, read) as store:
        monkeypatch.setattr(kind, "put_batch", put_batch)
        store.put_message(Message("t", b"x"))
        putting = threading.Thread(target=store.max_offset, args=("u", 0))
        putting.start()
        assert arrived.wait(60)
        # As a reader who came before the batch: the one that is read has it, the other has not.
        mirror = mirror_of(store)
        assert mirror.number(max_offset_question("t", 0)) == 1
        assert mirror.pull("t", 0, 0, 32, None, 1 << 20).queue_offsets == [0]
        assert differed.wait(60)
        assert outcomes(store) == {}
        go_on.set()
        putting.join()
        until(lambda: sum(outcomes(store).values()) == 3)
        assert outcomes(store).keys() <= {EXPLAINED, SAME}
        assert outcomes(store)[EXPLAINED] >= 1


@pytest.mark.parametrize("read", BOTH)
def test_what_is_written_between_the_two_that_are_asked_again_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    kind = QUEUES_OF[OTHER[read]]
    real, left = kind.max_offset, 3

    with open_mirrored(tmp_path, read) as store:

        def put_first(self: ConsumeQueue) -> int:
            nonlocal left
            if self.topic == "t" and left:
                left -= 1
                store.put_message(Message("t", b"x"))
                store.queue_keys()
            return real(self)

        store.put_message(Message("t", b"x"))
        assert store.max_offset("t", 0) == 1
        monkeypatch.setattr(kind, "max_offset", put_first)
        drive(store)
        assert left == 0
        assert outcomes(store) == {EXPLAINED: 1}


@pytest.mark.parametrize("read", BOTH)
def test_units_that_expire_while_their_neighbours_stay_are_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Files still have them, RocksDB gives nothing from an expired offset on."""
    by_hand(monkeypatch)
    stored = StoredOffsets()
    with open_mirrored(tmp_path, read) as store:
        stored.put(store, 400)
        drive(store)
        least = components_of(store).log.files.files()[-1].file_from_offset
        low = sum(phy < least for phy in stored.phys[QueueKey("t", 0)])
        assert store.get_message("t", 0, low - 3, 10).queue_offsets[0] == low - 3
        store.delete_expired_files(least)
        assert components_of(store).queues.queue("t", 0).min_offset() == low
        (rocks,) = [
            each
            for each in components_of(store).queues.backends()
            if isinstance(each, RocksDBConsumeQueueStore)
        ]
        assert rocks.compact().wait(30)
        drive(store)
        assert outcomes(store)[EXPLAINED] == 1
        assert outcomes(store).keys() == {SAME, EXPLAINED}


@pytest.mark.parametrize("read", BOTH)
def test_a_read_in_the_middle_of_a_deletion_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    kind, requested = backend(OTHER[read]), threading.Event()
    queues = QUEUES_OF[OTHER[read]]
    delete, real = kind.delete_topics, queues.ends

    def ends(self: ConsumeQueue) -> tuple[int, int]:
        found = real(self)
        requested.set()
        return found

    with open_mirrored(tmp_path, read) as store:
        StoredOffsets().put(store, 50)
        until(lambda: sum(outcomes(store).values()) == 1)

        def delete_topics(self: object, topics: list[str]) -> None:
            mirror_of(store).pull("t", 0, 0, 32, None, 1 << 20)
            monkeypatch.setattr(queues, "ends", ends)
            assert requested.wait(60)
            delete(self, topics)  # type: ignore[arg-type]

        monkeypatch.setattr(kind, "delete_topics", delete_topics)
        store.delete_topic("t")
        until(lambda: sum(outcomes(store).values()) == 2)
        assert outcomes(store).keys() <= {SAME, EXPLAINED}


@pytest.mark.parametrize("read", BOTH)
def test_a_queue_that_is_emptied_before_both_are_asked_again_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """As a rebuild does it."""
    by_hand(monkeypatch)
    stored = StoredOffsets()
    with open_mirrored(tmp_path, read) as store:
        stored.put(store, 50)
        drive(store)
        assert store.max_offset("t", 0) == 10
        stored.put(store, 5)
        kind = QUEUES_OF[read]
        real = kind.max_offset

        def empty(self: ConsumeQueue) -> int:
            monkeypatch.setattr(kind, "max_offset", real)
            components_of(store).queues.delete_queue("t", 0)
            return real(self)

        monkeypatch.setattr(kind, "max_offset", empty)
        drive(store)
        assert outcomes(store) == {SAME: 1, EXPLAINED: 2}


def test_what_never_stands_still_is_not_accused_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand(monkeypatch)
    monkeypatch.setattr(verdict_module, "_PAUSE_SECONDS", 0)
    with open_mirrored(tmp_path) as store:
        StoredOffsets().put(store, 5)
        wrong_units(monkeypatch, "rocksdb", lambda _: UnitBlock(0, b"", PACKED_PREFIX, _.stop))
        store.get_message("t", 0, 0)
        with mirror_of(store)._queues.changes:
            drive(store)
    assert outcomes_of(tmp_path) == {SAME: 1, ReadOutcome.UNSETTLED: 1}


@pytest.mark.parametrize("read", BOTH)
def test_a_value_that_never_was_is_not_explained_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """The other backend answers wrongly once, and something was put meanwhile."""
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        StoredOffsets().put(store, 50)
        drive(store)
        wrong_units(monkeypatch, OTHER[read], only(1, another_phy))
        store.get_message("t", 1, 0)
        monkeypatch.setattr(QUEUES_OF[OTHER[read]], "max_offset", _once(99, OTHER[read]))
        store.max_offset("t", 2)
        store.put_message(Message("t", b"x"))
        components_of(store).queues.context.log.max_phy_offset()
        store.min_offset("t", 4)
        drive(store)
        found = read_mismatches(components_of(store).paths.ab_differences)
    assert {(each.op, each.wrong) for each in found} == {("pull", OTHER[read]), ("maxOffset", "")}


@pytest.mark.parametrize("read", BOTH)
def test_what_the_one_that_serves_said_wrongly_once_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    by_hand(monkeypatch)
    with open_mirrored(tmp_path, read) as store:
        stored = StoredOffsets()
        stored.put(store, 50)
        drive(store)
        wrong_units(monkeypatch, read, only(1, another_phy))
        store.get_message("t", 1, 0)
        stored.put(store, 5)
        drive(store)
        (found,) = read_mismatches(components_of(store).paths.ab_differences)
    assert (found.op, found.wrong) == ("pull", read)


def _once(answer: int, name: str) -> Callable[..., int]:
    """Answer so at the second call, the first pull's being the first; else as ever."""
    real = QUEUES_OF[name].max_offset
    calls = 0

    def max_offset(queue: ConsumeQueue) -> int:
        nonlocal calls
        calls += queue.key == ("t", 2)
        return answer if queue.key == ("t", 2) and calls == 1 else real(queue)

    return max_offset


UNITS = PullAnswer(0, 9, 3, ((30, 1, 7), (40, 1, 7)))


@pytest.mark.parametrize(
    ("op", "said", "first", "now", "never"),
    [
        ("maxOffset", 9, 5, 8, True), ("maxOffset", 8, 5, 8, False), ("maxOffset", 1, 5, 8, False),
        ("timeSearch", 9, 9, 8, False), ("estimate", 9, 5, 8, False),
        ("maxOffset", FailedAnswer("ConsumeQueueError"), 5, 8, True),
        ("maxOffset", 9, FailedAnswer("ConsumeQueueError"), 9, False),
        ("pull", UNITS, UNITS, UNITS, False),
        ("pull", UNITS._replace(high=10), UNITS, UNITS, True),
        ("pull", UNITS._replace(high=10), UNITS, UNITS._replace(high=10), False),
        ("pull", UNITS._replace(low=2, high=8, rows=UNITS.rows[:1]), UNITS, UNITS, False),
        ("pull", UNITS._replace(rows=((30, 1, 7), (41, 1, 7))), UNITS, UNITS, True),
        ("pull", UNITS._replace(rows=((30, 1, 8),)), UNITS, UNITS, True),
        ("pull", UNITS._replace(rows=((31, 1, 7),)), UNITS, UNITS._replace(low=4), False),
        ("pull", UNITS, UNITS, FailedAnswer("ConsumeQueueError"), True),
    ],
)  # fmt: skip
def test_what_never_was_is_told_from_what_is_not_there_any_more(
    op: str, said: Answer, first: Answer, now: Answer, *, never: bool
) -> None:
    assert verdict_module._never_was(StoreOp(op), said, first, now) is never
