"""An embedded log's tables after an interrupt anywhere: what is said to be on disk is there."""

from contextlib import suppress
from pathlib import Path

import pytest

from cqstore import EmbeddedLog
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore
from tests.embedded.test_offsets import filled, offsets_of
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.logs import BACKENDS, CONFIG, opened, stored_offsets, stored_topics

IGNORED = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
"""A file that was opened as it was interrupted is closed when it is let go."""
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_backend_long = pytest.mark.parametrize(
    "backend", ["file", pytest.param("rocksdb", marks=pytest.mark.long)]
)


@IGNORED
@each_backend
def test_a_commit_that_is_cut_short_is_written_or_not_there(tmp_path: Path, backend: str) -> None:
    with filled(tmp_path, backend) as log:
        offsets = offsets_of(log)
        places = run_interrupted(lambda: offsets.commit("g", "t", 0, 1))
        for number in range(1, places + 1):
            with suppress(Interrupted):
                run_interrupted(lambda: offsets.commit("g", "t", 0, number + 1), number)  # noqa: B023
            held = offsets.committed("g", "t", 0)
            offsets.flush()
            assert stored_offsets(tmp_path).get(0) == held


@IGNORED
@each_backend_long
def test_a_write_that_is_cut_short_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    with filled(tmp_path, backend) as log:
        offsets = offsets_of(log)
        monkeypatch.setattr(log.store, "flush_log", lambda: None)  # of that the store fails
        offsets.commit("g", "t", 0, 1)
        places = run_interrupted(offsets.flush)
        for number in range(1, places + 1):
            offsets.commit("g", "t", 0, number + 1)
            with suppress(Interrupted):
                run_interrupted(offsets.flush, number)
            assert stored_offsets(tmp_path)[0] in {number, number + 1}
            offsets.flush()
            assert stored_offsets(tmp_path) == {0: number + 1}
        assert places > 20


@IGNORED
@each_backend
def test_a_first_put_that_is_cut_short_leaves_one_table(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend, queues=2) as log:
        number = 0
        while True:
            number += 1
            topic = f"t{number}"
            try:
                run_interrupted(lambda: log.create_topic(topic), number)  # noqa: B023
            except Interrupted:
                assert log.create_topic(topic) == 2
                assert topic in stored_topics(tmp_path)
                continue
            break
    assert number > 20


@IGNORED
@each_backend_long
def test_a_deletion_that_is_cut_short_leaves_no_offset_without_its_queue(
    tmp_path: Path, backend: str
) -> None:
    """At some forty of its places; the next open completes what was begun."""

    def made(root: Path) -> EmbeddedLog:
        log = opened(root, backend, queues=1)
        for number in range(4):
            log.put("t", b"old %d" % number)
        offsets_of(log).commit("g", "t", 0, 4)
        log.flush()
        return log

    with made(tmp_path / "whole") as log:
        places = run_interrupted(lambda: log.delete_topic("t"))
    seen = set()
    for number in range(1, places, max(places // 40, 1)):
        root = tmp_path / str(number)
        log = made(root)
        with suppress(Interrupted):  # how many places there are varies a little
            run_interrupted(lambda: log.delete_topic("t"), number)  # noqa: B023
        with suppress(StoreError):
            log.close()
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            end = store.max_offset("t", 0)
        seen.add((end, bool(stored_offsets(root))))
        assert end or not stored_offsets(root), "the offset has outlived its queue"
        with opened(root, backend, queues=1) as log:
            committed, end = log.committed("g", "t"), log.store.max_offset("t", 0)
            assert (committed, end) in [({0: 4}, 4), ({}, 0)]
    assert {(4, True), (4, False), (0, False)} <= seen
