"""What compiles the core when cqstore is installed from its sources; read by setuptools alone."""

import os
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError
from setuptools.extension import Extension


class CompileParts(build_ext):  # type: ignore[misc]
    """Compiles, and says in a sentence what lacks where that fails."""

    def build_extensions(self) -> None:
        """Compile as many modules at a time as there are processors, the largest first.

        Each in a forked process: Cython is Python, half of the work, and keeps state of its own.
        Nothing is pickled on the way there, for setuptools imports this module by its path.

        Raises:
            CompileError: a module could not be compiled.
        """
        processes = min(self.parallel or _processors(), len(self.extensions))
        if processes < 2:  # noqa: PLR2004
            super().build_extensions()
            return
        self.check_extensions_list(self.extensions)
        order = sorted(self.extensions, key=_source_bytes, reverse=True)
        context = get_context("fork")
        words = order, context.Value("i", 0), context.SimpleQueue()
        running = [context.Process(target=self._build_some, args=words) for _ in range(processes)]
        for process in running:
            process.start()
        for process in running:
            process.join()
        if not words[2].empty():
            raise CompileError(words[2].get())
        if any(process.exitcode for process in running):
            raise CompileError("a process that compiled has ended before its work")

    def _build_some(self, order: Sequence[Extension], taken: Any, faults: Any) -> None:
        """Compile what no process has ``taken``, until all is or one fails."""
        while True:
            with taken.get_lock():
                number, taken.value = taken.value, taken.value + 1
            if number >= len(order):
                return
            try:
                self.build_extension(order[number])
            except CompileError as exc:
                taken.value = len(order)
                faults.put(str(exc))
                return

    def build_extension(self, ext: Extension) -> None:
        """Compile one module.

        Raises:
            CompileError: it could not be compiled; the sentence says what that takes.
        """
        try:
            super().build_extension(ext)
        except (CompileError, ExecError, PlatformError) as exc:
            raise CompileError(
                f"{exc}\ncqstore compiles {ext.name} when it is installed from its sources, and"
                " needs a C compiler for that (gcc or clang, with Python's headers); where there"
                " is a wheel for the platform none is needed"
            ) from exc


def _source_bytes(ext: Extension) -> int:
    return sum(Path(source).stat().st_size for source in ext.sources)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
