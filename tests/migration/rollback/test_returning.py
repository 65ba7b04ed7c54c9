"""Topics that RocketMQ deleted after a switch: the way back does not bring them back unasked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.migration.commands import app
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.deleted_topic_policy import DeletedTopicPolicy
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import StoreMode
from cqstore.store.service.opening.components import components_of
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served
from tests.kit.tree import tree_digest

pytestmark = pytest.mark.slow
Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("basic-defaultRocksDB", "file")]
OTHER = {"rocksdb": "file", "file": "rocksdb"}
GONE = "orders_1"


def delete_like_rocketmq(root: Path, topic: str) -> None:
    """Delete the queues of a topic from what is served, without a journal."""
    with MessageStore.open(root, housekeeping=False) as store:
        components_of(store).queues.delete_topics([topic])
        # So that what is read first has a record behind: it claims to have all before.
        assert store.put_message(Message("TopicA", b"later")).ok


@pytest.fixture(params=MOVES, ids=[target for _, target in MOVES])
def root(golden: Golden, request: pytest.FixtureRequest) -> Path:
    name, target = request.param
    root = golden(name)
    make_plan(root, target=target, segment_units=400)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    switch(root)
    with MessageStore.open(root, read_only=True) as store:
        assert GONE in set(store.topics())
    delete_like_rocketmq(root, GONE)
    return root


def rebuilt_topics(root: Path) -> set[str]:
    """Return what a rebuild of all queues from the log would bring."""
    copy = Path(shutil.copytree(root, root.with_name("rebuilt")))
    shutil.rmtree(copy / "consumequeue")
    with MessageStore.open(copy, housekeeping=False) as store:
        return set(store.topics())


def test_it_is_listed_and_nobody_guesses(root: Path) -> None:
    before, own = tree_digest(root, but=StorePaths(root).own), served(root)
    report = rollback(root, dry_run=True)
    assert report is not None
    assert report.returning == [GONE]
    shown = CliRunner().invoke(app, ["rollback", str(root), "--dry-run", "--output", "json"])
    assert json.loads(shown.stdout)["returning"] == [GONE]
    with pytest.raises(RefusedStoreError, match=rf"1 topics .*: {GONE}\. .*--returning delete"):
        rollback(root)
    assert tree_digest(root, but=StorePaths(root).own) == before
    assert served(root) == own


def test_deleted_it_stays_deleted(root: Path) -> None:
    whole = served(root)
    report = rollback(root, returning=DeletedTopicPolicy.DELETE)
    assert report is not None
    assert report.returning == [GONE]
    assert served(root) == whole
    assert GONE not in rebuilt_topics(root)


def test_kept_it_comes_back(root: Path) -> None:
    whole = served(root)
    report = rollback(root, returning=DeletedTopicPolicy.KEEP)
    assert report is not None
    assert report.state in {StoreMode("file"), StoreMode("rocksdb")}
    back = served(root)
    assert {key for key in back if key not in whole} == {key for key in back if key.topic == GONE}
    assert {key.topic for key in back} == {key.topic for key in whole} | {GONE}


def test_one_queue_of_a_topic_that_lives_on(root: Path) -> None:
    """The topic was deleted and written again, to fewer queues: the others go alone."""
    with MessageStore.open(root, housekeeping=False) as store:
        assert store.put_message(Message(GONE, b"new life", 1)).ok
    whole = served(root)
    assert rollback(root, returning=DeletedTopicPolicy.DELETE) is not None
    assert served(root) == whole


def test_nothing_is_asked_where_our_journal_tells_or_the_log_will(
    root: Path, tmp_path: Path
) -> None:
    with MessageStore.open(root, housekeeping=False) as store:
        store.delete_topic(GONE)
        store.put_message(Message("new", b""))
    report = rollback(root)
    assert report is not None
    assert report.returning == []
    assert GONE not in {key.topic for key in served(root)}
