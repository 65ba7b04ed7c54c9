"""Queue files that are lost or spoilt: the damage stays one queue's, the log mends it."""

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.cli.app import app
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import RefusedStoreError
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import BlockStop, QueueKey, UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.crash_images import crash_image
from tests.kit.rebuilt import Facts, facts
from tests.kit.tree import tree_digest, unchanged

CONFIG = StoreConfig(
    mapped_file_size_commit_log=8192, mapped_file_size_consume_queue=200,
    max_hash_slot_num=100, max_index_num=1000,
)  # fmt: skip
FILE = 200
LOST = QueueKey("a", 0)
"""45 units in five files of ten."""


def opened(root: Path, **options: object) -> MessageStore:
    return MessageStore.open(root, CONFIG, housekeeping=False, **options)  # type: ignore[arg-type]


def put(store: MessageStore, topic: str, queue_id: int) -> int:
    result = store.put_message(Message(topic, b"x" * 40, queue_id, {"TAGS": "t"}))
    assert result.ok, result
    return result.queue_offset


def write(root: Path) -> Facts:
    with opened(root) as store:
        for number in range(45):
            put(store, "a", 0)
            if number % 3 == 0:
                put(store, "a", 1)
            put(store, "b", number % 2)
        return facts(store)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    root = tmp_path_factory.mktemp("made") / "store"
    return root, write(root)


@pytest.fixture
def before(made: tuple[Path, Facts], root: Path) -> Facts:
    """What the queues of ``root`` hold, a copy that keeps all times."""
    shutil.copytree(made[0], root)
    return made[1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def queue_file(root: Path, start: int) -> Path:
    return root / "consumequeue" / "a" / "0" / f"{start * 20:020d}"


def without(start: int) -> Callable[[Path], None]:
    return lambda root: queue_file(root, start).unlink()


def without_files(root: Path) -> None:
    for path in (root / "consumequeue" / "a" / "0").iterdir():
        path.unlink()


def without_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "a" / "0")


def without_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "a")


def sized(start: int, size: int) -> Callable[[Path], None]:
    return lambda root: os.truncate(queue_file(root, start), size)


def zeros(start: int) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        queue_file(root, start).write_bytes(bytes(FILE))

    return damage


SEEN = {
    "the first file": without(0),
    "a file in the middle": without(20),
    "the last file": without(40),
    "all files": without_files,
    "a short file": sized(20, 190),
    "a short last file": sized(40, 60),
    "a long file": sized(20, 220),
    "a long last file": sized(40, 220),
    "a file without a byte": sized(10, 0),
    "a last file without a byte": sized(40, 0),
    "a last file of zeros": zeros(40),
}
"""What the files alone give away, or make suspect."""
KNOWN = SEEN | {
    "a file of zeros": zeros(20),
    "the queue": without_queue,
    "the topic": without_topic,
}
"""What is seen after a clean stop."""


def cleanly(root: Path) -> None:
    """Leave the store as it was stopped."""
    _ = root


def rocketmq_had_it(root: Path) -> None:
    os.utime(root / "lock", ns=(1, 1))


def a_crash(root: Path) -> None:
    (root / "abort").touch()


CASES = [
    *[pytest.param(damage, cleanly, id=name) for name, damage in KNOWN.items()],
    *[pytest.param(d, rocketmq_had_it, id=f"{name}, RocketMQ") for name, d in SEEN.items()],
    *[pytest.param(d, a_crash, id=f"{name}, crash") for name, d in SEEN.items()],
]


@pytest.mark.parametrize(("damage", "stopped"), CASES)
def test_what_is_lost_is_built_anew_and_no_offset_is_given_twice(
    root: Path, before: Facts, damage: Callable[[Path], None], stopped: Callable[[Path], None]
) -> None:
    damage(root)
    stopped(root)
    with opened(root) as store:
        assert LOST in store.report.queues_mended
        assert not store.report.queues_damaged
        assert facts(store) == before
        for (topic, queue_id), (_, following, _) in before.items():
            assert put(store, topic, queue_id) == following
        store.flush()
        after = facts(store)
    with opened(root, read_only=True) as store:
        assert store.last_exit_ok
        assert facts(store) == after
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("damage", KNOWN.values(), ids=KNOWN)
def test_read_only_the_queue_tells_holes_and_all_others_are_as_ever(
    root: Path, before: Facts, damage: Callable[[Path], None]
) -> None:
    damage(root)
    with unchanged(root), opened(root, read_only=True) as store:
        assert LOST in {each.queue for each in store.report.queues_damaged}
        assert store.max_offset(*LOST) == 45
        there = seen = 0
        while there < 45:
            block = components_of(store).queues.queue(*LOST).read_units(there, 100)
            seen += block.count
            pull = store.get_message(*LOST, max(there, store.min_offset(*LOST)))
            assert pull.status in (GetMessageStatus.FOUND, GetMessageStatus.OFFSET_FOUND_NULL,
                                   GetMessageStatus.OFFSET_OVERFLOW_ONE)  # fmt: skip
            if block.stop is BlockStop.HOLE:
                assert block.hole is not None
                assert block.hole.stop > there
            there = block.hole.stop if block.hole else there + block.count
        assert seen < 45
        rest = {key: found for key, found in facts(store).items() if key.topic == "b"}
        assert rest == {key: found for key, found in before.items() if key.topic == "b"}
        damaged = {finding.queue for finding in store.check() if finding.damage}
        assert LOST in damaged
        assert all(queue is not None and queue.topic == "a" for queue in damaged)


