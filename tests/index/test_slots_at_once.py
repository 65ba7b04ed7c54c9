"""Many keys at once make the same files as one by one, and a file that is too short is refused."""

import random
from pathlib import Path

import numpy as np
import pytest

from store.errors import TruncatedRecordError
from store.index.index_batch import IndexBatch
from store.index.index_service import IndexService
from store.index.layout import slot_position
from store.index.slot_io import read_slots, write_slots

KEYS = 3000


def filled(folder: Path, slots: int, at_once: int) -> bytes:
    """Return the bytes of an index file of ``KEYS`` keys that came ``at_once`` at a time."""
    index = IndexService(folder, slots, KEYS + 10, read_only=False)
    index.load(last_exit_ok=True, index_timestamp=0)
    for start in range(0, KEYS, at_once):
        batch = IndexBatch()
        for number in range(start, min(start + at_once, KEYS)):
            batch.add("t", f"k{number % 1700}", number * 100, 1_700_000_000_000 + number * 500)
        index.put_batch(batch)
        index.drain()
    index.close()
    (path,) = folder.iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("slots", [7, 1000, 300_000, 3_000_000])
def test_keys_at_once_make_the_file_that_they_make_one_by_one(tmp_path: Path, slots: int) -> None:
    one_by_one = filled(tmp_path / "one", slots, 10)
    assert filled(tmp_path / "once", slots, KEYS) == one_by_one
    assert filled(tmp_path / "some", slots, 700) == one_by_one


def test_slots_between_stay_as_they_are(tmp_path: Path) -> None:
    """Against a plain array; over several spans, some of them with one slot."""
    path, draw = tmp_path / "slots", random.Random(1)
    model = np.array([draw.randrange(1 << 30) for _ in range(900_000)], ">i4")
    path.write_bytes(b"head" + model.tobytes())
    chosen = np.array(sorted(draw.sample(range(900_000), 20_000)), np.int64)
    newest = np.arange(20_000, dtype=np.int64)

    with path.open("r+b", buffering=0) as file:

        def read(position: int, size: int) -> bytes:
            file.seek(position)
            return file.read(size)

        assert read_slots(read, 4 + 4 * chosen).tolist() == model[chosen].tolist()
        write_slots(file.fileno(), read, 4 + 4 * chosen, newest)
    model[chosen] = newest
    assert path.read_bytes() == b"head" + model.tobytes()


@pytest.mark.parametrize("keys", [1, 500])
def test_a_file_that_was_cut_meanwhile_takes_no_more(tmp_path: Path, keys: int) -> None:
    index = IndexService(tmp_path, 1000, 5000, read_only=False)
    index.load(last_exit_ok=True, index_timestamp=0)
    first = IndexBatch()
    first.add("t", "first", 0, 1000)
    index.put_batch(first)
    file = index.files[0]
    batch = IndexBatch()
    for number in range(keys):
        batch.add("t", f"k{number}", 100 + number, 1000)
    with file.path.open("r+b") as cut:
        cut.truncate(slot_position(1))
    index.put_batch(batch)
    with pytest.raises(TruncatedRecordError) as caught:
        index.drain()
    assert caught.value.path == file.path
