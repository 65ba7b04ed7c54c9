"""A source that has listed the queues returns what one that has not returns, for any database."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.cq_rocksdb import units_ahead
from cqstore.cq_rocksdb.bulk_source import RocksDBUnitSource
from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch
from cqstore.cq_rocksdb.keys import OFFSET_ENTRY, OffsetEntry, max_key, queue_prefix, unit_key
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.bulk import UNIT_ROWS
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig
from tests.kit.engines import put_raw

Queues = dict[tuple[str, int], list[int]]
Runs = list[tuple[int, list[tuple[int, ...]]]]


def unit(queue: tuple[str, int], at: int) -> bytes:
    row = np.zeros(1, UNIT_ROWS)
    row["phy_offset"], row["size"], row["tags_code"] = at * 100, 91, len(queue[0])
    return row.tobytes()


def write(folder: Path, queues: Queues, *, ends: bool = True) -> None:
    """Write a database, without ``max`` entries unless there are ``ends``."""
    engine, _ = open_engine(folder, StoreConfig(), folder / "log", read_only=False)
    puts = []
    for key, offsets in queues.items():
        prefix = queue_prefix(*key)
        for at in offsets:
            value = unit(key, at)
            batch = EngineBatch(
                prefixes=[prefix], prefix_index=np.zeros(1, np.int64),
                queue_offset=np.array([at], np.int64),
                units=np.frombuffer(value, np.uint8).reshape(1, -1),
            )  # fmt: skip
            engine.write(batch)
        if ends and offsets:
            entry = OFFSET_ENTRY.pack(OffsetEntry(offsets[-1] * 100, offsets[-1]))
            puts.append((max_key(prefix), entry))
    engine.write(EngineBatch(puts=puts))
    engine.close()


def seen(
    folder: Path, *, listed: bool, max_units: int = 100
) -> dict[QueueKey, tuple[Runs, int, list[object]]]:
    """Return runs, next offset and some units of every queue."""
    engine, _ = open_engine(folder, StoreConfig(), folder / "log", read_only=True)
    source = RocksDBUnitSource(engine)
    found: dict[QueueKey, tuple[Runs, int, list[object]]] = {}
    try:
        for queue in [*source.queues(None, None)]:
            reader = source if listed else RocksDBUnitSource(engine)
            runs = [(at, rows.tolist()) for at, rows in reader.runs(queue, max_units)]
            filled: list[object] = []
            for at in (0, 1, 3, 200):
                rows = np.zeros(4, UNIT_ROWS)
                count = reader.fill(queue, at, rows)
                filled.append(rows[:count].tolist())
            found[queue] = runs, reader.next_offset(queue), filled
    finally:
        source.close()
    return found


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units_ahead, "_MIN_ROWS", 3)
    monkeypatch.setattr(units_ahead, "_MAX_ROWS", 12)


_OFFSETS = st.sets(st.integers(0, 12), max_size=10).map(sorted)


@settings(max_examples=25)
@given(
    queues=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "é", "long-topic"]), st.integers(0, 3)), _OFFSETS,
        max_size=9,
    ),
    ends=st.booleans(), max_units=st.sampled_from([2, 100]),
)  # fmt: skip
def test_short_and_long_queues_with_and_without_holes(
    tmp_path_factory: pytest.TempPathFactory, queues: Queues, max_units: int, *, ends: bool
) -> None:
    folder = tmp_path_factory.mktemp("database") / "db"
    write(folder, queues, ends=ends)
    found = seen(folder, listed=True, max_units=max_units)
    assert set(found) == {QueueKey(*key) for key, offsets in queues.items() if offsets}
    alone = seen(folder, listed=False, max_units=max_units)
    assert {key: alone[key] for key in found} == found
    for key, (runs, _, _) in found.items():
        units = [first + at for first, rows in runs for at in range(len(rows))]
        assert units == queues[key.topic, key.queue_id]


def test_a_value_that_is_too_short_is_an_error_as_without_a_list(tmp_path: Path) -> None:
    engine, _ = open_engine(tmp_path / "db", StoreConfig(), tmp_path / "log", read_only=False)
    prefix = queue_prefix("a", 0)
    for at, value in ((0, unit(("a", 0), 0)), (1, unit(("a", 0), 1)[:-1])):
        put_raw(engine, unit_key(prefix, at), value, tmp_path / f"{at}.sst")
    engine.close()
    for listed in (True, False):
        with pytest.raises(CorruptionError):
            seen(tmp_path / "db", listed=listed)


def test_a_short_queue_is_read_alone_if_only_the_ends_were_listed(tmp_path: Path) -> None:
    queues = {("t", 0): [0, 1], ("t", 1): [5], ("t", 2): [0, 2], ("u", 0): [0, 1, 2, 3]}
    write(tmp_path / "db", queues)
    engine, _ = open_engine(tmp_path / "db", StoreConfig(), tmp_path / "log", read_only=True)
    source = RocksDBUnitSource(engine)
    ends = [*source.written_ends(QueueKey("t", 0), QueueKey("u", 0))]
    assert ends == [(("t", 1), 6, 500), (("t", 2), 3, 200), (("u", 0), 4, 300)]
    whole = source.whole(QueueKey("t", 1))
    assert whole is not None
    assert (whole.queue_offset, whole.rows) == (5, unit(("t", 1), 5))
    assert source.whole(QueueKey("t", 2)) is None, "it has a hole"
    assert source.whole(QueueKey("u", 0)) is None, "it is not short"
    assert source.whole(QueueKey("t", 0)) is None, "its end is not known"
    assert source.whole(QueueKey("v", 0)) is None
    source.close()


def test_kept_queues_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units_ahead, "_MAX_QUEUES", 2)
    write(tmp_path / "db", {("t", number): [0, 1] for number in range(9)})
    assert seen(tmp_path / "db", listed=True) == seen(tmp_path / "db", listed=False)
    engine, _ = open_engine(tmp_path / "db", StoreConfig(), tmp_path / "log", read_only=True)
    ahead = units_ahead.UnitsAhead(engine)
    assert len([*ahead.queues(None)]) == 9
    assert len(ahead._units) <= 2
    engine.close()
