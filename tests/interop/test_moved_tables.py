"""A broker starts on what was moved, and its groups go on where they were."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.broker.commands import meta_app as metadata_verbs
from cqstore.broker.metadata.forms import read_forms
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.switch.switch import switch
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.interop.asking import consumer_offset, max_offset
from tests.interop.brokers import TIMED, Broker, Brokers
from tests.kit.long_too import long_too
from tests.kit.migrations import moved_and_verified
from tests.kit.moving import LEVEL, Moving
from tests.kit.running import COMMAND
from tests.kit.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("brokers_have_ended")]
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
MASTER = {**SIZES, "haSendHeartbeatInterval": 700}
LMQ = {"enableLmq": "true", "enableMultiDispatch": "true"}
KINDS = {"file": "default", "rocksdb": "defaultRocksDB"}
ROCKSDB = {
    "v1": {"storeType": "defaultRocksDB"},
    "single": {"storeType": "defaultRocksDB", "useSingleRocksDBForAllConfigs": "true"},
}
LIGHT = "%LMQ%light"
GROUPS = [("g", "n0", 0), ("g", "n0", 1), (LIGHT, LIGHT, 0), ("CID_RMQ_SYS_TRANS", "n1", 0)]


def config(**more: object) -> StoreConfig:
    return StoreConfig.from_mapping({key: str(value) for key, value in {**SIZES, **more}.items()})


def committed(broker: Broker, first: int) -> list[int | None]:
    """Let groups come to offsets from ``first`` on; return them."""
    for at, (group, topic, queue_id) in enumerate(GROUPS):
        broker.do("offset", topic, group, queue_id, first + at)
    return offsets(broker)


def offsets(broker: Broker) -> list[int | None]:
    return [consumer_offset(broker, *place) for place in GROUPS]


def written_offsets(root: Path, form: str) -> list[int | None]:
    """Return what ``offsets`` does, by what lies on the disk in a form."""
    found = [each for each in read_forms(StorePaths(root)) if each.form == form]
    if not found or found[0].faults:
        return []
    rows = [found[0].offsets.get(f"{topic}@{group}", {}) for group, topic, _ in GROUPS]
    return [row.get(queue_id) for row, (*_, queue_id) in zip(rows, GROUPS, strict=True)]


def filled(broker: Broker) -> list[int | None]:
    """Put messages, and let groups read some of them."""
    broker.do("topics", "n", 2)
    assert broker.do("put", "n0", 2, 40)["statuses"] == {"PUT_OK": 40}
    assert broker.do("put", "n1", 1, 20)["statuses"] == {"PUT_OK": 20}
    found = committed(broker, 7)
    assert found == [7, 8, 9, 10]
    return found


@pytest.mark.parametrize("lmq", [LMQ, *long_too([{}])], ids=["lmq", "plain"])
def test_groups_go_on_after_a_running_broker_was_moved_to_rocksdb(
    tmp_path: Path, brokers: Brokers, lmq: dict[str, str]
) -> None:
    """A table that counts no change, as of fewer than 500 commits, is one to take over too."""
    root, own = tmp_path / "theirs", tmp_path / "own"
    with brokers.running(root, **MASTER, **lmq) as broker:
        known = filled(broker)
        moving = Moving(root, broker.ha_port, own, config(**lmq)).start()
        moving.wait_for(LEVEL)
    assert moving.end().stopped
    with brokers.running(own, storeType="defaultRocksDB", **MASTER, **lmq) as broker:
        assert offsets(broker) == known
        assert max_offset(broker, "n1") == 20


@pytest.mark.parametrize("form", ["v1", pytest.param("single", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "lmq", [LMQ, pytest.param({}, marks=pytest.mark.long)], ids=["lmq", "plain"]
)
def test_groups_go_on_after_a_running_broker_was_moved_to_files(
    tmp_path: Path, brokers: Brokers, lmq: dict[str, str], form: str
) -> None:
    """It has never had queues in files, nor tables: what it knows lies in its databases alone."""
    root, own, conf = tmp_path / "theirs", tmp_path / "own", tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in {**SIZES, **lmq}.items()))
    with brokers.running(root, **MASTER, **ROCKSDB[form], **lmq) as broker:
        known = filled(broker)
        command = [
            *COMMAND[:1], "migrate", "follow", str(root), f"127.0.0.1:{broker.ha_port}", "--into",
            str(own), "--to", "file", "--config", str(conf), "--output", "json",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as follower:
            assert follower.stderr is not None
            said = next((line for line in follower.stderr if LEVEL in line), "")
            assert said, follower.wait()
            last = committed(broker, 11)  # while it is followed
            broker.close()
            out, err = follower.communicate(timeout=120)
    assert last != known
    assert follower.returncode == 0, out + err
    report = json.loads(out)
    assert report["convertedTables"]["to"] == "json"
    with brokers.running(own, **MASTER, **lmq) as broker:
        assert offsets(broker) == last
        assert [max_offset(broker, "n0", queue_id) for queue_id in (0, 1)] == [20, 20]
        assert max_offset(broker, "n1") == 20
        assert broker.do("put", "n0", 2, 2)["statuses"] == {"PUT_OK": 2}
        until(lambda: max_offset(broker, "n0", 1) == 21)


@pytest.mark.parametrize("backend", list(KINDS))
def test_groups_of_a_broker_with_light_queues_go_on_at_its_follower(
    tmp_path: Path, brokers: Brokers, backend: str
) -> None:
    conf, own = tmp_path / "broker.conf", tmp_path / "own"
    conf.write_text("".join(f"{key}={value}\n" for key, value in {**SIZES, **LMQ}.items()))
    with brokers.running(tmp_path / "theirs", **MASTER, **LMQ) as broker:
        known = filled(broker)
        done = subprocess.run(
            [*COMMAND[:1], "follow", f"127.0.0.1:{broker.ha_port}", str(own), "--broker",
             f"127.0.0.1:{broker.port}", "--config", str(conf), "--backend", backend,
             "--until-quiet", "--output", "json"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    with brokers.running(own, storeType=KINDS[backend], **MASTER, **LMQ) as broker:
        assert offsets(broker) == known


@pytest.mark.parametrize("lmq", [LMQ, *long_too([{}])], ids=["lmq", "plain"])
def test_groups_go_on_after_a_switch_to_rocksdb(
    tmp_path: Path, brokers: Brokers, lmq: dict[str, str]
) -> None:
    root = tmp_path / "store"
    with brokers.running(root, **MASTER, **lmq) as broker:
        known = filled(broker)
    moved_and_verified(root, config(**lmq), "rocksdb")
    switch(root, config(**lmq))
    with brokers.running(root, storeType="defaultRocksDB", **MASTER, **lmq) as broker:
        assert offsets(broker) == known


@pytest.mark.long
@pytest.mark.parametrize("form", list(ROCKSDB))
@pytest.mark.parametrize("lmq", [LMQ, {}], ids=["lmq", "no-lmq"])
def test_groups_go_on_there_and_back_twice(
    tmp_path: Path, brokers: Brokers, lmq: dict[str, str], form: str
) -> None:
    """Topics made under RocksDB are there after the way back, with no tool of RocketMQ's."""
    root = tmp_path / "store"
    rocksdb = {**ROCKSDB[form], **lmq}
    settings = config(**{key: rocksdb[key] for key in rocksdb if key != "storeType"})
    with brokers.running(root, **MASTER, **lmq) as broker:
        known = filled(broker)
    topics = list[str]()
    for turn in (1, 2):
        moved_and_verified(root, settings, "rocksdb")
        assert switch(root, settings).converted_tables["to"] == form
        with brokers.running(root, **MASTER, **rocksdb) as broker:
            assert offsets(broker) == known
            topics.append(f"later{turn}0")
            broker.do("topics", f"later{turn}", 1)
            assert broker.do("put", topics[-1], 1, 5)["statuses"] == {"PUT_OK": 5}
            known = committed(broker, 10 * turn + 7)
            # With one database for all 5.5.1 may close it at its stop before offsets are written.
            until(lambda: written_offsets(root, form) == known)  # noqa: B023 - called at once
        assert written_offsets(root, form) == known
        report = rollback(root, settings)
        assert report is not None
        assert report.converted_tables["to"] == "json"
        with brokers.running(root, **MASTER, **lmq) as broker:
            assert offsets(broker) == known
            assert set(topics) <= set(broker.do("metadata")["topics"])
            assert [max_offset(broker, topic) for topic in topics] == [5] * turn
            known = committed(broker, 10 * turn + 9)


