"""Topics that are deleted: no offset outlives its queue, in files, in memory, or in a consumer."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from cqstore import EmbeddedLog, RefusedStoreError, Tail
from cqstore.broker.groups.group_offsets import OffsetChange
from cqstore.broker.metadata.changing import delete_keys
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.json_form import read_json
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.writing import write_form
from cqstore.store.errors import CorruptionError
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.forks import forked
from tests.kit.killed_at_change import run_until_killed
from tests.kit.logs import BACKENDS, CONFIG, opened
from tests.kit.waiting import run


def put(log: EmbeddedLog, count: int, word: bytes) -> None:
    for number in range(count):
        log.put("t", b"%s %d" % (word, number))


async def take(tail: Tail, count: int) -> list[bytes]:
    async with asyncio.timeout(30):
        return [(await anext(tail)).body for _ in range(count)]


def consume(log: EmbeddedLog, count: int, group: str = "g") -> list[bytes]:
    async def story() -> list[bytes]:
        async with log.tail("t", group=group) as tail:
            return await take(tail, count)

    return run(story())


def news(count: int) -> list[bytes]:
    return [b"new %d" % number for number in range(count)]


def by_log(log: EmbeddedLog) -> None:
    log.delete_topic("t")


def by_store(log: EmbeddedLog) -> None:
    log.store.delete_topic("t")


def as_unused(log: EmbeddedLog) -> None:
    assert log.store.clean_unused_topics(["other"], dry_run=False) == ["t"]


def with_the_log_closed(log: EmbeddedLog) -> None:
    log.close()
    with MessageStore.open(log.store.root, CONFIG) as store:
        store.delete_topic("t")


@pytest.mark.parametrize("again", [5, 15])
@pytest.mark.parametrize("delete", [by_log, by_store, as_unused, with_the_log_closed])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_group_gets_all_of_a_topic_that_was_deleted(
    tmp_path: Path, backend: str, delete: Callable[[EmbeddedLog], None], again: int
) -> None:
    with opened(tmp_path, backend, queues=1) as log:
        put(log, 10, b"old")
        assert len(consume(log, 10)) == 10
        assert log.committed("g", "t") == {0: 10}
        log.flush()
        delete(log)
    with opened(tmp_path, backend, queues=1) as log:
        assert log.committed("g", "t") == {}
        put(log, again, b"new")
        assert consume(log, again) == news(again)


@pytest.mark.parametrize("again", [5, 15])
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_consumer_at_work_gets_all_of_a_topic_that_was_deleted(
    tmp_path: Path, backend: str, again: int
) -> None:
    with opened(tmp_path, backend, queues=1) as log:
        put(log, 20, b"old")
        async with log.tail("t", group="g") as tail:
            assert len(await take(tail, 10)) == 10  # others wait in its buffer
            log.store.delete_topic("t")
            put(log, again, b"new")
            assert await take(tail, again) == news(again)
            assert log.committed("g", "t") == {0: again - 1}
        assert log.committed("g", "t") == {0: again}


async def test_a_consumer_that_waits_gets_all_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        async with log.tail("t", group="g") as tail:
            await take(tail, 10)
            waiting = asyncio.create_task(take(tail, 3))
            await asyncio.sleep(0)
            log.store.delete_topic("t")
            put(log, 3, b"new")
            assert await waiting == news(3)


async def test_a_message_of_a_deleted_topic_commits_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        async with log.tail("t", group="g", auto_commit=False) as tail:
            *_, old = [await anext(tail) for _ in range(10)]
            log.store.delete_topic("t")
            put(log, 3, b"new")
            old.commit()
            assert log.committed("g", "t") == {}
            (await anext(tail)).commit()
            old.commit()
            assert log.committed("g", "t") == {0: 1}


def test_a_commit_while_queues_are_deleted_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        consume(log, 10)
        offsets = log._offsets
        assert offsets is not None
        queues = components_of(log.store).queues
        delete = queues.delete_topics

        def deleting(topics: list[str]) -> None:
            assert offsets.commit("g", "t", 0, 9) == 0
            delete(topics)

        monkeypatch.setattr(queues, "delete_topics", deleting)
        log.store.delete_topic("t")
        assert log.committed("g", "t") == {}


def test_a_group_that_begins_while_a_topic_is_deleted_commits_nothing_of_it(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        offsets = log._offsets
        assert offsets is not None

        def end(queue_id: int) -> int:
            found = log.store.max_offset("t", queue_id)
            log.store.delete_topic("t")
            return found

        offsets.begin("g", "t", [0], end)
        assert log.committed("g", "t") == {}


def reset_while(log: EmbeddedLog, then: Callable[[], object]) -> list[OffsetChange]:
    """Reset ``g`` to the end of its queue; ``then`` happens after that was found."""

    def end(queue: QueueKey, low: int, high: int) -> int:
        then()
        return high

    offsets = log._offsets
    assert offsets is not None
    return offsets.reset("g", "t", end)


def test_a_reset_of_a_topic_that_is_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        with pytest.raises(RefusedStoreError, match="topic 't' was deleted meanwhile"):
            reset_while(log, lambda: log.store.delete_topic("t"))
        assert log.committed("g", "t") == {}
        put(log, 5, b"new")
        assert [each.after for each in reset_while(log, lambda: None)] == [5]
        assert log.committed("g", "t") == {0: 5}


def test_a_reset_while_queues_are_deleted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        queues, refused = components_of(log.store).queues, list[str]()
        delete = queues.delete_topics

        def deleting(topics: list[str]) -> None:
            with pytest.raises(RefusedStoreError) as caught:
                reset_while(log, lambda: None)
            refused.append(str(caught.value))
            delete(topics)

        monkeypatch.setattr(queues, "delete_topics", deleting)
        log.store.delete_topic("t")
        assert ["'t' was deleted meanwhile" in each for each in refused] == [True]
        assert log.committed("g", "t") == {}


def test_other_topics_and_groups_keep_theirs(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        for topic in ("t", "u"):
            log.put(topic, b"x")
            for group in ("g", "h"):
                log.tail(topic, group=group)
                log._offsets.commit(group, topic, 0, 1)  # type: ignore[union-attr]
        log.delete_topic("t")
        assert log.topics() == ["u"]
        assert [log.committed(group, "u") for group in ("g", "h")] == [{0: 1}] * 2
        assert log.create_topic("t", 7) == 7  # a new one, with as many queues as it is given
    found = read_json(tmp_path / "config")
    assert found is not None
    assert found.offsets == {"u@g": {0: 1}, "u@h": {0: 1}}


async def test_a_topic_with_consumers_is_not_deleted_by_the_log(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 2, b"old")
        async with log.tail("t", group="g") as tail:
            await take(tail, 1)
            with pytest.raises(RefusedStoreError, match="group 'g' has open consumers"):
                log.delete_topic("t")
            assert await take(tail, 1) == [b"old 1"]
        log.delete_topic("t")
        log.delete_topic("t")
        log.create_topic("t", 2)
        log.put("t", b"new", queue_id=1)
        async with log.tail("t", group="g") as tail:  # it sees both queues
            assert await take(tail, 1) == [b"new"]


def test_a_log_beside_a_database_of_a_broker_drops_offsets_in_both(tmp_path: Path) -> None:
    """A broker takes the file in and keeps the other rows of its database."""
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        found = BrokerMetadata(Form.V1, tmp_path, offsets={"t@g": {0: 10}, "u@g": {0: 1}})
    write_form(found, Form.V1, tmp_path)
    with opened(tmp_path, queues=1) as log:
        assert log.committed("g", "t") == {0: 10}
        log.delete_topic("t")
        assert log.committed("g", "u") == {0: 1}
    assert [each.offsets for each in read_forms(StorePaths(tmp_path))] == [{"u@g": {0: 1}}] * 2


@pytest.mark.parametrize("name", ["consumerOffset.json.bak", "lmqConsumerOffset.json"])
def test_a_file_that_the_log_has_not_written_yet_loses_them(tmp_path: Path, name: str) -> None:
    """The log has read another one, in which the topic has no offsets."""
    with opened(tmp_path, queues=1) as log:
        put(log, 3, b"old")
        log.put("u", b"x")
        consume(log, 1)
        log.delete_topic("u")
    config = tmp_path / "config"
    (config / name).write_text('{"offsetTable":{"u@g":{0:1}},"lmqOffsetTable":{"u@%LMQ%g":1}}')
    os.utime(config / name, (1000, 1000))
    with opened(tmp_path, queues=1) as log:
        log.delete_topic("u")
        assert "u@" not in (config / name).read_text()
        assert log.committed("g", "t") == {0: 1}


def test_an_offset_from_before_a_deletion_goes_to_the_first_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal of deletions tells a queue that began anew from one that has lost its end."""
    with opened(tmp_path, queues=1) as log:
        put(log, 10, b"old")
        log.put("u", b"x")
        log.store.delete_topic("t")
        put(log, 5, b"new")
    (tmp_path / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"t@g":{0:10},"u@g":{0:10}}}'
    )
    with opened(tmp_path, queues=1) as log:
        assert log.committed("g", "t") == {0: 0}
        assert log.committed("g", "u") == {0: 1}
        assert consume(log, 5) == news(5)
    assert "is after the max offset 5; continuing at 0 (the topic was deleted)" in caplog.text
    assert (
        "is after the max offset 1; continuing at 1 (the end of the queue was lost)" in caplog.text
    )


