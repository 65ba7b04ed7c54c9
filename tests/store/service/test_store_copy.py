"""Copies of a store: all of it, or nothing."""

import errno
import os
from pathlib import Path

import pytest

from cqstore.store.errors import DiskFullError, StoreError, StoreIOError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.store_copy import copy_store, copying
from cqstore.store.settings.config import StoreConfig
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(mapped_file_size_commit_log=65536)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        assert store.put_message(Message("t", b"body")).ok
    return tmp_path / "store"


def test_a_copy_has_every_byte(root: Path, tmp_path: Path) -> None:
    copy_store(root, tmp_path / "copy")
    assert tree_digest(tmp_path / "copy") == tree_digest(root)


def test_of_what_cannot_be_copied_whole_nothing_is_left(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "zz")  # no regular file: it is not read
    with pytest.raises(StoreError, match="zz"):
        copy_store(root, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize(
    ("code", "met", "named", "what"),
    [
        (errno.EIO, None, "from", "look"), (errno.EIO, "from/x", "from", "look"),
        (errno.EIO, "to.partial/x", "to", "write the copy"),
        (errno.ENOSPC, None, "to", "write the copy"),  # a sync tells no name
    ],
)  # fmt: skip
def test_what_ends_a_copy_names_the_side_that_it_met(
    code: int, met: str | None, named: str, what: str
) -> None:
    with (
        pytest.raises(StoreIOError, match=f"cannot {what}") as caught,
        copying("look", Path("from"), Path("to.partial"), Path("to")),
    ):
        raise OSError(code, os.strerror(code), met)
    assert caught.value.path == Path(named)
    assert isinstance(caught.value, DiskFullError) == (code == errno.ENOSPC)


@pytest.mark.parametrize(("met", "named"), [("to.partial/a/b", "to/a/b"), ("from/a", "from/a")])
def test_an_error_names_the_place_in_the_copy_as_it_will_be(met: str, named: str) -> None:
    with (
        pytest.raises(StoreError) as caught,
        copying("look", Path("from"), Path("to.partial"), Path("to")),
    ):
        raise StoreError("odd", path=Path(met))
    assert caught.value.path == Path(named)
