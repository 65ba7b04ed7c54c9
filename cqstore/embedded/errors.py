"""Errors of an embedded log that the store itself does not raise."""

from pathlib import Path

from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.service.results import PutMessageStatus


class PutRefusedError(StoreError):
    """A message was not stored; ``reason`` is the cause, ``status`` is RocketMQ's status."""

    def __init__(
        self,
        reason: str,
        *,
        path: Path | None = None,
        phy_offset: int | None = None,
        position: int | None = None,
        status: PutMessageStatus = PutMessageStatus.UNKNOWN_ERROR,
    ) -> None:
        super().__init__(reason, path=path, phy_offset=phy_offset, position=position)
        self.status = status


class TooManyTopicsError(RefusedStoreError):
    """The limit for new topics was reached; nothing was changed."""
