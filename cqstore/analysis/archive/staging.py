"""The staging folder of a run: invisible to readers; the next run removes those of killed runs.

Readers skip it because of its name. Its run keeps a file in it locked until the run ends.
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
"""Maximum bytes of a folder's name, slightly below the limit of file systems."""
_ODD = re.compile("[\\x00-\\x1f\\x7f\"#%'*/:=?\\\\{}\\[\\]^]")
"""Characters that Hive escapes as ``%`` and two digits in folder names, as do Spark and Arrow."""


class Staging:
    """Staging folder of one run: ``files`` of the tasks, and the finished ``batch``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = root / "files"
        self.batch = root / "batch"

    def lay_out(self, written: Sequence[WrittenFile], sources: Sequence[ArchivedSource]) -> None:
        """Move the files into the batch and write its manifest, durably.

        Raises:
            StoreIOError: something cannot be written, or a file is missing.
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
    """Return the folder name of a topic, ``topic=…``; a long name is cut and gets a digest."""
    name = f"topic={_ODD.sub(lambda odd: f'%{ord(odd[0]):02X}', topic)}"
    if len(name.encode()) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return name.encode()[: _MAX_NAME - 17].decode(errors="ignore") + f"~{digest}"


@contextmanager
def staging(folder: Path) -> Iterator[Staging]:
    """Create a staging folder in ``folder`` for the block; it is removed afterwards.

    Raises:
        StoreIOError: the folder cannot be created.
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
    """Remove the folders of killed runs; return whether another run is in progress."""
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
    """Remove a run's folder, its lock file last: the lock file identifies killed runs."""
    with suppress(OSError):
        for path in root.iterdir():
            if path.name != LOCK:
                shutil.rmtree(path, ignore_errors=True)
        (root / LOCK).unlink(missing_ok=True)
        root.rmdir()
