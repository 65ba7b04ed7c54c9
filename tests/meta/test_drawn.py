"""What the suite does by itself: a seed draws long tests, and what needs no disk has none."""

import tempfile
from fractions import Fraction
from pathlib import Path

import pytest

from tests.kit import scratch
from tests.kit.share import is_drawn, places_of

TESTS = [f"tests/a/test_b.py::test_c[{number}]" for number in range(6_000)]


def drawn(share: Fraction, seed: str) -> set[str]:
    return {test for test in TESTS if is_drawn(test, share, seed)}


def test_a_share_is_the_same_by_its_seed_and_another_by_another() -> None:
    sixth = Fraction(1, 6)
    assert 900 < len(drawn(sixth, "a")) < 1_100
    assert drawn(sixth, "a") == drawn(sixth, "a")
    assert 100 < len(drawn(sixth, "a") & drawn(sixth, "b")) < 230
    assert drawn(Fraction(1), "a") == set(TESTS)
    assert drawn(Fraction(0), "a") == set()


def test_all_are_drawn_within_some_scores_of_seeds() -> None:
    seeds = map(str, range(120))
    assert set[str]().union(*(drawn(Fraction(1, 6), seed) for seed in seeds)) == set(TESTS)


@pytest.mark.parametrize(("count", "limit"), [(1, 5), (5, 5), (6, 5), (5106, 375), (0, 3)])
def test_every_place_is_drawn_by_some_seed(count: int, limit: int) -> None:
    drawn = [places_of(count, limit, str(seed)) for seed in range(200)]
    assert all(len(places) <= limit for places in drawn)
    assert set[int]().union(*drawn) == set(range(1, count + 1))
    assert places_of(count, limit, "a") == places_of(count, limit, "a")


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_tests_write_in_memory_where_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    kinds = {str(tmp_path): kind}
    monkeypatch.setattr(scratch, "free_bytes", lambda _: 64 << 30)
    assert scratch.in_memory(tmp_path, kinds) == (kind == "tmpfs")
    monkeypatch.setattr(scratch, "free_bytes", lambda _: 64 << 20)
    assert not scratch.in_memory(tmp_path, kinds)
    assert not scratch.in_memory(tmp_path / "absent", kinds)


def test_what_is_free_is_bounded_by_the_machine(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable: 3 kB\n")
    assert scratch.free_bytes(tmp_path, meminfo) == 3 << 10
    meminfo.write_text("MemTotal: 9 kB\n")
    assert scratch.free_bytes(tmp_path, meminfo) == 0


def test_temporary_files_are_in_memory_where_the_tests_are(
    request: pytest.FixtureRequest,
) -> None:
    is_there = scratch.MEMORY in Path(tempfile.gettempdir()).parents
    assert is_there == request.config.stash[scratch.IN_MEMORY]
    assert scratch.MEMORY not in scratch.disk().parents


@pytest.mark.disk
def test_a_test_about_a_disk_has_one(tmp_path: Path) -> None:
    assert scratch.MEMORY not in tmp_path.parents
