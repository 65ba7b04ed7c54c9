"""Followers: the followers of a store, the progress of each, and the puts that wait for them.

A follower is identified by its peer address, because the protocol carries no name. So two
connections from one address count as one follower, and so do two followers that share one address.
Progress and waits are compiled: the thread that reads a follower's reports wakes puts without the
interpreter's lock, and a put that waits alone reads the report itself.

Source: RocketMQ ``GroupTransferService``, ``DefaultHAService``, which count connections.
"""

from collections.abc import Callable

from cqstore.replication.feed._links import Link, Links
from cqstore.store.concurrency.checked_lock import CheckedLock

__all__ = ["Followers", "Link"]


class Followers:
    """The followers of one store, shared by its puts and its ``Feeder``.

    Pass it to ``MessageStore.open`` and to the ``Feeder`` of that store. Any thread may call.
    """

    def __init__(self) -> None:
        self._links = Links()
        self._looks: tuple[Callable[[], object], ...] = ()  # replaced as a whole, under the lock
        self._changing = CheckedLock("a change of the listeners for waiting puts")

    # ---- called by a store (``cqstore.store.service.writing.replicas.Replicas``)

    def reached(self, followers: int) -> int:
        """Return the phy offset that this many distinct followers have; -1: too few followers."""
        return self._links.reached(followers)

    def in_sync(self, phy_offset: int, gap: int) -> int:
        """Return the number of distinct followers that lag ``phy_offset`` by less than ``gap``."""
        return self._links.in_sync(phy_offset, gap)

    def wait(self, phy_offset: int, followers: int, deadline: float) -> bool:
        """Wait until this many distinct followers have the log up to ``phy_offset``.

        Returns False at ``deadline``, by ``time.monotonic``. Only bytes that were sent on an open
        connection count.
        """
        return self._links.wait(phy_offset, followers, deadline, self._looks)

    @property
    def waiting(self) -> int:
        """Return the number of waiting puts."""
        return self._links.waiting

    # ---- called by a feeder

    def add_listener(self, look: Callable[[], object]) -> None:
        """Call ``look``, in any thread, when a put begins to wait."""
        with self._changing.entry():
            self._looks = (*self._looks, look)

    def remove_listener(self, look: Callable[[], object]) -> None:
        """Stop calling ``look``."""
        with self._changing.entry():
            self._looks = tuple(each for each in self._looks if each != look)

    def join(self, address: str, port: int) -> Link:
        """Add a new connection; return the link that records its reports."""
        link = Link(address, port)
        self._links.join(link)
        return link

    def leave(self, link: Link) -> None:
        """Remove a connection; its acknowledgements no longer count."""
        self._links.leave(link)

    def begin(self, link: Link, request: int, start: int) -> None:
        """Record that the follower requested ``request`` and is served from ``start``."""
        self._links.begin(link, request, start)

    def acknowledge(self, link: Link, phy_offset: int) -> None:
        """Record that the follower has the log up to ``phy_offset``, which the caller checked."""
        self._links.acknowledge(link, phy_offset)

    def receive(self, link: Link, fd: int, patience: float) -> bytes:
        """Record reports from the socket ``fd``, as long as they are complete and valid.

        Blocks. Returns the first bytes that are not, of which nothing is recorded; empty if the
        follower closed the connection. In the meantime, a ``wait`` may read ``fd``.

        Raises:
            TimeoutError: nothing was received for ``patience`` seconds.
            OSError: the connection failed.
        """
        return self._links.receive(link, fd, patience)

    def links(self) -> list[Link]:
        """Return the current connections."""
        return self._links.links()
