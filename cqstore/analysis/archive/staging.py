"""The folder in which a run writes: no reader sees it; the next run removes what a dead one left.

It has a name that readers pass over, and a file that its run holds locked for as long as it lives.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from cqstore.analysis.archive.file_writer import WrittenFile
from cqstore.cli.message_files.archive_manifest import (
    MANIFEST,
    ArchivedFile,
    ArchivedSource,
    Manifest,
)
from cqstore.store.errors import StoreIOError, os_errors
from cqstore.store.files import make_folder, replace_file, sync_folder
from cqstore.store.path_kind import matching

PREFIX = "_writing-"
LOCK = "_lock"
_MAX_NAME = 240
"""Bytes of a folder's name, a few below what a file system takes."""
_ODD = re.compile("[\\x00-\\x1f\\x7f\"#%'*/:=?\\\\{}\\[\\]^]")
"""What Hive writes as ``%`` and two digits in the name of a folder; Spark and Arrow read it so."""


class Staging:
    """One run's folder: ``files`` for the tasks, ``batch`` for what is shown in the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = root / "files"
        self.batch = root / "batch"

    def lay_out(self, written: Sequence[WrittenFile], sources: Sequence[ArchivedSource]) -> None:
        """Move the files to where a batch has them, and write its manifest; all on disk.

        Raises:
            StoreIOError: something cannot be written, or a file is not there.
        """
        with os_errors("write a batch of the archive", self.batch):
            self.batch.mkdir()
            numbers: defaultdict[str, int] = defaultdict(int)
            files = []
            for one in sorted(written, key=lambda each: (each.topic, each.day, each.name)):
                place = f"{topic_folder(one.topic)}/day={one.day}"
                path = f"{place}/part-{numbers[place]:05d}.parquet"
                numbers[place] += 1
                target = self.batch / path
                target.parent.mkdir(parents=True, exist_ok=True)
                (self.files / one.name).rename(target)
                if (found := target.stat().st_size) != one.size:
                    raise StoreIOError(
                        f"the archive file is incomplete: expected {one.size} bytes, found {found}",
                        path=target,
                    )
                messages = sum(one.messages.values())
                files.append(
                    ArchivedFile(path=path, topic=one.topic, messages=messages, size=one.size)
                )
            for place in numbers:
                sync_folder(self.batch / place)
            for topic in {Path(place).parent for place in numbers}:
                sync_folder(self.batch / topic)
            manifest = Manifest(version=1, sources=sources, files=files)
            replace_file(self.batch / MANIFEST, manifest.to_json())


def topic_folder(topic: str) -> str:
    """Return the name of a topic's folder, ``topic=…``; of one too long the begin and a digest."""
    name = f"topic={_ODD.sub(lambda odd: f'%{ord(odd[0]):02X}', topic)}"
    if len(name.encode()) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return name.encode()[: _MAX_NAME - 17].decode(errors="ignore") + f"~{digest}"


@contextmanager
def staging(folder: Path) -> Iterator[Staging]:
    """Give a new folder below ``folder``, which is made if need be; it is gone afterwards.

    Raises:
        StoreIOError: it cannot be made.
    """
    root = folder / f"{PREFIX}{uuid4().hex}"
    with os_errors("write the archive", folder):
        make_folder(folder)
        remove_dead(folder)
        root.mkdir()
        lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os_errors("write the archive", root):
            fcntl.flock(lock, fcntl.LOCK_EX)
            made = Staging(root)
            made.files.mkdir()
        yield made
    finally:
        _remove(root)
        os.close(lock)


def remove_dead(folder: Path) -> bool:
    """Remove what killed runs have left; return whether another run is at work."""
    is_one_alive = False
    for root in matching(folder, f"{PREFIX}*"):
        try:
            lock = os.open(root / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # killed before it had one, or just begun
            with suppress(OSError):
                root.rmdir()
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(root)
        except BlockingIOError:
            is_one_alive = True
        finally:
            os.close(lock)
    return is_one_alive


def _remove(root: Path) -> None:
    """Remove a run's folder, its lock last: without it a dead run is not known as one."""
    with suppress(OSError):
        for path in root.iterdir():
            if path.name != LOCK:
                shutil.rmtree(path, ignore_errors=True)
        (root / LOCK).unlink(missing_ok=True)
        root.rmdir()
