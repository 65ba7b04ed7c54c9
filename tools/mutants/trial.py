"""One mutation at a time, in a copy of the tree: run tests on it, report whether one noticed."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from tools.mutants.compiled import SUFFIXES, compiles, dependents
from tools.mutants.mutations import Mutation

BUDGET_SECONDS = {False: 60.0, True: 240.0}
"""Of tests, as they took unmutated, for one mutation: of Python, of compiled code."""
MAX_TESTS = 3000
MAX_BYTES = 6 << 30
"""A mutation may make a loop that fills the memory."""
READERS = tuple(
    f"tests/meta/test_errors.py::test_what_is_done_comes_first_and_then_to_what[{case}]"
    for case in ("os_errors-100", "progress-10")
)
"""Tests that read the code and do not run it: no look finds that they touch a line."""
_START_SECONDS = 60
_PATIENCE = 8
"""A run may take so many times what its tests took unmutated."""
_LEFT_BEHIND = (".git", ".venv", ".mutants", "__pycache__", ".*_cache", ".hypothesis", "target")


class Fate(StrEnum):
    """What became of a mutation."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    UNTOUCHED = "no test touches it"
    INVALID = "does not compile"


@dataclass(slots=True)
class TriedMutation:
    """A mutation's fate, with the test that noticed or the number of tests that did not."""

    mutation: Mutation
    fate: Fate
    tests: int = 0
    killer: str = ""


@dataclass
class Tree:
    """A copy of the project in which one file at a time is mutated."""

    root: Path
    _sound: set[str]
    """Tests that were seen to pass on the unmutated tree after a mutation had failed them."""
    _flawed: set[str]
    """Tests that fail here unmutated too: they notice nothing."""
    _stamp: int = 0

    def try_out(
        self, mutation: Mutation, tests: list[str], seconds: dict[str, float]
    ) -> TriedMutation:
        """Run the first of ``tests`` that fit the budget until one fails.

        A test that fails without the mutation too does not count; the others are run again.
        """
        budget = BUDGET_SECONDS[mutation.path.endswith(SUFFIXES)]
        while chosen := _within_budget(
            [t for t in tests if t not in self._flawed], seconds, budget
        ):
            spent = [seconds[test] for test in chosen]
            limits = [_START_SECONDS + _PATIENCE * each for each in (sum(spent), max(spent))]
            with self._mutated(mutation) as compiled:
                if not compiled:
                    return TriedMutation(mutation, Fate.INVALID)
                killer = self._run([*chosen, *self._readers()], *limits)
            if killer is None:
                return TriedMutation(mutation, Fate.SURVIVED, len(chosen))
            if not killer:
                return TriedMutation(mutation, Fate.TIMED_OUT, len(chosen))
            if self._is_sound(killer):
                return TriedMutation(mutation, Fate.KILLED, len(chosen), killer)
        return TriedMutation(mutation, Fate.UNTOUCHED)

    def _readers(self) -> list[str]:
        return [test for test in READERS if (self.root / test.partition("::")[0]).exists()]

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound | self._flawed:
            passed = self._run([test], *[_START_SECONDS * _PATIENCE] * 2) is None
            (self._sound if passed else self._flawed).add(test)
        return test in self._sound

    @contextmanager
    def _mutated(self, mutation: Mutation) -> Iterator[bool]:
        """Have the mutation in the tree while the block runs; yield whether it compiles."""
        path = self.root / mutation.path
        source, before = path.read_bytes(), path.stat()
        compiled = mutation.path.endswith(SUFFIXES)
        modules = dependents(self.root, mutation.path) if compiled else []
        built = [
            file
            for module in (self.root / each for each in modules)
            for file in module.parent.glob(f"{module.stem}.*")
            if file.suffix in {".c", ".so"}
        ]
        for file in built:
            file.rename(_aside(file))
        self._stamp += 1
        path.write_bytes(mutation.applied(source))
        # Compiled modules are known by time and size: no two states of the file may have the same.
        os.utime(path, (self._stamp, self._stamp))
        try:
            yield not modules or compiles(self.root, modules)
        finally:
            for file in built:
                _aside(file).replace(file)
            path.write_bytes(source)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _run(self, tests: list[str], limit: float, limit_each: float) -> str | None:
        """Return the test that failed first, ``""`` if time ran out, or None if all passed."""
        scratch = self.root.with_name("scratch")
        scratch.mkdir()
        listed = self.root.with_name("tests")  # a test's name may be longer than a word may be
        listed.write_text("\n".join(tests), "utf-8", "surrogateescape")
        options = ["-x", "-v", "-rfE", "-p", "no:cacheprovider", f"--timeout={limit_each}"]
        environment = os.environ | {
            "PYTHONPATH": str(self.root), "TMPDIR": str(scratch),
            "PYTEST_DEBUG_TEMPROOT": str(scratch),  # what is killed leaves files behind
        }  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, f"@{listed}"],
            cwd=self.root, env=environment, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:  # fmt: skip
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                return ""
            finally:
                _end(process)
                shutil.rmtree(scratch, ignore_errors=True)
        return None if process.returncode == 0 else _failed(output, tests)


class Trees:
    """Copies of the project, for as many threads; what one finds of a test, all know."""

    def __init__(self, source: Path, folder: Path, count: int) -> None:
        self._idle: SimpleQueue[Tree] = SimpleQueue()
        sound: set[str] = set()
        flawed: set[str] = set()
        for number in range(count):
            root = folder / str(number) / "tree"
            ignored = shutil.ignore_patterns(*_LEFT_BEHIND)
            shutil.copytree(source, root, symlinks=True, ignore=ignored)  # each file once
            self._idle.put(Tree(root, sound, flawed))

    @contextmanager
    def borrowed(self) -> Iterator[Tree]:
        """Have one of them to oneself."""
        tree = self._idle.get()
        try:
            yield tree
        finally:
            self._idle.put(tree)


def _aside(file: Path) -> Path:
    """Return where a compiled file is kept while one with a mutation takes its place."""
    return file.with_name(f"{file.name}.aside")


def _within_budget(tests: list[str], seconds: dict[str, float], budget: float) -> list[str]:
    """Return the first tests that fit; one at least."""
    chosen: list[str] = []
    spent = 0.0
    for test in tests[:MAX_TESTS]:
        spent += seconds[test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


def _failed(output: str, tests: list[str]) -> str:
    """Return the test that pytest names as failed, else the last begun: the process ended in it."""
    if named := re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE):
        name = named[1]
        return name if name in tests else next((t for t in tests if t.startswith(name)), tests[0])
    begun = [line for line in output.splitlines() if "::" in line]
    fitting = [test for test in tests if begun and begun[-1].startswith(test)]
    return max(fitting, key=len, default=tests[0])


def _end(process: "subprocess.Popen[str]") -> None:
    """Kill what the tests have left running."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
