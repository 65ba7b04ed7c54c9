"""Compiled modules, found by their names (``_*.pyx``); all other settings are in pyproject.toml.

``python setup.py build_ext --inplace`` compiles what has changed, and nothing else.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError

HEADERS = "cqstore/store/core"
"""Folder of the C headers that several modules include."""


def compiled_modules() -> list[Extension]:
    """Return an extension for each ``_*.pyx`` of the package, links of its folder followed."""
    sources = sorted(
        Path(folder, name)
        for folder, _, names in os.walk("cqstore", followlinks=True)
        for name in names
        if name.startswith("_") and name.endswith(".pyx")
    )
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            include_dirs=[HEADERS],
            libraries=["dl"] if source.name == "_capi.pyx" else [],
        )
        for source in sources
    ]


class CompileModules(build_ext):  # type: ignore[misc]
    """``build_ext`` on all processors, with dependencies that Cython finds."""

    def finalize_options(self) -> None:
        """Use one folder for ``pip install --editable`` and ``--inplace``: each compiles once."""
        if self.inplace or self.editable_mode:
            self.build_lib = self.build_temp = f"build/compiled-{sys.implementation.cache_tag}"
        super().finalize_options()

    def run(self) -> None:
        """Translate what has changed with Cython, then compile what has changed with C."""
        from Cython.Build import cythonize  # noqa: PLC0415 - other commands need none

        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        done = cythonize(self.extensions, nthreads=processors, quiet=True)  # type: ignore[no-untyped-call]
        translated = {each.name: each for each in done}
        for module in self.extensions:
            module.sources = translated[module.name].sources
            module.depends = translated[module.name].depends
        self.parallel = processors
        super().run()

    def build_extension(self, ext: Extension) -> None:
        """Compile one module.

        Raises:
            CompileError: compilation failed; the message names what it requires.
        """
        try:
            super().build_extension(ext)
        except (CompileError, ExecError, PlatformError) as exc:
            raise CompileError(
                f"{exc}\ncannot compile {ext.name}: installing cqstore from source requires a C"
                " compiler (gcc or clang) and the headers of Python; installing a wheel does not"
            ) from exc


setup(ext_modules=compiled_modules(), cmdclass={"build_ext": CompileModules})
