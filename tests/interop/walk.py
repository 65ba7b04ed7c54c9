"""A broker's walk: it lives, its queues are moved, it lives on; and what its clients do."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.switch.switch import switch
from cqstore.store.settings.config import StoreConfig
from tests.interop.brokers import Broker, Brokers
from tests.interop.test_moved_tables import KINDS, MASTER, config
from tests.kit.migrations import moved_and_verified
from tests.kit.moving import LEVEL, Moving
from tests.kit.waiting import until

SMALL = {"mappedFileSizeTimerLog": 1 << 20}
WAYS = ("switch", "follow")


class Walk:
    """One broker, whose store may come to lie elsewhere."""

    def __init__(
        self, way: str, folder: Path, brokers: Brokers, settings: dict[str, object]
    ) -> None:
        self._way, self._brokers, self._settings = way, brokers, {**MASTER, **SMALL, **settings}
        known = StoreConfig.known_keys()
        self._config = config(**{key: settings[key] for key in settings if key in known})
        self._folders = (folder / f"store{turn}" for turn in itertools.count())
        self.root = next(self._folders)

    def live(self, backend: str, act: Callable[[Broker], None], then: str | None = None) -> None:
        """Run the broker, let it act, and move its store to queues of ``then``."""
        moving, own = None, self.root
        with self._brokers.running(self.root, storeType=KINDS[backend], **self._settings) as broker:
            act(broker)
            if then and self._way == "follow":
                own = next(self._folders)
                moving = Moving(self.root, broker.ha_port, own, self._config, backend=then).start()
                moving.wait_for(LEVEL)
        if moving:
            assert moving.end().stopped
            self.root = own
        elif then == "rocksdb":
            moved_and_verified(self.root, self._config, then)
            switch(self.root, self._config)
        elif then:
            assert rollback(self.root, self._config) is not None


def read(broker: Broker, topic: str = "n0") -> Counter[str]:
    """Return how often each key is in a topic."""
    return Counter(broker.do("read", topic)["keys"])


def registered(broker: Broker, topic: str = "n0", verb: str = "topic") -> None:
    """Make a topic to which clients find the way."""
    broker.do(verb, topic)

    def is_routed() -> bool:
        broker.do("register")
        return bool(broker.do("routed", topic)["routed"])

    until(is_routed)
