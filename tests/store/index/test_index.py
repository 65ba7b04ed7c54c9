"""The hash index: its bytes, its queries against a model, and what a crash leaves."""

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.errors import StoreError
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_file import IndexFile
from cqstore.store.index.index_service import IndexService
from cqstore.store.index.layout import IndexGeometry
from cqstore.store.record.java_hash import java_hash
from tests.kit.declining import decline_walks
from tests.kit.index_records import index_record

ALL = (0, 1 << 62)


def service(folder: Path, slots: int = 10, entries: int = 20, **options: bool) -> IndexService:
    index = IndexService(folder, slots, entries, read_only=options.get("read_only", False))
    index.load(options.get("last_exit_ok", True), 0)
    return index


def test_the_bytes_of_a_file_with_two_keys_of_one_slot(tmp_path: Path) -> None:
    index = service(tmp_path, slots=1, entries=5)
    index_record(index, "T", None, "a b", 1000, 5_000_000)
    index_record(index, "T", "u", None, 2000, 5_003_999)
    index.flush()
    index.close()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert len(path.name) == 17
    assert len(data) == 40 + 4 + 20 * 5
    hashes = [abs(java_hash(f"T#{key}")) for key in "abu"]
    assert data[:40] == struct.pack(">qqqqii", 5_000_000, 5_003_999, 1000, 2000, 1, 4)
    assert data[40:44] == struct.pack(">i", 3)
    assert data[44:64] == bytes(20)
    assert data[64:] == b"".join(
        struct.pack(">iqii", hashed, phy, seconds, before)
        for hashed, phy, seconds, before in zip(
            hashes, (1000, 1000, 2000), (0, 0, 3), (0, 1, 2), strict=True
        )
    ) + bytes(20)


def test_an_empty_file_is_all_zeros(tmp_path: Path) -> None:
    """RocketMQ makes a sparse file and writes no header before the first key."""
    IndexFile.create(tmp_path / "first", IndexGeometry(3, 4), None).close()
    assert (tmp_path / "first").read_bytes() == bytes(40 + 4 * 3 + 20 * 4)


def test_the_hash_of_the_smallest_number_is_zero(tmp_path: Path) -> None:
    assert java_hash("polygenelubricants") == -(1 << 31)
    index = service(tmp_path)
    index_record(index, "", "x", None, 1, 1)
    assert index.query("", "x", 10, *ALL) == [1]
    index.close()


@pytest.mark.parametrize("entries", [20, 4])  # in one file, or the entries of one in two
@pytest.mark.parametrize("flushed", [False, True])
def test_a_record_that_names_a_key_twice_is_found_once(
    tmp_path: Path, entries: int, *, flushed: bool
) -> None:
    index = service(tmp_path, slots=1, entries=entries)
    for number in range(1, 5):
        index_record(index, "T", "k", "k k", 1000 * number, 5_000_000)
    if flushed:
        index.flush()
    assert index.query("T", "k", 10, *ALL) == [4000, 3000, 2000, 1000]
    assert index.query("T", "k", 2, *ALL) == [4000, 3000]
    index.close()


keys = st.sampled_from(["a", "b", "c", "Aa", "BB"])


