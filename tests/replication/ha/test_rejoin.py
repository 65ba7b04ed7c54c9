"""A former master comes back: what the new one has not is cut off, kept, and then it follows."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cqstore.replication.commands import ha_app
from cqstore.replication.commands.ha_rejoin import report_offsets_beyond
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import Timing
from cqstore.replication.ha.fetched import Master
from cqstore.replication.ha.rejoin import OffsetBeyondCut, Rejoin, rejoin
from cqstore.store.errors import RefusedStoreError, StoreLockedError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.cut_back import check_sound, saved_in, served
from tests.kit.parted import CONFIG, grow, log_in, parted
from tests.kit.tree import tree_digest, unchanged
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import serving

FAST = Timing(report=0.05, housekeeping=20.0, first_retry=0.001, last_retry=0.004, quiet=0.03)


def rejoined(*words: object) -> Result:
    return CliRunner().invoke(ha_app, ["rejoin", *map(str, words)])


def follow(root: Path, log: bytes) -> None:
    """Follow a master that has ``log`` until it has nothing more."""

    async def story() -> None:
        with MessageStore.open(root, CONFIG, housekeeping=False) as store:
            async with WireMaster(log) as master, asyncio.timeout(60):
                follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
                await follower.run(lambda progress: progress.caught_up)

    asyncio.run(story())


def replayed(folder: Path, log: bytes, backend: str) -> Path:
    """Return a store with that log whose queues were built from it alone."""
    root = folder / "replayed"
    shutil.rmtree(root, ignore_errors=True)
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        assert store.append_to_commit_log(0, log) == len(log)
    return root


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize(
    ("common", "former", "new"),
    [(30, 5, 40), (30, 60, 3), (30, 120, 0), (5, 3, 3), (29, 40, 40)],
    ids=["shorter", "longer", "by files", "in the first file", "both by files"],
)
def test_a_former_master_is_cut_back_and_follows(
    tmp_path: Path, backend: str, common: int, former: int, new: int
) -> None:
    one, other, end = parted(tmp_path, common, former, new, backend)
    mine, theirs, before = log_in(one), log_in(other), tree_digest(other)
    shown = tree_digest(one)
    done = rejoined(one, other)
    assert (done.exit_code, tree_digest(one)) == (0, shown)
    assert f"would be cut at {end}. Repeat with --yes to cut it" in done.stderr
    done = rejoined(one, other, "--yes", "--output", "json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["commonEnd"], found["done"]) == (end, True)
    assert log_in(one) == theirs[:end]
    assert b"".join(Path(path).read_bytes() for path in found["saved"]) == mine[end:]
    assert served(one) == served(replayed(tmp_path, theirs[:end], backend))
    check_sound(one)
    assert tree_digest(other) == before
    follow(one, theirs)
    assert log_in(one) == theirs
    assert served(one) == served(other)
    check_sound(one)
    again = rejoined(one, other, "--yes")
    assert (again.exit_code, "nothing to cut" in again.stderr) == (0, True)


@pytest.mark.parametrize("backend", backend_names())
def test_a_log_that_parts_where_a_file_begins_is_cut_there(tmp_path: Path, backend: str) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    grow(one, 80, backend=backend)
    mine = log_in(one)
    for end in (4096, 8192):
        shutil.rmtree(other, ignore_errors=True)
        with MessageStore.open(other, CONFIG, backend=backend) as store:
            store.append_to_commit_log(0, mine[:end])
            assert store.max_phy_offset() == end
            store.put_message(Message("new", b"x" * 50))
        copy = tmp_path / str(end)
        shutil.copytree(one, copy)
        assert rejoin(copy, other, CONFIG).phy_offset == end
        assert (log_in(copy), saved_in(copy, end, len(mine) - end)) == (mine[:end], mine[end:])
        follow(copy, log_in(other))
        assert served(copy) == served(other)
        check_sound(copy)


@pytest.mark.parametrize("backend", backend_names())
def test_a_running_master_is_rejoined_over_the_wire(tmp_path: Path, backend: str) -> None:
    one, other, end = parted(tmp_path, 70, 60, 5, backend)
    theirs = log_in(other)
    with serving(WireMaster(theirs)) as master:
        there = Master("127.0.0.1", master.port, answer=30.0, quiet=0.05)
        assert rejoin(one, there, CONFIG).phy_offset == end
        assert max(master.reports) <= len(theirs) // 4096 * 4096
    follow(one, theirs)
    assert (log_in(one), served(one)) == (theirs, served(other))


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize("crashed", [False, True])
def test_a_silent_divergence_is_ended(tmp_path: Path, backend: str, *, crashed: bool) -> None:
    """As RocketMQ's slave leaves it: behind its own end the middle of the master's log."""
    one, other, end = parted(tmp_path, 20, 4, 40, backend)
    mine, theirs = log_in(one), log_in(other)
    for start in range(0, len(theirs), 4096):
        path = one / "commitlog" / f"{start:020d}"
        whole = mine + theirs[len(mine) :]
        path.write_bytes(whole[start : start + 4096].ljust(4096, b"\0"))
    if crashed:
        (one / "abort").write_bytes(b"")
    with unchanged(one):
        assert rejoined(one, other).exit_code == 0
    assert rejoin(one, other, CONFIG).done
    assert log_in(one) == theirs[:end]
    assert saved_in(one, end, len(theirs) - end) == mine[end:] + theirs[len(mine) :]
    follow(one, theirs)
    assert (log_in(one), served(one)) == (theirs, served(other))
    check_sound(one)


@pytest.mark.parametrize("backend", backend_names())
def test_a_former_master_that_crashed_is_cut_back(tmp_path: Path, backend: str) -> None:
    one, other, end = parted(tmp_path, 30, 0, 9, backend)
    crashed = tmp_path / "crashed"
    with MessageStore.open(one, CONFIG) as store:
        for number in range(30):
            assert store.put_message(Message("former", b"x" * number)).ok
        assert store.get_message("former", 0, 0).records
        crash_image(one, crashed)
        mine = log_in(one)
    with pytest.raises(StoreLockedError), MessageStore.open(one, CONFIG):
        rejoin(one, other, CONFIG)
    found = rejoin(crashed, other, CONFIG)
    assert (found.phy_offset, found.done) == (end, True)
    assert sum(tail.size for tail in found.saved) == len(mine) - end  # one ends with zeros
    assert log_in(crashed) == mine[:end]
    assert saved_in(crashed, end, len(mine) - end) == mine[end:]
    follow(crashed, log_in(other))
    assert served(crashed) == served(other)
    check_sound(crashed)


@pytest.mark.parametrize("backend", backend_names())
def test_what_was_cut_back_may_become_a_master_again(tmp_path: Path, backend: str) -> None:
    """Its next offsets are those behind the cut."""
    one, other, end = parted(tmp_path, 30, 50, 0, backend)
    rejoin(one, other, CONFIG)
    with MessageStore.open(one, CONFIG) as store, MessageStore.open(other, CONFIG) as second:
        assert store.max_phy_offset() == end
        for number in range(20):
            message = Message("both", b"again", number % 3)
            mine, others = store.put_message(message), second.put_message(message)
            assert mine.ok
            assert (mine.phy_offset, mine.queue_offset) == (others.phy_offset, others.queue_offset)
    assert served(one) == served(other)


def test_both_backends_of_a_store_are_cut(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 30, 0, 9)
    both = CONFIG.model_copy(update={"rocksdb_cq_double_write_enable": True})
    with MessageStore.open(one, both) as store:
        for number in range(30):
            assert store.put_message(Message("former", b"x" * number)).ok
    assert rejoin(one, other, both).done
    with MessageStore.open(one, both) as store:
        assert len(components_of(store).queues.backends()) == 2
        assert store.verify().is_clean
        assert {key.topic for key in served(one)} == {"both"}


def test_offsets_behind_the_cut_are_told_and_stay(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 30, 9, 1)
    grow(one, 4, "both")
    text = (
        '{"offsetTable":{"former@g":{0:3,1:0},"both@g":{0:15,1:16,2:9},"other@g":{0:99}},'
        '"dataVersion":{"counter":1}}'
    )
    table = one / "config" / "consumerOffset.json"
    table.parent.mkdir()
    table.write_text(text)
    for words in ([], ["--yes"]):
        done = rejoined(one, other, "--output", "json", *words)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["offsetsBehindTheCut"] == [
            {"group": "g", "topic": "both", "queueId": 1, "offset": 16, "queueEnd": 15},
            {"group": "g", "topic": "former", "queueId": 0, "offset": 3, "queueEnd": 0},
        ]
        assert "offset 16 in queue 1 of topic 'both' is after the queue's end 15" in done.stderr
    assert table.read_text() == text


@pytest.mark.parametrize("more", [0, 3])
def test_of_many_offsets_behind_the_cut_twenty_are_shown_and_the_others_counted(
    capsys: pytest.CaptureFixture[str], more: int
) -> None:
    beyond = [OffsetBeyondCut("g", QueueKey("t", number), 9, 5) for number in range(20 + more)]
    unread = ["topics.json: no table of offsets"]
    report_offsets_beyond(Rejoin(700, needed=True, done=False, beyond=beyond, unread=unread))
    reported = capsys.readouterr().err.splitlines()
    assert reported[:20] == [
        f"cqstore: group g: offset 9 in queue {number} of topic 't' is after the queue's end 5"
        for number in range(20)
    ]
    rest = [f"cqstore: and {more} more (--output json lists all)"] if more else []
    assert reported[20:] == [*rest, f"cqstore: {unread[0]}"]


# ---- what is refused


def refused(former: Path, new: Path, words: str) -> None:
    before = tree_digest(former), tree_digest(new)
    for more in ([], ["--yes"]):
        done = rejoined(former, new, *more)
        assert isinstance(done.exception, RefusedStoreError), done.output
        assert words in str(done.exception)
        left = tree_digest(former), tree_digest(new)
        assert left == before or (more and (former / "lock").exists())
    assert not (former / "cqstore" / "cut").exists()


def test_nothing_is_cut_where_anything_is_in_doubt(tmp_path: Path) -> None:
    grow(tmp_path / "a", 30, "a")
    grow(tmp_path / "b", 40, "b")
    refused(tmp_path / "a", tmp_path / "b", "no record from 0 is equal in both logs")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", tmp_path / "a", "no store here")
    assert [*(tmp_path / "empty").iterdir()] == []
    one, other, _ = parted(tmp_path, 30, 9, 9)
    with MessageStore.open(other, CONFIG, read_only=True) as store:
        starts = [record.phy_offset for record in components_of(store).log.scan(0)]
    at = starts[-2]
    spoilt = tmp_path / "spoilt"
    shutil.copytree(other, spoilt)
    path = spoilt / "commitlog" / f"{at // 4096 * 4096:020d}"
    data = bytearray(path.read_bytes())
    data[at % 4096 + 4] ^= 1
    path.write_bytes(data)
    refused(one, spoilt, "is damaged: ")
    (one / "cqstore" / "migration").mkdir(parents=True)
    (one / "cqstore" / "migration" / "plan.json").write_text("{}")
    with pytest.raises(RefusedStoreError, match="a migration is in progress"):
        rejoin(one, other, CONFIG)


def test_logs_that_cannot_be_compared_are_not_cut(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 20, 2, 80)
    assert end < 4096 < len(log_in(other))
    (other / "commitlog" / f"{0:020d}").unlink()
    refused(one, other, "the logs have no byte in common")
    longer = CONFIG.model_copy(update={"mapped_file_size_commit_log": 8192})
    with MessageStore.open(tmp_path / "longer", longer) as store:
        assert store.append_to_commit_log(0, log_in(one)[:end]) == end
        assert store.put_message(Message("new", b"x")).ok
    refused(one, tmp_path / "longer", "the log files have different sizes, 4096 and 8192 bytes")


def test_what_others_rule_is_not_cut(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 30, 9, 9)
    (one / "epochFileCheckpoint").write_text("")
    with pytest.raises(RefusedStoreError, match="a controller elects its master"):
        rejoin(one, other, CONFIG)


def test_settings_of_a_slave_and_of_a_synchronous_master_are_taken(tmp_path: Path) -> None:
    one, other, _ = parted(tmp_path, 30, 9, 9)
    for role in ("SLAVE", "SYNC_MASTER"):
        config = StoreConfig.from_mapping({"brokerRole": role, "inSyncReplicas": 2})
        copy = tmp_path / role
        shutil.copytree(one, copy)
        assert rejoin(copy, other, config).done
