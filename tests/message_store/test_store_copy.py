"""Copies of a store: all of it, or nothing."""

import os
from pathlib import Path

import pytest

from store.config import StoreConfig
from store.errors import StoreError
from store.record.message import Message
from store.service.message_store import MessageStore
from store.service.offline.store_copy import copy_store
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
