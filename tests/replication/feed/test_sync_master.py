"""``SYNC_MASTER``: a put is answered when followers have it, or says that it is not known."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.followers import Followers
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from cqstore.store.settings.replica_config import BrokerRole
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.waiting import run_threads, until
from tests.kit.wire_slave import WireSlave, acknowledging
from tests.replication.feed.conftest import CONFIG, QUICK, Master, leading

OK = PutMessageStatus.PUT_OK
LATE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
TOO_FEW = PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH


def sync(**settings: object) -> StoreConfig:
    given = {"broker_role": BrokerRole.SYNC_MASTER, "slave_timeout": 100, **settings}
    return StoreConfig.model_validate(CONFIG.model_dump(exclude_unset=True) | given)


PATIENT = {"slave_timeout": 60_000, "sync_flush_timeout": 60_000}


def in_sync(master: Master, count: int) -> None:
    """Wait until so many connections have said where they begin."""
    until(lambda: sum(link.position >= 0 for link in master.feeder.followers.links()) == count)


def message(wait: str | None = None, topic: str = "t") -> Message:
    return Message(topic, b"x" * 100, 0, {} if wait is None else {"WAIT": wait})


def one(store: MessageStore) -> list[PutMessageResult]:
    return [store.put_message(message())]


def one_later(store: MessageStore) -> list[PutMessageResult]:
    return [store.put_message_future(message()).result(60)]


def a_list(store: MessageStore) -> list[PutMessageResult]:
    return store.put_messages([message() for _ in range(7)])


def a_client_batch(store: MessageStore) -> list[PutMessageResult]:
    body = encode_client_batch([Message("t", b"%d" % number, 0) for number in range(5)])
    return store.put_client_batch(Message("t", body, 0))


def to_light_queues(store: MessageStore) -> list[PutMessageResult]:
    return [store.put_message(Message("t", b"x", 0, {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))]


WAYS = [one, one_later, a_list, a_client_batch, to_light_queues]
Way = Callable[[MessageStore], list[PutMessageResult]]
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("way", WAYS)
def test_a_put_waits_for_a_follower_and_says_so_if_none_has_it(
    tmp_path: Path, way: Way, flush: FlushDiskType
) -> None:
    config = sync(flush_disk_type=flush, **LIGHT)
    with leading(tmp_path / "master", config) as master:
        began = time.monotonic()
        alone = way(master.store)
        assert time.monotonic() - began >= 0.1
        assert {result.status for result in alone} == {LATE}
        assert all(result.ok for result in alone)  # it is stored
        not_ok = master.store.metrics.snapshot().put_not_ok
        assert not_ok[LATE] == len(alone)
    config = sync(flush_disk_type=flush, **LIGHT, **PATIENT)
    with leading(tmp_path / "master", config) as master, acknowledging(master.port):
        assert {result.status for result in way(master.store)} == {OK}
        (link,) = master.feeder.followers.links()
        assert link.acknowledged == master.end


def test_who_does_not_want_to_wait_does_not(tmp_path: Path) -> None:
    with leading(tmp_path / "master", sync(min_in_sync_replicas=2, **PATIENT)) as master:
        store = master.store
        assert store.put_message(message("false")).status is OK
        assert store.put_message_future(message("false")).result(60).status is OK
        body = encode_client_batch([Message("t", b"x", 0)])
        assert store.put_client_batch(Message("t", body, 0, {"WAIT": "false"}))[0].status is OK
        mixed = store.put_messages([message(), message("false"), message("true")])
        assert [result.status for result in mixed] == [TOO_FEW, OK, TOO_FEW]


# ---- how many


def test_two_followers_are_waited_for_where_three_replicas_are_asked_for(tmp_path: Path) -> None:
    with leading(tmp_path / "master", sync(in_sync_replicas=3)) as master:
        with acknowledging(master.port), acknowledging(master.port):
            in_sync(master, 2)
            assert master.store.put_message(message()).status is LATE  # one follower, twice there
        with acknowledging(master.port), acknowledging(master.port, "127.0.0.2"):
            in_sync(master, 2)
            until(lambda: master.store.put_message(message()).status is OK)


def test_connections_of_one_follower_count_once() -> None:
    followers = Followers()
    links = [followers.join(address, 1) for address in ("a", "a", "b")]
    for link in links:
        followers.begin(link, 0, 0)
    followers.acknowledge(links[0], 100)
    followers.acknowledge(links[1], 100)
    assert followers.wait(100, 1, 0)
    assert not followers.wait(100, 2, 0)
    assert not followers.wait(101, 1, 0)
    followers.join("c", 1)  # has said nothing
    assert [followers.in_sync(100, gap) for gap in (50, 100, 101, 1 << 30)] == [1, 1, 2, 2]
    followers.acknowledge(links[2], 101)
    assert followers.wait(100, 2, 0)
    assert not followers.wait(101, 2, 0)
    followers.leave(links[2])
    assert not followers.wait(100, 2, 0)
    assert followers.links() != []


def test_where_a_follower_wants_to_begin_is_no_acknowledgement(tmp_path: Path) -> None:
    """Else a client that asks for the log's end would be a replica of all before it."""
    with leading(tmp_path / "master", sync()) as master:
        first = master.store.put_message(message())
        assert first.status is LATE
        with WireSlave(master.port) as slave:
            slave.report(master.end)
            slave.report(master.end)
            slave.frame()
            (link,) = master.feeder.followers.links()
            assert (link.position, link.acknowledged) == (master.end, -1)
            assert not master.feeder.followers.wait(master.end, 1, 0)


