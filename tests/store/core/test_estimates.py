"""Estimates by fast path and slow path give one answer, whatever the queue holds."""

import os
import random
from pathlib import Path

import pytest

from cqstore.store.queue._estimate import estimate
from cqstore.store.queue.estimate import fast_filter
from cqstore.store.queue.units import UnitBatch
from cqstore.store.service.reading.puller import TagFilter
from tests.kit.queue_drive import UNITS_PER_FILE, QueueDrive
from tests.kit.rocksdb_queues import lose

TAGS = ["a", "b", "c", "Aa", "BB"]  # the last two have one hash
CODES = [TagFilter(tag)._codes.pop() for tag in TAGS]
ROUNDS = 60
ODD = [0, -1, 1 << 31, (1 << 32) + CODES[0], -(1 << 31), -(1 << 31) - 1, -(1 << 63), (1 << 63) - 1]


def fill(drive: QueueDrive, draw: random.Random, count: int, odd: list[int]) -> None:
    batch = UnitBatch()
    codes = CODES + odd
    for at in range(count):
        batch.add(("t", 3), at, 100 * at, 100, draw.choice(codes), at)
    batch.end_phy_offset = 100 * count
    drive.log.stamps = [*range(count)]
    drive.store.put_batch(batch)
    drive.store.flush()


def damage(drive: QueueDrive, draw: random.Random, count: int) -> None:
    """Take units away, or put ones there that are none."""
    at = draw.randrange(count)
    if drive.name == "rocksdb":
        lose(drive.store, "t", 3, range(at, min(at + draw.choice((1, 9)), count)))  # type: ignore[arg-type]
        return
    start = at // UNITS_PER_FILE * UNITS_PER_FILE * 20
    unit = draw.choice((bytes(20), b"\xff" * 20, bytes(8) + b"\x7f" + b"\xff" * 3 + bytes(8)))
    with (drive.root / f"consumequeue/t/3/{start:020d}").open("r+b") as file:
        os.pwrite(file.fileno(), unit, 20 * at - start)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
@pytest.mark.parametrize("seed", range(12))
def test_estimates_are_alike(tmp_path: Path, name: str, seed: int) -> None:
    draw, drive = random.Random(seed), QueueDrive(name, tmp_path)
    count = draw.choice((1, 9, 10, 11, 37, 1030, 2060))
    odd, damaged = draw.choice(([], [], ODD, [draw.choice(ODD)])), draw.choice((0, 0, 1, 3))
    fill(drive, draw, count, odd)
    for _ in range(damaged):
        damage(drive, draw, count)
    if draw.random() < 0.5:
        drive.expire(draw.randrange(count))
    queue, plain = drive.store.queue("t", 3), 0
    low, high = queue.ends()
    for _ in range(ROUNDS):
        tags = TagFilter(draw.choice(("*", "", "a", "b || Aa", "x", "a||b||c")))
        start = draw.randrange(low, high) if low < high else low
        end = draw.randrange(start, high + 1)
        bounds = draw.choice((1, 2, 10, 400, 1 << 40)), draw.choice((0, 1, 30, 1 << 40))
        found = tags.fast and tags.fast.estimate(queue, start, end, UNITS_PER_FILE, *bounds)
        wanted = estimate(queue.iterate(start), start, end, tags.may_match, *bounds)
        assert found is None or found == wanted, (tags.tags, start, end, bounds)
        cut = queue.estimate_message_count(-5, 1 << 62, tags.may_match, tags.fast)
        assert cut == queue.estimate_message_count(-5, 1 << 62, tags.may_match)
        plain += found is not None
    assert plain == ROUNDS or odd or damaged
    drive.store.close()


def test_a_plain_queue_is_counted_wholly_and_a_damaged_one_not(tmp_path: Path) -> None:
    drive = QueueDrive("file", tmp_path)
    batch = UnitBatch()
    for at in range(25):
        batch.add(("t", 3), at, 100 * at, 100, CODES[at % 3], at)
    batch.end_phy_offset = 2500
    drive.log.stamps = [*range(25)]
    drive.store.put_batch(batch)
    drive.store.flush()
    queue, only_a = drive.store.queue("t", 3), TagFilter("a").fast
    assert only_a is not None
    assert only_a.estimate(queue, 0, 25, UNITS_PER_FILE, 100, 100) == 9
    assert only_a.estimate(queue, 0, 25, UNITS_PER_FILE, 10, 100) == 4 * 25 // 10
    assert only_a.estimate(queue, 3, 4, UNITS_PER_FILE, 100, 100) == 1
    assert only_a.estimate(queue, 25, 30, UNITS_PER_FILE, 100, 100) == 0
    assert only_a.estimate(queue, -1, 25, UNITS_PER_FILE, 100, 100) is None
    damage(drive, random.Random(1), 25)
    assert only_a.estimate(queue, 0, 25, UNITS_PER_FILE, 100, 100) is None
    drive.store.close()


def test_of_a_filter_with_many_codes_the_twin_answers() -> None:
    assert fast_filter(range(16)) is not None
    assert fast_filter(range(17)) is None
