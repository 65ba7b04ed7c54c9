"""Random operations on every backend and on a model; all of them must answer alike."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.time_search import BoundaryType
from tests.kit.installing import install_lmdb
from tests.kit.model import RECORD_SIZE, FastLog, ModelQueue, ModelQueues, batch_of
from tests.kit.queue_drive import QueueDrive

KEYS = [("a", 0), ("a", 1), ("aa", 0), ("max", 7)]
keys = st.sampled_from(KEYS)


class BackendsAgainstModel(RuleBasedStateMachine):
    """Every rule does the same to all; the invariant reads everything."""

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.log = FastLog()
        self.model = ModelQueues(self.log)
        self.patched = pytest.MonkeyPatch()
        install_lmdb(self.folder / "installed", self.patched)
        self.drives = [QueueDrive(name, self.folder / name, self.log) for name in backend_names()]

    @rule(
        puts=st.lists(st.tuples(keys, st.integers(1, 12)), min_size=1, max_size=4),
        step=st.integers(0, 3),
        first=st.integers(0, 30),
    )
    def put(self, puts: list[tuple[tuple[str, int], int]], step: int, first: int) -> None:
        rows = []
        for key, count in puts:
            for _ in range(count):
                stamp = (self.log.stamps[-1] if self.log.stamps else 1000) + step
                unit = (self.log.append(stamp), RECORD_SIZE, stamp * 3)
                known = key in self.model.queues
                offset = self.model.max_offset(key) if known else first
                self.model.put(key, offset, unit)
                rows.append((key, offset, unit))
        for drive in self.drives:
            assert drive.store.put_batch(batch_of(self.log, rows)) == []

    @rule(part=st.floats(0, 1))
    def expire(self, part: float) -> None:
        records = int(part * len(self.log.stamps)) * RECORD_SIZE
        self.log.low = max(self.log.low, records)

    @rule()
    def clean(self) -> None:
        for drive in self.drives:
            drive.store.clean_expired(self.log.low)

    @rule(key=keys)
    def begin_anew(self, key: tuple[str, int]) -> None:
        """What a replay does with a topic that was deleted and written again."""
        if not self.model.max_offset(key):
            return
        unit = (self.log.append(self.log.stamps[-1]), RECORD_SIZE, 1)
        self.model.queues[key] = ModelQueue(0, [unit])
        for drive in self.drives:
            drive.store.put_batch(batch_of(self.log, [(key, 0, unit)]))

    @rule(topic=st.sampled_from(["a", "aa", "none"]))
    def delete(self, topic: str) -> None:
        self.model.queues = {k: q for k, q in self.model.queues.items() if k[0] != topic}
        for drive in self.drives:
            drive.store.delete_topics([topic])

    @precondition(lambda self: len(self.log.stamps) * RECORD_SIZE > self.log.low)
    @rule(part=st.floats(0.5, 1))
    def truncate(self, part: float) -> None:
        """Cut the log, but not before its minimum nor all of a queue that began late."""
        low = self.log.low // RECORD_SIZE
        keep = max(low, int(part * len(self.log.stamps)))
        for queue in self.model.queues.values():
            if queue.units:
                keep = max(keep, queue.units[0][0] // RECORD_SIZE + 1)
        end = keep * RECORD_SIZE
        for queue in self.model.queues.values():
            queue.units = [unit for unit in queue.units if unit[0] < end]
        for drive in self.drives:
            drive.store.truncate_dirty(end)
        del self.log.stamps[keep:]

    @rule()
    def reopen(self) -> None:
        for drive in self.drives:
            drive.reopen()

    @rule(key=keys, stamp=st.integers(990, 1100))
    def search(self, key: tuple[str, int], stamp: int) -> None:
        if key not in self.model.queues:
            return
        for drive in self.drives:
            for boundary in BoundaryType:
                upper = boundary is BoundaryType.UPPER
                found = drive.store.queue(*key).offset_by_time(stamp, boundary)
                assert found == self.model.by_time(key, stamp, upper=upper), (drive.name, boundary)

    @invariant()
    def all_answer_alike(self) -> None:
        for drive in getattr(self, "drives", []):
            assert {tuple(key) for key in drive.store.queues()} == set(self.model.queues)
            for key in KEYS:
                low, high = self.model.min_offset(key), self.model.max_offset(key)
                assert drive.offsets(*key) == (low, high), (drive.name, key)
                block = drive.read(*key, low, 1000)
                assert list(block.rows()) == self.model.read(key, low, 1000), (drive.name, key)

    def teardown(self) -> None:
        for drive in getattr(self, "drives", []):
            assert list(drive.store.check_files()) == [], drive.name
            drive.store.close()
        if hasattr(self, "folder"):
            self.patched.undo()
            shutil.rmtree(self.folder)


TestBackendsAgainstModel = BackendsAgainstModel.TestCase
TestBackendsAgainstModel.settings = settings(
    max_examples=30, stateful_step_count=20, deadline=None, derandomize=True
)
