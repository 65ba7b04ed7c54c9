"""What a folder is taken for, by its files and the settings, before anything in it is opened."""

from pathlib import Path

import pytest

from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.files import file_name
from cqstore.store.journals.backend_state import BackendState
from cqstore.store.journals.store_mode import StoreMode
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backend_replica import NO_LIGHT, Roles
from cqstore.store.service.layout.log_paths import log_paths
from cqstore.store.service.layout.store_layout import (
    StoreLayout,
    choose_backends,
    choose_roles,
    detect,
    found_sizes,
    with_log_folder,
)
from cqstore.store.settings.config import StoreConfig

DOUBLE = "rocksdbCQDoubleWriteEnable"


def made(root: Path, *names: str, folder: str = "commitlog", size: int = 4096) -> Path:
    """Make a log with these files, all of one size, which take no room."""
    (root / folder).mkdir(parents=True)
    for name in names:
        with (root / folder / name).open("wb") as file:
            file.truncate(size)
    return root


def settings(**given: object) -> StoreConfig:
    return StoreConfig.from_mapping(given)


@pytest.mark.parametrize(
    ("key", "word"),
    [("enableDLegerCommitLog", "DLedger"), ("enableControllerMode", "controller"),
     ("duplicationEnable", "duplication")],
)  # fmt: skip
def test_who_else_writes_it_is_told_by_settings_too(tmp_path: Path, key: str, word: str) -> None:
    (reason,) = detect(made(tmp_path, "0"), settings(**{key: "true"})).refusals
    assert word in reason
    assert detect(tmp_path, settings(**{key: "false"})).refusals == []


def test_a_log_of_dledger_alone_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedStoreError, match="the format of DLedger") as caught:
        detect(tmp_path, settings(enableDLegerCommitLog="true"))
    assert caught.value.path == tmp_path
    for name in ("dledger-n2", "dledger-n1"):
        (tmp_path / name).mkdir()
    with pytest.raises(RefusedStoreError, match="the format of DLedger") as caught:
        detect(tmp_path, StoreConfig())
    assert caught.value.path == tmp_path / "dledger-n1"


def test_the_folder_of_old_may_be_named_by_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "store", file_name(0))
    monkeypatch.chdir(tmp_path)
    for root, text in ((tmp_path / "store", "store/commitlog"), (Path("store"), "store/commitlog")):
        layout = detect(root, settings(storePathCommitLog=text))
        assert (layout.refusals, layout.has_log) == ([], True)
    layout = detect(tmp_path / "store", settings(storePathCommitLog="elsewhere"))
    assert len(layout.refusals) == 1
    assert not layout.has_log
    assert layout.log_folders == [Path("elsewhere")]


def test_a_path_of_the_log_that_leads_to_its_own_folder_is_accepted(tmp_path: Path) -> None:
    made(tmp_path / "store", "0")
    (tmp_path / "link").symlink_to("store")
    for text in ("store/commitlog/", "link/commitlog", "link/../store/commitlog"):
        layout = detect(tmp_path / "store", settings(storePathCommitLog=f"{tmp_path}/{text}"))
        assert (layout.refusals, layout.paths.commit_log_override) == ([], None)
    layout = detect(tmp_path / "store", settings(storePathCommitLog=f"{tmp_path}/link/other"))
    assert layout.log_folders == [tmp_path / "store" / "other"]


def test_a_log_over_several_paths_has_files_where_one_of_them_has(tmp_path: Path) -> None:
    root = tmp_path / "store"
    made(tmp_path, folder="one")
    made(tmp_path, f"{0:020d}", folder="two")
    folders = [tmp_path / "one", tmp_path / "two"]
    config = settings(storePathCommitLog=",".join(map(str, folders)))
    layout = detect(root, config)
    assert (layout.log_folders, layout.has_log) == (folders, True)
    assert found_sizes(layout, config) == {"mapped_file_size_commit_log": 4096}
    place = f"{folders[0]}, {folders[1]}, and storePathRootDir is not set"
    assert place in layout.refusals[0]
    layout = detect(root, with_log_folder(config, tmp_path / "two"))
    assert layout.log_folders == [tmp_path / "two"]
    assert f"its commit log is in another folder, {folders[1]}, and" in layout.refusals[0]


