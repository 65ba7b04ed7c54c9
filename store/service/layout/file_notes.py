"""Unusual files in the folders of a store: reported, but not damage.

A reader skips them. A broker does not start with a foreign file among the files of the log, so an
opening for writing names the command that moves such files away.

Source: RocketMQ ``MappedFileQueue.doLoad``, ``StoreCheckpoint``.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.paths import beside

_MAX_NAMED = 20
"""Maximum number of files in one command."""


@dataclass(frozen=True, slots=True)
class FileNote:
    """A note on an unusual file in a store. No record is missing because of it."""

    problem: str
    path: Path
    fault: CorruptionError | None = None
    """The fault in the file, with expected and found values."""

    def __str__(self) -> str:
        return f"{self.problem} ({self.path})"


def of_foreign_files(root: Path, foreign: Sequence[Path]) -> list[FileNote]:
    """Return a note for each foreign file among the files of the commit log of ``root``."""
    return [
        FileNote(
            "not a file of the commit log: cqstore skips it, but a broker does not start with it."
            f" Move it away: {_command(root, [path])}",
            path,
        )
        for path in foreign
    ]


def of_checkpoint(path: Path, fault: CorruptionError | None) -> list[FileNote]:
    """Return a note if the checkpoint is not as a writer leaves it."""
    if fault is None:
        return []
    problem = f"{fault.reason}; the store opens anyway, and the next writer replaces the file"
    return [FileNote(problem, path, fault)]


def refuse_foreign_files(root: Path, foreign: Sequence[Path]) -> None:
    """Refuse to write to a store with foreign files among the files of its commit log.

    Raises:
        RefusedStoreError: there are foreign files; the error names them, and the command that moves
            them away.
    """
    if not foreign:
        return
    names = ", ".join(path.name for path in foreign[:_MAX_NAMED])
    more = len(foreign) - _MAX_NAMED
    rest = f" and {more} more, which the next open reports" if more > 0 else ""
    raise RefusedStoreError(
        f"{len(foreign)} of the files here are not files of the commit log ({names}{rest}), and a"
        " broker does not start with them. Move them away:"
        f" {_command(root, foreign[:_MAX_NAMED])}",
        path=foreign[0].parent,
    )


def _command(root: Path, paths: Sequence[Path]) -> str:
    """Return the command that moves ``paths`` to a folder next to the store ``root``."""
    folder = shlex.quote(str(beside(root, ".foreign")))
    names = " ".join(shlex.quote(str(path)) for path in paths)
    return f"mkdir -p {folder} && mv {names} {folder}"
