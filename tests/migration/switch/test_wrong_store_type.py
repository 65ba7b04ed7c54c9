"""A broker was started with the storeType of before, and wrote to the queues that were left."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.run.run import run_plan
from cqstore.migration.switch.switch import switch
from cqstore.migration.verify import verify_migration
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.migrations import NO_SPARK
from tests.kit.served import served
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
MOVES = [("basic-default", "rocksdb"), ("basic-defaultRocksDB", "file")]
OTHER = {"rocksdb": "file", "file": "rocksdb"}


def put(root: Path, backend: str, count: int) -> list[int]:
    with MessageStore.open(root, housekeeping=False, backend=backend) as store:
        results = [
            store.put_message(Message("TopicA", b"x" * 50, number % 3)) for number in range(count)
        ]
        return [result.phy_offset for result in results]


def put_like_a_broker(root: Path, backend: str, count: int) -> list[int]:
    """Put past ``cqstore/mode``, to one kind of queues alone."""
    aside = root.with_name("aside")
    aside.mkdir()
    shutil.move(root / "cqstore", aside)
    current = next(root.glob("consumequeue*/CURRENT"))
    if backend == "file":
        shutil.move(current, aside / "CURRENT")
        hidden = list(current.parent.glob("*.sst"))
    else:
        hidden = [path for path in (root / "consumequeue").iterdir() if path.is_dir()]
    (aside / "hidden").mkdir()
    for path in hidden:
        shutil.move(path, aside / "hidden")
    phys = put(root, backend, count)
    shutil.rmtree(root / "cqstore")
    shutil.move(aside / "cqstore", root)
    for path in hidden:
        shutil.move(aside / "hidden" / path.name, path)
    if backend == "file":
        shutil.move(aside / "CURRENT", current)
    return phys


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), MOVES)
def test_it_is_noticed_and_nothing_of_it_is_lost(
    golden: Golden, caplog: pytest.LogCaptureFixture, name: str, target: str
) -> None:
    root, source = golden(name), OTHER[target]
    make_plan(root, target=target, segment_units=400)
    run_plan(root, master=NO_SPARK)
    assert verify_migration(root, master=NO_SPARK).equal
    line = switch(root).left_behind[source]
    phys = put(root, target, 30)
    with MessageStore.open(root, read_only=True) as store:
        assert store.report.written_since == {}
    phys += put_like_a_broker(root, source, 20)
    before = tree_digest(root)
    with caplog.at_level(logging.WARNING), MessageStore.open(root, read_only=True) as store:
        assert store.report.written_since[source] > line
    assert f"storeType={'default' if source == 'file' else 'defaultRocksDB'}." in caplog.text
    assert tree_digest(root) == before
    with MessageStore.open(root, housekeeping=False) as store:
        assert store.report.written_since[source] > line
        assert [finding for finding in store.check() if finding.damage] == []
    whole = served(root)
    found = {row[0] for rows in whole.values() for row in rows[1:]}
    assert found >= set(phys)
    back = rollback(root)
    assert back is not None
    assert served(root) == whole
