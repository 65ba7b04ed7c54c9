"""A running store is followed, compared, and replaced when it stops: nothing is lost on the way."""

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.broker.conversion.accepted_loss import AcceptedLoss
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.migration.commands import app
from cqstore.migration.follow import move
from cqstore.migration.follow.move import FollowedMove
from cqstore.migration.follow.proof import LastUnits, refuse_other_ends
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.store.errors import RefusedStoreError, StoreError, StoreLockedError
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.replica_config import BrokerRole
from tests.kit.metadata_forms import databases, unpack_forms
from tests.kit.moving import LEVEL, Moving
from tests.kit.quiet_config import HOUR_MS
from tests.kit.rocksdb_queues import lose
from tests.kit.served import served
from tests.kit.tree import tree_digest
from tests.kit.waiting import until
from tests.replication.conftest import SIZES
from tests.replication.feed.conftest import CONFIG, Master, leading, log_in

IN_MEMORY = CONFIG.model_copy(
    update={
        "store_type": "defaultRocksDB", "flush_interval_consume_queue": HOUR_MS,
        "flush_consume_queue_thorough_interval": HOUR_MS,
    }
)  # fmt: skip
"""Units lie in RocksDB's memory until the broker stops, as those of RocketMQ do for long."""
LACKS = "queue 0 of topic 't4': units 3 to 3 are missing in the rocksdb queues"
TABLES = ("topics.json", "consumerOffset.json")
_LEVEL_SECONDS = move._LEVEL_SECONDS


@pytest.fixture(autouse=True)
def _only_who_has_all_is_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a follower is, with any part of what was put a moment ago."""
    monkeypatch.setattr(move, "_LEVEL_SECONDS", 0.0)


def moving(master: Master, own: Path, backend: str = "rocksdb") -> Moving:
    return Moving(master.root, master.port, own, CONFIG, backend, without=[AcceptedLoss.COMPACTION])


def put_to(master: Master, topic: str) -> None:
    """Put one message more."""
    assert master.store.put_message(Message(topic, b"one more", 0)).ok


def put_more(master: Master) -> None:
    for number in range(60):
        properties = {"TAGS": "a", "KEYS": f"k{number}"}
        assert master.store.put_message(Message(f"t{number % 7}", b"x" * 90, 0, properties)).ok


def moved(
    root: Path, own: Path, during: Callable[[Master], object], backend: str = "rocksdb"
) -> Moving:
    """Move a running store; ``during`` is called when all was compared, then it stops."""
    with leading(root) as master:
        put_more(master)
        move_of = moving(master, own, backend).start()
        move_of.wait_for(LEVEL)
        during(master)
    return move_of


class Clock:
    """The time of day, and a time that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requested = 0
        self.time = time.time
        self.sleep = time.sleep

    def monotonic(self) -> float:
        self.requested += 1
        return self.now


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_follower_takes_the_place_of_a_store_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(move, "time", clock)
    root, own = tmp_path / "broker", tmp_path / "own"
    tables = root / "config"
    tables.mkdir(parents=True)
    beside = ["timerlog/0", "timerwheel", "timerwheel.104"]
    for name in [*beside, "compaction/c", "timerwheel.tmp"]:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(name)
    (tables / "topics.json").write_text('{"topicConfigTable":{}}')

    def during(master: Master) -> None:
        put_more(master)
        (tables / "consumerOffset.json").write_text('{"offsetTable":{"t1@g":{"0":3}}}')
        requested, clock.now = clock.requested, 5000.0
        until(
            lambda: clock.requested > requested
        )  # a sign of the broker's, which has not stopped yet

    moving_on = moved(root, own, during, backend)
    report = moving_on.end()
    before = tree_digest(root)
    assert (report.queues, report.units, report.stopped) == (7, 60, True)
    assert sum("comparing all queues" in each for each in moving_on.reported) == 1, (
        moving_on.reported
    )
    assert report.not_taken == ["compaction", "timerwheel.tmp"]
    assert [(own / name).read_text() for name in beside] == beside
    assert 0 < report.verified_to < report.end
    assert report.down_seconds == 0  # since the last sign, however long it was followed
    assert log_in(own)[: report.end] == log_in(root)[: report.end]
    assert served(own) == served(root)
    found = {name: json.loads((own / "config" / name).read_text()) for name in TABLES}
    # A broker that keeps tables in RocksDB takes in only a file that counts changes.
    counters = [found[name].pop("dataVersion", {}).get("counter") for name in TABLES]
    assert counters == [None if backend == "file" else 1] * 2
    assert found == {name: json.loads((tables / name).read_text()) for name in TABLES}
    with MessageStore.open(own, CONFIG) as store:
        assert (store.report.needed, set(components_of(store).layout.backends)) == (
            False,
            {backend},
        )
        assert store.put_message(Message("t1", b"goes on")).queue_offset == 18
        assert [found for found in store.check() if found.damage] == []
    assert tree_digest(root) == before