def converted(root: Path, to: str, *words: str) -> None:
    done = CliRunner().invoke(metadata_verbs, ["convert", str(root), "--to", to, *words, "--yes"])
    assert done.exit_code == 0, (done.output, done.exception)


def test_groups_go_on_in_version_2_and_back_in_files_twice(
    tmp_path: Path, brokers: Brokers
) -> None:
    """RocketMQ itself has no way there, and none back."""
    root = tmp_path / "store"
    with brokers.running(root, **MASTER) as broker:
        known = filled(broker)
    for turn in (1, 2):
        converted(root, "v2")
        with brokers.running(root, configManagerVersion="v2", **MASTER) as broker:
            assert offsets(broker) == known
            broker.do("topic", f"later{turn}")
            assert broker.do("put", f"later{turn}", 1, 5)["statuses"] == {"PUT_OK": 5}
            known = committed(broker, 10 * turn + 7)
        converted(root, "json", "--drop", "pull-offsets")
        with brokers.running(root, **MASTER) as broker:
            assert offsets(broker) == known
            assert f"later{turn}" in broker.do("metadata")["topics"]
            known = committed(broker, 10 * turn + 9)


TIMER_UNIT = 52
"""Bytes of one in the timer's log, and what it begins with."""


def in_timer_log(root: Path) -> int:
    """Return how many messages the timer has taken out of its queue."""
    path = root / "timerlog" / f"{0:020d}"
    if not path.exists():
        return 0
    with path.open("rb") as file:
        sizes = [file.read(TIMER_UNIT)[:4] for _ in range(9)]
    return sizes.count(TIMER_UNIT.to_bytes(4, "big"))


