"""Markers of finished tasks, and files with a format version.

Each attempt of a task works in its own folder and creates the marker last. Of several attempts, the
one with the marker counts; a marker without its files, or of another plan, is ignored.
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
"""Maximum size of a plan or report; a segment or finding takes a few hundred bytes."""
_MAX_MARKER = 1 << 24
_MAX_PROGRESS = 20


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
