"""A log whose topics and offsets are in RocksDB: only what changed is written, in each form."""

import threading
from pathlib import Path
from typing import Any

import pytest

from cqstore import EmbeddedLog
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.writing import write_form
from cqstore.embedded.open_log import open_log
from cqstore.store.errors import StoreIOError
from cqstore.store.paths import StorePaths
from tests.embedded.test_offsets import offsets_of
from tests.kit.faults import ENOSPC, Faults
from tests.kit.logs import CONFIG, stored_offsets, stored_topics
from tests.kit.metadata_forms import databases
from tests.kit.waiting import run, until

SETTINGS: dict[str, dict[str, Any]] = {
    Form.V1: {}, Form.SINGLE: {"single_metadata": True}, Form.V2: {"config_manager_version": "v2"},
}  # fmt: skip
each_form = pytest.mark.parametrize("form", list(SETTINGS))


def opened(root: Path, form: str, **changes: Any) -> EmbeddedLog:
    changes.setdefault("commit_seconds", 3600.0)
    config = CONFIG.model_copy(update=SETTINGS[form])
    return open_log(root, backend="rocksdb", config=config, queues=2, **changes)


def logged(root: Path) -> int:
    """Return the bytes in all write-ahead logs of tables."""
    return sum(
        path.stat().st_size for each in databases(root / "config") for path in each.glob("*.log")
    )


@each_form
def test_a_commit_writes_its_row_alone(tmp_path: Path, form: str) -> None:
    with opened(tmp_path, form) as log:
        for number in range(20):
            log.put("t", b"%d" % number)
        for number in range(1000):
            offsets_of(log).assign(f"group{number}", "t", 0, 1)
        log.flush()
        before = logged(tmp_path)
        offsets_of(log).commit("group7", "t", 0, 2)
        offsets_of(log).commit("group7", "t", 1, 3)
        log.flush()
        assert 0 < logged(tmp_path) - before < 400
        after = logged(tmp_path)
        log.flush()  # nothing has changed
        assert logged(tmp_path) == after
    assert [each.form for each in read_forms(StorePaths(tmp_path))] == [form]
    with opened(tmp_path, form) as log:
        assert log.committed("group7", "t") == {0: 2, 1: 3}
        assert log.committed("group8", "t") == {0: 1}


@each_form
def test_tables_are_there_after_a_restart(tmp_path: Path, form: str) -> None:
    for count in (10, 20):
        with opened(tmp_path, form) as log:
            for number in range(10):
                log.put("t", b"%d" % number)
            log.create_topic(f"t{count}", 7)

            async def consume(log: EmbeddedLog = log) -> None:
                async with log.tail("t", group="g") as tail:
                    for _ in range(10):
                        await anext(tail)

            run(consume())
            assert sum(log.committed("g", "t").values()) == count
            log.copy_group("g", "copied")
            log.reset_group("g", "t", to="latest")
            log.reset_group("copied", "t", to="earliest")
        assert sum(stored_offsets(tmp_path).values()) == count
        assert stored_offsets(tmp_path, "t@copied") == {0: 0, 1: 0}
        assert {"t", f"t{count}"} <= stored_topics(tmp_path).keys()
    with opened(tmp_path, form) as log:
        assert log.create_topic("t10") == 7
        log.forget_group("g")
        assert stored_offsets(tmp_path) == {}
        log.delete_topic("t")
        assert stored_offsets(tmp_path, "t@copied") == {}
        assert "t" not in stored_topics(tmp_path)


@each_form
def test_a_deletion_drops_offsets_in_an_older_form_while_another_thread_commits(
    tmp_path: Path, form: str
) -> None:
    """The older form is exchanged as a whole, and the thread's writes wait for that."""
    with opened(tmp_path, form, commit_seconds=0.001) as log:
        for topic in ("t", "u"):
            for number in range(200):
                log.put(topic, b"%d" % number, queue_id=0)
        offsets_of(log).commit("g", "t", 0, 9)
        log.flush()
        older = Form.SINGLE if form != Form.SINGLE else Form.V1
        found = BrokerMetadata(older, tmp_path, offsets={"t@g": {0: 9}, "u@old": {0: 1}})
        write_form(found, older, tmp_path)
        stop = threading.Event()

        def commit() -> None:
            at = 0
            while not stop.is_set():
                at += 1
                offsets_of(log).commit("g", "u", 0, at)

        thread = threading.Thread(target=commit)
        thread.start()
        log.delete_topic("t")
        stop.set()
        thread.join()
        last = log.committed("g", "u")
        log.flush()
    forms = {each.form: each.offsets for each in read_forms(StorePaths(tmp_path))}
    assert forms == {Form(form): {"u@g": last}, older: {"u@old": {0: 1}}}


def test_a_full_disk_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    with opened(tmp_path, Form.V1, commit_seconds=0.01) as log:
        log.put("t", b"x", queue_id=0)
        offsets_of(log).commit("g", "t", 0, 1)
        until(lambda: stored_offsets(tmp_path) == {0: 1})
        faults.fail("write", ENOSPC, "/consumerOffsets/")
        offsets_of(log).commit("g", "t", 0, 2)
        until(lambda: offsets_of(log).failures >= 2)
        with pytest.raises(StoreIOError, match="No space left"):
            log.flush()
        assert log.put("t", b"x").ok
        faults.heal()
        until(lambda: stored_offsets(tmp_path) == {0: 2})


def test_a_topic_that_cannot_be_written_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    with opened(tmp_path, Form.V1) as log:
        log.create_topic("t")
        faults.fail("write", ENOSPC, "/topics/")
        with pytest.raises(StoreIOError, match="No space left"):
            log.create_topic("new")
        faults.heal()
        assert log.topics() == ["t"]
        log.create_topic("later")
    assert stored_topics(tmp_path).keys() == {"t", "later"}


def test_a_log_opened_read_only_shows_topics_of_the_database(tmp_path: Path) -> None:
    with opened(tmp_path, Form.V1) as log:
        log.put("t", b"x", queue_id=0)
        log.flush()
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "config").rglob("*")}
        with open_log(tmp_path, read_only=True) as reader:
            assert reader.topics() == ["t"]
            assert [each.body for each in reader.read("t")] == [b"x"]
        assert {path: path.stat().st_mtime_ns for path in before} == before