def test_one_replica_asked_for_is_the_master_alone(tmp_path: Path) -> None:
    """RocketMQ's default; here only who writes it down gets it."""
    assert sync().awaited_followers == 1
    assert [sync(in_sync_replicas=count).awaited_followers for count in (1, 2, 3)] == [0, 1, 2]
    assert StoreConfig(in_sync_replicas=3).awaited_followers == 0
    with leading(tmp_path / "master", sync(in_sync_replicas=1, **PATIENT)) as master:
        assert master.store.put_message(message()).status is OK
        assert master.store.put_message_future(message()).result(60).status is OK


def test_without_enough_replicas_in_sync_nothing_is_put(tmp_path: Path) -> None:
    config = sync(min_in_sync_replicas=2, in_sync_replicas=1, ha_max_gap_not_in_sync=2000)
    with leading(tmp_path / "master", config) as master:
        for way in (one, one_later, a_list, a_client_batch):
            for result in way(master.store):
                assert (result.status, result.ok) == (TOO_FEW, False)
                assert "(minInSyncReplicas), found 1, this one included" in result.reason
        assert master.end == 0
        assert master.store.metrics.snapshot().put_not_ok[TOO_FEW] == 1 + 1 + 7 + 1
        with WireSlave(master.port) as slave:
            slave.report(0)
            slave.frame()
            while master.end < 2000:
                assert master.store.put_message(message()).status is OK
            assert master.store.put_message(message()).status is TOO_FEW  # it lacks too much
            slave.take(master.end)
            slave.report(master.end)
            until(lambda: master.store.put_message(message()).status is OK)
        until(lambda: not master.feeder.followers.links())
        assert master.store.put_message(message()).status is TOO_FEW


# ---- what is forged


@pytest.mark.parametrize("forged", [[1 << 50], [0, 1 << 50], [0, 101], [-1]])
def test_a_forged_acknowledgement_is_worth_nothing(tmp_path: Path, forged: list[int]) -> None:
    """RocketMQ answers PUT_OK: one connection that writes 2^50 is a replica to it."""
    with leading(tmp_path / "master", sync(slave_timeout=300)) as master:
        with WireSlave(master.port) as slave:
            slave.report(*forged)
            assert slave.is_closed()
        assert master.store.put_message(message()).status is LATE
        with WireSlave(master.port) as slave:
            answers: list[PutMessageResult] = []
            slave.report(0)
            slave.frame()
            thread = threading.Thread(target=lambda: answers.extend(one(master.store)))
            thread.start()
            slave.frame()
            slave.report(1 << 50)
            assert slave.is_closed()
            thread.join()
        assert [answer.status for answer in answers] == [LATE]


# ---- followers that come and go