def test_a_topic_whose_offsets_cannot_be_read_is_not_deleted(tmp_path: Path) -> None:
    with opened(tmp_path, queues=1) as log:
        put(log, 3, b"old")
    table = tmp_path / "config" / "consumerOffset.json"
    table.write_text('{"offsetTable":{"t@g":')
    with MessageStore.open(tmp_path, CONFIG) as store:
        with pytest.raises(CorruptionError, match="offsets of the deleted topics"):
            store.delete_topic("t")
        assert store.max_offset("t", 0) == 3
        store.flush()  # the store has not failed
    journal = DeletedTopics(StorePaths(tmp_path).deleted_topics)
    journal.load()
    assert len(journal) == 0


def test_offsets_in_many_batches_of_topics_are_removed_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []

    def change(paths: StorePaths, name: str, rows: Collection[tuple[str, bytes]]) -> None:
        written.append(name)
        delete_keys(paths, name, rows)

    monkeypatch.setattr("cqstore.broker.metadata.topic_offsets.delete_keys", change)
    monkeypatch.setattr("cqstore.store.service.maintenance.clean_service.TOPICS_AT_ONCE", 2)
    topics = [f"t{number}" for number in range(7)]
    with opened(tmp_path, queues=1) as log:
        for topic in [*topics, "u"]:
            log.put(topic, b"x")
    offsets = {f"{topic}@g": {0: 1} for topic in [*topics, "u"]}
    shutil.rmtree(tmp_path / "config")
    write_form(BrokerMetadata(Form.V1, tmp_path, offsets=offsets), Form.V1, tmp_path)
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.delete_topics(topics)
        assert list(store.topics()) == ["u"]
    assert [each.offsets for each in read_forms(StorePaths(tmp_path))] == [{"u@g": {0: 1}}]
    assert written == ["consumerOffsets"]


