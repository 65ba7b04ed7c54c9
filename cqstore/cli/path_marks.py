"""Checks of the paths that a verb writes: refused inside a store, locked against other processes.

A path that a verb reads must be a file or a folder, unless it is marked as ``InputStream``.

An option or argument is marked in its ``Annotated``: ``Annotated[Path, typer.Option(…),
OutputPath()]``. ``Verb`` then guards it while the verb runs, so no verb does it by itself.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.journals.output_lock import output_lock
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.service.layout.root_folder import refuse_in_store


@dataclass(frozen=True, slots=True)
class OutputPath:
    """Marks a parameter of a verb as a file or folder that the verb writes."""

    locked: bool = True
    """Lock the path. ``False``: its writer has its own lock, or uses a new name for each run."""
    is_store: bool = False
    """The path is the root of a store: a new one, or an existing one to continue with."""
    in_own_folder: bool = False
    """The path may be below ``cqstore/migration`` in a store, like the default workspace."""


class InputStream:
    """Marks a parameter of a verb that may name a pipe, a terminal, or ``-``."""


Marks = Mapping[str, OutputPath | InputStream]


def path_marks(function: Callable[..., Any]) -> Marks:
    """Return the marks of a verb's parameters, by their names."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        for mark in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(mark, OutputPath | InputStream):
                found[name] = mark
    return found


@contextmanager
def guarded(marks: Marks, given: Mapping[str, object]) -> Iterator[None]:
    """Check the paths in ``given``, and hold the locks of outputs while the block runs.

    Raises:
        RefusedStoreError: an output is inside a store, or a path is a pipe or a device.
        StoreLockedError: another process is writing to an output.
        StoreIOError: a path cannot be accessed or locked.
    """
    roots = _roots(given)
    locked = set[Path]()
    with ExitStack() as stack:
        for name, path in given.items():
            if not isinstance(path, Path):
                continue
            mark = marks.get(name)
            if not isinstance(mark, InputStream):
                _refuse_device(path)
            if isinstance(mark, OutputPath):
                refuse_in_store(
                    path, "output", *roots, is_store=mark.is_store, in_own_folder=mark.in_own_folder
                )
                if mark.locked and path.absolute() not in locked:  # the verb refuses duplicates
                    locked.add(path.absolute())
                    stack.enter_context(output_lock(path))
        yield


def _roots(given: Mapping[str, object]) -> list[Path]:
    """Return the stores that the verb works on."""
    several = given.get("roots")
    found = [given.get("root"), *(several if isinstance(several, list) else [])]
    return [root for root in found if isinstance(root, Path)]


def _refuse_device(path: Path) -> None:
    """Refuse a path that is neither a file nor a folder, as wrong use, not as damage.

    An output would replace a device by a file.

    Raises:
        RefusedStoreError: the path is a pipe or a device.
        StoreIOError: the path cannot be accessed.
    """
    with os_errors("access the path", path):
        if exists(path) and not is_file(path) and not is_dir(path):
            raise RefusedStoreError("the path is a pipe or a device, not a file", path=path)
