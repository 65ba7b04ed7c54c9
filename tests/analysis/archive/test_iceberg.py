"""An archive as an Iceberg table, read back by pyiceberg: once, in snapshots, also killed ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.analysis.archive.archive_run import ArchivedRun, plan_run, run
from cqstore.analysis.archive.iceberg_archive import IcebergArchive
from cqstore.analysis.options import SourceOptions
from cqstore.cli.message_files.archive_lines import read_archive
from cqstore.cli.message_files.archive_manifest import is_archive
from cqstore.store.errors import RefusedStoreError
from tests.analysis.archive.test_once import put, texts
from tests.kit.archived import archive, archived, in_process
from tests.kit.killed_archive import changes_until_killed


def to_table(folder: Path, **roots: Path) -> ArchivedRun:
    return archive(folder, "iceberg", **roots)


def table(folder: Path) -> Any:
    """Open the table as a reader would who knows no more than the name of its catalog."""
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - it takes a second

    uri = f"sqlite:///{folder}/catalog.db"
    catalog = SqlCatalog("cqstore", uri=uri, warehouse=f"file://{folder}")
    try:
        return catalog.load_table("rocketmq.messages")
    finally:
        catalog.close()


def bodies(folder: Path) -> list[str]:
    found = table(folder).scan(selected_fields=("source", "phy", "body")).to_arrow()
    ordered = found.sort_by([("source", "ascending"), ("phy", "ascending")])
    return [body.decode() for body in ordered["body"].to_pylist()]


@pytest.mark.long
def test_rows_are_those_of_the_other_form(golden_folder: Path, tmp_path: Path) -> None:
    roots = {"x": golden_folder / "special-combine", "y": golden_folder / "basic-default"}
    to_table(tmp_path / "table", **roots)
    archive(tmp_path / "folder", **roots)
    expected = archived(tmp_path / "folder")
    found = table(tmp_path / "table").scan().to_arrow().to_pylist(maps_as_pydicts="strict")
    assert in_order(found) == in_order([dict(row) for row in expected])
    spec = [(each.name, str(each.transform)) for each in table(tmp_path / "table").spec().fields]
    assert spec == [("topic", "identity"), ("day", "day")]
    topic = expected[0]["topic"]
    scan = table(tmp_path / "table").scan(row_filter=f"topic = '{topic}'")
    assert scan.count() == sum(row["topic"] == topic for row in expected)
    assert len(list(scan.plan_files())) < len(list(table(tmp_path / "table").scan().plan_files()))


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        row.pop("day", None)
    return sorted(rows, key=lambda row: (row["source"], row["phy"], row["queueOffset"]))


def test_a_run_adds_a_snapshot_of_what_is_new(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(30))
    assert to_table(folder, s=root).batch == 1
    assert to_table(folder, s=root).batch is None
    put(root, *range(30, 60))
    assert to_table(folder, s=root).batch == 2
    assert bodies(folder) == texts(60)
    assert len(table(folder).snapshots()) == 2
    assert is_archive(folder)
    assert [bytes(each.message.body).decode() for each in read_archive(folder, 1)]
    numbers = [each.number for each in read_archive(folder, 1)]
    assert numbers == [*range(1, 61)]


def test_of_two_runs_over_one_log_the_later_one_adds_nothing(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(10))
    to_table(folder, s=root)
    put(root, *range(10, 20))
    there = IcebergArchive(folder)
    ranges = plan_run(there, {"s": SourceOptions(path=root)})
    to_table(folder, s=root)
    with pytest.raises(RefusedStoreError, match="another run has archived s in the meantime"):
        run(there, ranges, in_process)
    assert bodies(folder) == texts(20)
    put(tmp_path / "other", *range(20, 30))
    there = IcebergArchive(folder)
    ranges = plan_run(there, {"t": SourceOptions(path=tmp_path / "other")})
    put(root, *range(30, 31))
    to_table(folder, s=root)
    run(there, ranges, in_process)
    assert sorted(map(int, bodies(folder))) == [*range(31)]


@pytest.mark.parametrize("other", ["s", "t"])
def test_a_commit_that_another_was_before_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(10))
    there = IcebergArchive(folder)
    ranges = plan_run(there, {"s": SourceOptions(path=root)})
    monkeypatch.setattr(
        there, "_table", overtaken(there, lambda: to_table(folder, **{other: root}))
    )
    if other == "s":
        with pytest.raises(RefusedStoreError, match="another run has archived s in the meantime"):
            run(there, ranges, in_process)
        assert bodies(folder) == texts(10)
    else:
        assert run(there, ranges, in_process).sources[0].messages == 10
        assert bodies(folder) == texts(10) * 2


def test_pyiceberg_is_not_let_try_again_whoever_asked_for_it(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(10))
    to_table(folder, s=root)
    retries = "commit.retry.num-retries"
    changed = table(folder)
    changed.transaction().set_properties({retries: "4"}).commit_transaction()
    changed.catalog.close()
    put(root, *range(10, 20))
    to_table(folder, s=root)
    assert table(folder).properties[retries] == "0"
    assert bodies(folder) == texts(20)


def overtaken(there: IcebergArchive, run_other: Callable[[], object]) -> Callable[[], Any]:
    """Return what gives the table, and once lets another run commit behind that."""
    give, runs = there._table, [run_other]

    def table_then_other() -> Any:
        found = give()
        if runs:
            runs.pop()()
        return found

    return table_then_other


def test_forms_are_not_mixed(tmp_path: Path) -> None:
    put(tmp_path / "store", 1)
    archive(tmp_path / "one", s=tmp_path / "store")
    to_table(tmp_path / "other", s=tmp_path / "store")
    with pytest.raises(
        RefusedStoreError, match="not an Iceberg archive: it contains batch=00000001"
    ):
        to_table(tmp_path / "one", t=tmp_path / "store")
    with pytest.raises(RefusedStoreError, match=r"not an archive: it contains catalog\.db"):
        archive(tmp_path / "other", t=tmp_path / "store")


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("place", range(2, 40, 3))
def test_a_killed_run_leaves_no_half_of_a_snapshot(tmp_path: Path, place: int) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(10))
    to_table(folder, s=root)
    put(root, *range(10, 20))
    done = changes_until_killed(folder, root, place, form="iceberg")
    assert bodies(folder) in (texts(10), texts(20))
    assert done is None or bodies(folder) == texts(20)
    to_table(folder, s=root)
    assert bodies(folder) == texts(20)
    assert len(list((folder / "data").iterdir())) == 2
