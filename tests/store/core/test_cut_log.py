"""A log file that is cut under an open store: answers are right or errors, none is a signal."""

import gc
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cqstore.store.errors import CorruptionError, TruncatedRecordError
from cqstore.store.files import Descriptor
from cqstore.store.log.gather import gather
from cqstore.store.log.log_map import map_log_file
from cqstore.store.log.mapped_file import MappedFile
from tests.kit.commands import run_module
from tests.kit.cut_log_child import COUNT, CUTS, LOG_FILE, PAGE, questions

PUTS = ("put_sync", "put_list_sync", "put_long", "put_and_flush")
SILENT = {
    (ask, "inside the last record") for ask in ("offset_by_time", "log_heads", "times_of_many")
}
"""What does not read so far, or has read before."""


def requested_of_child(root: Path, backend: str, ask: str, cut: str) -> Any:
    """Return what a process answers whose log is cut."""
    done = run_module("tests.kit.cut_log_child", root, backend, ask, cut)
    assert done.returncode != -signal.SIGBUS
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ask", [ask for ask in questions() if ask not in PUTS])
def test_a_reader_gets_the_right_answer_or_an_error(tmp_path: Path, ask: str, cut: str) -> None:
    found = requested_of_child(tmp_path, "file", ask, cut)
    assert found["right"] + len(found["errors"]) > 0
    if ask == "dispatch":  # it has what waits in memory
        return
    if (ask, cut) in SILENT:
        assert found["errors"] == []
        return
    assert any("shrunk" in error for error in found["errors"])
    if ask.startswith("pull"):
        assert found["right"] >= (0 if cut == "nothing is left" else 39)
        assert found["right"] < 5 * COUNT


@pytest.mark.slow
@pytest.mark.parametrize("ask", ["pull", "offset_by_time"])
def test_a_reader_of_rocksdb_queues_does_too(tmp_path: Path, ask: str) -> None:
    found = requested_of_child(tmp_path, "rocksdb", ask, "at a page")
    if ask == "pull":
        assert any("shrunk" in error for error in found["errors"])


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("ask", PUTS)
def test_nothing_is_acknowledged_that_the_file_has_not(tmp_path: Path, ask: str, cut: str) -> None:
    found = requested_of_child(tmp_path, "file", ask, cut)
    first, then = found["errors"]
    assert first.startswith("CorruptionError: the file has shrunk")
    assert f"expected {LOG_FILE} bytes, found" in first
    assert "earlier" in then
    assert "the file has shrunk" in then  # the store knows why it has failed


@pytest.fixture
def cut_file(tmp_path: Path) -> Iterator[MappedFile]:
    """A mapped file of 64 pages that is cut to one."""
    file = MappedFile.create(tmp_path, 0, 64 * PAGE)
    file.map()[:] = bytes([7]) * (64 * PAGE)
    file.wrote_position = 64 * PAGE
    os.truncate(file.path, PAGE)
    yield file
    file.close()


def guard_of(file: MappedFile) -> Any:
    return file.map().guard


@pytest.mark.parametrize("step", [1, -1, 7])
def test_few_faults_bring_a_reader_through_a_file_that_is_gone(
    cut_file: MappedFile, step: int
) -> None:
    """Each fault takes twice as many pages: no more maps than the kernel lets a process have."""
    assert not guard_of(cut_file).has_faults
    data = cut_file.map()
    begin = np.frombuffer(data, np.uint8).ctypes.data
    assert maps_in(begin, len(data)) == 1
    assert [data[at * step % 64 * PAGE] for at in range(64)].count(7) == 1  # what the file has
    assert guard_of(cut_file).has_faults
    assert 1 < maps_in(begin, len(data)) < 20


def maps_in(begin: int, size: int) -> int:
    """Return how many there are in a span of addresses: those of other threads come and go."""
    spans = [
        [int(each, 16) for each in line.partition(" ")[0].split("-")]
        for line in Path("/proc/self/maps").read_text().splitlines()
    ]
    return sum(first < begin + size and begin < last for first, last in spans)


def test_faults_of_one_file_leave_others_alone_and_go_with_their_map(
    tmp_path: Path, cut_file: MappedFile
) -> None:
    (tmp_path / "other").mkdir()
    other = MappedFile.create(tmp_path / "other", 0, 2 * PAGE)
    other.map()[:5] = b"hello"
    other.wrote_position = 2 * PAGE
    assert cut_file.map()[5 * PAGE] == 0
    with pytest.raises(TruncatedRecordError, match="the file has shrunk"):
        cut_file.select(5 * PAGE, 5)
    assert cut_file.select(PAGE - 5, 5) == bytes([7]) * 5
    assert not guard_of(other).has_faults
    assert guard_of(other).is_whole
    view = other.select(0, 5)
    assert bytes(view) == b"hello"
    other.check_written(other.map())
    with pytest.raises(CorruptionError, match="expected 262144 bytes, found 4096 bytes"):
        cut_file.check_written(cut_file.map())
    cut_file.unmap()
    with pytest.raises(CorruptionError, match="the file has shrunk"):
        cut_file.map()
    view.release()
    other.close()


def test_a_file_that_has_its_bytes_again_is_read_by_system_calls(cut_file: MappedFile) -> None:
    assert cut_file.map()[5 * PAGE] == 0
    with cut_file.path.open("r+b") as raw:
        raw.write(bytes([9]) * (64 * PAGE))
    assert cut_file.select(5 * PAGE, 3) == bytes([9]) * 3
    assert cut_file.map()[5 * PAGE] == 0
    assert gather(cut_file, ">i2", np.array([5 * PAGE, 3])).tolist() == [0x0909] * 2


def test_what_is_written_into_zeros_is_not_acknowledged(cut_file: MappedFile) -> None:
    target = cut_file.target()
    target[PAGE // 2 : PAGE // 2 + 4] = b"here"
    cut_file.check_written(target)
    target[9 * PAGE : 9 * PAGE + 4] = b"lost"
    with pytest.raises(CorruptionError, match="the file has shrunk"):
        cut_file.check_written(target)
    assert cut_file.path.stat().st_size == PAGE


def test_a_flush_asks_for_the_size(cut_file: MappedFile) -> None:
    cut_file.flushed_position = 0
    with pytest.raises(CorruptionError, match="expected 262144 bytes, found 4096 bytes"):
        cut_file.flush()
    assert cut_file.flushed_position == 0


def test_what_waits_in_memory_is_not_written_to_a_file_that_was_cut(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path, 0, 8 * PAGE)
    file.use_heap()
    target = file.target()
    target[: 3 * PAGE] = b"x" * (3 * PAGE)
    file.wrote_position = 3 * PAGE
    os.truncate(file.path, PAGE)
    with pytest.raises(CorruptionError, match="the file has shrunk"):
        file.commit()
    assert file.path.stat().st_size == PAGE
    file.close()


def test_a_map_whose_views_live_on_is_guarded_until_they_go(cut_file: MappedFile) -> None:
    view = memoryview(cut_file.map())
    cut_file.close()
    gc.collect()
    assert view[5 * PAGE] == 0
    view.release()


def test_maps_that_go_make_room_for_others(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(PAGE))
    file = Descriptor(path, os.O_RDONLY)
    maps = [map_log_file(path, file, PAGE, read_only=True) for _ in range(8193)]
    registered = [made.guard is not None and made.guard.is_registered for made in maps]
    assert registered.count(False) >= 1
    assert registered[0]
    maps.clear()
    made = map_log_file(path, file, PAGE, read_only=True)
    assert made.guard is not None
    assert made.guard.is_registered
