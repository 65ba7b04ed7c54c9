"""What compiles the core when cqstore is installed from its sources; read by setuptools alone."""

from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, PlatformError
from setuptools.extension import Extension


class CompileParts(build_ext):  # type: ignore[misc]
    """Compiles, and says in a sentence what lacks where that fails."""

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
