"""What the rule ``unused`` selects is what RocketMQ's own method deletes."""

import shutil
from pathlib import Path

import pytest

from cqstore.broker.cleaning.rules import CleaningRules
from cqstore.store.service.message_store import MessageStore
from tests.broker.cleaning.kit import LISTED, cleaned, fill, there
from tests.interop.rocketmq import RocketMQ

pytestmark = pytest.mark.interop
SIZES = {"mappedFileSizeCommitLog": 8192, "mappedFileSizeConsumeQueue": 6_000_000}


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_topics_out_of_the_table_are_those_that_rocketmq_deletes(
    tmp_path: Path, rocketmq: RocketMQ, backend: str
) -> None:
    """It always has queues in files: ``cleanUnusedTopic`` asks the table of open queue files.

    The one difference is a name of ours to keep: a prefix of system topics in other letters.
    """
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    fill(theirs, "file")
    if backend == "file":
        shutil.copytree(theirs, ours)
    else:
        fill(ours, backend)
    deleted = rocketmq.clean_unused(theirs, "default", LISTED, **SIZES)
    with MessageStore.open(theirs, read_only=True) as store:
        left = set(there(store))
    with MessageStore.open(ours, housekeeping=False) as store:
        every = set(there(store))
        found = cleaned(store, CleaningRules(unused=True, lagging=True))
        assert set(there(store)) == left | {"RMQ_SYS_mine"}
    assert every - left == set(found)
    assert {topic for topic, kept in found.items() if kept} == {"RMQ_SYS_mine"}
    assert deleted > 0