def delivered_once(broker: Broker, count: int) -> None:
    """Wait for the delivery of ``count`` messages that wait; none of them comes twice."""
    until(lambda: max_offset(broker, "n0") >= count)
    broker.do("timer", "n0", 1, 1000)  # later than all that could come again
    until(lambda: max_offset(broker, "n0") > count)
    assert max_offset(broker, "n0") == count + 1


def with_waiting_timer_messages(broker: Broker, root: Path) -> None:
    """Have one delivered, and let three wait, which the timer has taken out of its queue."""
    broker.do("topics", "n", 1)
    broker.do("timer", "n0", 1, 1000)
    until(lambda: max_offset(broker, "n0") == 1)
    assert broker.do("timer", "n0", 3, 45_000)["statuses"] == {"PUT_OK": 3}
    until(lambda: in_timer_log(root) == 4)


def test_timer_messages_that_wait_are_delivered_once_after_a_followed_move(
    tmp_path: Path, brokers: Brokers
) -> None:
    root, own = tmp_path / "theirs", tmp_path / "own"
    with brokers.running(root, **MASTER, **TIMED) as broker:
        with_waiting_timer_messages(broker, root)
        moving = Moving(root, broker.ha_port, own, config()).start()
        moving.wait_for(LEVEL)
    assert moving.end().stopped
    with brokers.running(own, storeType="defaultRocksDB", **MASTER, **TIMED) as broker:
        delivered_once(broker, 4)


def test_timer_messages_that_wait_are_delivered_once_after_a_switch(
    tmp_path: Path, brokers: Brokers
) -> None:
    root = tmp_path / "store"
    with brokers.running(root, **MASTER, **TIMED) as broker:
        with_waiting_timer_messages(broker, root)
    moved_and_verified(root, config(), "rocksdb")
    switch(root, config())
    with brokers.running(root, storeType="defaultRocksDB", **MASTER, **TIMED) as broker:
        delivered_once(broker, 4)
