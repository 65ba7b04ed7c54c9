"""What groups have consumed: monotonic, written whole, behind the log, beside a broker's."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cqstore import EmbeddedLog, Message
from cqstore.broker.groups.group_offsets import begin_of_queue, end_of_queue, exactly
from cqstore.embedded.consumer_offsets import ConsumerOffsets
from cqstore.store.errors import (
    CorruptionError,
    IllegalMessageError,
    NoSuchQueueError,
    RefusedStoreError,
    StoreClosedError,
    StoreFailedError,
    StoreIOError,
)
from tests.kit.faults import EIO, ENOSPC, Faults
from tests.kit.logs import BACKENDS, opened, stored_offsets
from tests.kit.own_threads import own_threads
from tests.kit.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

THREAD = "cqstore-offsets"
FILE = "consumerOffset.json"


def offsets_of(log: EmbeddedLog) -> ConsumerOffsets:
    found = log._offsets
    assert found is not None
    return found


def filled(root: Path, backend: str = "file", count: int = 20) -> EmbeddedLog:
    log = opened(root, backend, queues=2)
    for number in range(count):
        log.put("t", b"%d" % number)
    return log


@pytest.mark.parametrize("backend", BACKENDS)
def test_commits_are_there_after_a_restart(tmp_path: Path, backend: str) -> None:
    with filled(tmp_path, backend) as log:
        offsets = offsets_of(log)
        assert offsets.committed("g", "t", 0) is None
        assert offsets.commit("g", "t", 0, 3) == 3
        assert offsets.commit("other", "t", 0, 9) == 9
        assert stored_offsets(tmp_path) == {}  # in memory alone
    assert stored_offsets(tmp_path) == {0: 3}
    with opened(tmp_path, backend) as log:
        assert offsets_of(log).committed("g", "t", 0) == 3
        assert log.committed("other", "t") == {0: 9}


def test_a_commit_goes_no_way_back(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        offsets = offsets_of(log)
        assert [offsets.commit("g", "t", 0, at) for at in (0, 5, 3, 5, 6)] == [0, 5, 5, 5, 6]
        offsets.assign("g", "t", 0, 2)
        assert offsets.committed("g", "t", 0) == 2
    assert stored_offsets(tmp_path) == {0: 2}


@pytest.mark.parametrize(
    ("group", "offset", "error"),
    [
        ("g", -1, RefusedStoreError), ("g", 1.0, RefusedStoreError), ("g", True, RefusedStoreError),
        ("", 1, IllegalMessageError), ("a@b", 1, IllegalMessageError), (7, 1, TypeError),
        ("é", 1, IllegalMessageError), ("x" * 256, 1, IllegalMessageError),
    ],
)  # fmt: skip
def test_what_is_no_commit_is_refused(
    tmp_path: Path, group: Any, offset: Any, error: type[Exception]
) -> None:
    with filled(tmp_path) as log:
        with pytest.raises(error):
            offsets_of(log).commit(group, "t", 0, offset)
        assert offsets_of(log)._changes == 0


def test_the_thread_writes_what_has_changed_and_rests_where_nothing_has(tmp_path: Path) -> None:
    with opened(tmp_path, commit_seconds=0.01) as log:
        log.put("t", b"x", queue_id=0)
        offsets = offsets_of(log)
        assert own_threads().count(THREAD) == 1
        assert not (tmp_path / "config" / FILE).exists()
        offsets.commit("g", "t", 0, 1)
        until(lambda: stored_offsets(tmp_path) == {0: 1})
        until(lambda: offsets._written == offsets._changes)
        written = (tmp_path / "config" / FILE).stat().st_mtime_ns
        offsets.commit("g", "t", 0, 1)  # nothing new
        assert offsets._changes == offsets._written
        assert (tmp_path / "config" / FILE).stat().st_mtime_ns == written
    assert THREAD not in own_threads()
    with pytest.raises(StoreClosedError):
        offsets.commit("g", "t", 0, 2)


def test_the_log_is_on_disk_before_an_offset_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave a group ahead of the log, and new messages be skipped."""
    with filled(tmp_path) as log:
        offsets = offsets_of(log)
        seen: list[tuple[int, int]] = []
        real = offsets._table.write

        def write(rows: Any) -> None:
            end = log.store.max_phy_offset()
            seen.append((log.store.flushed_phy_offset(), end))
            real(rows)

        monkeypatch.setattr(offsets._table, "write", write)
        assert log.store.flushed_phy_offset() < log.store.max_phy_offset()
        offsets.commit("g", "t", 0, 10)
        offsets.flush()
        assert len(seen) == 1
        assert seen[0][0] == seen[0][1]


