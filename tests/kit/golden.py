"""Golden stores and RocketMQ's dumps of them, expanded to the shapes that RocketMQ printed."""

import json
import lzma
import os
import tarfile
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "golden"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))
CRASHED = [name for name in NAMES if name.startswith(("crash", "torn", "hole"))]
CLEAN = [name for name in NAMES if name not in CRASHED]
ROCKSDB = [name for name in NAMES if name.endswith(("defaultRocksDB", "combine"))]

Dump = dict[str, Any]


def each_kind(names: Iterable[str]) -> list[Any]:
    """Return ``names`` as parameters, the last of the three wide stores ``long``.

    Its files are as many as those of ``wide-default``, its database as that of
    ``wide-defaultRocksDB``; other stores have both, too.
    """
    return [
        pytest.param(name, marks=pytest.mark.long) if name == "wide-combine" else name
        for name in names
    ]


def load_dump(name: str) -> Dump:
    """Return the dump of ``name``: messages and queues as lists of rows again."""
    dump: Dump = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    columns = {field: _column(values) for field, values in dump["messages"].items()}
    dump["messages"] = [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ]
    dump["queues"] = _queues(dump["queues"])
    dump["rocksdbRaw"] = {
        path: {family: list(zip(*pairs, strict=True)) for family, pairs in families.items()}
        for path, families in dump["rocksdbRaw"].items()
    }
    return dump


def unpack_all(folder: Path) -> None:
    """Unpack every store below ``folder``."""
    with tarfile.open(FOLDER / "stores.tar.xz") as archive:
        archive.extractall(folder, filter="fully_trusted")  # ours: no look at each path


def copy_store(source: Path | str, target: Path | str) -> None:
    """Copy a store's folder with all times, in half the time that ``shutil.copytree`` takes.

    For stores of thousands of files; there are no links, owners or attributes to be kept.
    """
    os.mkdir(target)  # noqa: PTH102 - and so on: a path a file would cost more than its copy
    with os.scandir(source) as entries:
        for entry in entries:
            place = f"{target}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                copy_store(entry.path, place)
            else:
                _copy_file(entry, place)
    _same_times(os.stat(source), target)  # noqa: PTH116


def _copy_file(entry: "os.DirEntry[str]", place: str) -> None:
    status = entry.stat()
    left = status.st_size
    read = os.open(entry.path, os.O_RDONLY)
    try:
        written = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.fchmod(written, status.st_mode)
            while left:
                copied = os.sendfile(written, read, None, left)
                assert copied, f"{entry.path} has become shorter"
                left -= copied
        finally:
            os.close(written)
    finally:
        os.close(read)
    _same_times(status, place)


def _same_times(status: os.stat_result, place: Path | str) -> None:
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def _column(values: Any) -> list[Any]:
    return list(accumulate(values["delta"])) if isinstance(values, dict) else list(values)


def _queues(packed: Dump) -> list[Dump]:
    rows: list[list[Any]] = [
        list(row) for row in zip(*map(_column, packed["columns"]), strict=True)
    ]
    nulls, following = set(packed["nulls"]), iter(rows)
    units: list[list[Any] | None] = [
        None if index in nulls else next(following) for index in range(len(rows) + len(nulls))
    ]
    for index, count in packed["batch"]:
        unit = units[index]
        assert unit is not None
        unit.append(count)
    queues, at = [], 0
    for head in packed["heads"]:
        count = head.pop("count")
        queues.append(head | {"units": units[at : at + count]})
        at += count
    return queues
