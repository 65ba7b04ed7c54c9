"""Answers: what a put waits for before it is answered, the disk and then the followers.

The one place where puts wait. ``GroupCommit`` knows the disk, ``ReplicaWait`` the followers.

Source: RocketMQ ``CommitLog.handleDiskFlushAndHA``.
"""

from collections.abc import Callable
from concurrent.futures import InvalidStateError

from store.config import FlushDiskType, StoreConfig
from store.errors import StoreError
from store.future import Promised, Soon
from store.logger import StoreLogger
from store.service.results import PutMessageResult, PutMessageStatus
from store.service.writing.flush import FlushService
from store.service.writing.group_commit import GroupCommit
from store.service.writing.replicas import ReplicaWait

_LOG = StoreLogger(__name__)
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

    def later(
        self,
        result: PutMessageResult,
        promised: Promised[PutMessageResult],
        not_ok: Callable[[PutMessageStatus], object],
        soon: Soon,
    ) -> None:
        """Complete ``promised`` with ``result`` and the status that ``wait`` would return.

        Some other thread does it, or this one where it is known already. ``not_ok`` is told a
        status of another kind; ``soon`` has the disk asked.
        """
        waiting = _Waiting(result, promised, self.replicas, not_ok)
        if self.sync:
            self._flush.when_durable(waiting.phy_offset, waiting, soon)
        else:
            waiting.goes_on(there=True)  # nobody waits for the disk

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


class _Waiting:
    """A put that waits for the disk, and then for followers: told of each by the thread there.

    Who tells it has others to tell: nothing is raised there.
    """

    __slots__ = ("_is_durable", "_not_ok", "_promised", "_replicas", "_result", "phy_offset")

    def __init__(
        self,
        result: PutMessageResult,
        promised: Promised[PutMessageResult],
        replicas: ReplicaWait | None,
        not_ok: Callable[[PutMessageStatus], object],
    ) -> None:
        assert result.appended is not None  # who was refused waits for nothing
        self.phy_offset = result.phy_offset + result.appended.size
        self._result = result
        self._promised = promised
        self._replicas = replicas
        self._not_ok = not_ok
        self._is_durable = False

    def set_result(self, there: bool, /) -> None:  # noqa: FBT001
        """Take what the disk did in time, and the second time what the followers did."""
        try:
            self.goes_on(there=there)
        except BaseException as exc:  # noqa: BLE001 - nobody else would tell who waits
            self.set_exception(exc)

    def goes_on(self, *, there: bool) -> None:
        """Wait for what comes next, or be done."""
        if self._is_durable:
            self._complete(_OK if there else PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
        elif not there:
            self._complete(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        elif self._replicas is None:
            self._complete(_OK)
        else:
            self._is_durable = True
            self._replicas.when_replicated(self.phy_offset, self)

    def set_exception(self, exc: BaseException, /) -> None:
        """Take what kept the log from the disk."""
        try:
            self._promised.set_exception(exc)
        except InvalidStateError:  # it is the caller's, who may have completed it
            _LOG.warning("a put had been answered before: %s", exc)

    def _complete(self, status: PutMessageStatus) -> None:
        if status is not _OK:
            self._not_ok(status)
        same = status is self._result.status
        self._promised.set_result(self._result if same else self._result._replace(status=status))
