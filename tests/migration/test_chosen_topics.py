"""Moves of some topics: light queues alone, and all but the BatchCQ topics that stay in files."""

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import finish, rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.status import status
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import read_report, verify_migration
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import IllegalMessageError, NoSuchQueueError, RefusedStoreError
from cqstore.store.journals.backend_state import read_backend_state
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backend_replica import NO_LIGHT
from cqstore.store.queue.topic_choice import ONLY_LIGHT
from cqstore.store.queue.units import CqUnit, QueueKey
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import (
    StoreMode,
    change_mode,
    current_mode,
    possible_steps,
)
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands
from tests.kit.migrations import NO_SPARK
from tests.kit.tree import tree_digest

if TYPE_CHECKING:
    import subprocess

CONFIG = StoreConfig(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400, max_index_num=100,
    enable_lmq=True, enable_multi_dispatch=True,
)  # fmt: skip
Contents = dict[QueueKey, list[CqUnit]]
LIGHT = ("%LMQ%a", "%LMQ%$p$b")
SIZES = (3, 1, 4)
REFUSED = 2


def put(store: MessageStore, first: int, count: int, topics: tuple[str, ...] = ("p", "t")) -> None:
    for number in range(first, first + count):
        for topic in topics:
            names = {"INNER_MULTI_DISPATCH": ",".join(LIGHT[: 1 + number % 2])}
            properties = {"TAGS": "x", **(names if topic == "p" else {})}
            assert store.put_message(Message(topic, b"%d" % number, number % 3, properties)).ok


def put_batches(store: MessageStore, sizes: tuple[int, ...]) -> list[int]:
    offsets = []
    for size in sizes:
        body = encode_client_batch([Message("b", b"%d" % at) for at in range(size)])
        (done,) = store.put_client_batch(Message("b", body, 0, {"UNIQ_KEY": "u"}))
        assert done.ok, done.reason
        offsets.append(done.queue_offset)
    return offsets


def light(root: Path) -> None:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        put(store, 0, 60)


def with_batches(root: Path, perm: int = 0) -> None:
    """A store with plain topics, light queues, and a BatchCQ topic that clients cannot use."""
    row = {"topicName": "b", "attributes": {"queue.type": "BatchCQ"}, "perm": perm}
    with MessageStore.open(root, CONFIG, backend="file") as store:
        (root / "config").mkdir()
        text = json.dumps({"topicConfigTable": {"b": row, "t": {"topicName": "t"}}})
        (root / "config" / "topics.json").write_text(text)
        os.utime(root / "config" / "topics.json", (1000, 1000))  # a switch waits for new ones
        put(store, 0, 30)
        assert put_batches(store, SIZES) == [0, 3, 4]
        put(store, 30, 30)


def contents(root: Path, config: StoreConfig = CONFIG) -> Contents:
    """Return the units of every queue that the store lists: what its readers find."""
    with MessageStore.open(root, config, read_only=True) as store:
        queues = components_of(store).queues
        assert [found for found in store.check() if found.damage] == []
        return {
            key: [*queues.queue(*key).iterate(store.min_offset(*key))]
            for key in sorted(store.queue_keys())
        }


def move(root: Path, topics: Sequence[str] = (), leave: Sequence[str] = ()) -> None:
    make_plan(root, CONFIG, segment_units=40, topics=topics, leave=leave)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal


def mode(root: Path) -> StoreMode:
    return current_mode(*resolve_layout(root, CONFIG, read_only=True))