def test_what_the_wire_did_not_bring_is_taken_from_the_log(tmp_path: Path) -> None:
    """As with a broker that was stopped before anybody followed it."""
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
    report = moving(master, own).start().end()
    assert report.drained_bytes > 0
    assert (report.units, report.verified_to) == (60, report.end)
    assert log_in(own)[: report.end] == log_in(root)[: report.end]
    assert served(own) == served(root)


def test_a_topic_that_is_deleted_at_the_broker_is_deleted_here(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"

    def during(master: Master) -> None:
        master.store.delete_topics(["t3", "t5"])
        put_to(master, "t0")

    with leading(root) as master:
        put_more(master)
        master.store.delete_topics(["t6"])
        put_to(master, "t0")
        move_of = moving(master, own).start()
        move_of.wait_for(LEVEL)
        during(master)
    assert move_of.end().deleted_topics == 3
    assert {key.topic for key in served(own)} == {"t0", "t1", "t2", "t4"}
    assert served(own) == served(root)


def test_a_broker_that_is_never_quiet_is_moved_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "_LEVEL_SECONDS", _LEVEL_SECONDS)
    root, own = tmp_path / "broker", tmp_path / "own"
    silent = FeedSettings(ha_send_heartbeat_interval=60_000)  # nothing says that there is no more
    with leading(root, settings=silent) as master:
        put_more(master)
        move_of = moving(master, own).start()

        def puts_on() -> bool:
            put_to(master, "t0")
            return move_of.has_reported(LEVEL)

        until(puts_on)
    assert move_of.end().stopped
    assert served(own) == served(root)


def test_a_queue_that_differs_ends_the_move_and_changes_nothing(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
        master.store.flush()
        path = root / "consumequeue" / "t4" / "0" / f"{0:020d}"
        with path.open("r+b") as file:
            file.seek(20 * 3 + 12)
            file.write(b"\1" * 8)
        before = tree_digest(root)
        with pytest.raises(RefusedStoreError, match="queue 0 of topic 't4': tags_code differs"):
            moving(master, own).start().end()
        assert tree_digest(root) == before


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_what_a_broker_keeps_in_memory_is_compared_when_it_has_stopped(
    tmp_path: Path, backend: str
) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root, IN_MEMORY) as master:
        put_more(master)
        master.store.flush()
        shown = master.end
        put_to(master, "t0")
        put_to(master, "new")
        first = moving(master, own, backend).start()
        first.wait_for(LEVEL)
        assert first.has_reported("the broker has not flushed all units of its queues")
        assert (first.move.report.units, first.move.report.verified_to) == (60, shown)
        put_to(master, "t1")
    report = first.end()
    assert (report.units, report.verified_to, report.queues) == (63, report.end, 8)
    assert served(own) == served(root)


def without_a_unit(master: Master) -> None:
    """Take a unit of ``t4`` out of the broker's queue, which goes on behind it."""
    assert master.store.get_message("t4", 0, 0).messages()  # who reads has all handed on
    queues = components_of(master.store).queues
    assert isinstance(queues, RocksDBConsumeQueueStore)
    lose(queues, "t4", 0, range(3, 4))


def test_a_difference_that_was_in_the_brokers_memory_ends_the_move(tmp_path: Path) -> None:
    """No queue's end says so: it is within."""
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root, IN_MEMORY) as master:
        put_more(master)
        without_a_unit(master)
        move_of = moving(master, own, "file").start()
        move_of.wait_for(LEVEL)
    with pytest.raises(RefusedStoreError, match=LACKS):
        move_of.end()


def test_a_difference_in_what_the_broker_has_flushed_ends_the_move_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "_TRY_SECONDS", 0.0)
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root, IN_MEMORY) as master:
        put_more(master)
        without_a_unit(master)
        master.store.flush()
        put_to(master, "t0")
        with pytest.raises(RefusedStoreError, match=LACKS):
            moving(master, own, "file").start().end()


def test_it_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
        first = moving(master, own).start()
        first.wait_for(LEVEL)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            first.end()
        put_more(master)
        again = moving(master, own).start()
        again.wait_for(LEVEL)
    report = again.end()
    assert not any("comparing" in sentence for sentence in again.reported)
    assert (report.units, report.verified_to) == (60, first.move.report.verified_to)
    assert served(own) == served(root)


