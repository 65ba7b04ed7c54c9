"""What our side is to others: a master that feeds, or a follower, as ``OpenStore.java`` is too."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from cqstore import BrokerRole, MessageStore, StoreConfig
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.followers import Followers
from cqstore.replication.feed.in_thread import feeding
from cqstore.replication.follow.follower import Follower
from tools.bench.peer.puts import Figures

MAX_LAG_SECONDS = 120
_POLL_SECONDS = 0.001


class Roles:
    """One store in one role; what runs beside it ends with the process."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._master = int(settings.get("master", "0"))
        self._feeds = "role" in settings
        self._role = BrokerRole(settings.get("role", "ASYNC_MASTER"))
        self._replicas = int(settings.get("replicas", "1"))
        self._wait_ms = int(settings.get("wait", "3000"))
        self._followers = Followers()
        self._stack = ExitStack()
        self._follower: Follower | None = None
        self.port = 0
        """Where followers connect; 0: none is fed."""

    def config(self, config: StoreConfig) -> StoreConfig:
        """Return ``config`` with what the role needs."""
        given: dict[str, object] = {"broker_role": self._role, "slave_timeout": self._wait_ms}
        if self._role is BrokerRole.SYNC_MASTER:
            given["in_sync_replicas"] = self._replicas
        return config.model_copy(update=given)

    @property
    def replicas(self) -> Followers | None:
        """Return the followers that puts wait for."""
        return self._followers if self._role is BrokerRole.SYNC_MASTER else None

    def begin(self, store: MessageStore) -> None:
        """Feed followers, or follow."""
        if self._feeds:
            feeder = Feeder(store, self._followers)
            self.port = self._stack.enter_context(feeding(feeder)).port
        elif self._master:
            self._follower = follower = Follower(store, "127.0.0.1", self._master)
            threading.Thread(target=lambda: asyncio.run(follower.run()), daemon=True).start()

    def followed(self, store: MessageStore, end: int, caught_up: Callable[[], object]) -> Figures:
        """Wait until log and queues have come to ``end``; count from the first byte on.

        Raises:
            RuntimeError: it does not come there.
        """
        while store.max_phy_offset() <= 0:
            time.sleep(_POLL_SECONDS)
        cpu, begin = time.process_time(), time.perf_counter()
        while (ends_at := self._ends_at(store)) < end:
            if time.perf_counter() > begin + MAX_LAG_SECONDS:
                raise RuntimeError(f"the log ends at {ends_at}, not at {end}")
            time.sleep(_POLL_SECONDS)
        caught_up()
        return {
            "bytes": end, "seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time() - cpu,
        }  # fmt: skip

    def _ends_at(self, store: MessageStore) -> int:
        """Return where the log ends whose records have been handed to the queues."""
        if self._follower is not None:
            return self._follower.progress.end  # known when an append has returned
        return store.max_phy_offset()
