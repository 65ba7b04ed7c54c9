"""Which tests touch a line: found with coverage contexts, kept for the runs that follow.

Kept is one note for each file of tests, made again when that changes. Lines are identified by their
function and text, so that what was found holds while others change the code around them.
"""

import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from coverage.numbits import numbits_to_nums

from tools.mutants.contexts import DATA, OUTCOMES
from tools.mutants.mutations import Mutation, functions, runs_at_import
from tools.mutants.trial import Trees

MAX_TESTS = 40
"""Of one file of tests, kept for one line."""
BATCH = 8
"""Files of tests that one process runs: to start one below coverage takes seconds."""
_LIMIT_SECONDS = 1800
_PHASE = re.compile(r" \((setup|call|teardown)\)$")
Touched = dict[str, dict[str, dict[str, list[str]]]]
"""Tests by path, function and text of a line."""


@dataclass
class Touching:
    """What is known of all files of tests."""

    seconds: dict[str, float] = field(default_factory=dict)
    touched: list[Touched] = field(default_factory=list)

    def tests(self, mutation: Mutation, source: bytes) -> list[str]:
        """Return the tests that touch a mutation's statement, else its function, else its file.

        One of each function of tests comes before its other cases; the quickest comes first. What
        runs as its module loads is no test's: there those come first that touch little else.
        """
        if runs_at_import(source, mutation.function):
            return self._closest(mutation.path)
        lines = source.decode().splitlines()[mutation.line - 1 : mutation.last_line]
        texts = {line.strip() for line in lines}
        found: set[str] = set()
        for by_path in self.touched:
            by_text = by_path.get(mutation.path, {}).get(mutation.function, {})
            found.update(*(by_text.get(text, ()) for text in texts))
        if not found:
            found = self._near(mutation, mutation.function) or self._near(mutation, None)
        return in_turn(found & self.seconds.keys(), self.seconds)

    def of_suites(self, folders: list[str]) -> list[str]:
        """Return the tests below folders, the first folder's first."""
        found: dict[str, None] = {}
        for folder in folders:
            below = [test for test in self.seconds if test.startswith(f"{folder}/")]
            found |= dict.fromkeys(in_turn(below, self.seconds))
        return list(found)

    def _closest(self, path: str) -> list[str]:
        """Return the tests that touch a file, first those with most of their lines in it."""
        here, everywhere = self._lines.get(path, Counter[str]()), self._lines[""]
        distance = {test: 1 - count / everywhere[test] for test, count in here.items()}
        return in_turn(distance.keys() & self.seconds.keys(), distance)

    @cached_property
    def _lines(self) -> dict[str, Counter[str]]:
        """How many lines of each file each test touches; of all files, under no name."""
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for by_path in self.touched:
            for path, by_function in by_path.items():
                for by_text in by_function.values():
                    for tests in by_text.values():
                        counts[path].update(tests)
                        counts[""].update(tests)
        return counts

    def _near(self, mutation: Mutation, function: str | None) -> set[str]:
        found: set[str] = set()
        for by_path in self.touched:
            for name, by_text in by_path.get(mutation.path, {}).items():
                if function in {None, name}:
                    found.update(*by_text.values())
        return found


def in_turn(tests: Iterable[str], seconds: dict[str, float]) -> list[str]:
    """Return tests, the quickest of each function first, then the second of each, and so on."""
    cases: dict[str, int] = defaultdict(int)
    turns = []
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        function = test.partition("[")[0]
        turns.append((cases[function], seconds[test], test))
        cases[function] += 1
    return [test for *_, test in sorted(turns)]


def touched_by(
    trees: Trees,
    pool: Executor,
    kept: Path,
    marks: str,
    folders: Iterable[str] = ("tests",),
    *,
    lines: bool = True,
) -> Touching:
    """Return what the tests in files and folders touch; find out what ``kept`` does not hold.

    Without ``lines``, find out only how long each test takes.
    """
    kept.mkdir(exist_ok=True, parents=True)
    with trees.borrowed() as tree:
        given = {tree.root / folder for folder in folders}
        files = {path for path in given if path.is_file()}
        found = files.union(*(path.rglob("test_*.py") for path in given))
        names = sorted(str(path.relative_to(tree.root)) for path in found)
    known = Touching()
    digests = {name: _digest(tree.root / name, marks) for name in names}
    notes = {name: kept / f"{name.replace('/', '.')}.json" for name in names}
    missing = [name for name in names if _read(notes[name]).get("digest") != digests[name]]
    batches = [missing[at : at + BATCH] for at in range(0, len(missing), BATCH)]

    def note(batch: list[str]) -> None:
        for name, noted in _looked_at(trees, batch, marks, lines=lines).items():
            notes[name].write_text(json.dumps({"digest": digests[name], **noted}))

    list(pool.map(note, batches))
    for name in names:
        noted = _read(notes[name])
        known.seconds |= noted["seconds"]
        known.touched.append(_decoded(noted))
    return known


def _digest(path: Path, marks: str) -> str:
    return hashlib.sha256(path.read_bytes() + marks.encode()).hexdigest()


