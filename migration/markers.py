"""Markers of finished tasks, and files with a version: the record of what has been done.

A task works in a folder of its own attempt and makes its marker last. Of several attempts the one
that has the marker counts; a marker without its files, or of another plan, is ignored.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from cqstore.store.errors import CorruptionError, UnsupportedFormatError, os_errors
from cqstore.store.files import read_file, replace_file, sync_folder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
MAX_PLAN_BYTES = 1 << 28
"""Of a plan or a report: some hundred bytes a segment or finding."""
_MAX_MARKER = 1 << 24
_MAX_PROGRESS = 20


def make_marker(
    marker: Path, attempt: str, done: "DataclassInstance", other: Callable[[], T | None]
) -> T | None:
    """Make the marker of one attempt, durably; return ``None``, or what another one was first with.

    ``other`` reads the existing marker, ``None`` if it is ignored.

    Raises:
        StoreIOError: the disk refused.
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
    """Return what a marker, or a note of that kind, says.

    Raises:
        OSError, CorruptionError, ValueError: there is none, or it is damaged.
    """
    return json.loads(read_file(marker, _MAX_MARKER))


def read_progress(path: Path) -> int:
    """Return the number that a task has left in ``path``.

    Raises:
        OSError, CorruptionError, ValueError: there is none, or it is being written.
    """
    return int(read_file(path, _MAX_PROGRESS))


def read_versioned(path: Path, kind: type[M], version: int, name: str) -> M:
    """Return a file of ours that says its ``format``; ``name`` is what it is, for errors.

    Raises:
        UnsupportedFormatError: it is of a newer version.
        CorruptionError: it is none.
        StoreIOError: it cannot be read.
    """
    with os_errors(f"read the {name}", path):
        text = read_file(path, MAX_PLAN_BYTES)
    try:
        found = json.loads(text)
        said = found.get("format") if isinstance(found, dict) else None
        if said != version and isinstance(said, int):
            raise UnsupportedFormatError(
                f"the {name} has format {said}, but this release reads format {version}", path=path
            )
        return kind.model_validate_json(text)
    except (ValueError, ValidationError, RecursionError) as exc:
        raise CorruptionError(f"not a valid {name}", path=path) from exc
