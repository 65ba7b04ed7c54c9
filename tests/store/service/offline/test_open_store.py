"""A store is backed up while another process puts and expires: each backup opens to what it had.

Whatever had returned when the backup began is in it, once and in order; what was put meanwhile is
in it up to some message, with all that lie before.
"""

import threading
from pathlib import Path

import pytest

from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.backup import back_up
from cqstore.store.service.offline.backup_manifest import compare
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES
from tests.kit.killed_child import config_of, followed, start
from tests.kit.promised import Promises, settle

STORES = [("file", RocksDBEngine.AUTO), *[("rocksdb", engine) for engine in ENGINES]]
BACKUPS = 4
LINES = 60
"""As many the process says between two backups."""


class Following:
    """Reads what the process says, in a thread of its own: the process never waits for a reader."""

    def __init__(self, lines: "threading.Thread | None" = None) -> None:
        self.promises, self.said = Promises(), 0
        self.more = threading.Condition()
        self.thread = lines

    def follow(self, output: object) -> None:
        for line in output:  # type: ignore[attr-defined]
            with self.more:
                followed(self.promises, line)
                self.said += 1
                self.more.notify()

    def wait(self, lines: int) -> None:
        with self.more:
            until = self.said + lines
            assert self.more.wait_for(lambda: self.said >= until, 60)

    def now(self) -> Promises:
        with self.more:
            return self.promises.copy()

    def beyond(self, phy_offset: int) -> Promises:
        """Wait until a put is said to lie there or behind: all before it has been said, too."""
        with self.more:
            assert self.more.wait_for(lambda: self.last() >= phy_offset, 60)
            return self.promises.copy()

    def last(self) -> int:
        """Return where the last message lies whose put is said to have returned, -1: none."""
        places = (put.phy_offset for put in reversed(self.promises.puts))
        return next((place for place in places if place >= 0), -1)


@pytest.mark.parametrize("link", [False, True], ids=["copied", "linked"])
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_backup_opens_to_a_state_that_the_store_had(
    tmp_path: Path, backend: str, engine: RocksDBEngine, *, link: bool
) -> None:
    root, config = tmp_path / "store", config_of(engine)
    following, backups = Following(), []
    child = start(root, backend, engine, 1, deletes=False)
    with child:
        thread = threading.Thread(target=following.follow, args=(child.stdout,))
        thread.start()
        try:
            for number in range(BACKUPS):
                following.wait(LINES)
                before = following.now()
                manifest = back_up(root, tmp_path / str(number), config, link=link)
                after = following.now()
                assert manifest.was_open
                assert manifest.damaged_at is None
                backups.append((tmp_path / str(number), manifest, before, after))
        finally:
            child.kill()
            thread.join()
    for folder, manifest, before, after in backups:
        assert list(compare(folder, manifest)) == []
        after.durable, after.min_phy_offset = before.durable, before.min_phy_offset
        with MessageStore.open(folder, config, backend=backend) as store:
            assert store.max_phy_offset() == manifest.max_phy_offset
            settle(store, after)
