"""Descriptors run out, the clock goes back, two processes want one store."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cqstore.store.errors import StoreLockedError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.message import Message
from tests.faults.test_refusals import open_store
from tests.kit.acknowledged import QUEUES, TOPIC, Acknowledged
from tests.kit.shim.clock import CLOCK

FEW = """
import os, resource, sys
from contextlib import suppress
from pathlib import Path
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from tests.faults.test_refusals import CONFIG
from tests.kit.acknowledged import Acknowledged

root, backend = Path(sys.argv[1]), sys.argv[2]
stored, refused = Acknowledged(), 0
store = MessageStore.open(root, CONFIG, backend=backend)
for _ in range(30):
    assert stored.put(store).ok
used = len(os.listdir("/proc/self/fd"))
for limit in (used, used + 2):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
    try:
        for _ in range(30):
            stored.put(store)
        store.flush()
    except StoreError as exc:
        refused += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    store.close()
    store = MessageStore.open(root, CONFIG)
    stored.check(store)
low = 8
while True:
    store.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, 4096))
    try:
        store = MessageStore.open(root, CONFIG)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        break
    except StoreError:
        refused += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    low += 3
stored.check(store)
with suppress(StoreError):  # RocksDB may have met the last limit behind the opening
    store.close()
with MessageStore.open(root, CONFIG) as store:
    stored.check(store)
print(refused)
"""


@pytest.mark.parametrize("backend", backend_names())
def test_too_few_descriptors_are_an_error_and_lose_nothing(tmp_path: Path, backend: str) -> None:
    command = [sys.executable, "-c", FEW, str(tmp_path), backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3


@pytest.mark.parametrize("backend", backend_names())
def test_a_clock_that_goes_back_makes_no_gap(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged, now = Acknowledged(), time.time_ns()
    jumps = [0, 3_600, -86_400, 10, -40 * 365 * 86_400, 0]
    first = now // 1_000_000
    for seconds in jumps:
        monkeypatch.setattr(CLOCK, "stopped", now + seconds * 1_000_000_000)
        with open_store(tmp_path, backend) as store:
            for _ in range(25):
                assert acknowledged.put(store).ok
    for crashed in (False, True):
        if crashed:
            (tmp_path / "abort").touch()
        with open_store(tmp_path, backend) as store:
            acknowledged.check(store)
            assert [finding for finding in store.check() if finding.damage] == []
            requested = len(jumps) * 25
            assert sum(store.max_offset(TOPIC, q) for q in range(QUEUES)) == requested
            for number in range(requested):
                (found,) = store.query_message(TOPIC, f"k{number}")
                assert found.queue_offset == number // QUEUES
            for stamp in (0, first - 86_400_000, first, first + 3_600_000, 1 << 62):
                for boundary in BoundaryType:
                    offset = store.offset_by_time(TOPIC, 0, stamp, boundary)
                    assert 0 <= offset <= store.max_offset(TOPIC, 0)
            assert store.offset_by_time(TOPIC, 0, 0) == 0


OTHER = """
import sys
from cqstore.store.service.message_store import MessageStore
from tests.faults.test_refusals import CONFIG
store = MessageStore.open(sys.argv[1], CONFIG, backend=sys.argv[2])
print("open", flush=True)
sys.stdin.read()
store.close()
"""


@pytest.mark.parametrize("backend", backend_names())
def test_of_two_processes_the_second_is_told_who_has_the_store(
    tmp_path: Path, backend: str
) -> None:
    command = [sys.executable, "-c", OTHER, str(tmp_path), backend]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError, match=f"process {other.pid} has the store open"):
            open_store(tmp_path, backend)
        other.stdin.close()
    with open_store(tmp_path, backend) as store:
        assert store.put_message(Message("t", b"x")).ok
