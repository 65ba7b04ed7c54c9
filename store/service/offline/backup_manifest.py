"""BackupManifest: the files of a backup, with sizes and digests; and differences from it."""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import open_regular, read_file, replace_file
from cqstore.store.path_kind import is_dir, is_file, is_symlink
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.settings.validation import first_fault

FORMAT = 1
MANIFEST = "backup.json"
_MAX_BYTES = 4 << 30
_CHUNK = 4 << 20
_READERS = 2


class BackedUpFile(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1, description="Path relative to the root of the backup.")
    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class BackupManifest(BaseModel):
    """The content of a backup. Written last: a folder without a manifest is not a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    source: str = Field(description="Root of the store that was backed up.")
    made: str = Field(description="Time at which the backup was finished (ISO 8601, UTC).")
    was_open: bool = Field(description="Whether a process had the store open during the backup.")
    min_phy_offset: int = Field(description="Min phy offset of the log; -1 without a log.")
    max_phy_offset: int = Field(description="End of the last complete record; -1 without a log.")
    damaged_at: int | None = Field(
        default=None, description="Phy offset of a damaged record before the end of the log."
    )
    left_out: list[str] = Field(
        default=[],
        description="Files in the log's folders that are not files of the log, and not copied.",
    )
    files: list[BackedUpFile]


class Problem(StrEnum):
    """How a file differs from the manifest."""

    MISSING = "missing"
    SIZE = "another size"
    BYTES = "other bytes"
    UNKNOWN = "not in the manifest"


class BackupDifference(NamedTuple):
    """One file that differs from the manifest."""

    path: Path
    problem: Problem
    expected: str
    got: str


def manifest_path(root: Path) -> Path:
    """Return the path of the manifest of the backup ``root``."""
    return StorePaths(root).own / MANIFEST


def find_manifest(root: Path, given: Path) -> Path:
    """Return the file that ``given`` names: a manifest, or a backup or another folder with one.

    A bare name is searched in the backup ``root`` first, a path from the current folder on. A path
    that is in neither is returned unchanged: reading it raises the error.
    """
    own = [StorePaths(root).own / given, root / given]
    for path in [*own, given] if len(given.parts) == 1 else [given, *own]:
        for file in (path, manifest_path(path), path / MANIFEST):
            if is_file(file):
                return file
    return given


def begun_path(root: Path) -> Path:
    """Return the file that exists, and is locked, while the backup in ``root`` is being written."""
    return StorePaths(root).own / "backup-begun"


def holds_files(folder: Path) -> bool:
    """Return whether there is any file below ``folder``, or it is not a folder."""
    return is_symlink(folder) or not is_dir(folder) or any(names for *_, names in os.walk(folder))


def digest_files(root: Path, progress: Progress = noop) -> list[BackedUpFile]:
    """Return size and digest of all files of a backup, by path.

    ``progress`` is called with the phy offsets of the log's files.

    Raises:
        CorruptionError: a file is not a regular file.
        StoreIOError: a file cannot be read.
    """
    with os_errors("read the backup", root), ThreadPoolExecutor(_READERS) as readers:
        names, files = _names(root), []
        digests = readers.map(lambda name: _digest(root / name), names)
        for name, (size, digest) in zip(names, digests, strict=True):
            files.append(BackedUpFile(path=name, bytes=size, sha256=digest))
            if (file := Path(name)).parent.name == "commitlog" and file.name.isdecimal():
                progress(int(file.name))
        return files


def write_manifest(root: Path, manifest: BackupManifest) -> None:
    """Write the manifest of the backup in ``root``, durably.

    Raises:
        StoreIOError: the manifest cannot be written.
    """
    with os_errors("write the manifest", root):
        replace_file(manifest_path(root), manifest.model_dump_json(indent=1).encode() + b"\n")


def read_manifest(path: Path) -> BackupManifest:
    """Read a manifest.

    Raises:
        CorruptionError: the file is not a manifest.
        StoreIOError: the file cannot be read.
    """
    with os_errors("read the manifest", path):
        data = read_file(path, min(path.stat().st_size, _MAX_BYTES))
    try:
        return BackupManifest.model_validate_json(data)
    except ValidationError as exc:
        raise CorruptionError(
            "invalid backup manifest", path=path,
            expected="JSON as written by `cqstore backup`", got=first_fault(exc),
        ) from exc  # fmt: skip


def compare(root: Path, manifest: BackupManifest) -> Iterator[BackupDifference]:
    """Yield the differences between ``root`` and ``manifest``, by path. Changes nothing.

    Raises:
        StoreIOError: a file cannot be read.
    """
    known = {file.path: file for file in manifest.files}
    with os_errors("read the backup", root):
        there = {name for name in _names(root) if root / name != StorePaths(root).lock}
        for name in sorted(known.keys() | there):
            file, path = known.get(name), root / name
            if file is None:
                yield BackupDifference(
                    path, Problem.UNKNOWN, "no such file", f"{path.stat().st_size} bytes"
                )
            elif name not in there:
                yield BackupDifference(path, Problem.MISSING, f"{file.bytes} bytes", "no such file")
            elif (size := path.stat().st_size) != file.bytes:
                yield BackupDifference(path, Problem.SIZE, f"{file.bytes} bytes", f"{size} bytes")
            elif (digest := _digest(path)[1]) != file.sha256:
                yield BackupDifference(
                    path, Problem.BYTES, f"sha256 {file.sha256}", f"sha256 {digest}"
                )


def _names(root: Path) -> list[str]:
    """Return the files below ``root`` that belong to a backup, by path."""
    own = {manifest_path(root), begun_path(root)}
    found = []
    for folder, _, names in os.walk(root):
        found += [path for name in names if (path := Path(folder, name)) not in own]
    return sorted(str(path.relative_to(root)) for path in found)


def _digest(path: Path) -> tuple[int, str]:
    """Return size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            digest.update(data)
            size += len(data)
    return size, digest.hexdigest()
