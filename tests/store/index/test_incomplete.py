"""An index that lacks a file, or a header: no query answers as if it were whole."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore import CorruptionError, Message, MessageStore, StoreConfig
from cqstore.store.index.layout import INDEX_HEADER
from cqstore.store.journals.index_files import noted_index_files
from cqstore.store.paths import StorePaths
from tests.kit.commands import run
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=10, max_index_num=20)
COUNT = 70
"""Keys: three full index files, and a part of one."""


@pytest.fixture(params=[COUNT, 7], ids=["files", "one file"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path, CONFIG) as store:
        for number in range(request.param):
            assert store.put_message(Message("t", b"x", 0, {"KEYS": f"k{number}"})).ok
    return tmp_path


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def zero(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.write(bytes(size))


def zero_header(path: Path) -> None:
    zero(path, INDEX_HEADER.size)


HARM: dict[str, Callable[[Path], object]] = {
    "header of the last": lambda root: zero(index_files(root)[-1], INDEX_HEADER.size),
    "header of the first": lambda root: zero(index_files(root)[0], INDEX_HEADER.size),
    "all headers": lambda root: list(map(zero_header, index_files(root))),
    "count of the first": lambda root: patch(index_files(root)[0]),
    "the last is gone": lambda root: index_files(root)[-1].unlink(),
    "the first is gone": lambda root: index_files(root)[0].unlink(),
    "all are gone": lambda root: shutil.rmtree(root / "index"),
}


def patch(path: Path) -> None:
    """Have the header count fewer entries than there are."""
    with path.open("r+b") as file:
        file.seek(INDEX_HEADER.offset("index_count"))
        file.write((3).to_bytes(4, "big"))


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
@pytest.mark.parametrize("settings", [CONFIG, StoreConfig()], ids=["given", "found"])
def test_queries_and_check_report_it_and_the_advice_works(
    root: Path, harm: Callable[[Path], object], settings: StoreConfig
) -> None:
    harm(root)
    before = tree_digest(root)
    with MessageStore.open(root, settings, read_only=True) as store:
        for number in range(8):
            with pytest.raises(CorruptionError, match="index"):
                store.query_message("t", f"k{number}")
        found = [finding for finding in store.check() if finding.damage]
        assert found
        assert all(finding.path.startswith(str(root / "index")) for finding in found)
    done = run(["query", root, "--topic", "t", "--key", "k0"])
    assert (done.returncode, "cqstore rebuild --index" in done.stderr) == (1, True)
    assert tree_digest(root) == before
    assert run(["check", root]).returncode == 1
    conf = root.with_name(f"{root.name}.conf")
    conf.write_text("maxHashSlotNum=10\nmaxIndexNum=20\n")
    assert run(["rebuild", root, "--index", "--config", conf]).returncode == 0
    assert run(["check", root]).returncode == 0
    found_again(root)


def found_again(root: Path) -> None:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        for number in range(store.max_offset("t", 0)):
            (message,) = store.query_message("t", f"k{number}")
            assert message.queue_offset == number


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
def test_a_writer_builds_it_anew(root: Path, harm: Callable[[Path], object]) -> None:
    harm(root)
    with MessageStore.open(root, CONFIG) as store:
        assert store.report.index_dropped
    found_again(root)


def test_the_note_of_a_clean_stop_counts_for_this_store_alone(root: Path) -> None:
    paths = StorePaths(root)
    names = [path.name for path in index_files(root)]
    assert noted_index_files(paths) == names
    with MessageStore.open(root, CONFIG):
        assert not paths.index_files.exists()
    assert noted_index_files(paths) == names
    os.utime(paths.lock)  # as a start of RocketMQ's does
    assert noted_index_files(paths) == ()
    shutil.rmtree(root / "index")
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert store.query_message("t", "k0") == []


def test_a_damaged_note_keeps_nothing_from_being_opened(root: Path) -> None:
    StorePaths(root).index_files.write_bytes(b"not a note\n")
    found_again(root)
    with MessageStore.open(root, CONFIG):
        pass
    assert run(["check", root]).returncode == 0


def test_an_empty_index_file_is_not_damage(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert store.put_message(Message("t", b"x")).ok
    (tmp_path / "index").mkdir(exist_ok=True)
    size = INDEX_HEADER.size + 4 * 10 + 20 * 20
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(size))
    for settings in (CONFIG, StoreConfig()):
        with MessageStore.open(tmp_path, settings, read_only=True) as store:
            assert store.query_message("t", "k") == []
            assert [finding for finding in store.check() if finding.damage] == []