def test_no_offset_is_written_where_the_log_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    log = filled(tmp_path)
    offsets_of(log).commit("g", "t", 0, 10)
    faults.fail("fsync", EIO, "/commitlog/")
    with pytest.raises((StoreIOError, StoreFailedError)):
        log.close()
    faults.heal()
    log.close()
    assert stored_offsets(tmp_path) == {}
    with opened(tmp_path) as again:
        assert offsets_of(again).committed("g", "t", 0) is None


def test_a_full_disk_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    with opened(tmp_path, commit_seconds=0.01) as log:
        log.put("t", b"x", queue_id=0)
        faults.fail("write", ENOSPC, f"/config/{FILE}")
        offsets_of(log).commit("g", "t", 0, 1)
        until(lambda: offsets_of(log).failures >= 2)
        assert stored_offsets(tmp_path) == {}
        assert log.put("t", b"x").ok
        faults.heal()
        until(lambda: stored_offsets(tmp_path) == {0: 1})


# ---- beside a broker's own


def test_groups_and_fields_that_are_not_ours_stay(tmp_path: Path) -> None:
    filled(tmp_path).close()
    theirs = {
        "offsetTable": {"t@old": {0: 4, 1: 5}, "a@b@c": {0: 9}, "gone@old": {7: 70}},
        "resetOffsetTable": {"t@old": {"0": 1}}, "dataVersion": {"counter": 7},
    }  # fmt: skip
    (tmp_path / "config" / FILE).write_text(json.dumps(theirs))
    with opened(tmp_path) as log:
        assert log.committed("old", "t") == {0: 4, 1: 5}
        offsets_of(log).commit("g", "t", 1, 2)
    found = json.loads((tmp_path / "config" / FILE).read_text())
    assert found["resetOffsetTable"] == {"t@old": {"0": 1}}
    assert found["offsetTable"] == {
        "t@old": {"0": 4, "1": 5}, "a@b@c": {"0": 9}, "gone@old": {"7": 70}, "t@g": {"1": 2},
    }  # fmt: skip


def test_a_log_in_which_nothing_was_committed_leaves_the_file_alone(tmp_path: Path) -> None:
    filled(tmp_path).close()
    text = '{"offsetTable":{"t@old":{0:4}}}'
    (tmp_path / "config" / FILE).write_text(text)
    opened(tmp_path).close()
    assert (tmp_path / "config" / FILE).read_text() == text