def command(*words: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = commands.run([*words])
    assert done.returncode == code, done.stdout + done.stderr
    return done


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---- light queues alone


def test_light_queues_alone_are_moved_and_everything_is_read_as_before(tmp_path: Path) -> None:
    root, control = tmp_path / "store", tmp_path / "control"
    for each in (root, control):
        light(each)
    before = contents(root)
    move(root, topics=[ONLY_LIGHT])
    report = read_report(Workspace.of(root).report)
    assert report.plan is not None
    assert (report.plan.topics, report.result.queues) == (ONLY_LIGHT, 2)
    done = switch(root, CONFIG)
    assert (done.state, done.topics) == ("double-write-file", ONLY_LIGHT)
    assert read_backend_state(StorePaths(root)).choice == {"rocksdb": ONLY_LIGHT, "file": NO_LIGHT}
    assert contents(root) == before
    for turn in range(2):
        for each in (root, control):
            with MessageStore.open(each, CONFIG) as store:
                put(store, 60 + turn * 20, 20)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        file, rocksdb = components_of(store).queues.backends()
        assert {key.topic for key in rocksdb.queues()} == {*LIGHT}
        ends = [each.queue(LIGHT[0], 0).max_offset() for each in (file, rocksdb)]
    assert ends == [60, 100], "files get no light queues any more"
    assert contents(root) == contents(control)
    assert status(root)["topics"] == ONLY_LIGHT
    back = rollback(root, CONFIG)
    assert back is not None
    assert (back.state, back.topics) == ("file", ONLY_LIGHT)
    assert contents(root) == contents(control)
    state = read_backend_state(StorePaths(root))
    assert (state.choice, state.covers, state.lagging) == ({}, {}, {})
    with MessageStore.open(root, CONFIG) as store:
        put(store, 100, 10)
        assert (store.max_offset(LIGHT[0], 0), store.max_offset("t", 0)) == (110, 37)
    assert mode(root) == "file"


@pytest.mark.parametrize("settings", [
    {}, {"rocksdb_cq_double_write_enable": True, "combine_cq_use_rocksdb_for_lmq": True},
    {"rocksdb_cq_double_write_enable": True}, {"store_type": "defaultRocksDB"},
])  # fmt: skip
def test_the_division_holds_whatever_the_settings_are(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    root = tmp_path / "store"
    light(root)
    move(root, topics=[ONLY_LIGHT])
    switch(root, CONFIG)
    before = contents(root)
    config = CONFIG.model_copy(update=settings)
    with MessageStore.open(root, config) as store:
        put(store, 60, 6)
        facts = components_of(store).queues.describe()
        assert facts["light queues in"] == "rocksdb alone"
    assert {key for key, units in contents(root).items() if units} == before.keys()
    assert len(contents(root)[QueueKey(LIGHT[0], 0)]) == 66
    reasons = {str(step.to): step.reasons for step in possible_steps(root, CONFIG)}
    assert reasons == {
        "file": ["the file queues have no light queues: only the other backend has them"],
        "double-write-rocksdb": [f"the rocksdb queues hold only the topics {ONLY_LIGHT!r}"],
    }


def test_a_finished_move_puts_the_light_queue_files_away(tmp_path: Path) -> None:
    root = tmp_path / "store"
    light(root)
    move(root, topics=[ONLY_LIGHT])
    switch(root, CONFIG)
    before = contents(root)
    finish(root, CONFIG)
    assert contents(root) == before
    (away,) = (root / "cqstore" / "replaced").iterdir()
    assert {path.name for path in (away / "consumequeue").iterdir()} == {*LIGHT}
    assert not {path.name for path in (root / "consumequeue").iterdir()} & {*LIGHT}
    with MessageStore.open(root, CONFIG) as store:
        put(store, 60, 6)
    assert len(contents(root)[QueueKey(LIGHT[0], 0)]) == 66
    with pytest.raises(RefusedStoreError, match="no migration to roll back"):
        rollback(root, CONFIG)


@pytest.mark.parametrize("then", ["switch", "rollback"])
def test_an_interrupted_switch_still_reads_files_and_goes_on_or_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    root = tmp_path / "store"
    light(root)
    before = contents(root)
    move(root, topics=[ONLY_LIGHT])

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cqstore.migration.switch.chosen_topics.compare_backends", interrupted)
        with pytest.raises(KeyboardInterrupt):
            switch(root, CONFIG)
    assert contents(root) == before
    with pytest.raises(RefusedStoreError, match="light queues are still read from files"):
        finish(root, CONFIG)
    if then == "switch":
        assert switch(root, CONFIG).state == "double-write-file"
        assert NO_LIGHT in read_backend_state(StorePaths(root)).choice.values()
    else:
        assert rollback(root, CONFIG) is not None
        assert read_backend_state(StorePaths(root)).choice == {}
    assert contents(root) == before


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        (["t*"], "cannot move only the topics 't\\*'"),
        (["!t"], "cannot move only the topics '!t'"),
        (["%LMQ%$p*"], "all together"),
        ([ONLY_LIGHT, "t"], "cannot move only the topics '%LMQ%\\*;t'"),
    ],
)
def test_a_division_that_no_broker_serves_is_refused(
    tmp_path: Path, topics: list[str], words: str
) -> None:
    light(tmp_path)
    before = tree_digest(tmp_path)
    with pytest.raises(RefusedStoreError, match=words):
        make_plan(tmp_path, CONFIG, topics=topics)
    options = [word for each in topics for word in ("--topics", each)]
    done = command("migrate", "plan", tmp_path, *options, code=REFUSED)
    assert "a broker reads all topics from one backend" in done.stderr
    assert tree_digest(tmp_path) == before


