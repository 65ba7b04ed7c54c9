import asyncio
from collections.abc import Callable
from typing import Self

from cqstore.store.concurrency.checked_lock import RLock
from cqstore.store.concurrency.future import Promised
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.writing.loop_puts import _InLoop
from cqstore.store.service.writing.replicas import ReplicaWait

class DiskWaits:
    def __init__(
        self, log: CommitLog, sync: Callable[[], float], leading: RLock, *, look_again: float = 0.1
    ) -> None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def expected(self) -> int: ...
    def wait(self, phy_offset: int, seconds: float) -> bool: ...

class LaterAnswer:
    phy_offset: int
    def __new__(
        cls,
        result: PutMessageResult,
        promised: Promised[PutMessageResult],
        replicas: ReplicaWait | None,
        not_ok: Callable[[PutMessageStatus], object],
    ) -> Self: ...
    def set_result(self, there: bool, /) -> None: ...
    def goes_on(self, there: bool = True) -> None: ...
    def set_exception(self, exc: BaseException, /) -> None: ...

class AwaitedPut:
    future: asyncio.Future[None] | None
    is_notified: bool
    def __new__(cls, of: _InLoop) -> Self: ...
    def set_result(self, result: PutMessageResult, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def answer(self) -> PutMessageResult: ...
