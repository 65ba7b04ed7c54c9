"""A file queue against a plain list: answers, files byte by byte, what is noted for a sync."""

import random
from pathlib import Path

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import QueueGapError
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import BlockStop, QueueKey
from tests.kit.file_queues import PRE_BLANK, SIZE, Disk, Row, put, rows

KEY = QueueKey("T", 0)
PER_FILE = 10


class Model:
    """One queue: where its files begin, where its units do, and these."""

    def __init__(self) -> None:
        self.low = self.first = 0
        self.units: list[Row] = []

    @property
    def end(self) -> int:
        return self.first + len(self.units)

    @property
    def last(self) -> int:
        return self.units[-1][0] if self.units else -1

    def put(self, offset: int, units: list[Row], min_phy: int) -> list[QueueRestart]:
        """Return what ``put_batch`` does; ``ValueError`` for a gap."""
        first = units[0][0]
        new = [unit for unit in units if unit[0] > self.last]
        offset += len(units) - len(new)
        dropped = range(max(offset, self.first), self.end)
        if not new:
            return []
        if offset > self.end and self.last >= max(min_phy, 0):
            raise ValueError
        if offset == self.end or self.first < offset < self.end:
            self.units = self.units[: offset - self.first] + new
        else:
            self.first, self.units, self.low = offset, new, offset - offset % PER_FILE
        return [QueueRestart(KEY, dropped, first)] if dropped else []

    def restore_end(self, offset: int) -> None:
        self.first, self.units = offset, []
        self.low = (offset - 1) // PER_FILE * PER_FILE

    def truncate(self, phy_offset: int) -> int:
        kept = [unit for unit in self.units if unit[0] < phy_offset]
        cut, self.units = len(kept) < len(self.units), kept
        return int(cut)

    def clean(self, phy_offset: int) -> int:
        count, last = 0, (self.end - 1) // PER_FILE * PER_FILE if self.units else self.low
        while self.low < last and self.phy_at(self.low + PER_FILE - 1) < phy_offset:
            self.low += PER_FILE
            count += 1
        self.units = self.units[max(self.low - self.first, 0) :]
        self.first = max(self.low, self.first)
        return count

    def phy_at(self, offset: int) -> int:
        return self.units[offset - self.first][0] if offset >= self.first else 0  # a pre-blank

    def files(self) -> list[list[Row]]:
        table = [PRE_BLANK] * (self.first - self.low) + self.units
        if not table and not self.first:
            return []
        whole = -(-max(len(table), 1) // PER_FILE) * PER_FILE
        table += [(0, 0, 0)] * (whole - len(table))
        return [table[at : at + PER_FILE] for at in range(0, whole, PER_FILE)]


class Drive:
    """The model and a store side by side, and what the last flush left on disk."""

    def __init__(self, root: Path) -> None:
        self.disk, self.model = Disk(root), Model()
        self.store = self.disk.open()
        self.synced: dict[str, bytes] = {}
        self.record = 0

    def content(self) -> dict[str, bytes]:
        folder = self.disk.folder()
        found = sorted(folder.iterdir()) if folder.exists() else []
        return {str(path): path.read_bytes() for path in found}

    def put(self, draw: random.Random) -> None:
        """Put what follows, what was there already, a new incarnation, or what leaves a gap."""
        end, count = self.model.end, draw.randrange(1, 14)
        begin = draw.choice([end, end, end, self.model.first, draw.randrange(end + 1), end + 3])
        if draw.random() < 0.3 and self.model.units:
            again = draw.randrange(len(self.model.units))
            begin = self.model.first + again
            units = self.model.units[again:] + rows(self.record, draw.randrange(2) * count)
        else:
            units = rows(self.record, count, tags_code=draw.randrange(3))
        self.record += count
        try:
            expected = self.model.put(begin, units, self.disk.log.min_phy)
        except ValueError:
            with pytest.raises(QueueGapError):
                put(self.store, begin, units)
        else:
            assert put(self.store, begin, units) == expected

    def step(self, draw: random.Random) -> None:
        what = draw.choice("pppppptcern")
        if what == "p":
            self.put(draw)
        elif what == "t":
            at = max(SIZE * (self.record - draw.randrange(30)) + draw.randrange(2), 0)
            assert self.store.truncate_dirty(at) == self.model.truncate(at)
        elif what == "c":
            least = self.disk.log.min_phy
            assert self.store.clean_expired(least) == self.model.clean(least)
        elif what == "e":
            least = draw.choice([SIZE * self.record, *[unit[0] for unit in self.model.units]])
            self.disk.log.min_phy = max(least, self.disk.log.min_phy)
        elif what == "r":
            self.store.close()
            self.synced = self.content()
            self.store = self.disk.open(crashed=draw.random() < 0.5, read_only=False)
        elif draw.random() < 0.3:
            offset = draw.randrange(1, 25)
            self.store.restore_end(*KEY, offset)
            self.model.restore_end(offset)

    def check(self, draw: random.Random) -> None:
        model, content = self.model, self.content()
        names = [f"{(model.low + at * PER_FILE) * 20:020d}" for at in range(len(model.files()))]
        assert [path[-20:] for path in content] == names
        for at, file in enumerate(model.files()):
            assert self.disk.units((model.low + at * PER_FILE) * 20) == file
        changed = {path for path, data in content.items() if self.synced.get(path) != data}
        assert self.store._unsynced.files >= changed
        assert (str(self.disk.folder()) in self.store._unsynced.folders) or (
            content.keys() == self.synced.keys()
        )
        self.check_answers()
        if draw.random() < 0.3:
            self.store.flush()
            assert not self.store._unsynced.files
            self.synced = content

    def check_answers(self) -> None:
        model, store, least = self.model, self.store, self.disk.log.min_phy
        expired = sum(unit[0] < least for unit in model.units)
        assert store.queue(*KEY).max_offset() == model.end
        assert store.queue(*KEY).min_offset() == model.first + expired
        for queue in store._table.simple.get("T", {}).values():
            end_phy = sum(model.units[-1][:2]) if model.units else -1
            assert (queue.last_phy, queue.end_phy) == (model.last, end_phy)
        for offset in {-1, 0, model.first - 1, model.first, model.end - 1, model.end}:
            inside = model.first <= offset < model.end
            unit = model.units[offset - model.first] if inside else None
            time = unit[0] // 10 if unit is not None else -1
            assert store.queue(*KEY).unit_timestamp(offset) == time
            for count in (-1, 0, 1, 12, len(model.units)):
                check_block(store, model, offset, count)


def check_block(store: FileConsumeQueueStore, model: Model, offset: int, count: int) -> None:
    block = store.queue(*KEY).read_units(offset, count)
    expected: list[Row] = []
    hole = None
    if count <= 0 and model.end + len(store._table.simple.get("T", ())):
        stop = BlockStop.LIMIT
    elif not 0 <= offset < model.end:
        stop = BlockStop.END
    elif offset < model.first:
        stop, hole = BlockStop.HOLE, range(offset, model.first)
    else:
        expected = model.units[offset - model.first :][:count]
        stop = BlockStop.LIMIT if len(expected) == count else BlockStop.END
    assert (list(block.rows()), block.stop, block.hole) == (expected, stop, hole)
    assert block.queue_offset == offset


@pytest.mark.parametrize("seed", range(6))
def test_answers_and_files_are_the_lists_whatever_happens(tmp_path: Path, seed: int) -> None:
    draw, drive = random.Random(seed), Drive(tmp_path)
    for _ in range(60):
        drive.step(draw)
        drive.check(draw)
    drive.store.close()
