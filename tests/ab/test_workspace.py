"""The folder to work in: nobody else's, one comparison at a time, gone afterwards."""

import os
from pathlib import Path

import pytest

from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.store.errors import RefusedStoreError, StoreLockedError


def test_it_is_gone_afterwards_with_all_that_was_made_in_it(tmp_path: Path) -> None:
    with ScratchFolder(tmp_path / "w" / "deep") as space:
        (space.folder / "side" / "commitlog").mkdir(parents=True)
        (space.folder / "trace").write_bytes(b"x")
    assert not (tmp_path / "w" / "deep").exists()


def test_what_a_killed_comparison_has_left_goes_with_the_next(tmp_path: Path) -> None:
    killed = ScratchFolder(tmp_path / "w")
    killed.__enter__()
    (killed.folder / "side").mkdir()
    (killed.folder / "old").write_bytes(b"x")
    os.close(killed._fd)  # as the end of its process does
    ScratchFolder(tmp_path / "w").check(tmp_path / "s")
    with ScratchFolder(tmp_path / "w") as space:
        assert [path.name for path in space.folder.iterdir()] == ["cqstore-ab"]
    assert not (tmp_path / "w").exists()


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with ScratchFolder(tmp_path / "w") as first:
        (first.folder / "side").mkdir()
        with (
            pytest.raises(StoreLockedError, match="another comparison"),
            ScratchFolder(tmp_path / "w"),
        ):
            pass
        assert (first.folder / "side").exists()


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    ScratchFolder(tmp_path / "w").check(tmp_path / "s")
    (tmp_path / "w" / "letter").write_bytes(b"x")
    with pytest.raises(RefusedStoreError, match="contains other files"):
        ScratchFolder(tmp_path / "w").check(tmp_path / "s")
    with pytest.raises(RefusedStoreError, match="contains other files"):
        ScratchFolder(tmp_path / "w" / "letter").check(tmp_path / "s")


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("s/inside", "be inside the store itself"),
        ("s", "be inside the store itself"),
        (".", "must not contain the store"),
    ],
)
def test_it_does_not_lie_in_the_store_nor_around_it(tmp_path: Path, folder: str, why: str) -> None:
    with pytest.raises(RefusedStoreError, match=why):
        ScratchFolder(tmp_path / folder).check(tmp_path / "s")
