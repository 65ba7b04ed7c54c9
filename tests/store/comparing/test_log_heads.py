"""What the log says of its records, against what RocketMQ printed of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from cqstore.store.comparing.log_heads import Heads, LogHeads
from cqstore.store.errors import StoreIOError
from tests.kit.commands import cqstore
from tests.kit.golden import load_dump
from tests.migration.made_log import Made, make_log, make_store

NAMES = ["basic-default", "special-default", "propcrc-default", "separate-defaultRocksDB"]
"""Several files; addresses of both kinds and properties with sums; logs in several folders."""


def looked(heads: LogHeads, requested: list[tuple[int, int]]) -> list[tuple[int, int, int] | None]:
    """Return store time, queue id and queue offset of what was found."""
    places, sizes = (np.array(column, np.int64) for column in zip(*requested, strict=True))
    found: Heads = heads.read_heads(places, sizes)
    return [
        (*map(int, row[1:]),) if row[0] else None  # type: ignore[misc]
        for row in zip(*found, strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_found_and_nothing_beside_it(golden_folder: Path, name: str) -> None:
    root = golden_folder / name
    folders = sorted({path.parent for path in root.rglob("commitlog*/" + "[0-9]" * 20)})
    messages = load_dump(name)["messages"]
    requested = [(each["phy"], each["storeSize"]) for each in messages]
    reported = [(each["storeTimestamp"], each["queueId"], each["queueOffset"]) for each in messages]
    heads = LogHeads(folders)
    assert looked(heads, requested) == reported
    assert looked(heads, requested[::-1]) == reported[::-1]
    mixed = [*range(1, len(requested), 2), *range(0, len(requested), 2)]
    assert looked(heads, [requested[at] for at in mixed]) == [reported[at] for at in mixed]
    beside = [(at + left, size + more) for at, size in requested for left, more in [(1, 0), (0, 1)]]
    assert looked(heads, beside) == [None] * len(beside)
    assert looked(heads, [*beside, *requested]) == [*[None] * len(beside), *reported]


def test_places_outside_the_log_are_not_found(tmp_path: Path) -> None:
    offsets = make_log(tmp_path, [Made("t", 3, 1000 + at) for at in range(20)], 1024)
    folder = tmp_path / "commitlog"
    (folder / f"{0:020d}").unlink()
    (folder / f"{99 * 1024:020d}").touch()
    for other in ("notes", "0", "\u0660" * 20):
        (folder / other).write_text("no file of the log")
    kept = [at for at in offsets if at >= 1024]
    size = kept[1] - kept[0]
    outside = [(at, size) for at in (0, 1023, -5, 98 * 1024, 99 * 1024, 100 * 1024, 1 << 62)]
    inside = [(at, size) for at in kept]
    heads = LogHeads([folder])
    assert looked(heads, outside) == [None] * len(outside)
    for one in outside:
        assert looked(heads, [one]) == [None]
    first = 20 - len(kept)
    reported = [(1000 + at, 3, at) for at in range(first, 20)]
    assert looked(heads, [*outside, *inside]) == [*[None] * len(outside), *reported]
    end = folder / f"{1024:020d}"
    assert (
        looked(heads, [(2 * 1024 - 8, 8), (end.stat().st_size + 1020, 4), *inside])[2:] == reported
    )
    assert not len(
        LogHeads([folder]).read_heads(np.empty(0, np.int64), np.empty(0, np.int64)).found
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    assert looked(LogHeads([empty]), inside) == [None] * len(inside)
    assert bytes(heads.record(*inside[2]))[4:8] == bytes.fromhex("daa320a7")


def test_few_files_are_mapped_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqstore.store.log.log_file_maps._MAPS", 2)
    offsets = make_log(tmp_path, [Made("t", 3, 1000 + at) for at in range(40)], 1024)
    heads = LogHeads([tmp_path / "commitlog"])
    assert len(heads._files._paths) > 3
    for at, offset in [*enumerate(offsets), *reversed([*enumerate(offsets)])]:
        assert looked(heads, [(offset, offsets[1])]) == [(1000 + at, 3, at)]
        assert len(heads._files._files) <= 2
    assert looked(heads, [(at, offsets[1]) for at in offsets]) == [
        (1000 + at, 3, at) for at in range(40)
    ]
    assert len(heads._files._files) <= 2


def test_a_file_or_a_folder_that_has_gone_is_named(tmp_path: Path) -> None:
    offsets = make_log(tmp_path, [Made("t", 3, 1000 + at) for at in range(20)], 1024)
    folder = tmp_path / "commitlog"
    heads = LogHeads([folder])
    gone = folder / f"{1024:020d}"
    gone.unlink()
    at = next(offset for offset in offsets if offset >= 1024)
    with pytest.raises(StoreIOError, match="read the commit log") as caught:
        looked(heads, [(at, offsets[1])])
    assert caught.value.path == gone
    with pytest.raises(StoreIOError, match="list the commit log") as caught:
        LogHeads([folder, tmp_path / "none"])
    assert caught.value.path == tmp_path / "none"


def test_beside_a_process_that_expires_files_each_answer_is_right_or_an_error(
    tmp_path: Path,
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    offsets = make_store(root, [Made("t", 0, 1000 + at) for at in range(40)], 1024, "file")
    folder, size = root / "commitlog", offsets[1] - offsets[0]
    files = sorted(folder.iterdir())
    held, listed = LogHeads([folder]), LogHeads([folder])
    requested = [(at, size) for at in offsets]
    reported = [(1000 + at, 0, at) for at in range(40)]
    assert looked(held, requested) == reported
    for path in files[:-1]:
        os.utime(path, (1, 1))
    conf.write_text("fileReservedTime=1\n")
    cqstore("clean", root, "--config", conf, "--yes")
    left = sorted(folder.iterdir())
    assert len(left) < len(files) - 1
    assert looked(held, requested) == reported  # what is mapped stays: no bus error, no zeros
    kept = [at for at, place in enumerate(offsets) if place >= int(left[0].name)]
    assert kept
    assert looked(listed, [requested[at] for at in kept]) == [reported[at] for at in kept]
    with pytest.raises(StoreIOError, match="deleted after the log was listed") as caught:
        looked(listed, requested)
    assert caught.value.path == files[0]
    assert looked(LogHeads([folder]), requested) == [
        reported[at] if at in kept else None for at in range(40)
    ]
