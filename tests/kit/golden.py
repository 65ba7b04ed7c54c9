"""Golden stores and RocketMQ's dumps of them, expanded to the shapes that RocketMQ printed."""

import json
import lzma
import tarfile
from itertools import accumulate
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden"
NAMES = sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))
CRASHED = [name for name in NAMES if name.startswith(("crash", "torn", "hole"))]
CLEAN = [name for name in NAMES if name not in CRASHED]
ROCKSDB = [name for name in NAMES if name.endswith(("defaultRocksDB", "combine"))]

Dump = dict[str, Any]


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
