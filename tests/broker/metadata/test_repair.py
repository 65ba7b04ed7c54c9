"""``cqstore meta repair`` and ``meta make-topics``: from the backup, another form, the queues."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cqstore.broker.commands import meta_app as app
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table
from cqstore.broker.metadata.writing import write_form
from cqstore.store.broker_files.file_names import TOPICS_FILE, backup_of
from cqstore.store.errors import RefusedStoreError, StoreIOError, StoreLockedError
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from cqstore.store.queue.facts import QueueSpan, QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.made_topics import TopicQueues, topic_row, topics_of_spans
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import Call, CallOrder
from tests.kit.metadata_forms import databases
from tests.kit.tree import unchanged

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
TORN = [b"", b'{"topicConfigTable":{"a":', b"[]", b"\xff\xfe", b'{"topicConfigTable":7}']


def call(verb: str, root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [verb, str(root), "--output", "jsonl", *words])


def rows(verb: str, root: Path, *words: str, code: int = 0) -> list[dict[str, Any]]:
    done = call(verb, root, *words)
    assert done.exit_code == code, (done.output, done.exception)
    return [json.loads(line) for line in done.stdout.splitlines()]


NOT_YET = "cqstore: nothing was changed (use --yes to apply)\n"
"""Said wherever something would be changed, and nowhere else."""


def json_of(root: Path) -> BrokerMetadata:
    return next(each for each in read_forms(StorePaths(root)) if each.form is Form.JSON)


def with_messages(root: Path, *messages: tuple[str, int]) -> Path:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_messages([Message(topic, b"1", queue_id) for topic, queue_id in messages])
    return root


# ---- repair


@pytest.mark.parametrize("torn", TORN)
def test_a_file_is_brought_back_from_its_backup(stores: Path, torn: bytes) -> None:
    root = stores / Form.JSON
    path = root / "config" / TOPICS_FILE
    whole = path.read_bytes()
    path.write_bytes(torn)
    (row,) = rows("repair", root, "--yes")
    assert (row["file"], row["from"], row["done"]) == (TOPICS_FILE, "bak", True)
    assert str(path) in row["fault"]
    assert path.read_bytes() == whole
    assert (Path(row["keptIn"]) / TOPICS_FILE).read_bytes() == torn
    assert not json_of(root).faults
    assert not rows("repair", root)


def test_a_missing_file_is_made_of_its_backup(stores: Path) -> None:
    path = stores / Form.JSON / "config" / TOPICS_FILE
    whole = path.read_bytes()
    path.unlink()
    (row,) = rows("repair", stores / Form.JSON, "--yes")
    assert row["from"] == "bak"
    assert path.read_bytes() == whole


def test_without_a_backup_another_form_has_it(stores: Path) -> None:
    root = stores / Form.JSON
    for each in databases(stores / Form.V1):
        each.rename(root / "config" / each.name)
    before = json_of(root)
    path = root / "config" / "subscriptionGroup.json"
    path.write_bytes(path.read_bytes()[:50])
    path.with_name(f"{path.name}.bak").write_bytes(b"")
    (row,) = rows("repair", root, "--yes")
    assert row["from"] == "v1"
    back = json_of(root)
    assert not back.faults
    assert (back.groups, back.forbidden) == (before.groups, before.forbidden)
    counters = [each.versions[Table.GROUPS].counter for each in read_forms(StorePaths(root))]
    assert counters[0] == counters[1] + 1  # a broker on RocksDB takes it in: it is the same
    assert path.with_name(f"{path.name}.bak").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("second", [Form.SINGLE, Form.V2])
def test_of_several_other_forms_none_is_taken(stores: Path, second: Form) -> None:
    root = stores / Form.JSON
    for each in [*databases(stores / Form.V1), *databases(stores / second)]:
        each.rename(root / "config" / each.name)
    for suffix in ("", ".bak"):
        (root / "config" / f"subscriptionGroup.json{suffix}").write_bytes(b"{")
    (row,) = rows("repair", root, "--yes", code=1)
    assert row["from"] is None


def test_only_where_something_would_be_done_is_it_said_that_it_was_not(stores: Path) -> None:
    root = with_messages(stores / Form.JSON, ("lost", 0))
    (root / "config" / TOPICS_FILE).write_bytes(b"{")
    for verb in ("repair", "make-topics"):
        with unchanged(root / "config"):
            assert call(verb, root).stderr == NOT_YET
        for words in (["--yes"], ["--yes"], []):  # done, and nothing to do any more
            done = call(verb, root, *words)
            assert (done.exit_code, done.stderr) == (0, "")


def test_what_a_file_cannot_hold_is_named_with_the_form_that_has_it(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.broker.metadata.writing.refuse_unfit", lambda *_: None)
    root = stores / Form.JSON
    odd = json_of(root)
    odd.topics[""] = topic_row("", TopicQueues(1, 0))
    write_form(odd, Form.V1, stores / "odd")
    for each in databases(stores / "odd"):
        each.rename(root / "config" / each.name)
    for path in (root / "config" / TOPICS_FILE, backup_of(root / "config" / TOPICS_FILE)):
        path.write_bytes(b"{")
    with unchanged(root / "config"):
        refusal = call("repair", root, "--yes").exception
        assert isinstance(refusal, RefusedStoreError)
        assert "cannot store the metadata in the form json: a name is empty" in str(refusal)
        assert refusal.path == root / "config"


def test_what_cannot_be_kept_is_not_replaced(stores: Path) -> None:
    root = stores / Form.JSON
    path = root / "config" / TOPICS_FILE
    path.write_bytes(b"{")
    StorePaths(root).replaced.parent.mkdir()
    StorePaths(root).replaced.write_bytes(b"in the way")
    refusal = call("repair", root, "--yes").exception
    assert isinstance(refusal, StoreIOError)
    assert str(refusal) == f"cannot repair the broker's metadata file: File exists ({path})"
    assert path.read_bytes() == b"{"


def test_topics_come_from_the_queues_and_groups_from_nowhere(stores: Path) -> None:
    root = with_messages(stores / Form.JSON, ("orders1", 0), ("orders1", 3), ("new", 1))
    for name in (TOPICS_FILE, "subscriptionGroup.json"):
        for suffix in ("", ".bak"):
            (root / "config" / f"{name}{suffix}").write_bytes(b"{")
    with unchanged(root):
        found = rows("repair", root, code=1)
        assert [(row["file"], row["from"], row["done"]) for row in found] == [
            (TOPICS_FILE, "queues", False), ("subscriptionGroup.json", None, False),
        ]  # fmt: skip
    rows("repair", root, "--yes", code=1)
    back = json_of(root)
    assert {name: row["readQueueNums"] for name, row in back.topics.items()} == {
        "orders1": 4, "new": 2,
    }  # fmt: skip
    assert {fault.path for fault in back.faults} == {
        root / "config" / "subscriptionGroup.json", root / "config" / "subscriptionGroup.json.bak",
    }  # fmt: skip


def test_what_is_sound_needs_nothing(stores: Path) -> None:
    with unchanged(stores):
        for form in Form:
            assert not rows("repair", stores / form, "--yes")


def test_a_damaged_database_is_named(stores: Path) -> None:
    gone = databases(stores / Form.SINGLE)[0]
    for path in gone.glob("MANIFEST-*"):
        path.unlink()
    done = call("repair", stores / Form.SINGLE)
    assert str(gone) in done.stderr
    assert "meta convert" in done.stderr


@pytest.mark.parametrize("verb", ["repair", "make-topics"])
def test_an_open_store_is_refused(stores: Path, verb: str) -> None:
    lock = StoreLock(StorePaths(stores / Form.JSON))
    try:
        assert isinstance(call(verb, stores / Form.JSON).exception, StoreLockedError)
    finally:
        lock.release()


def test_stopped_at_any_change_each_file_is_old_or_new(stores: Path) -> None:
    golden, root = stores / Form.JSON, stores / "copy"
    whole = (golden / "config" / TOPICS_FILE).read_bytes()
    (golden / "config" / TOPICS_FILE).write_bytes(b"{")
    at, stopped = 0, True
    while stopped:
        at += 1
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(golden, root)
        order, made = CallOrder(root), 0

        def stop(_: Call) -> None:
            nonlocal made
            made += 1
            if made == at:  # noqa: B023 - called within this turn
                raise KeyboardInterrupt

        order.at_each = stop
        with order.watching():
            stopped = call("repair", root, "--yes").exit_code != 0
        assert (root / "config" / TOPICS_FILE).read_bytes() in {b"{", whole}
        assert (root / "config" / f"{TOPICS_FILE}.bak").read_bytes() == whole
        rows("repair", root, "--yes")
        assert (root / "config" / TOPICS_FILE).read_bytes() == whole
    assert at > 5


# ---- make-topics


def test_topics_without_a_row_get_one_and_the_others_stay(stores: Path) -> None:
    root = with_messages(
        stores / Form.JSON, ("orders0", 0), ("lost", 0), ("lost", 7), ("%RETRY%g", 0)
    )
    before = json_of(root)
    shown = rows("make-topics", root)
    assert [(row["topic"], row["queues"], row["units"]) for row in shown] == [
        ("%RETRY%g", 1, 1), ("lost", 8, 2),
    ]  # fmt: skip
    assert json_of(root).topics == before.topics
    rows("make-topics", root, "--yes")
    after = json_of(root)
    assert {name: after.topics[name] for name in before.topics} == before.topics
    assert after.topics["lost"] == {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": 8, "topicName": "lost",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "writeQueueNums": 8,
    }  # fmt: skip
    assert after.versions[Table.TOPICS].counter == before.versions[Table.TOPICS].counter + 1
    assert (after.groups, after.offsets) == (before.groups, before.offsets)
    assert not rows("make-topics", root)
    checked = CliRunner().invoke(app, [str(root), "--check", "--output", "jsonl"])
    assert "topics-without-metadata" not in checked.stdout


def test_a_store_without_metadata_gets_a_table_of_topics_alone(tmp_path: Path) -> None:
    root = with_messages(tmp_path / "s", ("a", 1), ("b", 0))
    rows("make-topics", root, "--yes")
    assert {path.name for path in (root / "config").iterdir()} >= {TOPICS_FILE}
    assert not (root / "config" / "consumerOffset.json").exists()
    found = json_of(root)
    assert found.topics.keys() == {"a", "b"}
    assert found.versions[Table.TOPICS].counter == 1


@pytest.mark.parametrize("form", [Form.V1, Form.SINGLE])
def test_beside_rocksdb_the_file_has_all_topics_and_the_higher_counter(
    stores: Path, form: Form
) -> None:
    root = with_messages(stores / form, ("lost", 0))
    with unchanged(databases(root)[0]):
        (kept,) = read_forms(StorePaths(root))
        rows("make-topics", root, "--yes")
        made = json_of(root)
        assert made.topics.keys() == kept.topics.keys() | {"lost"}
        assert made.versions[Table.TOPICS].counter == kept.versions[Table.TOPICS].counter + 1


def test_forms_with_other_topics_are_refused(stores: Path) -> None:
    """The databases may be of before: their topics must not take the place of newer ones."""
    root = with_messages(stores / Form.JSON, ("lost", 0))
    for each in databases(stores / Form.V1):
        each.rename(root / "config" / each.name)
    path = root / "config" / TOPICS_FILE
    rows("make-topics", root)  # both have the same but for topics of the broker's own
    path.write_text(path.read_text().replace('"orders11"', '"newer"'))
    with unchanged(root / "config"):
        refusal = call("make-topics", root, "--yes").exception
        assert isinstance(refusal, RefusedStoreError)
        assert "json and v1 differ" in str(refusal)


def test_version_2_reads_no_file(stores: Path) -> None:
    root = with_messages(stores / Form.V2, ("lost", 0))
    refusal = call("make-topics", root).exception
    assert isinstance(refusal, RefusedStoreError)
    assert "v2" in str(refusal)


def test_a_damaged_table_is_repaired_first(stores: Path) -> None:
    root = with_messages(stores / Form.JSON, ("lost", 0))
    (root / "config" / TOPICS_FILE).write_bytes(b"{")
    refusal = call("make-topics", root, "--yes").exception
    assert isinstance(refusal, RefusedStoreError)
    assert "meta repair" in str(refusal)


def test_batch_queues_keep_their_type() -> None:
    row = topic_row("b", TopicQueues(2, 9, QueueType.BATCH))
    assert row["attributes"] == {"queue.type": "BatchCQ"}
    assert topic_row("s", TopicQueues(2, 9))["attributes"] == {}


def test_system_topics_and_light_queues_need_no_row() -> None:
    topics = ["TBW102", "rmq_sys_wheel_timer", "%LMQ%x", "orders"]
    spans = [QueueSpan(QueueKey(topic, 5), 1, 4) for topic in topics]
    assert topics_of_spans(spans) == {"orders": TopicQueues(6, 3)}
