"""Each message is archived once: by many runs, by killed ones, beside others, of several stores."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.analysis.archive.archive_run import plan_run, run
from cqstore.analysis.archive.parquet_archive import ParquetArchive
from cqstore.analysis.options import SourceOptions
from cqstore.cli.message_files.archive_manifest import batch_folder, read_manifest
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.archived import archive, archived, in_process
from tests.kit.golden import copy_store
from tests.kit.killed_archive import changes_until_killed
from tests.kit.tree import tree_digest

SMALL = StoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=2000)


def put(root: Path, *bodies: object, config: StoreConfig = SMALL) -> None:
    with MessageStore.open(root, config) as store:
        for body in bodies:
            message = Message("ab"[len(str(body)) % 2], str(body).encode(), 0)
            assert store.put_message(message).ok


def bodies(folder: Path, source: str | None = None) -> list[str]:
    rows = [row for row in archived(folder) if source in {None, row["source"]}]
    rows.sort(key=lambda row: (row["source"], row["phy"]))
    return [row["body"].decode() for row in rows]


def texts(*numbers: int) -> list[str]:
    return [str(each) for each in range(*numbers)]


def test_a_run_adds_what_is_new(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(40))  # over two files of the log
    assert archive(folder, s=root).batch == 1
    assert archive(folder, s=root).batch is None
    put(root, *range(40, 41))
    put(root, *range(41, 90))
    first, second = archive(folder, s=root), archive(folder, s=root)
    assert (first.batch, second.batch) == (2, None)
    assert first.sources[0].messages == 50
    assert second.sources[0].messages == 0
    assert bodies(folder) == texts(90)


@pytest.mark.parametrize("seed", range(3))
def test_runs_between_puts_of_several_stores(tmp_path: Path, seed: int) -> None:
    draw, folder = random.Random(seed), tmp_path / "archive"
    said: dict[str, list[str]] = {"x": [], "y": [], "z": []}
    for name, done in said.items():
        put(tmp_path / name, "0")
        done.append("0")
    for _ in range(5):
        for name, done in said.items():
            new = texts(len(done), len(done) + draw.choice([0, 1, 30]))
            put(tmp_path / name, *new)
            done.extend(new)
        requested = draw.sample(sorted(said), draw.randint(1, 3))
        archive(folder, **{name: tmp_path / name for name in requested})
    archive(folder, **{name: tmp_path / name for name in said})
    assert {name: bodies(folder, name) for name in said} == said


# ---- logs that are others, or have lost something


def test_a_log_that_is_another_one_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    put(tmp_path / "one", *range(10))
    put(tmp_path / "other", *range(100, 110))
    put(tmp_path / "short", *range(3))
    archive(folder, s=tmp_path / "one")
    before = tree_digest(folder)
    for name, sentence in (("other", "different records before it"), ("short", "it was truncated")):
        with pytest.raises(RefusedStoreError, match=sentence):
            archive(folder, s=tmp_path / name)
    assert tree_digest(folder) == before
    assert archive(folder, t=tmp_path / "other").batch == 2


def test_what_expired_before_a_run_is_told_and_the_rest_archived(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(40))
    archive(folder, s=root)
    put(root, *range(40, 200))
    with MessageStore.open(root, SMALL) as store:
        low = store.delete_expired_files(3 * 4096).min_phy_offset
        kept = [
            components_of(store).log.message(each.phy_offset).body.decode()
            for each in components_of(store).log.scan(low)
        ]
    there = ParquetArchive(folder)
    (span,) = plan_run(there, {"s": SourceOptions(path=root)})
    before = read_manifest(batch_folder(folder, 1)).sources[0].end
    assert (span.begin, span.lost_bytes) == (3 * 4096, 3 * 4096 - before)
    run(there, [span], in_process)
    assert bodies(folder) == texts(40) + kept
    assert kept[-1] == "199"
    assert archive(folder, s=root).batch is None


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "store", 1)
    with pytest.raises(RefusedStoreError, match=r"not an archive: it contains (abort|c)"):
        archive(tmp_path / "store", s=tmp_path / "store")


@pytest.mark.parametrize(
    "text", ["", "{}", '{"version":2,"sources":[],"files":[]}',
             '{"version":1,"sources":[],"files":[{"path":"../x","topic":"t","messages":1,"size":1}]}']
)  # fmt: skip
def test_a_damaged_manifest_is_told(tmp_path: Path, text: str) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, 1)
    archive(folder, s=root)
    (folder / "batch=00000001" / "_manifest.json").write_text(text)
    with pytest.raises(CorruptionError, match="invalid batch manifest"):
        archive(folder, s=root)


# ---- two runs at once


def test_of_two_runs_over_one_log_the_later_one_adds_nothing(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, *range(10))
    there = ParquetArchive(folder)
    ranges = plan_run(there, {"s": SourceOptions(path=root)})
    put(root, *range(10, 20))
    archive(folder, s=root)
    before = tree_digest(folder)
    with pytest.raises(RefusedStoreError, match="another run has archived s in the meantime"):
        run(there, ranges, in_process)
    assert tree_digest(folder) == before
    assert bodies(folder) == texts(20)


def test_runs_over_different_logs_do_not_meet(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    put(tmp_path / "x", *range(10))
    put(tmp_path / "y", *range(10, 20))
    there = ParquetArchive(folder)
    ranges = plan_run(there, {"x": SourceOptions(path=tmp_path / "x")})
    with there.staging() as made:  # what another run writes is not removed by one that begins
        archive(folder, y=tmp_path / "y")
        assert made.files.is_dir()
    assert run(there, ranges, in_process).batch == 2
    assert bodies(folder) == texts(20)


# ---- killed


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """A store of which an archive has the first half."""
    put(tmp_path / "store", *range(30))
    archive(tmp_path / "archive", s=tmp_path / "store")
    put(tmp_path / "store", *range(30, 60))
    return tmp_path


def killed(folder: Path, place: int) -> None:
    """Kill a run at one of its changes; what is seen then is all or nothing."""
    done = changes_until_killed(folder / "archive", folder / "store", place)
    assert done is None
    assert bodies(folder / "archive") in (texts(30), texts(60))
    archive(folder / "archive", s=folder / "store")
    assert bodies(folder / "archive") == texts(60)
    assert {each.name for each in (folder / "archive").iterdir()} == {
        "batch=00000001", "batch=00000002"
    }  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("place", [9])
def test_a_killed_run_leaves_nothing_half_seen(grown: Path, place: int) -> None:
    killed(grown, place)


@pytest.mark.crash
@pytest.mark.long
def test_a_run_killed_at_any_change_leaves_nothing_half_seen(
    grown: Path, tmp_path_factory: pytest.TempPathFactory, drawn_places: Callable[..., range]
) -> None:
    whole = tmp_path_factory.mktemp("whole") / "copy"
    copy_store(grown, whole)
    changes = changes_until_killed(whole / "archive", whole / "store")
    assert changes is not None
    assert changes > 10
    for place in drawn_places(changes, 40):
        copy = tmp_path_factory.mktemp("killed") / "copy"
        copy_store(grown, copy)
        killed(copy, place)


def test_what_a_dead_run_left_is_removed_also_where_nothing_is_new(tmp_path: Path) -> None:
    root, folder = tmp_path / "store", tmp_path / "archive"
    put(root, 1)
    for _ in range(2):
        for name in ("_writing-a", "_writing-b"):
            (folder / name).mkdir(parents=True)
        (folder / "_writing-a" / "_lock").touch()
        (folder / "_writing-a" / "files").mkdir()
        (folder / "_writing-a" / "files" / "x.parquet").touch()
        archive(folder, s=root)
        assert [each.name for each in folder.iterdir()] == ["batch=00000001"]
