"""Paths that a verb writes: refused inside a store, and locked against other processes.

An option or argument is marked in its ``Annotated``: ``Annotated[Path, typer.Option(…),
OutputPath()]``. ``Verb`` then guards it while the verb runs, so no verb does it by itself.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cqstore.store.journals.output_lock import output_lock
from cqstore.store.service.layout.root_folder import refuse_in_store


@dataclass(frozen=True, slots=True)
class OutputPath:
    """Marks a parameter of a verb as a file or folder that the verb writes."""

    locked: bool = True
    """Lock it. ``False``: what writes it has a lock of its own, or a new name for each run."""
    is_store: bool = False
    """It is the root of a store, a new one or, to go on with, one that is there."""
    in_own_folder: bool = False
    """It may be below ``cqstore/migration`` in a store, as a workspace is by default."""


def output_paths(function: Callable[..., Any]) -> dict[str, OutputPath]:
    """Return the marks of a verb's parameters, by their names."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        for mark in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(mark, OutputPath):
                found[name] = mark
    return found


@contextmanager
def guarded(marks: Mapping[str, OutputPath], given: Mapping[str, object]) -> Iterator[None]:
    """Hold the locks of the paths in ``given`` that have a mark, while the block runs.

    Raises:
        RefusedStoreError: one is inside a store: that of the verb, or any other.
        StoreLockedError: another process writes one.
        StoreIOError: one cannot be looked at or locked.
    """
    roots = [root for root in [given.get("root")] if isinstance(root, Path)]
    with ExitStack() as stack:
        for name, mark in marks.items():
            path = given.get(name)
            if not isinstance(path, Path):
                continue
            refuse_in_store(
                path, "output", *roots, is_store=mark.is_store, in_own_folder=mark.in_own_folder
            )
            if mark.locked:
                stack.enter_context(output_lock(path))
        yield
