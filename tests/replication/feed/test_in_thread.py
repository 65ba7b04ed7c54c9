"""The thread that feeds: it ends where its block does, or where that is interrupted."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.service.message_store import MessageStore
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.waiting import until
from tests.replication.feed.conftest import CONFIG

SECONDS = 60


def feeds() -> bool:
    return any(thread.name == "cqstore-feed" for thread in threading.enumerate())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_feeding_that_is_interrupted_ends(tmp_path: Path) -> None:
    """At any place between the call and the end of the block; it listens no more then."""
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store, in_time(SECONDS):

        def case(number: int) -> int:
            feeder, places = Feeder(store), 0

            def feed() -> None:
                with feeding(feeder):
                    assert feeds()

            with suppress(Interrupted):
                places = run_interrupted(feed, number)
            until(lambda: not feeds())
            listener = vars(feeder).get("_listener")
            assert listener is None or listener.fileno() == -1
            return places

        places = case(0)
        assert places > 30
        for number in range(1, places + 1):
            case(number)


def test_a_block_ends_whose_feeding_thread_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with MessageStore.open(tmp_path, CONFIG, housekeeping=False) as store, in_time(SECONDS):
        feeder = Feeder(store)
        with feeding(feeder):
            assert feeds()
            loop = feeder._own[0].get_loop()
            loop.call_soon_threadsafe(loop.stop)  # as if it had ended by itself
            until(lambda: not feeds())
