"""OneReader: an asynchronous iterator over messages that one task reads at a time."""

from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

from cqstore.store.errors import StoreStateError
from cqstore.store.service.reading.arguments import check_texts
from cqstore.store.service.reading.puller import TagFilter

M = TypeVar("M")


def filter_of(tags: str) -> TagFilter | None:
    """Return the filter that ``tags`` of a read or a tail asks for; ``None``: ``*``, all messages.

    Raises:
        TypeError: it is no text.
    """
    check_texts(tags=tags)
    return None if tags == "*" else TagFilter(tags)


class OneReader(ABC, Generic[M]):
    """What each tail is; ``_next`` waits for the next message, or ends the iteration."""

    _is_asked = False

    topic: str

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Return whether it gives no more messages."""

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<{type(self).__name__} of topic {self.topic!r}{self._reader}, {state}>"

    @property
    def _reader(self) -> str:
        """Return what ``repr`` says of who reads."""
        return ""

    @abstractmethod
    async def _next(self) -> M: ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        """Return the next message, once there is one.

        Raises:
            StoreStateError: another task waits for the next one.
            StoreError: nothing will come; the tail says when.
        """
        if self._is_asked:
            raise StoreStateError("a tail is read by one task at a time: open one for each")
        self._is_asked = True
        try:
            return await self._next()
        finally:
            self._is_asked = False
