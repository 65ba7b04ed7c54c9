"""The journal of renames that puts a form of metadata in place: when it holds, when it is void."""

import os
from pathlib import Path

import pytest

from cqstore.broker.metadata.model import Form
from cqstore.broker.metadata.placing import finish_placing, is_placing, place
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.journal import rewrite
from cqstore.store.paths import StorePaths
from tests.kit.metadata_forms import unpack_forms
from tests.kit.tree import tree_digest


def test_what_would_have_to_be_copied_to_move_is_refused_before_a_journal_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack_forms(tmp_path)
    paths = StorePaths(tmp_path / Form.JSON)
    before, real = tree_digest(paths.config), Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = real(path, follow_symlinks=follow_symlinks)
        if not path.is_relative_to(paths.replaced):
            return found
        return os.stat_result((*found[:2], found.st_dev + 1, *found[3:10]))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(RefusedStoreError, match="on another file system") as caught:
        place(paths, Form.V2)
    assert caught.value.path == paths.config
    assert not is_placing(paths)
    assert tree_digest(paths.config) == before


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("name", ["consumerOffset.json", "."])
def test_what_is_as_old_as_the_journal_was_written_before_it(
    tmp_path: Path, name: str, later: int
) -> None:
    """A clock of a file system ticks a few hundred times a second: two writes have one time."""
    paths = StorePaths(tmp_path)
    old = paths.config
    old.mkdir()
    (old / "consumerOffset.json").write_bytes(b"{}")
    paths.own.mkdir()
    entry = {"moves": [["config", "moved"]], "lock": []}
    rewrite(paths.placing_metadata, [entry])
    at = 1 << 60
    for path in (old / "consumerOffset.json", old, paths.placing_metadata):
        os.utime(path, ns=(at, at))
    os.utime(old / name, ns=(at + later, at + later))
    said = finish_placing(paths)
    assert said is not None
    assert ("an earlier conversion, which was interrupted, is finished" in said) == (not later)
    assert (tmp_path / "moved").exists() == (not later)
    assert not is_placing(paths)
