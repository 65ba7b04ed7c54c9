"""Which engine is used, and how a database is let go while it is at work."""

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from cqstore.cli.options import note_once
from cqstore.cq_rocksdb.engine import choice as engines
from cqstore.cq_rocksdb.library.native_library import find_library
from cqstore.store.errors import UnsupportedFormatError
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.rocksdb_queues import RocksDBQueues, phys, put
from tests.kit.verbs import call


@pytest.fixture(autouse=True)
def _a_new_process() -> None:
    """Forget which warnings were given: each is given once a process."""
    engines.warn_once.cache_clear()
    note_once.cache_clear()


@pytest.fixture
def _no_native(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Path | None) -> NoReturn:
        raise UnsupportedFormatError("there is no library")

    monkeypatch.setattr(engines, "_native_engine", missing)


@pytest.mark.usefixtures("_no_native")
def test_where_the_native_engine_does_not_work_the_other_one_does(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open(rocksdb_engine=RocksDBEngine.AUTO)
    put(store, "T", 0, range(3), 0)
    assert phys(store, "T", 0) == [0, 100, 200]
    engine = str(store.describe()["engine"])
    assert engine.startswith("rocksdict (")
    assert "there is no library" in engine
    store.close()


@pytest.mark.usefixtures("_no_native")
def test_the_one_who_writes_hears_once_that_expiry_has_no_filter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = "no compaction filter for expired units"
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    where = [tmp_path / "s", "--config", config, "--backend", "rocksdb"]
    done = call("put", *where, "--new", "--topic", "T", "--body", "b")
    assert (done.exit_code, done.stderr) == (0, f"cqstore: {engines.WITHOUT_FILTER}\n")
    done = call("put", *where, "--topic", "T", "--body", "b")
    assert (done.exit_code, done.stderr) == (0, "")
    said = [record.levelname for record in caplog.records if line in record.message]
    assert said.count("WARNING") == 1
    caplog.clear()
    done = call("info", *where)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"rocksdict ({line}" in " ".join(done.stdout.split())
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    configured = RocksDBQueues(tmp_path / "q").open(rocksdb_engine=RocksDBEngine.ROCKSDICT)
    assert configured.lacking() == ""
    configured.close()


def test_where_the_native_engine_works_nothing_is_lacking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RocksDBQueues(tmp_path).open(rocksdb_engine=RocksDBEngine.AUTO)
    assert store.lacking() == ""
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    store.close()


@pytest.mark.usefixtures("_no_native")
@pytest.mark.parametrize(
    "changes",
    [{"rocksdb_engine": RocksDBEngine.NATIVE}, {"rocksdb_library": Path("/nowhere/librocksdb.so")}],
)
def test_what_was_asked_for_by_name_is_never_replaced(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    settings = StoreConfig.from_mapping({"rocksdb_engine": RocksDBEngine.AUTO, **changes})
    with pytest.raises(UnsupportedFormatError, match="there is no library"):
        engines.open_engine(tmp_path, settings, tmp_path / "log", read_only=False)


def test_without_the_compiled_part_the_other_engine_is_taken_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cqstore.cq_rocksdb.engine.native_engine", None)
    opened, reason = engines.open_engine(tmp_path, StoreConfig(), tmp_path / "l", read_only=False)
    assert opened.name == "rocksdict"
    assert "the compiled part of the native engine is missing" in reason
    opened.close()
    assert not engines.engine_works(RocksDBEngine.NATIVE)
    assert engines.engine_works(RocksDBEngine.AUTO)
    assert engines.engine_works(RocksDBEngine.ROCKSDICT)


def test_a_library_that_was_named_is_what_was_configured(tmp_path: Path) -> None:
    library = find_library(None).path
    for settings, reason in (
        ({"rocksdb_library": library}, "as configured"),
        ({"rocksdb_engine": RocksDBEngine.NATIVE}, "native"),
        ({}, "auto"),
    ):
        config = StoreConfig.from_mapping(settings)
        opened, reported = engines.open_engine(tmp_path, config, tmp_path / "log", read_only=False)
        assert (opened.name, reported) == ("native", reason)
        opened.close()


def test_the_engine_is_what_was_configured(tmp_path: Path) -> None:
    store = RocksDBQueues(tmp_path).open(rocksdb_engine=RocksDBEngine.ROCKSDICT)
    assert store.describe()["engine"] == "rocksdict (as configured)"
    store.close()


def test_a_compaction_is_asked_to_end_before_a_close_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RocksDBQueues(tmp_path).open()
    run = store.compact()
    requested: list[str] = []
    monkeypatch.setattr(run, "cancel", lambda: requested.append("cancel"))
    monkeypatch.setattr(run, "wait", lambda: requested.append("wait"))
    store.close()
    assert requested == ["cancel", "wait"]