def test_the_largest_file_tells_the_size_of_all(tmp_path: Path) -> None:
    first, second = file_name(0), file_name(1)
    made(tmp_path, first, second, size=0)
    layout = detect(tmp_path, StoreConfig())
    assert found_sizes(layout, StoreConfig()) == {}
    (tmp_path / "commitlog" / second).write_bytes(b"x")
    (tmp_path / "commitlog" / "notes.txt").write_bytes(bytes(100))  # not a file of the log
    assert found_sizes(layout, StoreConfig()) == {"mapped_file_size_commit_log": 1}
    (tmp_path / "commitlog" / first).write_bytes(b"xyz")
    (tmp_path / "commitlog" / "folder").mkdir()
    assert found_sizes(layout, StoreConfig()) == {"mapped_file_size_commit_log": 3}
    assert found_sizes(layout, StoreConfig(mapped_file_size_commit_log=4096)) == {}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ["file"]),
        ({"storeType": "Default"}, ["file"]),
        ({"storeType": "defaultrocksdb"}, ["rocksdb"]),
        ({"storeType": "defaultRocksDB", DOUBLE: "true"}, ["rocksdb"]),
        ({DOUBLE: "true"}, ["file", "rocksdb"]),
        ({DOUBLE: "true", "combineCQPreferCQType": "defaultRocksDB"}, ["rocksdb", "file"]),
    ],
)
def test_settings_choose_for_a_new_store(
    tmp_path: Path, given: dict[str, str], names: list[str]
) -> None:
    layout = detect(tmp_path, StoreConfig())
    assert choose_backends(layout, settings(**given), None) == names
    for requested in ("file", "rocksdb"):
        assert choose_backends(layout, settings(**given), requested) == [requested]


def test_a_kind_of_store_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreConfigError, match="storeType 'rocks'"):
        choose_backends(detect(tmp_path, StoreConfig()), settings(storeType="rocks"), None)


def test_a_backend_that_is_not_loaded_assigns_no_offset() -> None:
    config = settings(combineAssignOffsetCQType="defaultRocksDB")
    assert choose_roles(["file"], config) == Roles("file", "file")
    assert choose_roles(["file", "rocksdb"], config).assign == "rocksdb"
    assert choose_roles(["rocksdb"], config) == Roles("rocksdb", "rocksdb")
    assert choose_roles(["file", "other"], StoreConfig()) == Roles("file", "file")


# ---- a store that is there


BOTH = ["file", "rocksdb"]


def there(root: Path, names: list[str], backend_state: BackendState | None = None) -> StoreLayout:
    return StoreLayout(
        StorePaths(root), log_paths(root, StoreConfig()), has_log=True, backends=names,
        backend_state=backend_state or BackendState(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("names", "given", "kept", "served"),
    [
        (["file"], {}, ["file"], ["file"]),
        (["rocksdb"], {}, ["rocksdb"], ["rocksdb"]),
        (BOTH, {}, BOTH, BOTH),
        (BOTH, {"combineCQPreferCQType": "defaultRocksDB"}, BOTH[::-1], BOTH[::-1]),
        (["file"], {DOUBLE: "true"}, BOTH, ["file"]),
        (["rocksdb"], {DOUBLE: "true"}, BOTH, ["rocksdb"]),
        (["file"], {DOUBLE: "true", "storeType": "defaultRocksDB"}, ["file"], ["file"]),
    ],
)
def test_what_lies_there_decides_with_double_write_also_what_is_loaded(
    tmp_path: Path, names: list[str], given: dict[str, str], kept: list[str], served: list[str]
) -> None:
    layout, config = there(tmp_path, names), settings(**given)
    assert layout.is_combined == (len(names) > 1)
    assert choose_backends(layout, config, None) == kept
    assert choose_backends(layout, config, None, read_only=True) == served
    for requested in served:
        assert choose_backends(layout, config, requested)[0] == requested
        assert choose_backends(layout, config, requested, read_only=True)[0] == requested


def test_queues_that_would_be_hidden_are_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedStoreError, match="in backend 'file', not 'rocksdb'"):
        choose_backends(there(tmp_path, ["file"]), StoreConfig(), "rocksdb")
    with pytest.raises(StoreConfigError, match="nonsense"):
        choose_backends(there(tmp_path, []), StoreConfig(), "nonsense")
    config = settings(**{DOUBLE: "true", "combineCQLoadingCQTypes": "default"})
    with pytest.raises(RefusedStoreError, match="does not load the rocksdb queues"):
        choose_backends(there(tmp_path, BOTH), config, None)


