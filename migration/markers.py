"""Attempts at tasks, markers of finished tasks, and files with a format version.

Each attempt at a task works in its own folder and creates the marker last. Of several attempts, the
one with the marker counts; a marker without its files, or of another plan, is ignored.
"""

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from cqstore.store.errors import CorruptionError, UnsupportedFormatError, os_errors
from cqstore.store.files import read_file, replace_file, sync_folder
from cqstore.store.path_kind import is_dir

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
PROGRESS = "progress"
"""File of an attempt's folder with the number of units done so far, while the attempt runs."""
MAX_PLAN_BYTES = 1 << 28
"""Maximum size of a plan or report; a segment or finding takes a few hundred bytes."""
_MAX_MARKER = 1 << 24
_MAX_PROGRESS = 20


class TaskDone(Protocol):
    """The result of a task, a dataclass; the content of its marker."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    attempt: str
    seconds: float
    files: dict[str, int]
    """Names and sizes of the files in the attempt's folder, without subfolders."""


D = TypeVar("D", bound=TaskDone)


class Attempts(Generic[D]):
    """The attempts at numbered tasks in one folder; several processes may attempt the same task."""

    def __init__(
        self, root: Path, kind: type[D], counts: Callable[[D], bool] = lambda _: True
    ) -> None:
        """``kind``: class of the results, of which only those count that ``counts`` accepts."""
        self.root = root
        self._kind = kind
        self._counts = counts

    def done(self, task: int) -> Path:
        """Return the marker of a finished task."""
        return self.root / f"{task:06d}.done"

    def attempt(self, task: int, attempt: str) -> Path:
        """Return the folder of one attempt at a task."""
        return self.root / f"{task:06d}.{attempt}"

    def read_done(self, task: int) -> D | None:
        """Return the marker of a task if its files exist, else ``None``."""
        try:
            done = self._kind(**read_marker(self.done(task)))
        except (OSError, CorruptionError, ValueError, TypeError):
            return None
        folder = self.attempt(task, done.attempt)
        there = files_in(folder) if is_dir(folder) else None
        return done if self._counts(done) and there == done.files else None

    def finished(self, tasks: int) -> dict[int, D]:
        """Return the results of the finished ones of so many tasks, in order."""
        found = ((task, self.read_done(task)) for task in range(tasks))
        return {task: done for task, done in found if done is not None}

    def mark(self, task: int, done: D) -> D | None:
        """Create the marker of a task; return that of another attempt if it was first."""
        return make_marker(self.done(task), done.attempt, done, lambda: self.read_done(task))

    def make(self, task: int, done: D, work: Callable[[Path], object]) -> D:
        """Call ``work`` with the folder of the attempt ``done``, and mark the task as done.

        Returns the result of another attempt if it was first; then, and if anything is raised, the
        folder is removed.

        Raises:
            StoreIOError: a file or folder cannot be created, read or removed.
        """
        folder = self.attempt(task, done.attempt)
        with os_errors("make the folder of an attempt", folder):
            folder.mkdir(parents=True)
        started = time.monotonic()
        try:
            work(folder)
            with os_errors("remove the progress of an attempt", folder / PROGRESS):
                (folder / PROGRESS).unlink(missing_ok=True)
            done.seconds = round(time.monotonic() - started, 3)
            done.files = files_in(folder)
            other = self.mark(task, done)
            if other is not None:
                with os_errors("remove the second attempt at a task", self.root):
                    shutil.rmtree(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return done if other is None else other

    def units_done(self) -> dict[int, int]:
        """Return the number of units per task that unfinished attempts have reported."""
        found: dict[int, int] = {}
        for path in self.root.glob("*/" + PROGRESS):
            try:
                task, units = int(path.parent.name.split(".")[0]), read_progress(path)
            except (OSError, CorruptionError, ValueError):  # removed, or being written
                continue
            found[task] = max(found.get(task, 0), units)
        return found

    def tidy(self, tasks: int, *others: Path) -> dict[int, D]:
        """Return the finished ones of so many tasks; remove all other files but ``others``."""
        with os_errors("clean up the workspace", self.root):
            self.root.mkdir(exist_ok=True)
            done, kept = self.finished(tasks), {*others}
            for task, each in done.items():
                kept |= {self.attempt(task, each.attempt), self.done(task)}
            for path in self.root.iterdir():
                if path in kept:
                    continue
                if is_dir(path):
                    # An abandoned task may still write: it finds no folder of this name.
                    gone = path.with_name(f"{path.name}.gone")
                    path.rename(gone)
                    shutil.rmtree(gone)
                else:
                    path.unlink(missing_ok=True)
        return done


def new_attempt() -> str:
    """Return a name for an attempt that no other attempt has."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:8]}"


def files_in(folder: Path) -> dict[str, int]:
    """Return the names and sizes of the files of an attempt, without its progress."""
    with os_errors("list the files of an attempt", folder):
        return {
            entry.name: entry.stat().st_size
            for entry in os.scandir(folder)
            if entry.is_file() and entry.name != PROGRESS
        }


def make_marker(
    marker: Path, attempt: str, done: "DataclassInstance", other: Callable[[], T | None]
) -> T | None:
    """Create the marker of one attempt durably; return that of another attempt if it was first.

    ``other`` reads the existing marker; it returns ``None`` if that marker is ignored.

    Raises:
        StoreIOError: the marker cannot be written.
    """
    mine = marker.with_name(f"{marker.name}.{attempt}")
    with os_errors("mark a task as done", marker):
        replace_file(mine, json.dumps(asdict(done)).encode())
        try:
            os.link(mine, marker)
        except FileExistsError:
            if (first := other()) is not None:
                return first
            mine.rename(marker)
        finally:
            mine.unlink(missing_ok=True)
        sync_folder(marker.parent)
    return None


def read_marker(marker: Path) -> Any:
    """Return the JSON content of a marker or state file.

    Raises:
        OSError, CorruptionError, ValueError: it does not exist or is damaged.
    """
    return json.loads(read_file(marker, _MAX_MARKER))


def read_progress(path: Path) -> int:
    """Return the number of units that a task has reported in ``path``.

    Raises:
        OSError, CorruptionError, ValueError: the file does not exist or is being written.
    """
    return int(read_file(path, _MAX_PROGRESS))


def read_versioned(path: Path, kind: type[M], version: int, name: str) -> M:
    """Read a file with a ``format`` field; ``name`` names the file in errors.

    Raises:
        UnsupportedFormatError: the file has a newer format.
        CorruptionError: the file is not valid.
        StoreIOError: the file cannot be read.
    """
    with os_errors(f"read the {name}", path):
        text = read_file(path, MAX_PLAN_BYTES)
    try:
        found = json.loads(text)
        given = found.get("format") if isinstance(found, dict) else None
        if given != version and isinstance(given, int):
            raise UnsupportedFormatError(
                f"the {name} has format {given}, but this release reads format {version}", path=path
            )
        return kind.model_validate_json(text)
    except (ValueError, ValidationError, RecursionError) as exc:
        raise CorruptionError(f"not a valid {name}", path=path) from exc