@given(
    puts=st.lists(st.tuples(keys, st.integers(0, 3)), max_size=60),
    reopen_at=st.integers(0, 60),
)
def test_queries_answer_as_a_dict_would(
    tmp_path_factory: pytest.TempPathFactory, puts: list[tuple[str, int]], reopen_at: int
) -> None:
    folder = tmp_path_factory.mktemp("index")
    index, model, now = service(folder), dict[str, list[int]](), 1_000_000
    for number, (key, step) in enumerate(puts):
        if number == reopen_at:
            index.flush()
            index.close()
            index = service(folder)
        now += step * 500
        index_record(index, "topic", None, key, number * 100, now)
        model.setdefault(key, []).append(number * 100)
    for key in ("a", "b", "c", "none"):
        expected = model.get(key, [])
        assert sorted(index.query("topic", key, 1000, *ALL)) == expected
        assert sorted(index.query("topic", key, 2, *ALL)) == expected[-2:]
    for key, other in (("Aa", "BB"), ("BB", "Aa")):  # of one hash: the other's may come too
        found = set(index.query("topic", key, 1000, *ALL))
        assert set(model.get(key, [])) <= found
        assert found <= {*model.get(key, []), *model.get(other, [])}
    assert list(index.check()) == []
    index.close()


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize("flushed", [0, 1, 17, 40])
def test_times_are_looked_at_in_keys_that_wait_as_in_those_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: int, *, slowly: bool
) -> None:
    if slowly:
        decline_walks(monkeypatch)
    index, draw, now = service(tmp_path), random.Random(5), 1_000_000
    model: list[tuple[int, int]] = []
    for number in range(40):
        if number == flushed:
            index.flush()
        now += draw.choice((0, 1000, 5000))
        index_record(index, "topic", None, "k", number * 100, now)
        model.append((now, number * 100))
    windows = [tuple(sorted(draw.choices(model, k=2))) for _ in range(30)]
    for (begin, _), (end, _) in [*windows, *zip(model, model, strict=True)]:
        expected = [at for stored, at in model if begin <= stored <= end]
        assert sorted(index.query("topic", "k", 1000, begin, end)) == expected
        assert sorted(index.query("topic", "k", 3, begin, end)) == expected[-3:]
    index.close()


@pytest.mark.parametrize("flushed", [False, True])
def test_each_of_the_first_keys_of_a_file_has_its_time(tmp_path: Path, *, flushed: bool) -> None:
    index = service(tmp_path)
    for number in range(3):
        index_record(index, "topic", None, "k", number, 1_000_000 + 5000 * number)
    if flushed:
        index.flush()
    for number in range(3):
        time = 1_000_000 + 5000 * number
        assert index.query("topic", "k", 9, time, time) == [number]
    index.close()


def test_a_record_that_comes_again_is_indexed_once(tmp_path: Path) -> None:
    index = service(tmp_path)
    for _ in range(3):
        index_record(index, "t", "u1", "a b", 100, 1000)
        index_record(index, "t", None, "a", 200, 1000)
    assert index.query("t", "a", 10, *ALL) == [200, 100]
    assert index.query("t", "u1", 10, *ALL) == [100]
    index.close()


def test_a_key_that_comes_while_a_reader_looks_hides_no_older_one(tmp_path: Path) -> None:
    writer = service(tmp_path, slots=1)
    index_record(writer, "T", None, "k", 1000, 5_000_000)
    writer.flush()
    (path,) = tmp_path.iterdir()
    reader = IndexFile(path, IndexGeometry(1, 20), read_only=True)
    index_record(writer, "T", None, "k", 2000, 5_000_000)
    writer.flush()
    assert reader.select("T", "k", 10, *ALL) == [2000, 1000]
    reader.close()
    writer.close()


@pytest.mark.parametrize("entries", [20, 3])  # in one file, or two in another
def test_a_clock_that_went_back_ends_the_walk(tmp_path: Path, entries: int) -> None:
    """As RocketMQ's, which looks no further behind the first entry that is too early."""
    index = service(tmp_path, slots=1, entries=entries)
    for number, timestamp in enumerate((10_000, 30_000, 20_000, 26_000), 1):
        index_record(index, "T", None, "k", 1000 * number, timestamp)
    index.flush()
    assert index.query("T", "k", 10, 25_000, 40_000) == [4000]
    assert index.query("T", "k", 10, 15_000, 40_000) == [4000, 3000, 2000]
    index.close()