def test_a_follower_that_comes_while_a_put_waits_is_in_time(tmp_path: Path) -> None:
    with leading(tmp_path / "master", sync(**PATIENT)) as master:
        answer = master.store.put_message_future(message())
        assert not answer.done()
        with acknowledging(master.port):
            assert answer.result(60).status is OK


def test_a_follower_that_is_cut_off_while_puts_go_on(tmp_path: Path) -> None:
    with leading(tmp_path / "master", sync(slave_timeout=200)) as master:
        with acknowledging(master.port) as slave:
            assert master.store.put_message(message()).status in {OK, LATE}
            slave.cut()
            statuses = {master.store.put_message(message()).status for _ in range(3)}
        assert LATE in statuses
        with acknowledging(master.port):
            until(lambda: master.store.put_message(message()).status is OK)


@pytest.mark.slow
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_many_threads_wait_each_for_its_own(tmp_path: Path, flush: FlushDiskType) -> None:
    config = sync(flush_disk_type=flush, **PATIENT)
    answers: list[PutMessageResult] = []
    seen: list[int] = []

    with leading(tmp_path / "master", config) as master, acknowledging(master.port) as slave:
        in_sync(master, 1)
        (link,) = master.feeder.followers.links()

        def put() -> None:
            for _ in range(40):
                result = master.store.put_message(message())
                assert result.appended is not None
                seen.append(link.acknowledged - result.phy_offset - result.appended.size)
                answers.append(result)

        threads = [threading.Thread(target=put) for _ in range(16)]
        run_threads(threads)
        assert slave.peer.fileno() >= 0
    assert {answer.status for answer in answers} == {OK}
    assert len(answers) == 640
    assert min(seen) >= 0  # none returned before it was acknowledged


def test_a_close_waits_for_no_follower_and_every_future_is_answered(tmp_path: Path) -> None:
    for flush in FlushDiskType:
        config = sync(flush_disk_type=flush, slave_timeout=3_600_000)
        began = time.monotonic()
        with leading(tmp_path / f"{flush}", config) as master:
            answers = [master.store.put_message_future(message()) for _ in range(20)]
        assert {answer.result(0).status for answer in answers} == {LATE}
        assert time.monotonic() - began < 100


def test_futures_are_answered_in_time_one_by_one(tmp_path: Path) -> None:
    with leading(tmp_path / "master", sync(slave_timeout=300)) as master:
        early = [master.store.put_message_future(message()) for _ in range(3)]
        assert [answer.result(60).status for answer in early] == [LATE] * 3
        with acknowledging(master.port):
            until(lambda: master.store.put_message_future(message()).result(60).status is OK)


