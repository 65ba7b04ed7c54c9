"""What a clean stop wrote down of the file queues: believed when true, and only then."""

import ast
import gc
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from cqstore.cq_file.known_ends import ends_path
from cqstore.store.errors import StoreConfigError, StoreIOError
from cqstore.store.index.index_service import IndexService
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import CLEAN

Golden = Callable[[str], Path]
CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=200)
FILE_ONLY = [name for name in CLEAN if name.endswith("-default")]


def write(root: Path, count: int = 25) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(count):
            for topic in ("a", "b", "主题"):
                assert store.put_message(Message(topic, b"x" * 10, number % 2)).ok


def facts(root: Path, *, read_only: bool = True) -> dict[tuple[str, int], tuple[int, ...]]:
    with MessageStore.open(root, read_only=read_only) as store:
        queues = components_of(store).queues
        return {
            key: (
                *(ends := queues.queue(*key).ends()),
                *[unit.phy_offset for unit in queues.queue(*key).iterate(ends[0])],
            )
            for key in store.queue_keys()
        }  # fmt: skip


def forget(root: Path) -> None:
    ends_path(StorePaths(root)).unlink()


def test_no_queue_file_is_touched_after_a_clean_stop(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    for path in (root / "consumequeue").rglob("*"):
        if path.is_file():
            path.unlink()
    (root / "consumequeue" / "a" / "0" / f"{0:020d}").touch()  # else no backend is found
    with MessageStore.open(root, read_only=True) as store:
        assert {key: store.max_offset(*key) for key in store.queue_keys()} == {
            (topic, queue_id): 13 - queue_id for topic in ("a", "b", "主题") for queue_id in (0, 1)
        }


@pytest.mark.parametrize("name", FILE_ONLY)
def test_rocketmqs_stores_answer_the_same_with_and_without(golden: Golden, name: str) -> None:
    root = golden(name)
    MessageStore.open(root).close()
    has_others = (root / "batchconsumequeue").exists() or (root / "consumequeue_ext").exists()
    assert ends_path(StorePaths(root)).exists() is not has_others
    with_ends = facts(root)
    if not has_others:
        forget(root)
    assert facts(root) == with_ends


def test_it_lasts_over_any_number_of_clean_stops(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for _ in range(3):
        write(root, 7)
        known = facts(root)
        forget(root)
        assert facts(root) == known


def test_it_is_gone_while_the_store_is_open_for_writing(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    path = ends_path(StorePaths(root))
    with MessageStore.open(root, read_only=True):
        assert path.exists()
    with MessageStore.open(root):
        assert not path.exists()
    assert path.exists()


def rocketmq_starts(root: Path) -> None:
    (root / "lock").write_bytes(b"lock")
    os.utime(root / "lock", ns=(1, 1))


def the_checkpoint_is_written(root: Path) -> None:
    data = bytearray((root / "checkpoint").read_bytes())
    data[0:8] = (1).to_bytes(8, "big")
    (root / "checkpoint").write_bytes(data)


def a_crash(root: Path) -> None:
    (root / "abort").touch()


@pytest.mark.parametrize("happens", [rocketmq_starts, the_checkpoint_is_written, a_crash])
def test_it_is_not_believed_once_somebody_else_had_the_store(
    tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    root = tmp_path / "store"
    write(root)
    shutil.rmtree(root / "consumequeue" / "a")
    happens(root)
    assert {topic for topic, _ in facts(root)} == {"b", "主题"}


def test_any_damage_to_it_leads_to_looking_at_the_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    expected = facts(root)
    path = ends_path(StorePaths(root))
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        assert facts(root) == expected, at
    for size in (0, 1, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert facts(root) == expected, size


def test_a_size_that_does_not_fit_the_files_is_still_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    with pytest.raises(
        StoreConfigError, match="=400 is a wrong setting, or every file was truncated"
    ):
        MessageStore.open(root, StoreConfig(mapped_file_size_consume_queue=400), read_only=True)


@pytest.mark.parametrize("gone", [["a"], ["a", "b", "主题"]])
def test_topics_whose_folders_were_removed_are_dispatched_again(
    tmp_path: Path, gone: list[str]
) -> None:
    root = tmp_path / "store"
    write(root)
    expected = facts(root)
    for topic in gone:
        shutil.rmtree(root / "consumequeue" / topic)
    assert facts(root, read_only=False) == expected
    shutil.rmtree(root / "consumequeue")
    assert facts(root, read_only=False) == expected


def test_a_folder_that_came_by_is_looked_at(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root)
    expected = facts(root)
    shutil.copytree(root / "consumequeue" / "a", root / "consumequeue" / "c")
    found = facts(root)
    assert {key: found[key] for key in expected} == expected
    assert found["c", 0] == expected["a", 0]


def test_a_queue_that_leads_behind_a_log_cut_since_is_looked_at(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, 400)
    logs = sorted((root / "commitlog").iterdir())
    assert len(logs) > 1
    logs[-1].unlink()
    believed = facts(root)
    forget(root)
    assert believed == facts(root)
    assert max(phys[-1] for _, _, *phys in believed.values()) < int(logs[-1].name)


def test_a_clean_stop_does_without_them_where_they_cannot_be_written(tmp_path: Path) -> None:
    write(tmp_path)
    expected = facts(tmp_path)
    ends_path(StorePaths(tmp_path)).unlink()
    for name in (".new", ".npz.new"):  # wherever they are begun
        ends_path(StorePaths(tmp_path)).with_suffix(name).mkdir()
    with MessageStore.open(tmp_path, CONFIG):
        pass
    assert not (tmp_path / "abort").exists()
    assert not ends_path(StorePaths(tmp_path)).exists()
    assert facts(tmp_path) == expected


def test_an_open_that_fails_before_the_ends_are_found_writes_none_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    write(root)
    expected = facts(root)
    forget(root)  # as after RocketMQ

    def fail(*_: object) -> None:
        raise StoreIOError("cannot list the index files")

    with monkeypatch.context() as patched:
        patched.setattr(IndexService, "load", fail)
        with pytest.raises(StoreIOError):
            MessageStore.open(root)
    assert not ends_path(StorePaths(root)).exists()
    assert facts(root) == expected


def test_a_store_opens_though_finalizers_parse_python_in_the_midst_of_it(tmp_path: Path) -> None:
    """As that of a failed task does, which has its traceback written with marks under the lines."""
    write(tmp_path)
    expected, ran, going = facts(tmp_path), count(), [True]

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            ast.literal_eval("{'a': (1, 2), 'b': [3, {'c': 4}]}")
            next(ran)
            if going:
                Garbage()

    former = gc.get_threshold()
    gc.set_threshold(1)
    try:
        Garbage()
        found = facts(tmp_path)
    finally:
        going.clear()  # nor in any test that comes behind this one
        gc.set_threshold(*former)
        gc.collect()
    assert found == expected
    assert next(ran) > 10