def _read(note: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(note.read_text()) if note.exists() else {}
    return found


def _looked_at(
    trees: Trees, names: list[str], marks: str, *, lines: bool
) -> dict[str, dict[str, Any]]:
    """Return what files of tests touch; each alone if they end the process of all."""
    print(f"looking at {', '.join(names)}", flush=True)
    with trees.borrowed() as tree:
        run = partial(_run, tree.root, marks=marks, lines=lines)
        found = run(names)
        if found is not None:
            return found
        nothing: dict[str, Any] = {"seconds": {}, "lines": {}}
        return {name: (run([name]) or {name: nothing})[name] for name in names}


def _decoded(found: dict[str, Any]) -> Touched:
    tests = list(found["seconds"])
    return {
        path: {
            function: {text: [tests[place] for place in places] for text, places in lines.items()}
            for function, lines in by_function.items()
        }
        for path, by_function in found["lines"].items()
    }


def _run(
    tree: Path, names: list[str], marks: str, *, lines: bool
) -> dict[str, dict[str, Any]] | None:
    """Run files of tests in one process; return by file what they touch, as it is noted.

    That are the seconds of those that passed, and the tests by path, function and text of a line.
    ``None`` if the process did not end by itself.
    """
    data, outcomes = tree / "touched", tree / "outcomes.json"
    for path in tree.glob("touched*"):
        path.unlink()
    outcomes.unlink(missing_ok=True)
    rules = tree / "tools" / "mutants" / "coverage.ini"
    covering = ["-m", "coverage", "run", f"--rcfile={rules}"] if lines else []
    testing = ["-q", "-p", "no:cacheprovider", "-p", "tools.mutants.contexts"]
    words = [*covering, "-m", "pytest", *testing, "-m", marks, *names]
    given = {
        "PYTHONPATH": str(tree), OUTCOMES: str(outcomes), DATA: str(data),
        "PYTEST_DEBUG_TEMPROOT": tempfile.gettempdir(),  # as in a trial
    }  # fmt: skip
    environment = {**os.environ, **given}
    environment.pop("PYTEST_CURRENT_TEST", None)  # of a test of ours
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, *words],
            cwd=tree, env=environment, timeout=_LIMIT_SECONDS, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    if not outcomes.exists():
        return None
    seconds: dict[str, float] = json.loads(outcomes.read_text())
    touched = _touched(tree, seconds.keys())
    return {name: _of_file(name, seconds, touched) for name in names}


Lines = dict[str, dict[str, dict[str, set[str]]]]
NamedLines = list[tuple[str, str]]
_TOUCHED = (
    "select file.path, context.context, numbits from line_bits"
    " join file on file.id = file_id join context on context.id = context_id"
)
"""See "Coverage.py database schema" in the documentation of coverage."""


def _touched(tree: Path, passed: Set[str]) -> Lines:
    """Return the tests that passed by path, function and text of a line that they touch."""
    lines: Lines = {}
    named: dict[str, NamedLines] = {}
    for part in tree.glob("touched.*"):
        for source, context, numbers in _numbers_of(part):
            test = _PHASE.sub("", context)
            if test not in passed or not (tree / source).exists():
                continue
            if source not in named:
                named[source] = _named_lines((tree / source).read_bytes())
            for number in numbers:
                if 0 < number <= len(named[source]):  # an empty module, too, runs a line
                    function, text = named[source][number - 1]
                    by_text = lines.setdefault(source, {}).setdefault(function, {})
                    by_text.setdefault(text, set()).add(test)
    return lines


def _named_lines(source: bytes) -> NamedLines:
    """Return the function and the text of each line of a module."""
    texts = source.decode().splitlines()
    names = [""] * (len(texts) + 1)
    for name, first, last in functions(source):
        names[first : last + 1] = [name] * (last + 1 - first)
    return [(name, text.strip()) for name, text in zip(names[1:], texts, strict=True)]


def _numbers_of(part: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Yield path, context and line numbers of what one process has touched.

    In one query: asked for each of two hundred files, coverage itself takes a second a process. A
    process that was killed while it wrote has nothing to tell.
    """
    with closing(sqlite3.connect(part)) as found, suppress(sqlite3.DatabaseError):
        for path, context, bits in found.execute(_TOUCHED):
            yield path, context, numbits_to_nums(bits)


def _of_file(name: str, seconds: dict[str, float], lines: Lines) -> dict[str, Any]:
    """Return the note of one file of tests."""
    mine = {test: spent for test, spent in seconds.items() if test.partition("::")[0] == name}
    places = {test: place for place, test in enumerate(mine)}
    kept: dict[str, dict[str, dict[str, list[int]]]] = {}
    for source, by_function in lines.items():
        for function, by_text in by_function.items():
            for text, tests in by_text.items():
                if chosen := in_turn(tests & mine.keys(), mine)[:MAX_TESTS]:
                    of_function = kept.setdefault(source, {}).setdefault(function, {})
                    of_function[text] = [places[test] for test in chosen]
    return {"seconds": {test: round(spent, 4) for test, spent in mine.items()}, "lines": kept}
