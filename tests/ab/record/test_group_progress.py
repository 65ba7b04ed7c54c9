"""Pulls that groups must have made, by tables of offsets made by hand."""

import pytest

from cqstore.ab.record.group_progress import (
    BATCH,
    MAX_PER_SECOND,
    DerivedPull,
    GroupProgress,
    OffsetTable,
    PutTimes,
)


def between(
    before: OffsetTable, after: OffsetTable, puts: PutTimes | None = None, *, at: float = 20.0
) -> tuple[list[DerivedPull], GroupProgress]:
    progress = GroupProgress(puts or PutTimes(), before, 10.0)
    return list(progress.pulls(after, at)), progress


def test_old_messages_are_pulled_in_batches_spread_over_the_time() -> None:
    found, _ = between({"t@g": {"3": 10}}, {"t@g": {"3": 80}})
    assert [(each.offset, each.messages) for each in found] == [(10, 32), (42, 32), (74, 6)]
    assert [each.at for each in found] == pytest.approx([10 + 10 / 6, 15, 20 - 10 / 6])
    assert {(each.topic, each.queue_id) for each in found} == {("t", 3)}


def test_new_messages_are_pulled_when_they_are_put() -> None:
    puts = PutTimes()
    for offset, at in ((5, 11.0), (6, 12.5), (7, 12.5), (8, 19.0)):
        puts.remember("t", 0, offset, at)
    found, _ = between({"t@g": {"0": 4}}, {"t@g": {"0": 8}}, puts)
    assert found == [
        DerivedPull("t", 0, 4, 1, 15.0), DerivedPull("t", 0, 5, 1, 11.0),
        DerivedPull("t", 0, 6, 2, 12.5),
    ]  # fmt: skip
    both, _ = between({"t@g": {"0": 5}, "t@h": {"0": 7}}, {"t@g": {"0": 6}, "t@h": {"0": 8}}, puts)
    assert both == [DerivedPull("t", 0, 5, 1, 11.0), DerivedPull("t", 0, 7, 1, 12.5)]


def test_a_put_before_the_last_commits_was_not_pulled_at_once() -> None:
    puts = PutTimes()
    for offset, at in ((0, 4.9), (1, 5.0)):
        puts.remember("t", 0, offset, at)
    found, _ = between({"t@g": {"0": 0}}, {"t@g": {"0": 2}}, puts)
    assert found == [DerivedPull("t", 0, 0, 1, 15.0), DerivedPull("t", 0, 1, 1, 5.0)]


def test_a_burst_of_one_millisecond_is_pulled_in_batches() -> None:
    puts = PutTimes()
    for offset in range(70):
        puts.remember("t", 0, offset, 12.0)
    found, _ = between({"t@g": {"0": 0}}, {"t@g": {"0": 70}}, puts)
    assert [(each.offset, each.messages, each.at) for each in found] == [
        (0, BATCH, 12.0), (32, BATCH, 12.0), (64, 6, 12.0),
    ]  # fmt: skip


def test_what_is_no_consumption_is_counted_and_never_a_pull() -> None:
    limit = MAX_PER_SECOND * 10
    before = {"t@g": {"0": 50, "1": 5, "2": 7}, "gone@g": {"0": 1}, "u@g": {"0": 0}}
    after = {
        "t@g": {"0": 49, "1": 5, "2": 8, "3": 9}, "new@g": {"0": 4}, "none": {"0": 8},
        "u@g": {"0": limit + 1},
    }  # fmt: skip
    found, progress = between(before, after)
    assert found == [DerivedPull("t", 2, 7, 1, 15.0)]
    assert (progress.newcomers, progress.resets) == (2, 1)
    assert list(progress.pulls({"t@g": {"0": 50, "3": 10}}, 30.0)) == [
        DerivedPull("t", 0, 49, 1, 25.0), DerivedPull("t", 3, 9, 1, 25.0),
    ]  # fmt: skip
    most, _ = between({"u@g": {"0": 0}}, {"u@g": {"0": limit}})
    assert sum(each.messages for each in most) == limit


def test_no_more_puts_are_remembered_than_the_limit() -> None:
    puts = PutTimes(limit=3)
    for offset in range(5):
        puts.remember("t", 0, offset, float(offset))
    assert [puts.at("t", 0, offset) for offset in range(6)] == [-1, -1, 2, 3, 4, -1]