def test_a_call_that_ends_while_it_opens_leaves_the_store_closed(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
        first = moving(master, own)
        first.on("opening the new store", first.cancel)
        with pytest.raises(asyncio.CancelledError):
            first.start().end()
        assert not StorePaths(own).abort.exists()
        again = moving(master, own).start()
        again.wait_for(LEVEL)
    assert again.end().stopped
    assert served(own) == served(root)


def test_a_broker_that_crashed_is_not_replaced(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    moved(root, own, put_more).end()
    with leading(root) as master:
        put_more(master)
    StorePaths(root).abort.write_text("1")
    refused(root, own, "did not shut down cleanly")
    StorePaths(root).abort.unlink()
    assert moving(master, own).start().end().drained_bytes > 0
    assert served(own) == served(root)


def test_a_follower_that_lacks_history_is_refused(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
        last = master.end - master.end % 4096
        with MessageStore.open(own, CONFIG, backend="rocksdb") as store:
            store.append_to_commit_log(last, master.log[last:])
        with pytest.raises(RefusedStoreError, match=f"begins at 0, the new store's at {last}"):
            moving(master, own).start().end()


def own_with(own: Path, log: bytes) -> None:
    with MessageStore.open(own, CONFIG, backend="rocksdb") as store:
        store.append_to_commit_log(0, log)


def refused(root: Path, own: Path, words: str) -> None:
    before = tree_digest(root), served(own)
    with pytest.raises(RefusedStoreError, match=words):
        asyncio.run(FollowedMove(root, ("127.0.0.1", 1), own, CONFIG).run())
    assert (tree_digest(root), served(own)) == before


def test_tables_that_the_next_broker_wrote_are_kept(tmp_path: Path) -> None:
    """Consumers have gone on there, though nothing was put since."""
    root, own = tmp_path / "broker", tmp_path / "own"
    offsets = StorePaths(root).config / "consumerOffset.json"
    offsets.parent.mkdir(parents=True)
    offsets.write_text('{"offsetTable": {"t1@g": {"0": 1}}}')
    moved(root, own, put_more).end()
    with leading(root) as master:
        again = moving(master, own).start()
        again.wait_for(LEVEL)
    assert again.end().stopped
    written = StorePaths(own).config / "consumerOffset.json"
    written.write_text('{"offsetTable": {"t1@g": {"0": 7}}}')
    note = (own / "cqstore" / "followed.json").stat().st_mtime
    os.utime(written, (note + 1, note + 1))
    refused(root, own, "the tables were changed after the takeover")
    assert '"0": 7' in written.read_text()


def test_a_broker_that_has_lost_what_it_sent_is_refused(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
        end, log = master.end, master.log
    own_with(own, log)
    with MessageStore.open(own, CONFIG) as store:
        assert store.put_message(Message("t", b"came, and was not on disk there")).ok
        longer = store.max_phy_offset()
    refused(root, own, f"log ends at {end}, the new store's at {longer}")


def test_a_broker_with_another_log_is_refused(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
        end, log = master.end, master.log
    own_with(own, log)
    start = end - end % 4096
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(100)  # in the body of a record
        file.write(b"\0")
    refused(root, own, f"the logs differ between phy offsets {start} and {end}")


def test_a_broker_cannot_start_while_its_place_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own, met = tmp_path / "broker", tmp_path / "own", []

    def locked(theirs: LastUnits, ours: LastUnits, broker: Path) -> None:
        with pytest.raises(StoreLockedError):
            StoreLock(StorePaths(root))
        met.append(True)
        refuse_other_ends(theirs, ours, broker)

    monkeypatch.setattr(move, "refuse_other_ends", locked)
    moved(root, own, put_more).end()
    assert met


@pytest.mark.parametrize("into", ["own", "broker"])
def test_what_cannot_be_moved_is_refused_before_anything_is_made(tmp_path: Path, into: str) -> None:
    root = tmp_path / "broker"
    if into == "broker":
        with leading(root) as master:
            put_more(master)
    else:
        root.mkdir()
    before = tree_digest(tmp_path)
    move_of = FollowedMove(root, ("127.0.0.1", 1), tmp_path / into, CONFIG)
    with pytest.raises(RefusedStoreError, match=r"no store here|must not be, contain or be inside"):
        asyncio.run(move_of.run())
    assert tree_digest(tmp_path) == before


def refused_move(root: Path, own: Path, config: StoreConfig, words: str) -> None:
    with pytest.raises(RefusedStoreError, match=words):
        asyncio.run(FollowedMove(root, ("127.0.0.1", 1), own, config).run())
    assert not own.exists()


def test_settings_under_which_it_cannot_be_opened_are_refused_before_the_copy(
    tmp_path: Path,
) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
    for key, value, words in (
        (
            "store_path_commit_log",
            str(root / "commitlog"),
            "storePathCommitLog=.* in another folder",
        ),
        ("store_path_commit_log", f"{own / 'commitlog'},/b", "storePathCommitLog=.*,/b: "),
        ("enable_controller_mode", True, "a controller elects its master"),
        ("broker_role", BrokerRole.SLAVE, "it is the store of a slave"),
    ):
        refused_move(root, own, CONFIG.model_copy(update={key: value}), words)


def test_the_log_of_a_broker_is_read_from_its_own_folder(tmp_path: Path) -> None:
    """Settings that name the new store's log folder would compare that log with itself."""
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
    config = CONFIG.model_copy(update={"store_path_commit_log": str(own / "commitlog")})
    report = Moving(root, 1, own, config).start().end()
    assert log_in(own)[: report.end] == log_in(root)[: report.end]
    assert report.drained_bytes > 0


def test_a_broker_whose_log_is_in_another_folder_needs_a_link_or_its_name(tmp_path: Path) -> None:
    root, own, away = tmp_path / "broker", tmp_path / "own", tmp_path / "disk2" / "log"
    with leading(root) as master:
        put_more(master)
    away.parent.mkdir()
    (root / "commitlog").rename(away)
    refused_move(root, own, CONFIG, "no commit log found.*--commitlog")
    (root / "commitlog").symlink_to(away)
    report = Moving(root, 1, own, CONFIG).start().end()
    assert log_in(own)[: report.end] == log_in(root)[: report.end]


def test_the_log_of_a_broker_may_be_in_several_folders(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    with leading(root) as master:
        put_more(master)
    whole = log_in(root)
    folders = [tmp_path / "d1", tmp_path / "d2"]
    for folder in folders:
        folder.mkdir()
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 2
    for number, path in enumerate(files):
        path.rename(folders[number % 2] / path.name)
    both = Path(",".join(map(str, folders)))
    report = Moving(root, 1, own, CONFIG, commit_log=both).start().end()
    assert log_in(own)[: report.end] == whole[: report.end]


def test_the_command_names_file_key_value_and_the_way_out(tmp_path: Path) -> None:
    root, own, conf = tmp_path / "broker", tmp_path / "own", tmp_path / "broker.conf"
    with leading(root) as master:
        put_more(master)
    conf.write_text(f"{SIZES}storePathRootDir={root}\nstorePathCommitLog={root}/commitlog\n")
    before = tree_digest(tmp_path)
    given = ["follow", str(root), "127.0.0.1:1", "--into", str(own)]
    done = CliRunner().invoke(app, [*given, "--config", str(conf)])
    assert isinstance(done.exception, RefusedStoreError)
    assert str(done.exception) == (
        f"storePathCommitLog={root}/commitlog: this key places the commit log of {own} in another"
        f" folder; expected {own}/commitlog or no such key. Pass a copy of the configuration"
        f" without the key, and start the broker on the new folder with that copy ({conf})"
    )
    assert tree_digest(tmp_path) == before


def test_a_folder_that_follows_another_store_is_refused(tmp_path: Path) -> None:
    root, own = tmp_path / "broker", tmp_path / "own"
    moved(root, own, put_more).end()
    with leading(tmp_path / "other") as master, pytest.raises(StoreError, match="another store"):
        moving(master, own)
    note = own / "cqstore" / "followed.json"
    assert json.loads(note.read_text())["stopped"] is True
    note.write_text("{")
    with pytest.raises(StoreError, match="the state file of the move is corrupted"):
        FollowedMove(root, ("127.0.0.1", 1), own, CONFIG)


@pytest.mark.parametrize("is_older", [False, True])
def test_the_command_ends_with_what_may_be_started(tmp_path: Path, *, is_older: bool) -> None:
    root, own, conf = tmp_path / "broker", tmp_path / "own", tmp_path / "broker.conf"
    with leading(root) as master:
        put_more(master)
    more = []
    if is_older:  # files, and databases that were written later
        unpack_forms(tmp_path / "forms")
        shutil.copytree(tmp_path / "forms" / "json" / "config", root / "config")
        for path in (root / "config").iterdir():
            os.utime(path, (1000, 1000))
        for path in databases(tmp_path / "forms" / "v1"):
            shutil.copytree(path, root / "config" / path.name)
        more = ["--to", "file", "--accept-older-tables", "--without", "forbidden"]
    conf.write_text(SIZES)
    given = ["follow", str(root), "127.0.0.1:1", "--into", str(own), "--config", str(conf)]
    done = CliRunner().invoke(app, [*given, *more])
    assert done.exit_code == 0, (done.output, done.exception)
    *before, last = done.stderr.splitlines()
    assert last == f"cqstore: the move of {root} to {own} is complete: start the broker on {own}"
    assert ("are older than the tables that the broker kept" in before[-1]) is is_older