def test_an_offset_behind_the_end_of_its_queue_goes_back_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has lost its end: what is put next would be skipped."""
    filled(tmp_path).close()
    (tmp_path / "config" / FILE).write_text('{"offsetTable":{"t@g":{0:11,1:10,5:3}}}')
    with opened(tmp_path) as log:
        assert log.committed("g", "t") == {0: 10, 1: 10, 5: 3}
    assert (
        "offset 11 in queue 0 of topic 't' is after the max offset 10; continuing at 10"
        in caplog.text
    )
    assert stored_offsets(tmp_path) == {0: 10, 1: 10, 5: 3}


def test_a_torn_table_is_refused_and_stays(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "config" / FILE).write_text('{"offsetTable":{"t@g":{"0":')
    with pytest.raises(CorruptionError, match=FILE):
        opened(tmp_path)
    assert (tmp_path / "config" / FILE).read_text() == '{"offsetTable":{"t@g":{"0":'
    (tmp_path / "config" / FILE).unlink()
    opened(tmp_path).close()  # nothing was left open


# ---- changes that are asked for


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_group_is_reset_to_ends_offsets_and_times(tmp_path: Path, backend: str) -> None:
    with filled(tmp_path, backend) as log:
        offsets = offsets_of(log)
        offsets.commit("g", "t", 0, 7)
        changes = offsets.reset("g", "t", end_of_queue)
        assert [tuple(each) for each in changes] == [("t", 0, 7, 10), ("t", 1, None, 10)]
        assert stored_offsets(tmp_path) == {0: 10, 1: 10}  # at once
        offsets.reset("g", "t", begin_of_queue, 1)
        assert stored_offsets(tmp_path) == {0: 10, 1: 0}
        offsets.reset("g", "t", exactly(4))
        assert log.committed("g", "t") == {0: 4, 1: 4}
        with pytest.raises(RefusedStoreError, match="out of range for queue 0"):
            offsets.reset("g", "t", exactly(11))
        with pytest.raises(NoSuchQueueError):
            offsets.reset("g", "nothing", begin_of_queue)
        assert log.committed("g", "t") == {0: 4, 1: 4}
        times = [message.store_timestamp for message in log.read("t")]
        log.reset_group("g", "t", time=times[-1] + 1)
        assert log.committed("g", "t") == {0: 10, 1: 10}
        log.reset_group("g", "t", time=0)
        assert log.committed("g", "t") == {0: 0, 1: 0}
        log.reset_group("g", "t", to="latest")
        log.reset_group("g", "t", to=3, queue_id=1)
        assert log.committed("g", "t") == {0: 10, 1: 3}
        log.reset_group("g", "t", to="earliest")
        assert log.committed("g", "t") == {0: 0, 1: 0}
        for given in ({}, {"to": 1, "time": 1}):
            with pytest.raises(RefusedStoreError, match="exactly one of to= and time="):
                log.reset_group("g", "t", **given)


def test_offsets_are_copied_and_forgotten(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        log.put("other", b"x", queue_id=0)
        offsets = offsets_of(log)
        offsets.commit("g", "t", 0, 7)
        offsets.commit("g", "other", 0, 1)
        log.copy_group("g", "new", ["t"])
        assert (log.committed("new", "t"), log.committed("new", "other")) == ({0: 7}, {})
        log.copy_group("g", "new")
        assert log.committed("new", "other") == {0: 1}
        log.forget_group("g", ["other"])
        assert (log.committed("g", "t"), log.committed("g", "other")) == ({0: 7}, {})
        log.forget_group("g")
        assert log.committed("g", "t") == {}
        assert stored_offsets(tmp_path) == {}
        assert stored_offsets(tmp_path, "t@new") == {0: 7}
        calls: list[Callable[[], object]] = [
            lambda: log.copy_group("g", "new"), lambda: log.forget_group("g"),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(RefusedStoreError, match="no consumer offsets found"):
                call()


def test_a_group_with_consumers_is_not_changed(tmp_path: Path) -> None:
    with filled(tmp_path) as log:
        offsets_of(log).commit("g", "t", 0, 7)
        tail = log.tail("t", group="g")
        calls: list[Callable[[], object]] = [
            lambda: log.reset_group("g", "t", to="earliest"), lambda: log.forget_group("g"),
            lambda: log.copy_group("h", "g"),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(
                RefusedStoreError, match=r"has open consumers of t\. Close them first"
            ):
                call()
        tail.close()
        log.reset_group("g", "t", to="earliest")
        assert log.committed("g", "t") == {0: 0, 1: 0}


def test_a_topic_that_is_new_has_no_offsets_of_one_that_was(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "config" / FILE).write_text('{"offsetTable":{"new@g":{0:70},"t@g":{0:1}}}')
    with opened(tmp_path) as log:
        log.put("new", b"x", queue_id=0)
        assert log.committed("g", "new") == {}
        assert log.committed("g", "t") == {0: 1}


def test_a_child_that_was_forked_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path) as log:
        offsets = offsets_of(log)
        offsets.commit("g", "t", 0, 7)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: offsets._pid + 1)
            offsets.close()
        assert stored_offsets(tmp_path) == {}
        assert not offsets.is_closed
    assert stored_offsets(tmp_path) == {0: 7}


def test_messages_beside_the_log_are_read_from_the_begin(tmp_path: Path) -> None:
    """Put by another program: queues that the table of topics does not know are read too."""
    with filled(tmp_path) as log:
        assert log.store.put_message(Message("t", b"beside", 7)).ok
        tail = log.tail("t", group="g")
        assert 7 in log._members["t", "g"]._queue_ids
        tail.close()
