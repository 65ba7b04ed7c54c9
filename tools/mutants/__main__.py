"""``python -m tools.mutants``: draw mutations, run the tests of each, report the survivors."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from tools.mutants.compiled import SUFFIXES, suites
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
    drawing = partial(draw, ROOT, only=tuple(options.only.split()) or "", seed=options.seed)
    if options.cython:
        drawn = [(drawing(PACKAGES, suffixes=SUFFIXES), options.cython)]
    else:
        drawn = [(drawing([package]), options.count) for package in PACKAGES]
    if options.list:
        for mutation in (each for found, count in drawn for each in found[:count]):
            print(f"{mutation.name}\n    {mutation.text}")
        return 0
    slots = [rest for found, count in drawn for rest in [iter(found)] * min(count, len(found))]
    tests = options.tests.split() or _tests_of({one.path for found, _ in drawn for one in found})
    print(f"seed {options.seed}, {len(slots)} mutations", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        trees = Trees(ROOT, Path(folder), options.jobs)
        kept = ROOT / ".mutants" / ("seconds" if options.cython else "")
        touching = touched_by(trees, pool, kept, options.marks, tests, lines=not options.cython)
        outcomes = list(pool.map(partial(_tried, trees, touching), slots))
    return report(list(chain.from_iterable(outcomes)))


def _tests_of(paths: set[str]) -> set[str]:
    """Return the folders of tests that can notice a mutation of these files."""
    compiled = {path for path in paths if path.endswith(SUFFIXES)}
    return (
        {"tests"} if paths - compiled else set().union(*(suites(ROOT, each) for each in compiled))
    )


def _tried(trees: Trees, touching: Touching, rest: Iterator[Mutation]) -> list[TriedMutation]:
    """Try the next mutation, and others in its place as long as they do not compile."""
    tried: list[TriedMutation] = []
    for mutation in rest:
        with trees.borrowed() as tree:
            if mutation.path.endswith(SUFFIXES):
                tests = touching.of_suites(suites(tree.root, mutation.path))
            else:
                tests = touching.tests(mutation, (tree.root / mutation.path).read_bytes())
            begun = time.monotonic()
            tried.append(tree.try_out(mutation, tests, touching.seconds))
        print(_line(tried[-1], time.monotonic() - begun), flush=True)
        if tried[-1].fate is not Fate.INVALID:
            break
    return tried


def draw(
    root: Path,
    packages: Iterable[str],
    only: str | tuple[str, ...],
    seed: str,
    suffixes: tuple[str, ...] = (".py",),
) -> list[Mutation]:
    """Return the mutations of packages in a random order, without those equal to the code.

    The place of each depends on itself and the seed alone, so an edit of another line, or an entry
    in the list of equal ones, leaves the order of all others.
    """
    equal = equal_ones()
    found = [
        mutation
        for package in packages
        for path in sorted((root / package).rglob("*"))
        if path.suffix in suffixes and (name := str(path.relative_to(root))).startswith(only)
        for mutation in mutations(name, path.read_bytes())
        if key_of(mutation) not in equal
    ]
    alike: Counter[tuple[str, ...]] = Counter()

    def place(one: Mutation) -> float:
        key = (one.function, *key_of(one))
        alike[key] += 1
        return random.Random(f"{seed} {alike[key]} {key}").random()

    return sorted(found, key=place)


def report(outcomes: list[TriedMutation]) -> int:
    """Print the share that was noticed by package, and what was not; return the exit code."""
    fates: dict[str, Counter[Fate]] = defaultdict(Counter)
    for outcome in outcomes:
        fates[outcome.mutation.path.partition("/")[0]][outcome.fate] += 1
    enough = bool(outcomes)
    for package, counted in fates.items():
        valid = counted.total() - counted[Fate.INVALID]
        share = sum(counted[fate] for fate in NOTICED) / max(valid, 1)
        enough &= share >= MIN_KILLED
        parts = ", ".join(f"{counted[fate]} {fate}" for fate in Fate if counted[fate])
        print(f"{package}: {share:.0%} of {valid} noticed ({parts})")
    for outcome in outcomes:
        if outcome.fate not in NOTICED | {Fate.INVALID}:
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
    parser.add_argument("--cython", type=int, help="of compiled code, and none of Python")
    parser.add_argument("--list", action="store_true", help="what is drawn, and try none of it")
    parser.add_argument("--only", default="", help="what paths begin with, such as store/record")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trees at work at once")
    parser.add_argument(
        "--tests", default="", help="files and folders of tests, others are left out"
    )
    parser.add_argument("--marks", default="not interop and not long", help="of pytest")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
