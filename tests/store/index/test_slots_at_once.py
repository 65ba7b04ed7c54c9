"""Many keys at once make the same files as one by one."""

from pathlib import Path

import pytest

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.index.index_service import IndexService

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
