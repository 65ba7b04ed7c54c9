"""What compiles the core when cqstore is installed from its sources; read by setuptools alone."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError
from setuptools.extension import Extension

_building: "list[CompileParts]" = []
"""What the processes that compile are forked with: it goes through no pipe."""


class CompileParts(build_ext):  # type: ignore[misc]
    """Compiles, and says in a sentence what lacks where that fails."""

    def build_extensions(self) -> None:
        """Compile as many modules at a time as there are processors, the largest first.

        A module a process: Cython, which is half of the work, is Python and keeps state of its own.
        """
        processes = min(self.parallel or _processors(), len(self.extensions))
        if processes < 2:  # noqa: PLR2004
            super().build_extensions()
            return
        self.check_extensions_list(self.extensions)
        numbers = sorted(range(len(self.extensions)), key=self._size, reverse=True)
        _building[:] = [self]
        with ProcessPoolExecutor(processes, get_context("fork")) as pool:
            list(pool.map(_build, numbers))  # raises what the first to fail has raised

    def build_extension(self, ext: Extension) -> None:
        """Compile one module."""
        try:
            super().build_extension(ext)
        except (CompileError, ExecError, PlatformError) as exc:
            raise CompileError(
                f"{exc}\ncqstore compiles {ext.name} when it is installed from its sources, and"
                " needs a C compiler for that (gcc or clang, with Python's headers); where there"
                " is a wheel for the platform none is needed"
            ) from exc

    def _size(self, number: int) -> int:
        return sum(Path(source).stat().st_size for source in self.extensions[number].sources)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _build(number: int) -> None:
    command = _building[0]
    command.build_extension(command.extensions[number])
