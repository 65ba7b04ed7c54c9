"""No room for units or keys: puts are refused, nothing is lost, and all goes on with room."""

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cqstore.store.errors import DiskFullError, StoreClosedError, StoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from tests.faults.test_refusals import CONFIG, open_store
from tests.kit.acknowledged import TOPIC, Acknowledged
from tests.kit.crash_images import crash_image
from tests.kit.double_write import StoredOffsets
from tests.kit.double_write import open_store as open_both
from tests.kit.faults import ENOSPC, Faults
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = PutMessageStatus.SERVICE_NOT_AVAILABLE
OF_INDEX = ["write /index/", "open /index/", "truncate /index/"]
OF_QUEUES = ["write /consumequeue/", "open /00000000000000000400", "truncate /consumequeue/",
             "mkdir /consumequeue/"]  # fmt: skip
CASES = [
    *[(backend, refusal) for backend in backend_names() for refusal in OF_INDEX],
    *[("file", refusal) for refusal in OF_QUEUES],
]
PUTS = 70


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def fill(store: MessageStore, stored: Acknowledged, upto: int = PUTS) -> bool:
    """Put, read and flush until a put is refused for want of room; return whether one was."""
    while stored.requested < upto:
        number = stored.requested
        result = stored.put(store, 60)
        if not result.ok:
            assert result.status is REFUSED
            assert "No space left" in result.reason
            return True
        if number % 10 == 9:
            assert store.max_offset(TOPIC, 0) <= number // 2 + 1
        if number == 20:
            with suppress(DiskFullError):
                store.flush()
        if number == 35:
            new = store.put_message(Message("new", b"x", 3))  # a folder and a file are made
            assert new.ok or new.status is REFUSED
    return False


def begin(root: Path, backend: str) -> tuple[MessageStore, Acknowledged]:
    """Return a store with a few messages, all of them flushed."""
    store, stored = open_store(root, backend), Acknowledged()
    for _ in range(19):
        assert stored.put(store, 60).ok
    store.flush()
    return store, stored


def stall(
    root: Path, faults: Faults, backend: str, refusal: str, after: int
) -> tuple[MessageStore, Acknowledged]:
    """Return a store that had no room from its call number ``after`` on, if it made as many."""
    store, reported = begin(root, backend)
    call, part = refusal.split()
    faults.fail(call, ENOSPC, part, after=after)
    if not fill(store, reported):
        with suppress(DiskFullError):
            store.flush()
    return store, reported


def check_all(store: MessageStore, stored: Acknowledged, *, unacknowledged: int = 0) -> None:
    """Compare messages and keys with what was acknowledged; so many may be there besides."""
    stored.check(store)
    for number in range(stored.requested):
        body = f"{number} ".encode()
        kept = any(each.startswith(body) for _, each in stored.bodies.values())
        found = store.query_message(TOPIC, f"k{number}")
        assert all(message.body.startswith(body) for message in found), number
        unacknowledged -= len(found) - kept
        assert len(found) == 1 if kept else unacknowledged >= 0, number
    assert [finding for finding in store.check() if finding.damage] == []


def refuse_all(store: MessageStore, stored: Acknowledged, faults: Faults) -> None:
    """See all writes refused, each after one more try, and reads answered."""
    tries = [faults.refused]
    before = store.metrics.snapshot().put_not_ok[REFUSED]
    puts: list[Callable[[], PutMessageResult]] = [
        lambda: stored.put(store),
        lambda: store.put_messages([Message("new", b"x")])[0],
        lambda: store.put_message_future(Message("new", b"x")).result(),
    ]
    for put in puts:
        assert put().status is REFUSED
        tries.append(faults.refused)
    assert tries == sorted({*tries})
    assert store.metrics.snapshot().put_not_ok[REFUSED] == before + len(puts)
    assert store.get_message(TOPIC, 0, 0).messages()[0].body
    assert store.query_message(TOPIC, "k3")
    assert tries[-1] == faults.refused
    calls: list[Callable[[], object]] = [
        store.flush,
        lambda: store.delete_topic("new"),
        lambda: store.append_to_commit_log(store.max_phy_offset(), b""),
        lambda: store.rebuild_queues(TOPIC),
        lambda: list(store.check()),  # it would call missing what waits
    ]
    for call in calls:
        with pytest.raises(DiskFullError, match="No space left"):
            call()


