"""``epochFileCheckpoint``: the bytes that RocketMQ writes, kept whole through any failing write."""

import os
from pathlib import Path

import pytest

from cqstore.replication.epoch_wire import EpochEntry
from cqstore.replication.follow.epoch_file import read_epochs, write_epochs
from cqstore.store.errors import CorruptionError, StoreIOError

TWO = b"2\n773307083\n7-7000\n8-8000\n"
"""The example in RocketMQ's ``CheckpointFile``."""
EPOCHS = [EpochEntry(7, 7000), EpochEntry(8, 8000)]


def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    assert read_epochs(path) == []
    write_epochs(path, EPOCHS[:1])
    one = path.read_bytes()
    assert sorted(tmp_path.iterdir()) == [path]
    write_epochs(path, EPOCHS)
    assert path.read_bytes() == TWO
    assert Path(f"{path}.bak").read_bytes() == one
    assert read_epochs(path) == EPOCHS
    path.write_bytes(b"2\n0\n7-7000\n8-8000\n")  # 0: not checked
    assert read_epochs(path) == EPOCHS


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "expected a count and a checksum"),
        (b"2\n", "expected a count and a checksum"),
        (b"x\n0\n", "expected a count and a checksum"),
        (b"3\n0\n7-7000\n8-8000\n", "wrong number of epochs"),
        (b"2\n773307084\n7-7000\n8-8000\n", "expected 773307084, found 773307083"),
        (b"2\n0\n7-7000\n8000\n", "line 4"),
        (b"2\n0\n7-7000\n8-8000-1\n", "line 4"),
        (b"2\n0\n7-7000\n8-" + b"9" * 5000 + b"\n", "line 4"),
        (b"2\n0\n8-7000\n8-8000\n", "epochs do not increase"),
        (b"2\n0\n7-7000\n8-7000\n", "epochs do not increase"),
        ("2\n0\n7-7000\n8-٨\n".encode(), "line 4"),
        (bytes(2 << 20), "too long"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "epochFileCheckpoint"
    path.write_bytes(data)
    with pytest.raises(CorruptionError) as caught:
        read_epochs(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_whatever_write_fails_there_is_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "epochFileCheckpoint"
    write_epochs(path, EPOCHS[:1])
    plain = os.fsync
    for failing in range(4):
        left = [failing]

        def fsync(fd: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(5, "Input/output error")
            plain(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreIOError):
            write_epochs(path, EPOCHS)
        assert read_epochs(path) in (EPOCHS[:1], EPOCHS)
        assert read_epochs(path) == EPOCHS[: 1 + (failing == 3)]
        monkeypatch.undo()
    write_epochs(path, EPOCHS)
    assert read_epochs(path) == EPOCHS
