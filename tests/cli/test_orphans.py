"""``cqstore rocksdb audit`` names topics that the metadata, in any form, does not know."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from cqstore.broker.metadata.model import Form
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.cli.test_commands import lines
from tests.kit.commands import cqstore
from tests.kit.metadata_forms import databases, unpack_forms
from tests.kit.tree import unchanged
from tests.store.comparing.test_comparison import Database

LOG_FILE = 65536
CONFIG = StoreConfig(mapped_file_size_commit_log=LOG_FILE)
KNOWN = "orders11"
"""To RocketMQ's managers; ``gone`` was deleted there, and ``lost`` never made."""
EXEMPT = (
    "RMQ_SYS_TRACE_TOPIC",
    "rmq_sys_own",
    "%LMQ%$parent$x",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
)
each_form = pytest.mark.parametrize("form", list(Form))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of RocksDB queues without metadata, the first log file of which is gone."""
    folder = tmp_path_factory.mktemp("orphans")
    root = folder / "store"
    with MessageStore.open(root, CONFIG, backend="rocksdb") as store:
        for topic in (KNOWN, "prüfung测试", *EXEMPT, "gone"):
            assert store.put_message(Message(topic, b"x")).ok
        while store.max_phy_offset() < LOG_FILE:
            assert store.put_message(Message(KNOWN, b"x" * 1000)).ok
        for queue_id in (0, 3, 3):
            assert store.put_message(Message("gone", b"x", queue_id)).ok
        assert store.put_message(Message("lost", b"x", 1)).ok
    min((root / "commitlog").iterdir()).unlink()
    shutil.rmtree(root / "config", ignore_errors=True)
    unpack_forms(folder / "forms")
    return folder


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store"


def give(root: Path, form: Form) -> None:
    shutil.copytree(root.parent / "forms" / form / "config", root / "config", dirs_exist_ok=True)


Orphans = dict[object, tuple[object, object, object]]


def audited(root: Path) -> tuple[Orphans, str]:
    """Return the orphans, and what is said of them."""
    done = cqstore("rocksdb", "audit", root, "--output", "jsonl")
    rows = lines(done)
    assert {row["severity"] for row in rows} <= {"note"}
    return {
        row["topic"]: (row["queues"], row["units"], row["problem"]) for row in rows
    }, done.stderr


def orphans(root: Path) -> Orphans:
    return audited(root)[0]


@each_form
def test_orphans_are_named_and_counted_by_every_form(root: Path, form: Form) -> None:
    give(root, form)
    with unchanged(root):
        problem = f"orphan: the topic is missing in the broker's metadata ({form})"
        found, said = audited(root)
        assert found == {"gone": (2, 4, problem), "lost": (1, 1, problem)}
        assert "2 orphaned topics with 3 queues and 5 units, 1 of them below" in said


def test_the_form_that_was_written_last_says_which_topics_there_are(root: Path) -> None:
    give(root, Form.V1)
    path = root / "config" / "topics.json"
    path.write_text('{"topicConfigTable":{"gone":{},"lost":{}}}')
    os.utime(path, (1000, 1000))
    assert orphans(root).keys() == {"gone", "lost"}
    os.utime(path, (1 << 32, 1 << 32))
    assert orphans(root).keys() == {KNOWN, "prüfung测试"}


@each_form
def test_by_metadata_that_cannot_be_read_no_topic_is_an_orphan(root: Path, form: Form) -> None:
    give(root, form)
    if form is Form.JSON:
        (root / "config" / "topics.json").write_text('{"topicConfigTable":{"orders11":{}},')
        (root / "config" / "topics.json.bak").unlink()
    else:
        broken = [each for each in databases(root / "config") if each.name != "consumerOffsets"][-1]
        (broken / "CURRENT").write_text("MANIFEST-999999\n")
    done = cqstore("rocksdb", "audit", root, "--output", "jsonl", code=1)
    assert lines(done) == []
    assert f"the broker's topics cannot be read from the form {form}" in done.stderr
    assert "orphan" not in done.stderr


def test_another_table_that_cannot_be_read_hides_no_orphan(root: Path) -> None:
    give(root, Form.V1)
    (root / "config" / "consumerOffsets" / "CURRENT").write_text("MANIFEST-999999\n")
    assert orphans(root).keys() == {"gone", "lost"}


def test_without_metadata_no_topic_is_an_orphan(root: Path) -> None:
    done = cqstore("rocksdb", "audit", root, "--output", "jsonl")
    assert lines(done) == []
    assert "topics were not checked for orphans" in done.stderr


def test_what_is_left_of_a_queue_is_an_orphan_too(root: Path) -> None:
    """A ``min`` entry alone: RocketMQ makes it when it is asked for a queue that is not there."""
    give(root, Form.V1)
    key = struct.pack(">IB", 6, 1) + b"asked1" + b"\1min\1" + struct.pack(">i", 2)
    with Database(root) as database:
        database._ends[key] = struct.pack(">qq", LOG_FILE, 0)
    assert orphans(root)["asked1"][:2] == (1, 0)
