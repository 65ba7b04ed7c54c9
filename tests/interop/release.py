"""Runs the store of other releases of RocketMQ, through the Java program in ``releases``."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.interop.started import Row, joined, pairs, ran
from tools.bench.peer.maven import JavaProgram

_FOLDER = Path(__file__).parent / "releases"
_STANDS_ON = {"5.3.4": "5.3.3"}
"""Releases of which the store alone is published, and whose other modules it runs on."""

FILE, ROCKSDB = "default", "defaultRocksDB"


@dataclass(frozen=True)
class Release:
    """One release, built. Queues of 4.9 are files, whatever is asked for."""

    program: JavaProgram

    @classmethod
    def build(cls, version: str) -> "Release":
        """Compile the program against ``version``, once.

        Raises:
            UnavailableError: it cannot be done here.
        """
        main, without = ("Four", "Five") if version.startswith("4.") else ("Five", "Four")
        words = (f"others={_STANDS_ON.get(version, version)}", f"without={without}")
        return cls(JavaProgram.build(_FOLDER, f"interop.{main}", version, *words))

    def write(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], count: int, *, crash: bool,
        **settings: object,
    ) -> list[Row]:  # fmt: skip
        """Put ``count`` messages of all kinds, by turns to each queue; return where they are."""
        words = [str(count), "crash" if crash else "close"]
        return self._run("write", root, kind, queues, words, settings)

    def dump(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], **settings: object
    ) -> list[Row]:
        """Open the store and return what is read of it; the store is then closed."""
        return self._run("dump", root, kind, queues, [], settings)

    def _run(
        self,
        verb: str,
        root: Path,
        kind: str,
        queues: Iterable[tuple[str, int]],
        words: list[str],
        settings: dict[str, object],
    ) -> list[Row]:
        line = [verb, str(root), kind, joined(queues), *words, *pairs(settings)]
        return ran(self.program, line)
