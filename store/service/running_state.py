"""RunningState: whether a store takes writes, and why not.

Source: RocketMQ ``RunningFlags``.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store.errors import ReadOnlyStoreError, StoreClosedError, StoreError, StoreFailedError
from store.service.results import PutMessageResult, PutMessageStatus

_LOG = logging.getLogger(__name__)


class RunningState:
    """The state of one store. Any thread may ask and tell."""

    def __init__(self, root: Path, *, read_only: bool) -> None:
        self._root = root
        self._read_only = read_only
        self.closed = False
        self.failure: StoreError | None = None
        """The first write or flush that failed."""
        self._disk_full = ""
        self.unwritable = read_only
        """Whether anything forbids a put: all that a put looks at."""

    def close(self) -> None:
        """Take nothing any more."""
        self.closed = self.unwritable = True

    def fail(self, exc: StoreError) -> None:
        """Keep the first cause; whoever waited for the same flush may tell of it first."""
        if isinstance(exc, StoreFailedError) and isinstance(exc.__cause__, StoreError):
            exc = exc.__cause__
        if self.failure is None:
            self.failure = exc
        self.unwritable = True

    def set_disk_full(self, reason: str) -> None:
        """Take no puts for ``reason``, one sentence; with an empty one take them again."""
        if reason != self._disk_full:
            _LOG.warning("%s", reason or "the disk has room again: puts are taken")
        self._disk_full = reason
        self.unwritable = bool(self._read_only or self.closed or self.failure or reason)

    def refuse_put(self) -> PutMessageResult:
        """Raise why the store takes no puts, or return the status of a disk that is nearly full."""
        self.check_writable()
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=self._disk_full)

    def check_open(self) -> None:
        """Raise ``StoreClosedError`` after ``close``."""
        if self.closed:
            raise StoreClosedError("the store is closed", path=self._root)

    def check_writable(self) -> None:
        """Raise what forbids to write; a disk that is nearly full forbids puts alone."""
        self.check_open()
        if self._read_only:
            raise ReadOnlyStoreError("the store was opened read-only", path=self._root)
        if self.failure is not None:
            raise StoreFailedError(
                f"an earlier write failed, close the store and open it again: {self.failure}",
                path=self._root,
            ) from self.failure

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Refuse where nothing may be written; a failure of the block ends all writing."""
        self.check_writable()
        with self.failing():
            yield

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Let a failure of the block end all writing."""
        try:
            yield
        except StoreError as exc:
            self.fail(exc)
            raise
