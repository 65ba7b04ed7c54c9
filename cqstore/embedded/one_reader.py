"""OneReader: an iterator over messages, for one task or one thread at a time."""

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Iterator
from math import inf
from time import monotonic
from typing import Generic, Self, TypeVar

from cqstore.store.errors import StoreError, StoreStateError
from cqstore.store.service.reading.arguments import check_seconds, check_texts
from cqstore.store.service.reading.puller import TagFilter

M = TypeVar("M")
_ONE_READER = "another task or thread is reading this tail: open one tail for each"
SKIPPED_MESSAGE = "skipped message %d of queue %d of topic %r: %s"


def filter_of(tags: str) -> TagFilter | None:
    """Return the filter for the ``tags`` of a read or a tail; ``None``: ``*``, all messages.

    Raises:
        TypeError: ``tags`` is not a string.
    """
    check_texts(tags=tags)
    return None if tags == "*" else TagFilter(tags)


class OneReader(ABC, Generic[M]):
    """Base class of tails: ``async for`` in an asyncio task, ``for`` in a thread."""

    _is_reading = False

    topic: str

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Return whether the tail was closed."""

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<{type(self).__name__} of topic {self.topic!r}{self._reader}, {state}>"

    @property
    def _reader(self) -> str:
        """Return the reader's part of ``repr``."""
        return ""

    @abstractmethod
    async def _next(self) -> M: ...

    @abstractmethod
    def _next_in_thread(self, deadline: float) -> M | None:
        """Wait until ``deadline`` of the monotonic clock; ``None``: no message, or closed.

        Raises:
            StoreError: no more messages can be read.
        """

    @abstractmethod
    def _read_again(self) -> None:
        """Recover from an exception of a signal handler while a message was being delivered."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading."""

    def _end(self, *, is_clean: bool) -> None:
        """End a ``with`` block; ``is_clean``: no exception was raised in it."""
        self.close()

    # ---- in a task

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        """Return the next message; wait until there is one.

        Raises:
            StoreStateError: another task or thread is reading the tail.
            StoreError: no more messages can be read; see the tail.
        """
        if self._is_reading:
            raise StoreStateError(_ONE_READER)
        # No call since the test, so no other thread and no handler ran in between.
        self._is_reading = True
        try:
            return await self._next()
        except (StoreError, StopAsyncIteration, CancelledError):  # cancelled while it waits
            raise
        except BaseException:
            self._read_again()
            raise
        finally:
            self._is_reading = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: object
    ) -> None:
        self._end(is_clean=kind is None)

    # ---- in a thread

    def __iter__(self) -> Iterator[M]:
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[M]:
        """Yield messages in this thread, and wait for new ones.

        Ends when the tail is closed by any thread, or when no message arrived for ``timeout``
        seconds; ``None`` waits without a limit. The tail can be iterated again afterwards.

        Raises:
            StoreStateError: another task or thread is reading the tail.
            StoreError: no more messages can be read; see the tail.
        """
        check_seconds(timeout=timeout)
        return self._messages(inf if timeout is None else timeout)

    def _messages(self, timeout: float) -> Iterator[M]:
        while True:
            if self._is_reading:
                raise StoreStateError(_ONE_READER)
            self._is_reading = True  # as in ``__anext__``
            try:
                message = self._next_in_thread(monotonic() + timeout)
            except StoreError:
                raise
            except BaseException:
                self._read_again()
                raise
            finally:
                self._is_reading = False
            if message is None:
                return
            yield message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: object
    ) -> None:
        self._end(is_clean=kind is None)
