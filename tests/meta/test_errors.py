"""Every error survives pickling with its place, and every name of the package is one."""

import pickle
from pathlib import Path

import pytest

import store
from cq_rocksdb import errors as rocksdb_errors
from store import errors


def classes(base: type[errors.StoreError]) -> list[type[errors.StoreError]]:
    return [base, *(child for sub in base.__subclasses__() for child in classes(sub))]


@pytest.mark.parametrize("kind", classes(errors.StoreError))
def test_errors_come_back_from_pickling(kind: type[errors.StoreError]) -> None:
    error = kind("it broke", path=Path("some/file"), phy_offset=12, position=3)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)
    assert "it broke (some/file, position 3, phy_offset 12)" in str(back)


def test_the_tree_at_the_top_of_the_module_is_the_tree() -> None:
    text = errors.__doc__ or ""
    own = {
        kind.__name__ for kind in classes(errors.StoreError) if kind.__module__ == "store.errors"
    }
    assert own == {word for word in text.replace("*", " ").split() if word.endswith("Error")} & own
    assert rocksdb_errors.RocksDBError in classes(errors.ConsumeQueueError)


def test_what_the_package_offers_is_sorted_and_there() -> None:
    assert sorted(store.__all__) == store.__all__
    assert [name for name in store.__all__ if not hasattr(store, name)] == []