@pytest.mark.parametrize("name", ["the last file", "the topic"])
def test_commands_list_what_is_left_and_name_the_damage(
    root: Path, before: Facts, name: str
) -> None:
    KNOWN[name](root)
    digest = tree_digest(root)
    for command in ("topics", "info", "check"):
        result = CliRunner().invoke(app, [command, str(root), "--output", "json"])
        assert result.exit_code == (command == "check"), result.output
        if command == "topics":
            listed = json.loads(result.stdout)
            assert {(row["topic"], row["queueId"]): row["max"] for row in listed} == {
                key: found[1] for key, found in before.items()
            }
        else:
            assert "existed at the last clean stop are missing" in result.stdout
    assert tree_digest(root) == digest


def test_a_file_of_zeros_in_the_middle_is_a_hole_that_check_finds_and_a_rebuild_fills(
    root: Path, before: Facts
) -> None:
    zeros(20)(root)
    rocketmq_had_it(root)
    with opened(root) as store:
        pull = store.get_message(*LOST, 20)
        assert (pull.status, pull.next_begin_offset) == (GetMessageStatus.OFFSET_FOUND_NULL, 30)
        assert {finding.queue for finding in store.check() if finding.damage} == {LOST}
        store.rebuild_queues(*LOST)
        assert facts(store) == before


def test_a_replay_that_meets_a_later_record_shows_that_a_whole_queue_is_lost(
    root: Path, before: Facts, tmp_path: Path
) -> None:
    crashed = tmp_path / "crashed"
    with opened(root) as store:
        for number in range(5):
            put(store, "a", 0)
            put(store, "b", number % 2)
        assert facts(store) != before
        after = facts(store)
        crash_image(root, crashed)
    without_queue(crashed)
    with opened(crashed) as store:
        assert not store.last_exit_ok
        assert facts(store) == after
        assert store.report.queues_mended == [LOST]


def test_a_queue_whose_records_have_expired_keeps_its_next_offset(root: Path) -> None:
    with opened(root) as store:
        for _ in range(7):
            put(store, "old", 0)
        for _ in range(200):
            put(store, "b", 0)
        assert store.delete_expired_files(8192).log_files == 1
        assert store.min_offset("old", 0) == store.max_offset("old", 0) == 7
    shutil.rmtree(root / "consumequeue" / "old")
    with opened(root) as store:
        assert (store.min_offset("old", 0), store.max_offset("old", 0)) == (7, 7)
        assert put(store, "old", 0) == 7


@pytest.mark.parametrize("stopped", [rocketmq_had_it, a_crash])
def test_behind_files_that_have_expired_the_last_one_is_missed(
    root: Path, stopped: Callable[[Path], None]
) -> None:
    with opened(root) as store:
        for _ in range(10):  # a whole file of the queue, in the first file of the log
            put(store, "a", 0)
        while store.max_phy_offset() < 8400:
            put(store, "b", 0)
        for _ in range(20):
            put(store, "a", 0)
        while store.max_phy_offset() < 4 * 8192:  # no replay comes to these
            put(store, "b", 0)
        assert store.delete_expired_files(8192).log_files == 1
        before = facts(store)
        assert (store.min_offset(*LOST), store.max_offset(*LOST)) == (10, 30)
    without(20)(root)
    stopped(root)
    with opened(root) as store:
        assert store.report.queues_mended == [LOST]
        assert facts(store) == before


def test_what_has_expired_is_no_damage(root: Path) -> None:
    with opened(root) as store:
        for number in range(300):
            put(store, "a", number % 2)
        assert store.delete_expired_files(16384).log_files == 2
        before = facts(store)
    for stopped in (cleanly, rocketmq_had_it, a_crash):
        stopped(root)
        with opened(root) as store:
            assert not store.report.queues_mended
            assert facts(store) == before


def test_a_mend_that_is_cut_short_is_done_again(
    root: Path, before: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(20)(root)
    without_queue(root)
    with monkeypatch.context() as patched:
        for name in ("REPLAY_UNITS", "MAX_REPLAY_UNITS"):
            patched.setattr(f"cqstore.store.service.dispatching.replay.{name}", 10)
        whole, puts = FileConsumeQueueStore.put_batch, count(1)

        def stop(self: FileConsumeQueueStore, batch: UnitBatch) -> list[QueueRestart]:
            is_mend = (root / "cqstore" / "rebuilding").exists()
            if is_mend and next(puts) > 2:
                raise KeyboardInterrupt
            return whole(self, batch)

        patched.setattr(FileConsumeQueueStore, "put_batch", stop)
        with pytest.raises(KeyboardInterrupt):
            opened(root)
    assert (root / "abort").exists()
    with opened(root) as store:
        assert facts(store) == before


def spoil_log(root: Path) -> None:
    """Spoil a record in the middle of the log."""
    path = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[4000:4040] = b"y" * 40
    path.write_bytes(data)


def test_where_the_log_is_damaged_too_a_known_end_is_kept_and_an_unknown_one_refused(
    root: Path, before: Facts, tmp_path: Path
) -> None:
    assert before[LOST][1] == 45
    spoil_log(root)
    without(40)(root)
    shutil.copytree(root, tmp_path / "other", copy_function=shutil.copy2)
    with opened(root) as store:
        assert [each.queue for each in store.report.queues_damaged] == [LOST]
        assert put(store, *LOST) == 45
        assert store.get_message(*LOST, 41).next_begin_offset == 45
    sized(20, 190)(tmp_path / "other")
    rocketmq_had_it(tmp_path / "other")
    with pytest.raises(
        RefusedStoreError, match=r"damaged queue 0 of topic 'a'.*the log is damaged too"
    ):
        opened(tmp_path / "other")