def test_futures_that_a_follower_has_are_answered_by_one_wait(tmp_path: Path) -> None:
    class AtOnce(Followers):
        waits: ClassVar[list[int]] = []
        gate = threading.Event()

        def wait(self, phy_offset: int, followers: int, deadline: float) -> bool:
            self.waits.append(phy_offset)
            self.gate.wait(60)
            return super().wait(phy_offset, followers, deadline)

    followers = AtOnce()
    link = followers.join("a", 1)
    followers.begin(link, 0, 0)
    with MessageStore.open(tmp_path, sync(**PATIENT), replicas=followers) as store:
        answers = [store.put_message_future(message()) for _ in range(20)]
        ends = [0]
        for _ in answers:
            ends.append(ends[-1] + store.max_phy_offset() // 20)
        followers.acknowledge(link, ends[15])
        followers.gate.set()
        assert {answer.result(60).status for answer in answers[:15]} == {OK}
        assert not any(answer.done() for answer in answers[15:])
        followers.acknowledge(link, ends[20])
        assert {answer.result(60).status for answer in answers[15:]} == {OK}
    assert set(followers.waits) == {ends[1], ends[16]}


def test_a_put_waits_out_its_time_where_no_feeder_runs(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, sync(), replicas=Followers()) as store:
        assert store.put_message(message()).status is LATE
    with leading(tmp_path, sync()) as master:
        followers = master.feeder.followers
        with acknowledging(master.port):
            until(lambda: master.store.put_message(message()).status is OK)
    assert not followers.wait(0, 1, 0)  # those who have gone count no more


# ---- what is refused


def test_without_a_feeder_such_a_role_is_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(StoreConfigError, match="brokerRole=SYNC_MASTER promises replicas"):
        MessageStore.open(tmp_path, sync())
    with pytest.raises(StoreConfigError, match="inSyncReplicas=2 promises replicas"):
        MessageStore.open(tmp_path, StoreConfig(in_sync_replicas=2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"allAckInSyncStateSet": "true"},
         "allAckInSyncStateSet=true is not supported: without a controller"),
        ({"enableAutoInSyncReplicas": "true"},
         "enableAutoInSyncReplicas=true is not supported: whenever fewer"),
        ({"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 2},
         "inSyncReplicas=2: puts wait for replicas only under brokerRole=SYNC_MASTER"),
        ({"brokerRole": "ASYNC_MASTER", "minInSyncReplicas": 2},
         "minInSyncReplicas=2: puts wait for replicas only"),
    ],
)  # fmt: skip
def test_what_is_promised_and_not_kept_is_refused(
    tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    config = StoreConfig.from_mapping({"brokerRole": "SYNC_MASTER", **settings})
    with pytest.raises(StoreConfigError, match=words):
        MessageStore.open(tmp_path, config, replicas=Followers())
    assert list(tmp_path.iterdir()) == []
    auto = StoreConfig.from_mapping({"enableAutoInSyncReplicas": "true"})  # of no put
    MessageStore.open(tmp_path, auto, replicas=Followers()).close()


def test_a_put_that_waits_has_the_log_looked_at_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.replication.feed.append_notifier.LOOK_SECONDS", 3600)
    quiet = FeedSettings(ha_send_heartbeat_interval=3_600_000)
    with leading(tmp_path / "m", sync(**PATIENT), quiet) as master, acknowledging(master.port):
        in_sync(master, 1)
        for _ in range(3):
            assert master.store.put_message(message()).status is OK


def test_what_waits_in_memory_goes_to_the_file_for_who_waits_for_followers(tmp_path: Path) -> None:
    long = 1 << 30
    config = sync(
        transient_store_pool_enable=True, commit_interval_commit_log=long,
        commit_commit_log_thorough_interval=long, flush_interval_commit_log=long,
        flush_commit_log_thorough_interval=long, **PATIENT,
    )  # fmt: skip
    with leading(tmp_path / "m", config) as master, acknowledging(master.port):
        for way in (one, one_later, a_list):
            assert {result.status for result in way(master.store)} == {OK}


def test_heartbeats_answer_nothing(tmp_path: Path) -> None:
    with leading(tmp_path / "master", sync(), QUICK) as master, WireSlave(master.port) as slave:
        slave.report(0)
        for _ in range(3):
            slave.frame()
            slave.report(0)
        assert master.store.put_message(message()).status is LATE


def test_a_put_that_is_interrupted_while_it_waits_leaves_nothing(tmp_path: Path) -> None:
    """The message is stored; no caller waits for it any more."""

    class OutOfTimeError(Exception):
        pass

    def stop(_number: int, _frame: object) -> None:
        raise OutOfTimeError

    with leading(tmp_path / "master", sync(**PATIENT)) as master:
        followers = master.feeder.followers

        def interrupt() -> None:
            until(lambda: followers.waiting == 1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

        before = signal.signal(signal.SIGALRM, stop)
        try:
            for _ in range(5):
                other = threading.Thread(target=interrupt)
                other.start()
                with pytest.raises(OutOfTimeError):
                    master.store.put_message(message())
                other.join()
        finally:
            signal.signal(signal.SIGALRM, before)
        assert followers.waiting == 0
        with acknowledging(master.port):
            assert master.store.put_message(message()).status is OK
        assert master.store.max_offset("t", 0) == 6


def test_a_wait_that_is_cut_short_anywhere_lets_the_lock_go_and_is_forgotten() -> None:
    followers = Followers()
    link = followers.join("a", 1)
    followers.begin(link, 0, 0)

    def step() -> None:
        assert not followers.wait(10, 1, 0)

    places = run_interrupted(step)
    assert places > 1
    for number in range(1, places + 1):
        with pytest.raises(Interrupted):
            run_interrupted(step, number)
        assert followers.waiting == 0
    followers.acknowledge(link, 10)
    assert followers.wait(10, 1, 0)
