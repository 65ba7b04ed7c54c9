"""Projections: lines through points that were laid by hand."""

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Projection
from cqstore.ab.results.result import Footprint, Point, Result
from tests.ab.made_result import made_footprint, made_result


def projected(result: Result, side: str, figure: str) -> Projection:
    judgement = judge(result)
    (found,) = [
        each for each in judgement.projections if (each.side, each.figure) == (side, figure)
    ]
    return found


def at(queues: int, disk: int) -> Point:
    foot = Footprint.model_validate(made_footprint(0, 1, 1).model_dump() | {"disk_bytes": disk})
    return Point(side="files", queues=queues, units=queues * 20, footprint=foot)


def with_points(*points: Point, to: int | None = 1_000_000) -> Result:
    result = made_result(1, workloads=["listing"], histograms=False)
    return result.model_copy(update={"points": list(points), "project_to": to})


def test_a_projection_goes_on_as_the_points_do() -> None:
    result = made_result(1, workloads=["listing"], histograms=False, project_to=1_000_000)
    disk = projected(result, "files", "disk")
    assert disk.a_queue == pytest.approx(4096 + 20 * 20)
    assert disk.value == pytest.approx(1_000_000 * (4096 + 400))
    assert [queues for queues, _ in disk.points] == [500, 2_000, 8_000]
    assert (disk.misses_by, disk.beyond) == (0.0, 125)
    flat = projected(result, "rocksdb", "files")
    assert (flat.a_queue, flat.value) == (0, 14)


def test_points_beside_the_line_are_told() -> None:
    bent = with_points(at(1_000, 1_000_000), at(2_000, 4_000_000), at(3_000, 9_000_000))
    found = projected(bent, "files", "disk")
    assert found.misses_by is not None
    assert found.misses_by == pytest.approx(1 / 3)


def test_two_points_cannot_miss_their_line() -> None:
    found = projected(with_points(at(1_000, 10_000), at(3_000, 30_000)), "files", "disk")
    assert found.misses_by is None
    assert found.value == pytest.approx(10_000_000)


def test_less_for_more_queues_is_noise() -> None:
    found = projected(with_points(at(1_000, 30), at(2_000, 10), at(3_000, 20)), "files", "disk")
    assert found.a_queue == 0
    assert found.value == pytest.approx(20)


@pytest.mark.parametrize(
    "result",
    [
        with_points(at(1_000, 10)),
        with_points(at(1_000, 10), at(1_000, 20)),
        with_points(at(1_000, 10), at(2_000, 20), to=None),
        with_points(),
    ],
)
def test_less_than_two_numbers_of_queues_carry_none(result: Result) -> None:
    assert judge(result).projections == []
