"""Traces that a running store records, against what was asked of it."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cqstore.ab.trace import trace as trace_module
from cqstore.ab.trace.operation_lines import FIELDS, StoreOp
from cqstore.ab.trace.trace_control import record_trace
from cqstore.store.errors import DiskFullError, StoreConfigError, StoreIOError
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.waiting import until

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, rocksdb_memory_bytes=8 << 20)


def lines(path: Path) -> list[dict[str, Any]]:
    """The operations of a recording, behind the line that says that it is one."""
    first, *found = [json.loads(line) for line in path.read_text().splitlines()]
    assert first.keys() == {"trace", "time"}
    assert first["trace"] == "recorded"
    assert abs(first["time"] / 1000 - time.time()) < 600
    return found


def test_every_operation_is_a_line_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        store.put_message(Message("t", b"before"))
        with record_trace(store, path) as trace:
            store.put_message(Message("t", b"12345", 1, {"TAGS": "a", "KEYS": "k"}))
            store.put_message(Message("", b"refused"))
            store.put_message(Message("t", 5))  # type: ignore[arg-type]
            store.put_message_future(Message("t", b"123")).result()
            store.put_message_future(Message("", b"refused")).result()
            store.put_messages([Message("t", b"12"), Message("", b""), Message("u", b"1")])
            store.put_client_batch(Message("t", encode_client_batch([Message("t", b"x")] * 2)))
            store.get_message("t", 1, 0)
            store.get_message("t", 0, 1, 8, TagFilter("b || a"))
            store.get_message("t", 0, 1, 8, TagFilter("*"))
            store.min_offset("t", 0)
            store.max_offset("\ud800", -1)
            store.offset_by_time("t", 0, 17, BoundaryType.UPPER)
            store.estimate_message_count("t", 0, 1, 2, TagFilter("a"))
            store.query_message("t", "k", 5, 6, 7)
            list(store.topics("u"))
        store.min_offset("after", 0)
    client_batch = len(encode_client_batch([Message("t", b"x")] * 2))
    found = lines(path)
    times = [line.pop("at") for line in found]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 60
    assert found == [
        {"op": "put", "topic": "t", "queueId": 1, "size": 5, "tags": "a"},
        {"op": "put", "topic": "t", "queueId": 0, "size": 3},
        {"op": "put", "topic": "t", "queueId": 0, "size": 2},
        {"op": "put", "topic": "u", "queueId": 0, "size": 1},
        {"op": "put", "topic": "t", "queueId": 0, "size": client_batch},
        {"op": "pull", "topic": "t", "queueId": 1, "offset": 0, "count": 32},
        {"op": "pull", "topic": "t", "queueId": 0, "offset": 1, "count": 8, "tags": "a || b"},
        {"op": "pull", "topic": "t", "queueId": 0, "offset": 1, "count": 8},
        {"op": "minOffset", "topic": "t", "queueId": 0},
        {"op": "maxOffset", "topic": "\ud800", "queueId": -1},
        {"op": "timeSearch", "topic": "t", "queueId": 0, "timestamp": 17, "boundary": "upper"},
        {"op": "estimate", "topic": "t", "queueId": 0, "from": 1, "to": 2, "tags": "a"},
        {"op": "query", "topic": "t", "key": "k", "count": 5, "begin": 6, "end": 7},
        {"op": "listTopics", "prefix": "u"},
    ]
    assert {line["op"] for line in found} == set(StoreOp) == FIELDS.keys()
    assert (trace.operations, trace.dropped) == (len(found), 0)
    assert trace.total_bytes == path.stat().st_size
    assert not trace.full


def test_a_put_that_waits_for_the_disk_is_noted_when_it_was_asked(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    with (
        MessageStore.open(tmp_path / "store", config) as store,
        record_trace(store, tmp_path / "trace"),
    ):
        futures = [store.put_message_future(Message("t", b"x" * n)) for n in range(5)]
        assert all(future.result().ok for future in futures)
    assert [line["size"] for line in lines(tmp_path / "trace")] == [0, 1, 2, 3, 4]


def test_a_close_ends_the_trace_and_another_may_follow(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store", CONFIG)
    first = record_trace(store, tmp_path / "first")
    store.min_offset("a", 0)
    with pytest.raises(StoreConfigError, match="already"):
        record_trace(store, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    first.stop()
    first.stop()
    store.min_offset("b", 0)
    second = record_trace(store, str(tmp_path / "second"))
    store.put_message(Message("c", b""))
    store.close()
    assert [line["topic"] for line in lines(tmp_path / "first")] == ["a"]
    assert [line["topic"] for line in lines(tmp_path / "second")] == ["c"]
    assert (second.operations, second.failure) == (1, None)


def test_a_read_only_store_can_be_traced(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        store.put_message(Message("a", b""))
    with MessageStore.open(tmp_path / "store", CONFIG, read_only=True) as store:
        record_trace(store, tmp_path / "trace")
        store.max_offset("a", 0)
    assert [line["op"] for line in lines(tmp_path / "trace")] == ["maxOffset"]


@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_what_is_there_already_is_not_written_over(tmp_path: Path, there: str) -> None:
    path = tmp_path / "trace"
    if there == "file":
        path.write_bytes(b"mine")
    elif there == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        with pytest.raises(
            StoreConfigError, match="cannot create the trace: the file already exists"
        ):
            record_trace(store, path)
        with pytest.raises(StoreIOError) as caught:
            record_trace(store, tmp_path / "no folder" / "trace")
        assert caught.value.path == tmp_path / "no folder" / "trace"
        with pytest.raises(StoreConfigError, match="max_bytes 20 is too small for a trace"):
            record_trace(store, tmp_path / "other", 20)
        assert store.max_offset("a", 0) == 0
    assert there != "file" or path.read_bytes() == b"mine"
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "other").exists()


def test_a_trace_that_was_stopped_closes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        trace = record_trace(store, tmp_path / "trace")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", closed.append)
            patch.setattr(os, "close", closed.append)
            trace.stop()
            assert len(closed) == 2
            os.fstat(closed[0])
            trace.stop()
        assert len(closed) == 2
        os.close(closed[0])


def test_a_trace_ends_before_it_grows_over_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        trace = record_trace(store, path, 1000)
        for number in range(100):
            store.min_offset("t", number)
        until(lambda: trace.full)
        store.min_offset("after", 0)
        second = record_trace(store, tmp_path / "second")
        trace.stop()
        store.min_offset("second", 0)
    size = path.stat().st_size
    assert 900 < size <= 1000
    assert [line["queueId"] for line in lines(path)] == list(range(trace.operations))
    assert second.operations == 1


def test_what_the_thread_cannot_keep_up_with_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_module, "_MAX_WAITING", 10)
    monkeypatch.setattr(trace_module, "_LOOK_SECONDS", 60)
    with (
        MessageStore.open(tmp_path / "store", CONFIG) as store,
        record_trace(store, tmp_path / "trace") as trace,
    ):
        for number in range(25):
            store.min_offset("t", number)
        assert (trace.dropped, trace.dropped) == (15, 15)
    assert (trace.dropped, trace.operations) == (15, 10)


def test_a_disk_that_refuses_ends_the_trace_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def refuse(fd: int, data: bytes, at: int) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path / "trace":
            raise OSError(28, "No space left on device")
        return real(fd, data, at)

    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse)
            trace = record_trace(store, tmp_path / "trace")
            store.put_message(Message("t", b"x"))
            until(lambda: trace.failure is not None)
        assert isinstance(trace.failure, DiskFullError)
        assert trace.failure.path == tmp_path / "trace"
        assert "No space" in str(trace.failure)
        assert store.put_message(Message("t", b"x")).ok
        assert store.max_offset("t", 0) == 2
        trace.stop()
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        assert store.last_exit_ok
