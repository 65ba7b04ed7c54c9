"""The folders of a log: as RocketMQ splits them, and refused where they could be mistaken."""

from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.files import file_name
from cqstore.store.journals.begun_cut import begin_cut
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.layout.log_paths import log_paths
from cqstore.store.service.layout.noted_log_paths import note_log_paths, refuse_unlike_noted
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.settings.config import StoreConfig
from tests.kit.tree import tree_digest, unchanged

SIZE = 4096


def settings(**given: object) -> StoreConfig:
    return StoreConfig.from_mapping({"mapped_file_size_commit_log": SIZE, **given})


def over(tmp_path: Path, *names: str, **given: object) -> StoreConfig:
    """Return settings of the store ``s`` with a log over the folders ``names``."""
    text = ",".join(f"{tmp_path}/{name}" for name in names)
    return settings(storePathCommitLog=text, storePathRootDir=str(tmp_path / "s"), **given)


def fill(store: MessageStore, files: int) -> None:
    while len(components_of(store).log.files.files()) < files:
        assert store.put_message(Message("t", b"x" * 300)).ok


def placed(tmp_path: Path) -> dict[str, str]:
    """Return the number of each file that is part of a log → its folder."""
    found = {
        str(int(path.name) // SIZE): str(path.parent.relative_to(tmp_path))
        for path in tmp_path.rglob("[0-9]" * 20)
        if path.parent.name not in {"consumequeue", "index"} and path.parent.parent.name != "t"
    }
    return dict(sorted(found.items()))


# ---- settings


@pytest.mark.parametrize(
    ("text", "read_only", "folders", "targets"),
    [
        ("/d1", "", ["/d1"], ["/d1"]),
        ("/d1", "/d2", ["/d1"], ["/d1"]),  # MappedFileQueue reads one folder
        ("/d1,", "/d2", ["/d1", "/d2"], ["/d1"]),
        ("/d2,/d1,,", "", ["/d2", "/d1"], ["/d1", "/d2"]),
        ("/d2,/d1,/d2", "", ["/d2", "/d1"], ["/d1", "/d2"]),
        ("/d1,/d2,/d3", "/d2,/d9", ["/d1", "/d2", "/d3", "/d9"], ["/d1", "/d3"]),
        ("/d1,/d2", "/d2,/d1", ["/d1", "/d2"], []),
        # Sorted as texts: "-" is before "/", and U+1F600 is before U+FF21 in UTF-16.
        ("/d/a/,/d/a-b/", "", ["/d/a", "/d/a-b"], ["/d/a-b", "/d/a"]),
        ("/\uff21,/\U0001f600", "", ["/\uff21", "/\U0001f600"], ["/\U0001f600", "/\uff21"]),
        ("  /d1,/d2 ", "  ", ["/d1", "/d2"], ["/d1", "/d2"]),
    ],
)
def test_paths_are_split_and_ordered_as_java_does(
    tmp_path: Path, text: str, read_only: str, folders: list[str], targets: list[str]
) -> None:
    config = settings(storePathCommitLog=text, readOnlyCommitLogStorePaths=read_only)
    found = log_paths(tmp_path, config)
    assert [*map(str, found.folders)] == folders
    assert [*map(str, found.targets)] == targets
    named = [each.rstrip("/") for each in text.strip().split(",") if each]
    assert [*map(str, found.measured)] == list(dict.fromkeys(named))


def test_another_separator_is_taken_from_the_settings(tmp_path: Path) -> None:
    config = settings(storePathCommitLog="/d,1:/d2", multiPathSplitter=":")
    assert [*map(str, log_paths(tmp_path, config).folders)] == ["/d,1", "/d2"]
    for bad in ("", "|", ".", " ", "/", "::*"):
        with pytest.raises(StoreConfigError, match="invalid separator"):
            settings(multiPathSplitter=bad)


@pytest.mark.parametrize("text", ["/d1, /d2", "/d1 ,/d2", "/d1,,/d2", ",/d1", "/d1,\t/d2"])
def test_a_path_that_a_broker_would_misread_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreConfigError, match="invalid path '"):
        log_paths(tmp_path, settings(storePathCommitLog=text))
    with pytest.raises(StoreConfigError, match=r"^readOnlyCommitLogStorePaths=.*invalid path '"):
        log_paths(tmp_path, settings(storePathCommitLog="/a,", readOnlyCommitLogStorePaths=text))


