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
"""In the folder of an archive that is an Iceberg table."""
_BATCH = re.compile(r"batch=(\d{8,18})")
_MAX_BYTES = 1 << 28


class _Element(BaseModel):
    """A line, or a part of one: unchangeable, with the fields that are declared and no other."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ArchivedSource(_Element):
    """What a batch has of one log."""

    name: str = Field(min_length=1)
    begin: int = Field(ge=0)
    """Phy offset of the first byte that was read."""
    end: int = Field(ge=0)
    """Phy offset behind the last one: the next batch begins there."""
    mark: str
    """Digest of the log before ``end``: the next run compares it."""
    messages: int = Field(ge=0)


class ArchivedFile(_Element):
    """A Parquet file: rows of one topic and day, ordered by source and phy offset."""

    path: str
    """Below the folder of the batch."""
    topic: str
    messages: int = Field(ge=1)
    size: int = Field(ge=1)
    """Bytes."""

    @field_validator("path")
    @classmethod
    def _is_below(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise ValueError("path is outside the batch")
        return path


class Manifest(_Element):
    """What a batch holds."""

    version: int = Field(1, ge=1, le=1)
    sources: Sequence[ArchivedSource]
    files: Sequence[ArchivedFile]

    def to_json(self) -> bytes:
        """Return what the file holds."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def batch_folder(folder: Path, number: int) -> Path:
    """Return the folder of a batch."""
    return folder / f"batch={number:08d}"


def batch_numbers(folder: Path) -> list[int]:
    """Return the numbers of the existing batches, in order.

    Raises:
        StoreIOError: the folder cannot be read.
    """
    with os_errors("list the archive", folder):
        names = [entry.name for entry in folder.iterdir()] if is_dir(folder) else []
    return sorted(int(match[1]) for name in names if (match := _BATCH.fullmatch(name)))


def is_archive(folder: Path) -> bool:
    """Return whether ``folder`` holds an archive, not a store."""
    return is_file(folder / CATALOG) or any(
        exists(batch_folder(folder, each) / MANIFEST) for each in batch_numbers(folder)
    )


def read_manifest(batch: Path) -> Manifest:
    """Return what the batch in this folder holds.

    Raises:
        CorruptionError: it has no such manifest.
        StoreIOError: it cannot be read.
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