def test_a_state_that_was_set_decides(tmp_path: Path) -> None:
    layout = there(tmp_path, BOTH, BackendState(StoreMode("rocksdb"), {"file": 5}))
    for read_only in (False, True):
        found = choose_backends(layout, settings(**{DOUBLE: "true"}), None, read_only=read_only)
        assert found == ["rocksdb"]
        with pytest.raises(
            RefusedStoreError, match="backend 'file' is not in use: the store's state is rocksdb"
        ):
            choose_backends(layout, StoreConfig(), "file", read_only=read_only)


@pytest.mark.parametrize(
    "backend_state", [BackendState(None, {"file": 5}), BackendState(None, {}, {"file": "some-*"})]
)
def test_what_is_not_whole_is_not_served(tmp_path: Path, backend_state: BackendState) -> None:
    layout = there(tmp_path, BOTH, backend_state)
    assert choose_backends(layout, StoreConfig(), None) == BOTH
    assert choose_backends(layout, StoreConfig(), None, read_only=True) == BOTH[::-1]
    with pytest.raises(
        RefusedStoreError, match="cannot read from the file queues: they lag or hold only some"
    ):
        choose_backends(layout, StoreConfig(), "file", read_only=True)
    assert choose_backends(layout, StoreConfig(), "rocksdb", read_only=True) == BOTH[::-1]


def test_files_without_light_queues_are_served_beside_those_that_have_them(tmp_path: Path) -> None:
    backend_state = BackendState(None, {}, {"file": NO_LIGHT})
    layout = there(tmp_path, BOTH, backend_state)
    assert choose_backends(layout, StoreConfig(), None, read_only=True) == BOTH
    with pytest.raises(RefusedStoreError, match="the file queues"):
        choose_backends(
            there(tmp_path, ["file"], backend_state), StoreConfig(), None, read_only=True
        )


def test_batch_queues_keep_double_write_away_and_nothing_else(tmp_path: Path) -> None:
    batches = tmp_path / "batchconsumequeue"
    batches.mkdir()
    layout = there(tmp_path, BOTH)
    assert choose_backends(layout, StoreConfig(), None) == BOTH
    (batches / "topic").mkdir()
    with pytest.raises(RefusedStoreError, match=r"exist only as files: 'topic'\.") as caught:
        choose_backends(layout, StoreConfig(), None)
    assert caught.value.path == batches
    assert choose_backends(layout, StoreConfig(), None, read_only=True) == BOTH
    assert choose_backends(there(tmp_path, ["file"]), StoreConfig(), None) == ["file"]


def test_topics_of_others_compaction_and_a_slave_are_told(tmp_path: Path) -> None:
    (tmp_path / "compaction" / "compactionLog" / "t").mkdir(parents=True)
    made(tmp_path, "0")
    found = detect(tmp_path, settings(brokerRole="SLAVE")).refusals
    assert ["slave" in found[0], "compacted" in found[1], len(found)] == [True, True, 2]