@pytest.mark.parametrize(("backend", "refusal"), CASES)
def test_the_store_goes_on_when_room_is_back(
    tmp_path: Path, faults: Faults, backend: str, refusal: str
) -> None:
    stalled = after = 0
    while True:
        store, stored = stall(tmp_path / str(after), faults, backend, refusal, after)
        if store.metrics.snapshot().dispatch_stalled:
            stalled += 1
            refuse_all(store, stored, faults)
        is_last = not faults.refused
        faults.heal()
        assert stored.put(store, 60).ok
        check_all(store, stored)
        assert not fill(store, stored, stored.requested + PUTS)
        check_all(store, stored)
        store.close()
        with open_store(store.root, backend) as store:
            assert store.last_exit_ok
            check_all(store, stored)
        shutil.rmtree(store.root)
        if is_last:
            break
        after += 1
    assert stalled


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize(("backend", "refusal"), CASES)
def test_a_stalled_store_that_is_closed_or_killed_recovers(
    tmp_path: Path, faults: Faults, backend: str, refusal: str, after: int
) -> None:
    store, stored = stall(tmp_path / "store", faults, backend, refusal, after)
    faults.heal()
    image = crash_image(store.root, tmp_path / "image")
    call, part = refusal.split()
    faults.fail(call, ENOSPC, part)
    if stalled := store.metrics.snapshot().dispatch_stalled:
        with pytest.raises(DiskFullError, match="No space left"):
            store.close()
        with pytest.raises(StoreClosedError):
            store.put_message(Message("t", b"x"))
    faults.heal()
    store.close()  # does nothing, or all
    for root in (image, store.root):
        with open_store(root, backend) as store:
            assert store.last_exit_ok is not (stalled or root == image)
            check_all(store, stored)
            assert stored.put(store, 60).ok
            check_all(store, stored)
        stored.bodies.popitem()
        stored.requested -= 1


@pytest.mark.parametrize("refusal", ["write /index/", "write /consumequeue/"])
def test_a_stalled_dispatch_goes_on_by_itself(tmp_path: Path, faults: Faults, refusal: str) -> None:
    often = {"flush_interval_commit_log": 5, "flush_consume_queue_thorough_interval": 5}
    config = CONFIG.model_copy(update=often)
    call, part = refusal.split()
    with MessageStore.open(tmp_path, config, backend="file") as store:
        stored = Acknowledged()
        faults.fail(call, ENOSPC, part)
        assert stored.put(store).ok
        until(lambda: store.metrics.snapshot().dispatch_stalled)
        assert stored.put(store).status is REFUSED
        faults.heal()
        until(lambda: not store.metrics.snapshot().dispatch_stalled)
        assert stored.put(store).ok
        check_all(store, stored)


@pytest.mark.parametrize("read", ["file", "rocksdb"])
def test_backends_are_alike_when_room_is_back(tmp_path: Path, faults: Faults, read: str) -> None:
    """A file backend that is needed stalls both; the batch comes to the other one twice."""
    stored = StoredOffsets()
    with open_both(tmp_path, read, combine_assign_offset_cq_type="default") as store:
        stored.put(store, 50)
        store.flush()
        faults.fail("write", ENOSPC, "/consumequeue/t/3")
        stored.put(store, 50)
        with pytest.raises(DiskFullError):
            store.flush()
        assert store.detached_backends() == {}
        with pytest.raises(DiskFullError):
            store.verify()
        faults.heal()
        stored.put(store, 5)
        store.flush()
        assert store.verify().is_clean
        assert [finding for finding in store.check() if finding.damage] == []
    stored.check(tmp_path)


def test_no_log_file_expires_before_its_units_have_room(tmp_path: Path, faults: Faults) -> None:
    store, stored = begin(tmp_path, "file")
    while len(components_of(store).log.files.files()) < 4:
        assert stored.put(store, 700).ok
    end = store.max_phy_offset()
    faults.fail("write", ENOSPC, "/consumequeue/")
    with pytest.raises(DiskFullError):
        store.delete_expired_files(end)
    assert store.min_phy_offset() == 0
    check = store.metrics.snapshot()
    assert check.dispatch_stalled
    assert not check.failed
    faults.heal()
    assert store.delete_expired_files(end).log_files == 3
    assert stored.put(store).ok
    stored.check(store)
    assert [finding for finding in store.check() if finding.damage] == []
    store.close()
    with open_store(tmp_path, "file") as store:
        assert store.last_exit_ok
        stored.check(store)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # a file that the interrupt left unclosed
)
@pytest.mark.parametrize("refusal", ["write /index/", "write /consumequeue/"])
@pytest.mark.parametrize("healed", [False, True], ids=["full", "healed"])
def test_an_interrupt_while_the_dispatch_stalls_or_goes_on_loses_nothing(
    tmp_path: Path, faults: Faults, refusal: str, *, healed: bool
) -> None:
    def interrupted(number: int) -> int:
        store, stored = begin(tmp_path / str(number), "file")
        for _ in range(20):
            assert stored.put(store, 60).ok
        call, part = refusal.split()
        faults.fail(call, ENOSPC, part)
        if healed:
            store.max_offset(TOPIC, 0)
            assert store.metrics.snapshot().dispatch_stalled
            faults.heal()
        places = 0
        with suppress(Interrupted, DiskFullError):
            places = run_interrupted(lambda: put(store, stored), number)
        faults.heal()
        with suppress(StoreError):
            stored.put(store)
        with suppress(StoreError):
            store.close()
        store.close()
        with open_store(store.root, "file") as store:
            check_all(store, stored, unacknowledged=1)
        shutil.rmtree(store.root)
        return places

    def put(store: MessageStore, stored: Acknowledged) -> None:
        store.max_offset(TOPIC, 0)
        stored.put(store)

    places = interrupted(0)
    assert places > 20
    for number in random.Random(refusal).sample(range(1, places + 1), 25):
        interrupted(number)
