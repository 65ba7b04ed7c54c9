"""A whole file system is synced in one call, where the system has one that tells what failed."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.store.files import find_syncfs, sync_below, sync_file_system
from tests.kit.descriptors import descriptors_of


@pytest.mark.parametrize(
    ("system", "release", "trusted"),
    [
        ("Linux", "5.8.0-generic", True), ("Linux", "5.10", True), ("Linux", "10.0", True),
        ("Linux", "5.7.19", False), ("Linux", "4.19.0", False), ("Linux", "unknown", False),
        ("FreeBSD", "14.1-RELEASE", False),
    ],
)  # fmt: skip
def test_older_systems_do_not_tell_what_they_could_not_write(
    monkeypatch: pytest.MonkeyPatch, system: str, release: str, *, trusted: bool
) -> None:
    """``syncfs`` reports errors since Linux 5.8, as its manual says."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname=system, release=release))
    assert (find_syncfs() is not None) is trusted


def test_the_system_s_refusal_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", release="5.8.0"))
    syncfs = find_syncfs()
    assert syncfs is not None
    fd = os.open(tmp_path, os.O_RDONLY)
    sync_file_system(syncfs, fd)
    os.close(fd)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)) as caught:
        sync_file_system(syncfs, fd)
    assert caught.value.errno == errno.EBADF


def test_folders_of_one_file_system_are_synced_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("none", "a", "b")]
    for folder in folders[1:]:
        folder.mkdir()
    synced: list[str] = []

    def syncfs(fd: int) -> int:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        return 0

    monkeypatch.setattr("cqstore.store.files.find_syncfs", lambda: syncfs)
    sync_below(folders)
    assert synced == [str(tmp_path / "a")]
    assert descriptors_of(tmp_path) == []
