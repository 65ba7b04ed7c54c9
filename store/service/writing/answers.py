"""Answers: what a put waits for before it is answered, the disk and then the followers.

The one place where puts wait. ``GroupCommit`` knows the disk, ``ReplicaWait`` the followers.

Source: RocketMQ ``CommitLog.handleDiskFlushAndHA``.
"""

from collections.abc import Callable
from concurrent.futures import Future

from store.config import FlushDiskType, StoreConfig
from store.errors import StoreError
from store.future import StoreFuture
from store.service.results import PutMessageStatus
from store.service.writing.flush import FlushService
from store.service.writing.group_commit import GroupCommit
from store.service.writing.replicas import ReplicaWait

_OK = PutMessageStatus.PUT_OK


class Answers:
    """Answers the puts of one store. Any thread.

    ``replicas``: ``None`` where puts wait for none. ``failed`` is told when a flush failed: only
    reopening mends that.
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
        self.sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.waits = self.sync or replicas is not None
        """Whether a put waits for anything at all."""
        self._commit = commit
        self._flush = flush
        self._failed = failed

    def wait(self, phy_offset: int) -> PutMessageStatus:
        """Wait for what the settings promise of the log up to ``phy_offset``.

        What the disk does not have in time is not waited for any further: it is served to nobody.

        Raises:
            StoreError: the disk refused; the store has failed.
        """
        if self.sync and not self.is_durable(phy_offset):
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        if self.replicas is not None and not self.replicas.wait_for(phy_offset):
            return PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        return _OK

    def later(self, phy_offset: int) -> Future[PutMessageStatus]:
        """Return what ``wait`` would, as a future that other threads complete."""
        answer = StoreFuture[PutMessageStatus]()
        replicas = self.replicas

        def replicated(there: bool) -> None:  # noqa: FBT001
            answer.set_result(_OK if there else PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

        def durable(there: bool) -> None:  # noqa: FBT001
            if not there:
                answer.set_result(PutMessageStatus.FLUSH_DISK_TIMEOUT)
            elif replicas is None:
                answer.set_result(_OK)
            else:
                replicas.when_replicated(phy_offset, _then(answer, replicated))

        if self.sync:
            self._flush.when_durable(phy_offset, _then(answer, durable))
        else:
            durable(True)  # noqa: FBT003 - nobody waits for that
        return answer

    def is_durable(self, phy_offset: int) -> bool:
        """Wait for the disk; return whether it was in time.

        Raises:
            StoreError: it refused; the store has failed.
        """
        try:
            return self._commit.wait_for(phy_offset)
        except StoreError as exc:
            self._failed(exc)
            raise


def _then(answer: Future[PutMessageStatus], step: Callable[[bool], None]) -> Future[bool]:
    """Return a future whose result goes to ``step``, and whose fault to ``answer``."""

    def done(future: Future[bool]) -> None:
        try:
            step(future.result())
        except BaseException as exc:  # noqa: BLE001 - nobody else would tell who waits
            answer.set_exception(exc)

    given = StoreFuture[bool]()
    given.add_done_callback(done)
    return given