def test_light_queues_are_not_moved_to_files_alone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="rocksdb") as store:
        put(store, 0, 9)
    with pytest.raises(RefusedStoreError, match="cannot move only the light queues to file"):
        make_plan(tmp_path, CONFIG, target="file", topics=[ONLY_LIGHT])


def test_no_other_state_serves_light_queues_alone(tmp_path: Path) -> None:
    light(tmp_path)
    move(tmp_path, topics=[ONLY_LIGHT])
    with pytest.raises(RefusedStoreError, match="which needs double-write-file"):
        switch(tmp_path, CONFIG, to=StoreMode("rocksdb"))
    assert mode(tmp_path) == "file"


# ---- BatchCQ topics that are left


def test_everything_but_a_batch_topic_is_moved_and_a_rollback_brings_it_back(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    with_batches(root)
    before, batches = contents(root), files_below(root / "batchconsumequeue")
    move(root, leave=["b"])
    space = Workspace.of(root)
    report = read_report(space.report)
    assert report.plan is not None
    assert report.plan.left == ["b"]
    assert "not served by a broker with RocksDB: <code>b</code>" in space.report_page.read_text()
    done = switch(root, CONFIG)
    assert (done.state, done.left_topics) == ("rocksdb", ["b"])
    assert status(root)["leftTopics"] == ["b"]
    assert contents(root) == {key: units for key, units in before.items() if key.topic != "b"}
    assert files_below(root / "batchconsumequeue") == batches
    with MessageStore.open(root, CONFIG) as store:
        put(store, 60, 20)
        with pytest.raises(IllegalMessageError, match="'b' is not served: the move left"):
            store.create_batch_topic("b")
        done_put = store.put_message(Message("b", b"x"))
        assert not done_put.ok
        assert "migrate plan --leave" in str(done_put.reason)
        assert components_of(store).queues.describe()["topics left in files"] == "b"
        for read in (store.max_offset, store.min_offset, partial(store.get_message, offset=0)):
            with pytest.raises(NoSuchQueueError, match="'b' is not served: the move left"):
                read("b", 0)
    asked = command("get", root, "--topic", "b", "--queue-id", "0", code=REFUSED)
    assert "Run cqstore migrate rollback to serve it again" in asked.stderr
    later = contents(root)
    back = rollback(root, CONFIG)
    assert back is not None
    assert (back.state, back.left_topics, back.returning) == ("file", ["b"], [])
    assert contents(root) == {**later, QueueKey("b", 0): before[QueueKey("b", 0)]}
    assert files_below(root / "batchconsumequeue") == batches
    assert read_backend_state(StorePaths(root)).choice == {}
    with MessageStore.open(root, CONFIG) as store:
        assert put_batches(store, (2, 2)) == [8, 10]


def test_a_switch_that_compares_again_leaves_the_batch_topic_too(tmp_path: Path) -> None:
    """The log grew after the comparison, also by a batch; both backends are open for a while."""
    root = tmp_path / "store"
    with_batches(root)
    move(root, leave=["b"])
    with MessageStore.open(root, CONFIG, backend="file") as store:
        put(store, 60, 20)
        assert put_batches(store, (5,)) == [8]
    before = contents(root)
    assert switch(root, CONFIG).state == "rocksdb"
    assert contents(root) == {key: units for key, units in before.items() if key.topic != "b"}
    assert rollback(root, CONFIG) is not None
    assert contents(root) == before


def test_a_batch_topic_stays_left_after_the_move_is_finished(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with_batches(root)
    before, batches = contents(root), files_below(root / "batchconsumequeue")
    move(root, leave=["b"])
    switch(root, CONFIG)
    finish(root, CONFIG)
    assert files_below(root / "batchconsumequeue") == batches
    with MessageStore.open(root, CONFIG) as store:
        put(store, 60, 9)
        assert not store.put_message(Message("b", b"x")).ok
    command("recover", root)
    assert {key.topic for key in contents(root)} == {"p", "t", *LIGHT}
    after = contents(root)
    for state in ("double-write-rocksdb", "double-write-file", "file"):
        change_mode(root, StoreMode(state), CONFIG)
    assert contents(root) == {**after, QueueKey("b", 0): before[QueueKey("b", 0)]}


@pytest.mark.parametrize("perm", [2, 4, 6, None])
def test_a_topic_that_clients_can_use_is_not_left(tmp_path: Path, perm: int | None) -> None:
    root = tmp_path / "store"
    with_batches(root)
    file = root / "config" / "topics.json"
    table = json.loads(file.read_text())
    table["topicConfigTable"]["b"].pop("perm")
    table["topicConfigTable"]["b"] |= {} if perm is None else {"perm": perm}
    file.write_text(json.dumps(table))
    move(root, leave=["b"])
    before = tree_digest(root)
    with pytest.raises(RefusedStoreError, match=r"clients can still use topics .* 'b'.*-p 0"):
        switch(root, CONFIG)
    assert tree_digest(root) == before
    assert rollback(root, CONFIG) is None
    assert mode(root) == "file"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({}, "BatchCQ topics exist only as files: 'b'.*--leave T"),
        ({"leave": ["t"]}, "cannot leave 't' in files: only BatchCQ topics .*'b'"),
        ({"leave": ["b", "nix"]}, "cannot leave 'nix' in files"),
        ({"topics": [ONLY_LIGHT]}, "with double write it does not start .*'b'"),
        ({"topics": [ONLY_LIGHT], "leave": ["b"]}, "with double write it does not start .*'b'"),
    ],
)
def test_what_no_broker_serves_is_refused_by_name(
    tmp_path: Path, choice: dict[str, list[str]], words: str
) -> None:
    with_batches(tmp_path)
    before = tree_digest(tmp_path)
    with pytest.raises(RefusedStoreError, match=words):
        make_plan(tmp_path, CONFIG, topics=choice.get("topics", ()), leave=choice.get("leave", ()))
    assert tree_digest(tmp_path) == before


def test_the_commands_name_what_is_left(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with_batches(root)
    done = command("migrate", "plan", root, "--leave", "b", "--output", "json")
    assert "not moved, and not served by a broker with RocksDB: b." in done.stderr
    row = json.loads(done.stdout)
    assert (row["topics"], row["leftTopics"], row["queuesNotMoved"]) == ("!b", ["b"], 1)
    command("migrate", "run", root, "--master", NO_SPARK)
    assert "left topics" in command("migrate", "verify", root, "--master", NO_SPARK).stdout
    shown = json.loads(command("migrate", "switch", root, "--output", "json").stdout)
    assert (shown["state"], shown["leftTopics"]) == ("rocksdb", ["b"])


def test_from_the_log_there_is_no_choice(tmp_path: Path) -> None:
    with_batches(tmp_path)
    words = ("--from", "log", "--leave", "b", "--master", NO_SPARK)
    done = command("migrate", "plan", tmp_path, *words, code=REFUSED)
    assert "--topics and --leave cannot be used with --from log" in done.stderr