@pytest.mark.parametrize("form", [Form.JSON, pytest.param(Form.V1, marks=pytest.mark.long)])
def test_a_kill_within_a_deletion_leaves_no_offset_without_its_queue(
    tmp_path: Path, form: Form
) -> None:
    """Before each change of a name: a broker may be the next to open what is left."""
    made = tmp_path / "made"
    with opened(made, queues=1) as log:
        put(log, 10, b"old")
    found = BrokerMetadata(form, made, offsets={"t@g": {0: 10}})
    assert forked(lambda: write_form(found, form, made)) == 0  # this process must not use RocksDB
    seen, count, code = set(), 0, -signal.SIGKILL
    while code:
        count += 1
        root = tmp_path / str(count)
        shutil.copytree(made, root)

        def delete(root: Path = root, count: int = count) -> None:
            with MessageStore.open(root, CONFIG) as store:
                run_until_killed(count, lambda: store.delete_topic("t"))
                os._exit(0)

        code = forked(delete)
        assert code in {0, -signal.SIGKILL}
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            end = store.max_offset("t", 0)

        def left(root: Path = root) -> int:
            return sum(bool(each.offsets) for each in read_forms(StorePaths(root)))

        has_offsets = bool(forked(left))
        seen.add((end, has_offsets))
        assert end == 10 or not has_offsets, "the offset has outlived its queue"
        shutil.rmtree(root)
    assert {(10, True), (10, False), (0, False)} <= seen
