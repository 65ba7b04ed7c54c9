"""A store with BatchCQ topics is moved once their messages are plain ones; until then it is not."""

import json
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.preflight.examine import preflight
from cqstore.migration.switch.switch import switch
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.migrations import moved_and_verified
from tests.kit.tree import tree_digest
from tests.kit.verbs import call

CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=400, max_index_num=100
)
SIZES = (3, 1, 4)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a plain topic, and a BatchCQ topic that the broker's metadata names."""
    root = tmp_path / "store"
    row = {"topicName": "b", "attributes": {"queue.type": "BatchCQ", "x": "y"}, "perm": 6}
    with MessageStore.open(root, CONFIG, backend="file") as store:
        (root / "config").mkdir()
        text = json.dumps({"topicConfigTable": {"b": row}})
        (root / "config" / "topics.json").write_text(text)
        store.create_batch_topic("b")
        for number, size in enumerate(SIZES):
            inner = [Message("b", b"%d/%d" % (number, at)) for at in range(size)]
            body = encode_client_batch(inner)
            (done,) = store.put_client_batch(Message("b", body, 0, {"UNIQ_KEY": "u"}))
            assert done.ok
            assert store.put_message(Message("t", b"%d" % number)).ok
    return root


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    assert (store.min_offset(topic, 0), store.get_message(topic, 0, 0, 32).min_offset) == (0, 0)
    return [bytes(message.body) for message in store.get_message(topic, 0, 0, 32).messages()]


def test_a_batch_topic_is_refused_by_name_with_a_way_on(root: Path, tmp_path: Path) -> None:
    before = tree_digest(root)
    finding = preflight(root).find("batch-queues")
    assert finding is not None
    assert [each.name for each in finding.affected] == ["b/0"]
    for words in (finding.sentence, refusal(root)):
        assert "cqstore export DIR --topic T --to FILE" in words
        assert "cqstore topics DIR T --delete --yes" in words
    assert "BatchCQ topics exist only as files: 'b'." in refusal(root)
    assert tree_digest(root) == before


def refusal(root: Path) -> str:
    with pytest.raises(RefusedStoreError) as caught:
        make_plan(root, CONFIG)
    return str(caught.value)


def test_the_way_on_moves_every_message(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    for words in (
        ("export", root, "--topic", "b", "--to", file),
        ("topics", root, "b", "--delete", "--yes"),
    ):
        done = call(*words)
        assert done.exit_code == 0, done.output
    moved_and_verified(root, CONFIG, "rocksdb")
    switch(root, CONFIG)
    done = call("import", root, file)
    assert done.exit_code == 0, done.output
    inner = [b"%d/%d" % (number, at) for number, size in enumerate(SIZES) for at in range(size)]
    with MessageStore.open(root, CONFIG) as store:
        assert bodies(store, "b") == inner
        assert bodies(store, "t") == [b"0", b"1", b"2"]
        assert [found for found in store.check() if found.damage] == []
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert store.max_offset("b", 0) == len(inner)


def test_a_store_that_is_exported_has_plain_topics(root: Path, tmp_path: Path) -> None:
    done = call("export", root, "--to", tmp_path / "new", "--format", "store")
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "new" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert rows["b"] == {"topicName": "b", "attributes": {"x": "y"}, "perm": 6}
    assert rows["t"]["attributes"] == {}
    with MessageStore.open(tmp_path / "new", read_only=True) as store:
        assert bodies(store, "b")[:4] == [b"0/0", b"0/1", b"0/2", b"1/0"]
    assert refusal_is_over(tmp_path / "new")


def refusal_is_over(root: Path) -> bool:
    return preflight(root).find("batch-queues") is None
