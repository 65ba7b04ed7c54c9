"""Followers: the followers of a store, and what each has; the puts that wait for them.

A follower is a peer address: the wire carries no name. So two connections from one address count as
one follower, and so do two followers behind one address.

Source: RocketMQ ``GroupTransferService``, ``DefaultHAService``, which count connections.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from store.checked_lock import CheckedLock

NOT_SAID = -1


@dataclass(eq=False, slots=True)
class Link:
    """One connection of a follower, changed only where it is served; others ask ``Followers``."""

    address: str
    port: int
    position: int = NOT_SAID
    """Up to where it says that it has the log: what it asked for, then what it acknowledged."""
    start: int = NOT_SAID
    """From where on it is sent the log."""
    sent: int = NOT_SAID
    """Up to where it was sent the log."""
    acknowledged: int = NOT_SAID
    """Up to where it says that it has what it was sent; where it wants to begin says nothing."""


class Followers:
    """The followers of one store, as its puts ask for them and its feeder knows them.

    Given to ``MessageStore.open`` and to the ``Feeder`` of that store. Any thread may call.
    """

    def __init__(self) -> None:
        self._lock = CheckedLock(
            "a change of the followers"
        )  # guards links, what they report, and the waiting puts
        self._links: set[Link] = set()
        self._waiting: set[_Waiter] = set()
        self._looks: tuple[Callable[[], object], ...] = ()

    @property
    def locks(self) -> tuple[CheckedLock, ...]:
        """Return what a thread must not hold that waits for followers."""
        return (self._lock,)

    # ---- what a store asks (``store.service.writing.replicas.Replicas``)

    def reached(self, followers: int) -> int:
        """Return up to where so many distinct followers have the log; -1: nothing, or too few."""
        with self._lock.entry():
            return self._reached(followers)

    def in_sync(self, phy_offset: int, gap: int) -> int:
        """Return how many distinct followers lack less than ``gap`` bytes before ``phy_offset``."""
        with self._lock.entry():
            return len({
                link.address for link in self._links if 0 <= link.position > phy_offset - gap
            })  # fmt: skip

    def wait(self, phy_offset: int, followers: int, deadline: float) -> bool:
        """Return once so many distinct followers have the log up to ``phy_offset``.

        False when it is ``deadline``, by ``time.monotonic``. Only what was sent on a connection
        that is open counts.
        """
        waiter = _Waiter(phy_offset, followers)
        try:
            with self._lock.entry():
                if self._reached(followers) >= phy_offset:
                    waiter.served = True
                    return True
                self._waiting.add(waiter)
                looks = self._looks
            for look in looks:
                look()
            waiter.gate.acquire(timeout=max(deadline - time.monotonic(), 0))
        finally:
            if not waiter.served:  # else it has been forgotten
                with self._lock.entry():
                    self._waiting.discard(waiter)
        return waiter.served

    # ---- what a feeder reports

    def add_listener(self, look: Callable[[], object]) -> None:
        """Have ``look`` called, by any thread, when a put begins to wait."""
        with self._lock.entry():
            self._looks = (*self._looks, look)

    def remove_listener(self, look: Callable[[], object]) -> None:
        """Call ``look`` no more."""
        with self._lock.entry():
            self._looks = tuple(each for each in self._looks if each != look)

    def join(self, address: str, port: int) -> Link:
        """Note a connection."""
        link = Link(address, port)
        with self._lock.entry():
            self._links.add(link)
        return link

    def leave(self, link: Link) -> None:
        """Forget a connection; what it acknowledged counts no more."""
        with self._lock.entry():
            self._links.discard(link)

    def begin(self, link: Link, request: int, start: int) -> None:
        """Note that it asked for ``request``, and is served from ``start`` on."""
        with self._lock.entry():
            link.position, link.start, link.sent = request, start, start

    def acknowledge(self, link: Link, phy_offset: int) -> None:
        """Note that it has what it was sent, up to ``phy_offset``; the caller has checked that."""
        with self._lock.entry():
            link.position = phy_offset
            if phy_offset <= link.start:
                return  # of nothing that was sent here
            link.acknowledged = phy_offset
            served = self._served()
        for waiter in served:  # without the lock: each of them would wait for it
            waiter.gate.release()

    def links(self) -> list[Link]:
        """Return the connections there are."""
        with self._lock.entry():
            return list(self._links)

    # ---- inside, under the lock

    def _served(self) -> list["_Waiter"]:
        """Return those that have waited long enough, and forget them."""
        served, reached = list[_Waiter](), dict[int, int]()
        for waiter in self._waiting:
            at = reached.get(waiter.followers)
            if at is None:
                at = reached[waiter.followers] = self._reached(waiter.followers)
            if at >= waiter.phy_offset:
                served.append(waiter)
        for waiter in served:
            waiter.served = True
            self._waiting.discard(waiter)
        return served

    def _reached(self, followers: int) -> int:
        """Return up to where so many distinct ones have the log."""
        having: dict[str, int] = {}
        for link in self._links:
            having[link.address] = max(link.acknowledged, having.get(link.address, NOT_SAID))
        if len(having) < followers:
            return NOT_SAID
        return max(having.values()) if followers == 1 else sorted(having.values())[-followers]


class _Waiter:
    """A put that waits."""

    __slots__ = ("followers", "gate", "phy_offset", "served")

    def __init__(self, phy_offset: int, followers: int) -> None:
        self.phy_offset = phy_offset
        self.followers = followers
        self.served = False
        self.gate = threading.Lock()
        self.gate.acquire()
