"""HeldPulls: pulls that wait until their queue has a message, or their time has passed.

A waiting pull is one entry in a table and one timer of the event loop; nothing is polled for it.

Source: RocketMQ ``PullRequestHoldService``, ``NotifyMessageArrivingListener``.
"""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from cqstore.serve.limits import Quota, ServeLimits
from cqstore.store.queue.units import QueueKey

_TURN = 256
"""Number of queues that are checked before other tasks of the loop run."""


class PullLink(Protocol):
    """The connection of a waiting pull."""

    address: str
    """IP address of the client."""

    @property
    def is_blocked(self) -> bool:
        """Return whether the client has not read earlier responses."""


class HeldPull:
    """One waiting pull."""

    __slots__ = ("key", "link", "offset", "timer")

    def __init__(self, key: QueueKey, offset: int, link: PullLink) -> None:
        self.key = key
        self.offset = offset
        self.link = link
        self.timer: asyncio.TimerHandle | None = None

    def try_answer(self, *, is_last: bool) -> bool:
        """Answer if there is something to answer, or ``is_last``; return whether it was done."""
        raise NotImplementedError


class HeldPulls:
    """The waiting pulls of one server, in its event loop."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._quota = Quota(limits.waiting_pulls, limits.waiting_pulls_per_address)
        self._by_key: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_link: dict[PullLink, dict[HeldPull, None]] = {}

    def __len__(self) -> int:
        return self._quota.total

    def hold(self, pull: HeldPull, seconds: float) -> bool:
        """Hold ``pull`` for ``seconds`` at most; return false if too many are waiting."""
        if not self._quota.has_room(pull.link.address):
            return False
        self._quota.add(pull.link.address)
        self._by_key.setdefault(pull.key, {})[pull] = None
        self._by_link.setdefault(pull.link, {})[pull] = None
        loop = asyncio.get_running_loop()
        left = min(seconds, self._limits.suspend_seconds)
        pull.timer = loop.call_later(left, self._time_out, pull)
        return True

    def wake(self, keys: Iterable[QueueKey]) -> None:
        """Answer the pulls of queues that have new messages."""
        for key in keys:
            self._try(list(self._by_key.get(key, ())))

    async def wake_all(self) -> None:
        """Answer the pulls of all queues that have new messages; other tasks run meanwhile."""
        keys = iter(list(self._by_key))
        while some := list(islice(keys, _TURN)):
            self.wake(some)
            await asyncio.sleep(0)

    def wake_link(self, link: PullLink) -> None:
        """Answer the pulls of a client that was not reading, and now is."""
        self._try(list(self._by_link.get(link, ())))

    def drop(self, link: PullLink) -> None:
        """Forget the pulls of a client that has gone."""
        for pull in list(self._by_link.get(link, ())):
            self._remove(pull)

    def _try(self, pulls: list[HeldPull]) -> None:
        for pull in pulls:
            if not pull.link.is_blocked and pull.try_answer(is_last=False):
                self._remove(pull)

    def _time_out(self, pull: HeldPull) -> None:
        self._remove(pull)
        pull.try_answer(is_last=True)

    def _remove(self, pull: HeldPull) -> None:
        if pull.timer is not None:
            pull.timer.cancel()
        of_key, of_link = self._by_key.get(pull.key, {}), self._by_link.get(pull.link, {})
        if pull not in of_key:
            return
        self._quota.add(pull.link.address, -1)
        del of_key[pull], of_link[pull]
        if not of_key:
            del self._by_key[pull.key]
        if not of_link:
            del self._by_link[pull.link]
