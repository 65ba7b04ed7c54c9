"""``cqstore import`` of an archive: what was archived comes back, in its order, and goes on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.cli.message_files.archive_lines import read_archive
from cqstore.store.record.message import Host, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.cli.test_export_golden import by_queue, kept
from tests.kit.archived import archive
from tests.kit.commands import cqstore

SIZES = "mappedFileSizeCommitLog=262144\nmappedFileSizeConsumeQueue=2000\n"
SMALL = StoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=2000)
DELETED = {"gone_1", "back_1"}
"""Topics of the golden store that RocketMQ has deleted: an archive has them, queues have not."""
Row = dict[str, Any]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(SIZES)
    return path


def exported(root: Path) -> list[Row]:
    return [json.loads(line) for line in cqstore("export", root).stdout.splitlines()]


def in_order(rows: list[Row]) -> dict[Any, list[Row]]:
    return by_queue([*map(kept, rows)])


def message(number: int) -> Message:
    return Message(
        f"t{number % 3}", b"body %d" % number, number % 2, {"KEYS": f"k{number}"}, number, 0,
        1_700_000_000_000 + number, Host.of("::1" if number % 7 == 0 else "10.0.0.1", number),
    )  # fmt: skip


def put(root: Path, numbers: range) -> None:
    with MessageStore.open(root, SMALL) as store:
        for number in numbers:
            assert store.put_message(message(number)).ok


@pytest.mark.long
def test_a_golden_store_comes_back(golden_folder: Path, tmp_path: Path, conf: Path) -> None:
    root = golden_folder / "special-combine"
    archive(tmp_path / "archive", s=root)
    cqstore("import", tmp_path / "new", tmp_path / "archive", "--new", "--config", conf)
    rows = exported(root)
    back = [row for row in exported(tmp_path / "new") if row["topic"] not in DELETED]
    assert in_order(back) == in_order([row for row in rows if row["topic"] not in DELETED])
    assert {row["sysFlag"] & 0x701 for row in rows} == {0, 0x1, 0x101, 0x201, 0x301}


def test_a_grown_archive_is_gone_on_with(tmp_path: Path, conf: Path) -> None:
    root, folder, new = tmp_path / "store", tmp_path / "archive", tmp_path / "new"
    words = ["import", new, folder, "--new", "--config", conf, "--position", tmp_path / "position"]
    words += ["--output", "json"]
    put(root, range(40))
    archive(folder, s=root)
    assert json.loads(cqstore(*words).stdout) | {"phy": 0} == {"put": 40, "next": 41, "phy": 0}
    assert json.loads(cqstore(*words).stdout)["put"] == 0
    put(root, range(40, 100))
    archive(folder, s=root)
    assert json.loads(cqstore(*words).stdout) | {"phy": 0} == {"put": 60, "next": 101, "phy": 0}
    assert in_order(exported(new)) == in_order(exported(root))


def test_rows_keep_their_numbers(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, range(30))
    archive(folder, s=root)
    put(root, range(30, 60))
    archive(folder, s=root)
    whole = list(read_archive(folder, 1))
    assert [each.number for each in whole] == [*range(1, 61)]
    for first in (2, 11, 30, 31, 45, 60, 61):
        assert [*read_archive(folder, first)] == whole[first - 1 :]


def test_queues_of_several_sources_come_one_behind_the_other(tmp_path: Path, conf: Path) -> None:
    put(tmp_path / "x", range(20))
    put(tmp_path / "y", range(20, 50))
    archive(tmp_path / "archive", y=tmp_path / "y", x=tmp_path / "x")
    cqstore("import", tmp_path / "new", tmp_path / "archive", "--new", "--config", conf)
    one, other = in_order(exported(tmp_path / "x")), in_order(exported(tmp_path / "y"))
    assert in_order(exported(tmp_path / "new")) == {key: one[key] + other[key] for key in one}


def damaged(folder: Path) -> Iterator[str]:
    """Damage a file of an archive in each way, one after the other; yield what is told."""
    path = max(folder.rglob("*.parquet"))
    data = path.read_bytes()
    yield ""
    path.write_bytes(data[:-1])
    yield "the archive file has changed since it was written"
    path.write_bytes(data[: len(data) // 2].ljust(len(data), b"\0"))
    yield "cannot read the archive file after row "
    path.unlink()
    yield "No such file"


@pytest.mark.long
def test_a_file_that_is_damaged_or_missing_ends_the_import(tmp_path: Path, conf: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, range(10))
    archive(folder, s=root)
    for number, sentence in enumerate(damaged(folder)):
        words = ["import", tmp_path / f"new{number}", folder, "--new", "--config", conf]
        if not sentence:
            cqstore(*words)
            continue
        code = 2 if sentence == "No such file" else 1
        reported = cqstore(*words, code=code).stderr
        assert sentence in reported
        assert "--continue-from" in reported


def test_export_writes_no_archive(tmp_path: Path) -> None:
    put(tmp_path / "store", range(1))
    refused = cqstore("export", tmp_path / "store", "--format", "archive", "--to", "x", code=2)
    assert "invalid format 'archive'" in refused.stderr
