"""Twenty real comparisons of a side with itself: at most one may name a difference."""

from collections import Counter
from pathlib import Path

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import DECIDED
from cqstore.ab.run.rounds import Effort
from tests.ab.running import compare
from tools.bench.sample_store import make_store

RUNS = 20
WORKLOADS = "tail-pull", "random-pull", "offsets"


@pytest.mark.long
@pytest.mark.quiet
@pytest.mark.timeout(3600)
def test_equal_sides_show_no_difference_in_nineteen_of_twenty_real_runs(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 20_000, 64)
    named: list[list[str]] = []
    outcomes: Counter[str] = Counter()
    for run in range(RUNS):
        side = ("file", "rocksdb")[run % 2]
        found = compare(root, *WORKLOADS, sides=[side, side], effort=Effort(8, 0.02), seed=run)
        judgement = judge(found)
        assert judgement.answers.status == "same"
        reported = [each for workload in judgement.workloads for each in workload.comparisons]
        outcomes.update(each.outcome.value for each in reported)
        odd = [f"{each.side}: {each.label} {each.low} to {each.high}, noise {each.floor}"
               for each in reported if each.outcome in DECIDED]  # fmt: skip
        if odd:
            named.append(odd)
    assert len(named) <= 1, (named, outcomes)
