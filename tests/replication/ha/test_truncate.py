"""A learner whose log goes on behind its master's is cut back by its epochs, when that is asked."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cqstore.replication.commands import follow_app
from cqstore.replication.errors import BeyondEpochError
from cqstore.replication.ha.rejoin import cut_to
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from tests.kit.crash_images import restore, snapshots
from tests.kit.cut_back import saved_in, served
from tests.kit.epoch_master import EpochMaster
from tests.kit.parted import CONFIG, log_in, parted
from tests.kit.tree import tree_digest, unchanged
from tests.kit.wire_server import serving

LEARNER = CONFIG.as_learner()
SIZES = (
    "mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=400\nmaxHashSlotNum=50\n"
    "maxIndexNum=100\n"
)


def note_epochs(root: Path, *epochs: tuple[int, int]) -> None:
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs)
    (root / "epochFileCheckpoint").write_text(f"{len(epochs)}\n0\n{lines}")


def follow(master: EpochMaster, root: Path, conf: Path, *more: str) -> Result:
    """Follow until the master has nothing more."""
    conf.write_text(SIZES)
    words = [f"127.0.0.1:{master.port}", str(root), "--config", str(conf), "--until-quiet"]
    return CliRunner().invoke(follow_app, [*words, "--output", "json", *more])


@pytest.mark.slow
@pytest.mark.parametrize("backend", backend_names())
def test_a_longer_log_is_cut_and_kept_when_that_is_asked(tmp_path: Path, backend: str) -> None:
    one, other, end = parted(tmp_path, 30, 60, 40, backend)
    mine, theirs, conf = log_in(one), log_in(other), tmp_path / "conf"
    note_epochs(one, (1, 0), (2, end))
    (one / "config").mkdir()
    (one / "config" / "consumerOffset.json").write_text('{"offsetTable":{"former@g":{0:3}}}')
    learner = ("--controller", "--broker-id", "9")
    with serving(EpochMaster(theirs, [(1, 0), (3, end)], heartbeat=0.7)) as master:
        with unchanged(one / "commitlog"):
            done = follow(master, one, conf, *learner)
            assert isinstance(done.exception, BeyondEpochError)
            assert f"they are equal only up to {end}, in epoch 1" in str(done.exception)
        done = follow(master, one, conf, *learner, "--truncate")
        assert done.exit_code == 0, done.output
        why, cut, beyond = (
            done.stderr.index(words)
            for words in (
                f"they are equal only up to {end}, in epoch 1",
                f"cut at {end}; the records after it are kept in {one}",
                "group g: offset 3 in queue 0 of topic 'former' is after the queue's end 0",
            )
        )
        assert why < cut < beyond
        assert json.loads(done.stdout)["end"] == len(theirs)
    assert log_in(one) == theirs
    assert saved_in(one, end, len(mine) - end) == mine[end:]
    assert (one / "epochFileCheckpoint").read_text().split()[2:] == ["1-0", f"3-{end}"]
    assert served(one) == served(other)


@pytest.mark.slow
@pytest.mark.parametrize("backend", backend_names())
def test_a_truncation_that_is_cut_short_is_gone_on_with(tmp_path: Path, backend: str) -> None:
    """By the next opening, or by the same call where nothing had been noted."""
    one, _, end = parted(tmp_path, 30, 60, 0, backend)
    mine = log_in(one)
    note_epochs(one, (1, 0), (2, end))
    with snapshots(one, tmp_path / "taken", 60) as taken:
        cut_to(one, end, LEARNER)
    whole, ends = served(one), set[int]()
    for copy in taken:
        restore(copy, one)
        with MessageStore.open(one, LEARNER) as store:
            ends.add(store.max_phy_offset())
        if log_in(one) != mine[:end]:
            assert log_in(one) == mine
            assert cut_to(one, end, LEARNER).done
        assert (log_in(one), served(one)) == (mine[:end], whole)
        assert saved_in(one, end, len(mine) - end) == mine[end:]
    assert ends == {end, len(mine)}


def test_nothing_is_cut_but_where_a_record_begins(tmp_path: Path) -> None:
    one, _, end = parted(tmp_path, 30, 20, 0)
    note_epochs(one, (1, 0), (2, end))
    before = tree_digest(one)
    for place in (end + 1, 0):
        with pytest.raises(
            RefusedStoreError, match=f"cannot cut the log at {place}: no valid record ends there"
        ):
            cut_to(one, place, LEARNER)
    assert tree_digest(one) == before
    assert not (one / "cqstore" / "cut").exists()
