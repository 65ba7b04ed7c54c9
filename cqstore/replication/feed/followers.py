"""Followers: the followers of a store, and what each has; the puts that wait for them.

A follower is a peer address: the wire carries no name. So two connections from one address count as
one follower, and so do two followers behind one address. What each has, and who waits for that, is
compiled: the thread that hears a follower wakes puts without the interpreter's lock, and a put that
waits alone hears itself.

Source: RocketMQ ``GroupTransferService``, ``DefaultHAService``, which count connections.
"""

from collections.abc import Callable

from cqstore.replication.feed._links import Link, Links
from cqstore.store.concurrency.checked_lock import CheckedLock

__all__ = ["Followers", "Link"]


class Followers:
    """The followers of one store, as its puts ask for them and its feeder knows them.

    Given to ``MessageStore.open`` and to the ``Feeder`` of that store. Any thread may call.
    """

    def __init__(self) -> None:
        self._links = Links()
        self._looks: tuple[Callable[[], object], ...] = ()  # replaced as a whole, under the lock
        self._changing = CheckedLock("a change of the listeners for waiting puts")

    # ---- what a store asks (``cqstore.store.service.writing.replicas.Replicas``)

    def reached(self, followers: int) -> int:
        """Return up to where so many distinct followers have the log; -1: nothing, or too few."""
        return self._links.reached(followers)

    def in_sync(self, phy_offset: int, gap: int) -> int:
        """Return how many distinct followers lack less than ``gap`` bytes before ``phy_offset``."""
        return self._links.in_sync(phy_offset, gap)

    def wait(self, phy_offset: int, followers: int, deadline: float) -> bool:
        """Return once so many distinct followers have the log up to ``phy_offset``.

        False when it is ``deadline``, by ``time.monotonic``. Only what was sent on a connection
        that is open counts.
        """
        return self._links.wait(phy_offset, followers, deadline, self._looks)

    @property
    def waiting(self) -> int:
        """Return how many puts wait."""
        return self._links.waiting

    # ---- what a feeder reports

    def add_listener(self, look: Callable[[], object]) -> None:
        """Have ``look`` called, by any thread, when a put begins to wait."""
        with self._changing.entry():
            self._looks = (*self._looks, look)

    def remove_listener(self, look: Callable[[], object]) -> None:
        """Call ``look`` no more."""
        with self._changing.entry():
            self._looks = tuple(each for each in self._looks if each != look)

    def join(self, address: str, port: int) -> Link:
        """Note a new connection; return the link that takes what it reports."""
        link = Link(address, port)
        self._links.join(link)
        return link

    def leave(self, link: Link) -> None:
        """Forget a connection; what it acknowledged counts no more."""
        self._links.leave(link)

    def begin(self, link: Link, request: int, start: int) -> None:
        """Note that it asked for ``request``, and is served from ``start`` on."""
        self._links.begin(link, request, start)

    def acknowledge(self, link: Link, phy_offset: int) -> None:
        """Note that it has what it was sent, up to ``phy_offset``; the caller has checked that."""
        self._links.acknowledge(link, phy_offset)

    def hear(self, link: Link, fd: int, patience: float) -> bytes:
        """Note what comes by the socket ``fd``, as long as that are whole reports of what was sent.

        Blocks. Returns what came that is something else, in part or at all; nothing of it is noted.
        Empty: the follower has closed the connection. Meanwhile ``fd`` may be read by a ``wait``.

        Raises:
            TimeoutError: nothing came for ``patience`` seconds.
            OSError: the connection is of no more use.
        """
        return self._links.hear(link, fd, patience)

    def links(self) -> list[Link]:
        """Return the connections there are."""
        return self._links.links()
