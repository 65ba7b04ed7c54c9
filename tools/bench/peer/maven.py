"""A Java program over RocketMQ's store, built once for a version by Maven."""

import fcntl
import os
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref")
_MAVEN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Maven ends before a better compiler and collector would have paid for themselves."""


class UnavailableError(Exception):
    """Java or Maven is missing, or Maven's repository does not answer."""


@dataclass(frozen=True)
class JavaProgram:
    """What lies in ``folder`` (its ``pom.xml`` has the property ``rocketmq``), for one version."""

    folder: Path
    main: str
    version: str
    properties: tuple[str, ...] = ()
    """Further properties of ``pom.xml``, ``name=value``."""

    @classmethod
    def build(cls, folder: Path, main: str, version: str, *properties: str) -> "JavaProgram":
        """Compile, if a source is newer than what was compiled; one process at a time.

        Raises:
            UnavailableError: it cannot be done here.
        """
        program = cls(folder, main, version, properties)
        with alone():
            program._compile()
        return program

    def _compile(self) -> None:
        """Compile the program, unless it was since its sources changed.

        Raises:
            UnavailableError: it cannot be compiled.
        """
        built = self.target / "program.jar"
        sources = [self.folder / "pom.xml", *(self.folder / "src").rglob("*.*")]
        newest = max(source.stat().st_mtime for source in sources)
        if built.exists() and built.stat().st_mtime >= newest:
            return
        words = (f"rocketmq={self.version}", *self.properties)
        goals = ["compile", "dependency:copy-dependencies"]
        command = ["mvn", "-q", "-B", *(f"-D{word}" for word in words), *goals]
        options = f"{_MAVEN_JVM} {os.environ.get('MAVEN_OPTS', '')}"
        try:
            subprocess.run(
                command, cwd=self.folder, check=True, capture_output=True, timeout=900,
                env=os.environ | {"MAVEN_OPTS": options},
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as exc:
            output = getattr(exc, "stdout", None) or b""
            raise UnavailableError(f"{exc}: {output[-500:].decode(errors='replace')}") from exc
        self._pack(built)

    def _pack(self, built: Path) -> None:
        """Make a jar of the classes: ``-XX:SharedArchiveFile`` works with jars alone."""
        classes, partial = self.target / "classes", built.with_suffix(".part")
        with zipfile.ZipFile(partial, "w") as jar:
            for path in sorted(classes.rglob("*")):
                jar.write(path, path.relative_to(classes))
        for archive in self.target.glob("*.jsa"):
            archive.unlink()  # of the former classes
        partial.replace(built)

    def command(self, home: Path | str, heap: Sequence[str]) -> list[str]:
        """Return how it is started; RocketMQ writes logs of its own below ``home``."""
        return [
            "java", *heap, f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
            "-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
            "-cp", f"{self.target}/program.jar:{self.target}/dependency/*", self.main,
        ]  # fmt: skip

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the environment: names of files are UTF-8."""
        return os.environ | {"LC_ALL": "C.UTF-8"}

    @property
    def target(self) -> Path:
        """The folder of what was compiled, for this version."""
        return self.folder / "target" / self.version


@contextmanager
def alone() -> Iterator[None]:
    """Hold off other processes of this checkout: Maven's repository takes one writer."""
    with Path(__file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
