"""AckWaiter: the waits of a put before it is acknowledged: for the disk, then for followers.

The only place where puts wait. ``GroupCommit`` waits for the disk, ``ReplicaWait`` for followers.

Source: RocketMQ ``CommitLog.handleDiskFlushAndHA``.
"""

from collections.abc import Callable

from cqstore.store.concurrency.future import Promised, Soon
from cqstore.store.errors import StoreError
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.writing import _waits
from cqstore.store.service.writing.flush import FlushService
from cqstore.store.service.writing.group_commit import GroupCommit
from cqstore.store.service.writing.replicas import ReplicaWait
from cqstore.store.settings.config import StoreConfig

_OK = PutMessageStatus.PUT_OK


class AckWaiter:
    """Acknowledges the puts of one store. Any thread.

    ``replicas``: ``None`` if puts wait for none. ``failed`` is called when a flush failed: only
    opening the store again repairs that.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit: GroupCommit,
        flush: FlushService,
        replicas: ReplicaWait | None,
        failed: Callable[[BaseException], object],
    ) -> None:
        self.replicas = replicas
        self.sync = config.syncs_each_put
        self.waits = self.sync or replicas is not None
        """Whether a put waits for the disk or for followers."""
        self._commit = commit
        self._flush = flush
        self._failed = failed

    def wait(self, phy_offset: int) -> PutMessageStatus:
        """Wait for the durability and replication that the settings require up to ``phy_offset``.

        If the disk is late, followers are not waited for: no reader gets such data.

        Raises:
            StoreError: a sync failed; the store has failed.
        """
        if self.sync and not self.is_durable(phy_offset):
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        if self.replicas is not None and not self.replicas.wait_for(phy_offset):
            return PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        return _OK

    def later(
        self,
        result: PutMessageResult,
        promised: Promised[PutMessageResult],
        not_ok: Callable[[PutMessageStatus], object],
        soon: Soon,
    ) -> None:
        """Complete ``promised`` with ``result`` and the status that ``wait`` would return.

        Another thread completes it, or this one if the status is known already. ``not_ok`` is
        called with any status other than OK; ``soon`` triggers the sync.
        """
        waiting = _waits.LaterAnswer(result, promised, self.replicas, not_ok)
        if self.sync:
            self._flush.when_durable(waiting.phy_offset, waiting, soon)
        else:
            waiting.goes_on()  # no wait for the disk

    def is_durable(self, phy_offset: int) -> bool:
        """Wait for the disk; return whether it was in time.

        Raises:
            StoreError: a sync failed; the store has failed.
        """
        try:
            return self._commit.wait_for(phy_offset)
        except StoreError as exc:
            self._failed(exc)
            raise