def test_only_separators_are_no_path(tmp_path: Path) -> None:
    with pytest.raises(StoreConfigError, match="storePathCommitLog=,: expected a path"):
        log_paths(tmp_path, settings(storePathCommitLog=","))


@pytest.mark.parametrize(
    ("text", "read_only", "what"),
    [
        ("{0}/d1,{0}/d1/", "", "twice, in different spellings"),
        ("{0}/d1,{0}/d2/../d1", "", "twice, in different spellings"),
        ("{0}/d1,{0}/link", "", "twice, in different spellings"),
        ("{0}/d1,{0}/d2", "{0}/d2/", "twice, in different spellings"),
        ("{0}/d1,{0}/d1/more", "", "inside another one, {0}/d1 "),
        ("{0}/link/more,{0}/d1", "", "inside another one, {0}/d1 "),
        ("{0}/d1,{0}", "", "inside another one, {0} "),
        ("{0}/s", "", "contains the store {0}/s "),
        ("{0}/s,", "", "contains the store {0}/s "),
        ("{0}", "", "contains the store {0}/s "),
        ("{0}/d1,{0}/s/consumequeue/log", "", "a part of the store"),
        ("{0}/s/index", "", "a part of the store"),
        ("{0}/d1,{0}/s/commitlog/more", "", "a part of the store"),
    ],
)
def test_overlapping_folders_are_refused(
    tmp_path: Path, text: str, read_only: str, what: str
) -> None:
    for name in ("s/commitlog", "d1", "d2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("d1")
    config = settings(
        storePathCommitLog=text.format(tmp_path),
        readOnlyCommitLogStorePaths=read_only.format(tmp_path),
    )
    with pytest.raises(RefusedStoreError) as caught:
        detect(tmp_path / "s", config)
    assert what.format(tmp_path) in str(caught.value)


# ---- to which store a log belongs


def test_a_log_outside_is_written_only_if_the_settings_name_the_store(tmp_path: Path) -> None:
    root = tmp_path / "s"
    config = over(tmp_path, "d1", "d2")
    for other in (None, str(tmp_path / "other"), str(tmp_path)):
        copied = config.model_copy(update={"store_path_root_dir": other})
        found = f"is {other}" if other else "is not set"
        with pytest.raises(RefusedStoreError, match=f"storePathRootDir {found}: set"):
            MessageStore.open(root, copied)
    assert not root.exists()
    (tmp_path / "alias").symlink_to("s")
    alias = config.model_copy(update={"store_path_root_dir": str(tmp_path / "alias")})
    MessageStore.open(root, alias).close()
    text = f"{tmp_path}/t/commitlog,{tmp_path}/t/more"
    assert detect(tmp_path / "t", settings(storePathCommitLog=text)).refusals == []


def test_the_log_of_another_store_is_never_written(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "other", settings()).close()
    (tmp_path / "d1").mkdir()
    (tmp_path / "s").mkdir()
    with unchanged(tmp_path):
        with pytest.raises(RefusedStoreError, match=f"of the store {tmp_path}/other"):
            MessageStore.open(tmp_path / "s", over(tmp_path, "d1", "other/commitlog"))
        with pytest.raises(RefusedStoreError, match="Did you mean"):
            MessageStore.open(tmp_path / "s", over(tmp_path, "d1", "other"))


def test_a_log_in_its_default_place_is_not_left_out(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", settings()) as store:
        fill(store, 1)
    (tmp_path / "d1").mkdir()
    (tmp_path / "d2").mkdir()
    own = tmp_path / "s" / "commitlog"
    with pytest.raises(RefusedStoreError, match=f"does not name {own}, which has files of a log"):
        MessageStore.open(tmp_path / "s", over(tmp_path, "d1", "d2"))


def test_without_a_path_for_new_files_a_store_is_only_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", over(tmp_path, "d1", "d2")) as store:
        fill(store, 2)
    both = f"{tmp_path}/d2,{tmp_path}/d1"
    config = over(tmp_path, "d1", "d2", readOnlyCommitLogStorePaths=both)
    with pytest.raises(RefusedStoreError, match="so there is none for new files"):
        MessageStore.open(tmp_path / "s", config)
    with MessageStore.open(tmp_path / "s", config, read_only=True) as store:
        assert len(components_of(store).log.files.files()) == 2


# ---- placement


def test_files_take_turns_over_the_paths_in_their_sorted_order(tmp_path: Path) -> None:
    config = over(tmp_path, "b", "s/commitlog", "a")
    with MessageStore.open(tmp_path / "s", config) as store:
        fill(store, 7)
    turns = dict(enumerate(["a", "b", "s/commitlog"] * 3))
    assert placed(tmp_path) == {str(number): turns[number] for number in range(7)}
    assert (tmp_path / "s" / "commitlog").is_dir()
    with MessageStore.open(tmp_path / "s", over(tmp_path, "a", "b", "s/commitlog")) as store:
        fill(store, 9)
    assert placed(tmp_path) == {str(number): turns[number] for number in range(9)}


def test_no_file_is_created_in_a_read_only_path(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", over(tmp_path, "a", "b")) as store:
        fill(store, 4)
    kept = over(tmp_path, "a", "b", "c", readOnlyCommitLogStorePaths=f"{tmp_path}/b")
    (tmp_path / "c").mkdir()
    with MessageStore.open(tmp_path / "s", kept) as store:
        fill(store, 8)
        assert len(list(store.get_message("t", 0, 0, 500).messages())) > 0
        assert [each for each in store.check() if each.damage] == []
    assert placed(tmp_path) == dict(zip("01234567", "ababacac", strict=True))
    assert "/b" in (tmp_path / "s" / "cqstore" / "log-paths").read_text()


def test_an_empty_file_of_a_killed_creation_is_removed_from_any_path(tmp_path: Path) -> None:
    """The next attempt may choose another folder, and the log must not have two such files."""
    config = over(tmp_path, "a", "b")
    with MessageStore.open(tmp_path / "s", config) as store:
        fill(store, 2)
        last = components_of(store).log.files.end_offset()
    (tmp_path / "b" / file_name(last)).touch()  # its turn is that of "a"
    with MessageStore.open(tmp_path / "s", config) as store:
        fill(store, 3)
    assert placed(tmp_path) == {"0": "a", "1": "b", "2": "a"}
    with MessageStore.open(tmp_path / "s", config, read_only=True) as store:
        assert [each for each in store.check() if each.damage] == []


# ---- files that are not in sight


@pytest.fixture
def spread(tmp_path: Path) -> StoreConfig:
    """Make a store with two files of its log in each of ``a`` and ``b``."""
    config = over(tmp_path, "a", "b")
    with MessageStore.open(tmp_path / "s", config) as store:
        fill(store, 4)
    assert placed(tmp_path) == dict(zip("0123", "abab", strict=True))
    return config


def refused(tmp_path: Path, config: StoreConfig) -> str:
    """Return the error of opening the store either way; nothing is changed."""
    before, errors = tree_digest(tmp_path), []
    for read_only in (True, False):
        with pytest.raises(StoreError) as caught:
            MessageStore.open(tmp_path / "s", config, read_only=read_only)
        errors.append(str(caught.value))
    assert tree_digest(tmp_path) == before
    assert errors[0] == errors[1]
    return errors[0]


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("is_noted", [False, True])
def test_a_missing_path_is_refused_and_nothing_is_recovered(
    tmp_path: Path, spread: StoreConfig, *, crashed: bool, is_noted: bool
) -> None:
    if crashed:
        (tmp_path / "s" / "abort").touch()
    if not is_noted:
        (tmp_path / "s" / "cqstore" / "log-paths").unlink()
    (tmp_path / "b").rename(tmp_path / "away")
    error = refused(tmp_path, spread)
    assert "a folder of the commit log does not exist" in error
    assert f"mkdir -p {tmp_path}/b" in error
    (tmp_path / "b").mkdir()  # as the mount point of the disk
    error = refused(tmp_path, spread)
    assert f"missing before this one, and {tmp_path}/b has no file" in error
    (tmp_path / "b").rmdir()
    (tmp_path / "away").rename(tmp_path / "b")
    with MessageStore.open(tmp_path / "s", spread) as store:
        assert not store.report.dropped_bytes


@pytest.mark.parametrize("crashed", [False, True])
def test_newest_files_that_are_not_in_sight_are_not_cut_away(
    tmp_path: Path, spread: StoreConfig, *, crashed: bool
) -> None:
    """The queues show that there was more, also after a crash and without a mark of ours."""
    root = tmp_path / "s"
    if crashed:
        (root / "abort").touch()
    for name in ("log-paths", "synced"):
        (root / "cqstore" / name).unlink()
    (tmp_path / "b" / file_name(3 * SIZE)).rename(tmp_path / "newest")
    (root / "checkpoint").write_bytes(bytes(4096))
    kept = [tree_digest(tmp_path / name) for name in ("a", "b", "s/consumequeue")]
    for read_only in (True, False):
        with pytest.raises(RefusedStoreError, match="log end at 12288, but the queues have rec"):
            MessageStore.open(root, spread, read_only=read_only)
    assert [tree_digest(tmp_path / name) for name in ("a", "b", "s/consumequeue")] == kept
    (tmp_path / "newest").rename(tmp_path / "b" / file_name(3 * SIZE))
    with MessageStore.open(root, spread) as store:
        assert [each for each in store.check() if each.damage] == []


def test_rocksdb_queues_show_that_newest_files_are_not_in_sight(tmp_path: Path) -> None:
    root, config = tmp_path / "s", over(tmp_path, "a", "b")
    with MessageStore.open(root, config, backend="rocksdb") as store:
        fill(store, 4)
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    for name in ("log-paths", "synced"):
        (root / "cqstore" / name).unlink()
    (tmp_path / "b" / file_name(3 * SIZE)).rename(tmp_path / "newest")
    with MessageStore.open(root, config, read_only=True) as store:
        assert store.report.damage is not None
    advice = r"log end at 12288, but .* up to .* run cqstore recover --cut-at 12288"
    with pytest.raises(RefusedStoreError, match=advice):
        MessageStore.open(root, config)
    (tmp_path / "newest").rename(tmp_path / "b" / file_name(3 * SIZE))
    with MessageStore.open(root, config) as store:
        assert store.max_offset("t", 0) == len(list(components_of(store).log.scan(0)))
        end = store.max_offset("t", 0)
    (tmp_path / "b" / file_name(3 * SIZE)).unlink()
    with MessageStore.open(root, config, recovery=RecoveryOptions(cut_at=3 * SIZE)) as store:
        assert 0 < store.max_offset("t", 0) < end


def test_an_interrupted_cut_is_not_taken_for_missing_files(
    tmp_path: Path, spread: StoreConfig
) -> None:
    """It removes files of the log first; the queues still have their units."""
    root = tmp_path / "s"
    lock = StoreLock(StorePaths(root))
    begin_cut(StorePaths(root), SIZE)
    lock.release()
    for number in (3, 2):
        (tmp_path / "ab"[number % 2] / file_name(number * SIZE)).unlink()
    (root / "abort").touch()
    with MessageStore.open(root, spread) as store:
        assert store.max_phy_offset() == SIZE
        assert store.max_offset("t", 0) == len(list(components_of(store).log.scan(0)))


def test_forgotten_settings_are_refused(tmp_path: Path, spread: StoreConfig) -> None:
    for config in (settings(), over(tmp_path, "a")):
        assert "which the settings do not name" in refused(tmp_path, config)
    note = tmp_path / "s" / "cqstore" / "log-paths"
    note.unlink()
    with MessageStore.open(tmp_path / "s", spread):
        assert note.exists()


def test_a_path_may_be_dropped_once_it_has_no_file(tmp_path: Path, spread: StoreConfig) -> None:
    for number in (1, 3):
        name = file_name(number * SIZE)
        (tmp_path / "b" / name).rename(tmp_path / "a" / name)
    config = over(tmp_path, "a")
    with MessageStore.open(tmp_path / "s", config) as store:
        assert len(components_of(store).log.files.files()) == 4
    (tmp_path / "b").rmdir()
    MessageStore.open(tmp_path / "s", config).close()


def test_a_disk_that_is_not_mounted_is_named(
    tmp_path: Path, spread: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount point exists, is empty, and so far all files are on the other disk."""
    disk, really = tmp_path / "disk", Path.is_mount
    (disk / "log").mkdir(parents=True)
    config = over(tmp_path, "a", "b", "disk/log")
    with monkeypatch.context() as mounted:
        mounted.setattr(Path, "is_mount", lambda path: path == disk or really(path))
        MessageStore.open(tmp_path / "s", config).close()
        MessageStore.open(tmp_path / "s", config).close()
    assert f"not mounted at {disk}. Mount it" in refused(tmp_path, config)
    assert f"remove {tmp_path}/s/cqstore/log-paths" in refused(tmp_path, config)


def test_one_file_in_two_paths_is_refused(tmp_path: Path, spread: StoreConfig) -> None:
    double = tmp_path / "b" / file_name(0)
    double.write_bytes((tmp_path / "a" / double.name).read_bytes())
    error = refused(tmp_path, spread)
    assert "a commit log file is in two folders" in error
    assert f"({double})" in error


# ---- the note


def test_a_note_is_invalid_in_a_copy(tmp_path: Path, spread: StoreConfig) -> None:
    paths = StorePaths(tmp_path / "s")
    with pytest.raises(RefusedStoreError, match="do not name"):
        refuse_unlike_noted(paths, [tmp_path / "a"])
    lock = paths.lock.read_bytes()
    paths.lock.rename(tmp_path / "former")  # else the inode may be used again
    paths.lock.write_bytes(lock)
    refuse_unlike_noted(paths, [tmp_path / "a"])


def test_a_damaged_note_is_refused(tmp_path: Path, spread: StoreConfig) -> None:
    note = tmp_path / "s" / "cqstore" / "log-paths"
    for data in (b"", b"x", note.read_bytes().replace(b"folders", b"folder_")):
        note.write_bytes(data)
        with pytest.raises(CorruptionError) as caught:
            MessageStore.open(tmp_path / "s", spread)
        assert caught.value.path == note


def test_a_store_with_folders_inside_may_be_renamed(tmp_path: Path) -> None:
    inside = over(tmp_path, "s/commitlog", "s/more")
    with MessageStore.open(tmp_path / "s", inside) as store:
        fill(store, 3)
    (tmp_path / "s").rename(tmp_path / "new")
    with pytest.raises(RefusedStoreError, match="do not name"):
        MessageStore.open(tmp_path / "new", settings())
    text = f"{tmp_path}/new/commitlog,{tmp_path}/new/more"
    MessageStore.open(tmp_path / "new", settings(storePathCommitLog=text)).close()


def test_a_note_is_written_once_and_removed_with_its_reason(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    lock = StoreLock(paths)
    try:
        (tmp_path / "more").mkdir()
        note_log_paths(paths, [tmp_path / "commitlog"])
        assert not paths.own.exists()
        note_log_paths(paths, [tmp_path, tmp_path / "more"])
        first = paths.log_paths.stat()
        note_log_paths(paths, [tmp_path, tmp_path / "more"])
        assert paths.log_paths.stat().st_ino == first.st_ino
        note_log_paths(paths, [tmp_path / "commitlog"])
        assert not paths.log_paths.exists()
    finally:
        lock.release()
