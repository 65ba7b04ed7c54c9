"""Contents of an archive: ``cqstore archive`` writes it, ``cqstore import`` reads it.

    FOLDER/batch=00000001/_manifest.json
    FOLDER/batch=00000001/topic=orders/day=2026-11-26/part-00000.parquet

A batch is the output of one run. Its folder appears by one rename, so a reader sees all of it or
nothing. Its number is the next after the highest, so if two runs end at once, one reports it.
Spark and Arrow skip names that begin with ``_``.
"""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.settings.validation import first_fault

MANIFEST = "_manifest.json"
CATALOG = "catalog.db"
"""Catalog file in the folder of an archive that is an Iceberg table."""
_BATCH = re.compile(r"batch=(\d{8,18})")
_MAX_BYTES = 1 << 28


class _Element(BaseModel):
    """Base of the manifest's objects: immutable, and without undeclared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ArchivedSource(_Element):
    """The range of one log that a batch contains."""

    name: str = Field(min_length=1)
    begin: int = Field(ge=0)
    """Phy offset of the first byte that was read."""
    end: int = Field(ge=0)
    """Phy offset after the last byte that was read: the next batch begins there."""
    mark: str
    """Digest of the log before ``end``, which the next run compares."""
    messages: int = Field(ge=0)


class ArchivedFile(_Element):
    """A Parquet file with the rows of one topic and day, ordered by source and phy offset."""

    path: str
    """Path relative to the folder of the batch."""
    topic: str
    messages: int = Field(ge=1)
    size: int = Field(ge=1)
    """Size in bytes."""

    @field_validator("path")
    @classmethod
    def _is_below(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise ValueError("path is outside the batch")
        return path


class Manifest(_Element):
    """The content of a batch."""

    version: int = Field(1, ge=1, le=1)
    sources: Sequence[ArchivedSource]
    files: Sequence[ArchivedFile]

    def to_json(self) -> bytes:
        """Return the content of the manifest file."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def batch_folder(folder: Path, number: int) -> Path:
    """Return the folder of a batch."""
    return folder / f"batch={number:08d}"


def batch_numbers(folder: Path) -> list[int]:
    """Return the numbers of the existing batches in ascending order.

    Raises:
        StoreIOError: the folder cannot be read.
    """
    with os_errors("list the archive", folder):
        names = [entry.name for entry in folder.iterdir()] if is_dir(folder) else []
    return sorted(int(match[1]) for name in names if (match := _BATCH.fullmatch(name)))


def is_archive(folder: Path) -> bool:
    """Return whether ``folder`` is an archive rather than a store."""
    return is_file(folder / CATALOG) or any(
        exists(batch_folder(folder, each) / MANIFEST) for each in batch_numbers(folder)
    )


def read_manifest(batch: Path) -> Manifest:
    """Return the manifest of the batch in a folder.

    Raises:
        CorruptionError: the manifest is missing or invalid.
        StoreIOError: the manifest cannot be read.
    """
    path = batch / MANIFEST
    with os_errors("read the batch manifest", path):
        data = read_file(path, _MAX_BYTES)
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as exc:
        raise CorruptionError(
            "invalid batch manifest", path=path,
            expected="JSON written by cqstore archive", got=first_fault(exc),
        ) from exc  # fmt: skip
