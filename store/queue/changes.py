"""Changes: detects whether replicas that are written one after the other are consistent."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from cqstore.store.errors import StoreError, StoreFailedError
from cqstore.store.sentences import REOPEN

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Changes:
    """Counts the writes that have begun and ended. Any thread.

    A reader that gets the same ``moment`` before and after its read, not ``None``, has read all
    replicas between the end of one write and the begin of another. Neither side blocks.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards both counts
        self._begun = self._ended = 0
        self.cut_short = False
        """A write ended with an exception that is not a replica's error: replicas may differ."""
        self.losses = 0
        """Number of begins and ends of losses of units at the ends of queues."""

    def __enter__(self) -> None:
        with self._lock:
            self._begun += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, StoreError):
            self.cut_short = True
        with self._lock:
            self._ended += 1

    def check(self) -> None:
        """Refuse a write after one that was interrupted.

        Raises:
            StoreFailedError: an earlier write was interrupted.
        """
        if self.cut_short:
            raise StoreFailedError(f"a write to the queues was interrupted. {REOPEN}")

    def note_loss(self) -> None:
        """Count the begin or the end of a loss of units."""
        with self._lock:
            self.losses += 1

    @property
    def moment(self) -> int | None:
        """Return a number for the present moment; ``None`` while a write is in progress.

        After a write that was interrupted, it stays ``None``.
        """
        ended = self._ended  # first: detects a write that begins and ends in between
        return ended if self._begun == ended else None


class _Changing(Protocol):
    """A store of queues that counts its writes in ``changes``."""

    changes: Changes


_S = TypeVar("_S", bound=_Changing)


def changing(
    write: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """Count the calls of a method that writes to all replicas in ``self.changes``.

    After an interrupted call, all further calls are refused.
    """

    @wraps(write)
    def counted(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self.changes.check()
        with self.changes:
            return write(self, *args, **kwargs)

    return counted


def losing(
    write: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """Like ``changing``, for a method that may set the ends of queues back."""

    @changing
    @wraps(write)
    def counted(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self.changes.note_loss()
        try:
            return write(self, *args, **kwargs)
        finally:
            self.changes.note_loss()

    return counted
