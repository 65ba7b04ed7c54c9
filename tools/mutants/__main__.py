"""``python -m tools.mutants``: draw mutations, run the tests of each, report the survivors."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutants.equal import equal_ones, key_of
from tools.mutants.mutations import Mutation, mutations
from tools.mutants.touched import Touching, touched_by
from tools.mutants.trial import Fate, Trees, TriedMutation

ROOT = Path(__file__).parents[2]
PACKAGES = ("cqstore", "store", "cq_file", "cq_rocksdb", "migration")
MIN_KILLED = 0.9
NOTICED = {Fate.KILLED, Fate.TIMED_OUT}


def main(arguments: list[str] | None = None) -> int:
    """Return 1 where fewer than nine of ten are noticed in one of the packages, else 0."""
    options = _options(arguments)
    print(f"seed {options.seed}, {options.count} of each package", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        trees = Trees(ROOT, Path(folder), options.jobs)
        touching = touched_by(trees, pool, ROOT / ".mutants", options.marks, options.tests.split())
        drawn = [
            mutation
            for package in PACKAGES
            for mutation in draw(ROOT, package, options.only, options.count, options.seed)
        ]
        outcomes = list(pool.map(lambda one: _tried(trees, one, touching), drawn))
    return report(outcomes)


def _tried(trees: Trees, mutation: Mutation, touching: Touching) -> TriedMutation:
    with trees.borrowed() as tree:
        tests = touching.tests(mutation, (tree.root / mutation.path).read_bytes())
        begun = time.monotonic()
        outcome = tree.try_out(mutation, tests, touching.seconds)
    print(_line(outcome, time.monotonic() - begun), flush=True)
    return outcome


def draw(root: Path, package: str, only: str, count: int, seed: str) -> list[Mutation]:
    """Return a sample of a package's mutations, those left out that are equal to the code.

    The same seed draws the same from the same sources, whatever is drawn elsewhere.
    """
    equal = equal_ones()
    found = [
        mutation
        for path in sorted((root / package).rglob("*.py"))
        if (name := str(path.relative_to(root))).startswith(only)
        for mutation in mutations(name, path.read_bytes())
        if key_of(mutation) not in equal
    ]
    return random.Random(f"{seed} {package}").sample(found, min(count, len(found)))


def report(outcomes: list[TriedMutation]) -> int:
    """Print the share that was noticed by package, and what was not; return the exit code."""
    fates: dict[str, Counter[Fate]] = defaultdict(Counter)
    for outcome in outcomes:
        fates[outcome.mutation.path.partition("/")[0]][outcome.fate] += 1
    enough = bool(outcomes)
    for package, counted in fates.items():
        share = sum(counted[fate] for fate in NOTICED) / counted.total()
        enough &= share >= MIN_KILLED
        parts = ", ".join(f"{counted[fate]} {fate}" for fate in Fate if counted[fate])
        print(f"{package}: {share:.0%} of {counted.total()} noticed ({parts})")
    for outcome in outcomes:
        if outcome.fate not in NOTICED:
            print(f"{outcome.fate}: {outcome.mutation.name}\n    {outcome.mutation.text}")
    return 0 if enough else 1


def _line(outcome: TriedMutation, seconds: float) -> str:
    seen = f" by {outcome.killer}" if outcome.killer else f" ({outcome.tests} tests)"
    return f"{seconds:5.1f} s  {outcome.fate}{seen}: {outcome.mutation.name}"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument(
        "--seed", default=str(int(time.time())), help="any word; drawn if not given"
    )
    parser.add_argument("--count", type=int, default=25, help="of each package")
    parser.add_argument("--only", default="", help="what paths begin with, such as store/record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trees at work at once")
    parser.add_argument(
        "--tests", default="tests", help="files and folders of tests, others are left out"
    )
    parser.add_argument("--marks", default="not interop and not long", help="of pytest")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