def test_keys_that_are_written_while_they_are_looked_for_are_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, find = service(tmp_path, slots=1), IndexBatch.find
    index_record(index, "T", None, "k", 1000, 10_000)
    index.flush()
    for phy_offset in (2000, 3000):
        index_record(index, "T", None, "k", phy_offset, 10_000)

    def find_and_write(batch: IndexBatch, topic: str, key: str) -> list[int]:
        found = list(find(batch, topic, key))
        index.drain()
        return found

    monkeypatch.setattr(IndexBatch, "find", find_and_write)
    assert index.query("T", "k", 10, *ALL) == [3000, 2000, 1000]
    index.close()


def test_a_time_below_zero_ends_the_walk(tmp_path: Path) -> None:
    index = service(tmp_path, slots=1, entries=20)
    for number in range(1, 4):
        index_record(index, "T", None, "k", 1000 * number, 10_000 * number)
    index.flush()
    index.close()
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.seek(40 + 4 + 20 * 2 + 12)  # of the second entry
        file.write(struct.pack(">i", -1))
    reader = service(tmp_path, slots=1, entries=20, read_only=True)
    assert reader.query("T", "k", 10, *ALL) == [3000]
    reader.close()


def test_keys_are_split_at_single_spaces(tmp_path: Path) -> None:
    index = service(tmp_path)
    index_record(index, "t", None, " a  b ", 100, 1000)
    assert index.query("t", "a", 10, *ALL) == index.query("t", "b", 10, *ALL) == [100]
    assert index.query("t", "", 10, *ALL) == []
    index.close()


def test_after_a_crash_unfinished_files_go_and_replay_begins_where_they_did(
    tmp_path: Path,
) -> None:
    index = service(tmp_path, entries=5)
    for number in range(10):
        index_record(index, "t", None, "k", number * 100, 1000 + number)
    index.flush()
    sure = index.index_timestamp
    index.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3
    again = IndexService(tmp_path, 10, 5, read_only=False)
    again.load(False, sure)  # noqa: FBT003
    resume = again.resume_phy_offset()
    assert resume is not None
    for number in range(resume // 100, 10):
        index_record(again, "t", None, "k", number * 100, 1000 + number)
    assert sorted(again.query("t", "k", 64, *ALL)) == [number * 100 for number in range(10)]
    again.close()


def test_slots_and_entries_are_found_from_the_files(tmp_path: Path) -> None:
    index = service(tmp_path, slots=331, entries=1500)
    for number in range(400):
        index_record(index, "t", f"u{number}", None, number, 1000)
    index.flush()
    index.close()
    found = IndexService(tmp_path, None, None, read_only=True)
    found.load(True, 0)  # noqa: FBT003
    assert found.query("t", "u77", 10, *ALL) == [77]
    found.close()


def test_files_of_rocketmqs_own_slots_and_entries_are_known_at_once(tmp_path: Path) -> None:
    index = IndexService(tmp_path, None, None, read_only=False)
    index.load(last_exit_ok=True, index_timestamp=0)
    index_record(index, "t", "u1", None, 77, 1000)
    index.close()
    found = IndexService(tmp_path, None, None, read_only=True)
    found.load(last_exit_ok=True, index_timestamp=0)
    assert found.geometry == IndexGeometry(5_000_000, 20_000_000)
    assert found.query("t", "u1", 10, *ALL) == [77]
    found.close()


@pytest.mark.parametrize("place", [40, 44 + 20 + 16, 36, 32])
def test_damaged_chains_end_and_are_reported(tmp_path: Path, place: int) -> None:
    index = service(tmp_path, slots=1, entries=20)
    for number in range(10):
        index_record(index, "t", None, "k", number, 1000)
    index.flush()
    index.close()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[place : place + 4] = struct.pack(">i", 9)
    path.write_bytes(data)
    try:
        damaged = service(tmp_path, slots=1, read_only=True)
    except StoreError:
        return
    assert len(damaged.query("t", "k", 1000, *ALL)) <= 20
    assert list(damaged.check()) != []
    damaged.close()
