"""A master serves its log by frames, to those it should, and believes nothing that cannot be."""

import errno
import os
import resource
import socket
import struct
import time
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path

import pytest

from cqstore.replication.feed.connection import Allowance
from cqstore.replication.feed.feed_settings import FeedSettings
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.in_thread import feeding
from cqstore.replication.listening import peer_ip
from cqstore.store.errors import StoreIOError
from cqstore.store.record.message import Message
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import FlushDiskType
from tests.kit.descriptors import open_descriptors
from tests.kit.waiting import until
from tests.kit.wire_slave import WireSlave, acknowledging
from tests.replication.feed.conftest import CONFIG, QUICK, Master, leading


def joined(frames: list[tuple[int, bytes]]) -> bytes:
    """Return the bodies; each frame begins where the one before ended."""
    at = frames[0][0]
    for phy_offset, body in frames:
        assert phy_offset == at
        at += len(body)
    return b"".join(body for _, body in frames)


# ---- what is served


def test_who_has_nothing_gets_the_last_file(master: Master) -> None:
    begin = master.end - master.end % 4096
    assert begin >= 8192
    with WireSlave(master.port) as slave:
        slave.report(0)
        frames = slave.take(master.end)
    assert frames[0][0] == begin
    assert joined(frames) == master.log[begin:]
    requests = f": requested 0, sending the log from {begin}"
    assert any(sentence.endswith(requests) for sentence in master.reported)


@pytest.mark.parametrize("request_at", [1, 4096, 5001, 8191])
def test_others_get_exactly_what_they_ask_for_in_frames_of_one_file(
    master: Master, request_at: int
) -> None:
    with WireSlave(master.port) as slave:
        slave.report(request_at)
        frames = slave.take(master.end)
    assert frames[0][0] == request_at
    assert joined(frames) == master.log[request_at:]
    assert max(len(body) for _, body in frames) == 300
    assert all(at // 4096 == (at + len(body) - 1) // 4096 for at, body in frames)


def test_what_is_put_later_follows_and_nothing_is_a_heartbeat_at_the_next_place(
    master: Master,
) -> None:
    end = master.end
    with WireSlave(master.port) as slave:
        slave.report(end)
        assert [slave.frame() for _ in range(3)] == [(end, b"")] * 3
        master.put(30)
        assert joined(slave.take(master.end)) == master.log[end:]
        assert slave.frame() == (master.end, b"")


def test_an_empty_master_serves_from_its_first_byte_on(tmp_path: Path) -> None:
    with leading(tmp_path / "master") as master, WireSlave(master.port) as slave:
        slave.report(0)
        assert slave.frame() == (0, b"")
        master.put(3)
        assert joined(slave.take(master.end)) == master.log


def test_a_heartbeat_waits_for_its_time(tmp_path: Path) -> None:
    settings = FeedSettings(ha_send_heartbeat_interval=200)
    with leading(tmp_path / "m", settings=settings) as master, WireSlave(master.port) as slave:
        began = time.monotonic()
        slave.report(0)
        slave.frame()  # nothing was ever sent: at once
        slave.frame()
        assert time.monotonic() - began >= 0.19


def test_what_is_not_on_disk_is_served_to_nobody_under_sync_flush(tmp_path: Path) -> None:
    """A power cut takes it, and other records get its place: a slave would keep it for ever."""
    sync = CONFIG.model_copy(update={
        "flush_disk_type": FlushDiskType.SYNC_FLUSH, "flush_interval_commit_log": 1 << 30,
        "flush_commit_log_thorough_interval": 1 << 30, "flush_interval_consume_queue": 1 << 30,
    })  # fmt: skip
    with leading(tmp_path / "master", sync) as master, WireSlave(master.port) as slave:
        store = master.store
        assert store.put_message(Message("t", b"durable", 0)).ok
        durable = store.flushed_phy_offset()
        assert store.put_message(Message("t", b"not yet", 0, {"WAIT": "false"})).ok
        assert store.flushed_phy_offset() == durable < master.end
        slave.report(0)
        assert joined(slave.take(durable)) == master.log[:durable]
        assert [slave.frame() for _ in range(3)] == [(durable, b"")] * 3
        store.flush()
        assert joined(slave.take(master.end)) == master.log[durable:]


def test_what_waits_in_memory_is_served_when_the_file_has_it(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={
        "transient_store_pool_enable": True, "commit_interval_commit_log": 1 << 30,
        "commit_commit_log_thorough_interval": 1 << 30, "flush_interval_commit_log": 1 << 30,
        "flush_commit_log_thorough_interval": 1 << 30,
    })  # fmt: skip
    with leading(tmp_path / "master", config) as master, WireSlave(master.port) as slave:
        master.put(3)
        slave.report(0)
        assert [slave.frame() for _ in range(3)] == [(0, b"")] * 3
        components_of(master.store).log.commit()
        assert joined(slave.take(master.end)) == master.log
    settings = FeedSettings(ha_send_heartbeat_interval=(1 << 31) - 1)
    with leading(tmp_path / "master", config, settings) as master, WireSlave(master.port) as slave:
        there = master.end
        slave.report(there)
        slave.frame()
        master.put(1)
        with WireSlave(master.port) as another:  # no other waits meanwhile
            another.report(1)
            another.take(there)


def test_a_follower_that_lags_far_reads_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.replication.feed.served_log.NEAR_BYTES", 5000)
    with leading(tmp_path / "master", count=60) as master, WireSlave(master.port) as slave:
        slave.report(1)
        assert joined(slave.take(master.end)) == master.log[1:]


# ---- what is asked for that is not there


def test_who_asks_for_what_is_not_in_the_log_is_told_of_and_closed(master: Master) -> None:
    """RocketMQ sends heartbeats, and bytes that continue nothing once its log is as long."""
    master.store.delete_expired_files(4096)
    for request in (4095, 1, master.end + 1, 1 << 50):
        with WireSlave(master.port) as slave:
            slave.report(request)
            assert slave.is_closed()
        reported = (
            "127.0.0.1: the follower requested the log from"
            f" {request}, but this log is from 4096 to"
        )
        assert any(
            reported in sentence and str(master.end) in sentence for sentence in master.reported
        )


def test_a_follower_whose_next_file_expires_is_told_of_and_closed(tmp_path: Path) -> None:
    settings = QUICK.model_copy(update={
        "ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 600
    })  # fmt: skip
    with leading(tmp_path / "master", settings=settings, count=60) as master:
        with WireSlave(master.port) as slave:
            slave.report(1)
            slave.frame()
            master.store.delete_expired_files(8192)
            assert slave.is_closed()
        until(lambda: any("have expired and the log now begins at 8192" in reported
                          for reported in master.reported))  # fmt: skip


@pytest.mark.parametrize("first", [-1, -(1 << 63)])
def test_no_slave_asks_for_less_than_nothing(master: Master, first: int) -> None:
    with WireSlave(master.port) as slave:
        slave.report(first)
        assert slave.is_closed()
    until(
        lambda: any(
            f"expected 0 or more, found {first}" in reported for reported in master.reported
        )
    )


# ---- what is acknowledged that cannot be


@pytest.mark.parametrize("beyond", [1, (1 << 50), (1 << 62)])
def test_an_acknowledgement_beyond_what_was_sent_closes_the_connection(
    master: Master, beyond: int
) -> None:
    end = master.end
    with WireSlave(master.port) as slave:
        slave.report(end - 500)
        slave.take(end)
        slave.report(end)
        slave.report(end + beyond)
        assert slave.is_closed()
    said = f"acknowledged bytes that were not sent: expected at most {end}, found {end + beyond}"
    until(lambda: any(said in sentence for sentence in master.reported))


def test_an_acknowledgement_of_what_is_in_the_log_but_was_not_sent_is_refused(
    master: Master,
) -> None:
    begin, end = master.end - master.end % 4096, master.end
    with WireSlave(master.port) as slave:
        slave.report(0, end)  # at once: nothing was sent yet
        assert slave.is_closed()
    said = f"expected at most {begin}, found {end}"
    until(lambda: any(said in sentence for sentence in master.reported))


def test_an_acknowledgement_that_goes_back_closes_the_connection(master: Master) -> None:
    with WireSlave(master.port) as slave:
        slave.report(4096)
        slave.take(master.end)
        slave.report(9000)
        slave.report(8999)
        assert slave.is_closed()
    until(lambda: any("lower phy offset than before: expected 9000 or more, found 8999" in reported
                      for reported in master.reported))  # fmt: skip


def test_reports_that_come_glued_or_torn_are_read_one_by_one(master: Master) -> None:
    with WireSlave(master.port) as slave:
        for byte in struct.pack(">q", 5000):
            slave.say(bytes([byte]))
        slave.take(master.end)
        slave.report(5000, 5000, 6000, 7000, master.end)
        until(lambda: acknowledged(master) == [master.end])
        end = master.end
        slave.say(struct.pack(">q", end)[:5])  # torn, and no more
        master.put(1)
        assert b"".join(body for _, body in slave.take(master.end)) == master.log[end:]
        assert acknowledged(master) == [end]


def test_a_report_that_comes_in_parts_is_heard_whole_from_the_first_on(master: Master) -> None:
    """The loop hears the first one, a thread what comes behind it."""
    begin, end = struct.pack(">q", 1), struct.pack(">q", master.end)
    for cut in range(8):
        with WireSlave(master.port) as slave:
            slave.say(begin + end[:cut])
            slave.take(master.end)
            slave.say(end[cut:])
            until(lambda: acknowledged(master) == [master.end])
        until(lambda: not master.feeder.followers.links())


# ---- who says or takes nothing


def test_who_says_nothing_is_closed_and_a_thousand_leave_nothing(tmp_path: Path) -> None:
    """A port scan cost a broker its memory within weeks: #8876."""
    settings = FeedSettings(ha_housekeeping_interval=100)
    with leading(tmp_path / "master", settings=settings) as master:
        before = open_descriptors()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        for _ in range(0, 1000, 100):
            peers = [socket.create_connection(("127.0.0.1", master.port)) for _ in range(100)]
            assert len(peers) + before < soft
            for peer in peers:
                peer.settimeout(30)
                assert peer.recv(1) == b""
                peer.close()
        until(lambda: open_descriptors() <= before and not master.feeder.followers.links())
        assert any("nothing received for 0.1 s" in reported for reported in master.reported)

        def is_served() -> bool:
            """Not where it is held up for a tenth of a second itself."""
            with suppress(ConnectionError), WireSlave(master.port) as slave:
                slave.report(0)
                return slave.frame() == (0, b"")
            return False

        until(is_served)


def test_sixty_four_are_served_and_no_more(tmp_path: Path) -> None:
    with leading(tmp_path / "master") as master:
        peers = [socket.create_connection(("127.0.0.1", master.port)) for _ in range(65)]
        peers[-1].settimeout(30)
        assert peers[-1].recv(1) == b""
        assert len(master.feeder.followers.links()) == 64
        assert "127.0.0.1: refused: the limit of 64 connections is reached" in master.reported
        for peer in peers:
            peer.close()
        until(lambda: not master.feeder.followers.links())


@pytest.mark.parametrize("said", [b"", b"\0" * 7])
def test_who_has_begun_and_says_no_more_is_closed(tmp_path: Path, said: bytes) -> None:
    with leading(
        tmp_path / "master", settings=FeedSettings(ha_housekeeping_interval=100)
    ) as master:

        def is_closed_and_reported() -> bool:
            """Not where it is held up itself, before it has begun."""
            with suppress(ConnectionError), WireSlave(master.port) as slave:
                slave.report(0)
                slave.say(said)
                assert slave.is_closed()
            until(lambda: not master.feeder.followers.links())
            return any(
                "disconnected at 0: nothing received for 0.1 s" in reported
                for reported in master.reported
            )

        until(is_closed_and_reported)


def test_half_a_report_is_none(tmp_path: Path) -> None:
    with leading(
        tmp_path / "master", settings=FeedSettings(ha_housekeeping_interval=100)
    ) as master:
        with WireSlave(master.port) as slave:
            slave.say(b"\0" * 7)
            assert slave.is_closed()
        assert [link for link in master.feeder.followers.links() if link.position >= 0] == []


LARGE_FILES = CONFIG.model_copy(update={"mapped_file_size_commit_log": 1 << 20})


@pytest.mark.slow
def test_who_takes_nothing_holds_up_no_put_and_no_other(tmp_path: Path) -> None:
    with (
        leading(tmp_path / "master", LARGE_FILES, FeedSettings()) as master,
        WireSlave(master.port) as slow,
        WireSlave(master.port, "127.0.0.2") as quick,
    ):
        slow.report(0)
        slow.frame()
        quick.report(0)
        quick.frame()  # it begins at 0: a report that comes later begins with the last file
        master.put(400, 60_000)
        assert joined(quick.take(master.end)) == master.log
        links = {link.address: link for link in master.feeder.followers.links()}
        sent = links["127.0.0.1"].sent
        assert sent < master.end // 2  # what the kernel's buffers take, and a turn


@pytest.mark.slow
def test_who_takes_nothing_is_closed_and_who_reports_is_kept(tmp_path: Path) -> None:
    settings = FeedSettings(ha_housekeeping_interval=3000, ha_send_heartbeat_interval=50)
    with leading(tmp_path / "master", LARGE_FILES, settings) as master:
        with (
            WireSlave(master.port) as slow,
            acknowledging(master.port, "127.0.0.2") as quick,
        ):
            slow.report(0)
            slow.frame()
            master.put(400, 60_000)
            until(lambda: addresses(master) == {"127.0.0.2"})
            until(lambda: acknowledged(master) == [master.end])
            assert quick.peer.fileno() >= 0
        assert any("nothing received for 3 s" in reported or "accepted nothing for 3 s" in reported
                   for reported in master.reported)  # fmt: skip


def acknowledged(master: Master) -> list[int]:
    return [link.acknowledged for link in master.feeder.followers.links()]


def addresses(master: Master) -> set[str]:
    return {link.address for link in master.feeder.followers.links()}


# ---- flow control


def test_flow_control_counts_what_a_second_brings() -> None:
    settings = FeedSettings(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=1000)
    allowance = Allowance(settings)
    assert allowance.remaining(10.0) == 1000
    allowance.consume(400)
    assert allowance.remaining(10.5) == 600
    allowance.consume(700)
    assert allowance.remaining(10.9) == 0
    assert allowance.seconds_left(10.9) == pytest.approx(0.1)
    assert allowance.remaining(11.0) == 1000
    assert Allowance(FeedSettings(max_ha_transfer_byte_in_second=1)).remaining(0.0) > 1 << 40


def test_flow_control_sends_no_more_than_it_may(tmp_path: Path) -> None:
    settings = QUICK.model_copy(update={
        "ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 4000,
        "ha_send_heartbeat_interval": 5000,
    })  # fmt: skip
    with (
        leading(tmp_path / "master", settings=settings, count=60) as master,
        WireSlave(master.port) as slave,
    ):
        began = time.monotonic()
        slave.report(1)
        frames = slave.take(master.end)
        taken = time.monotonic() - began
    assert joined(frames) == master.log[1:]
    size = sum(12 + len(body) for _, body in frames)
    assert taken >= size // 4000 - 1  # the first window's bytes come at once
    assert size > 12_000


# ---- who may follow


def test_who_is_in_no_allowed_network_gets_not_a_byte(tmp_path: Path) -> None:
    networks = [ip_network("127.0.0.2/32"), ip_network("10.0.0.0/8")]
    with leading(tmp_path / "master", count=3, allow=networks) as master:
        with WireSlave(master.port) as slave:
            assert slave.is_closed()
        assert any(
            "127.0.0.1: refused: the address is not in an allowed network" in reported
            for reported in master.reported
        )
        with WireSlave(master.port, "127.0.0.2") as slave:
            slave.report(0)
            assert joined(slave.take(master.end)) == master.log


def test_no_more_connections_are_served_than_may_be(tmp_path: Path) -> None:
    with leading(tmp_path / "master", max_connections=2) as master:
        with WireSlave(master.port) as first, WireSlave(master.port) as second:
            first.report(0)
            second.report(0)
            assert first.frame() == second.frame() == (0, b"")
            with WireSlave(master.port) as third:
                assert third.is_closed()
            assert "127.0.0.1: refused: the limit of 2 connections is reached" in master.reported
        until(lambda: not master.feeder.followers.links())
        with WireSlave(master.port) as slave:
            slave.report(0)
            assert slave.frame() == (0, b"")


def test_who_finds_no_descriptor_left_is_taken_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refusals = socket.socket.accept, [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    def refusing(listener: socket.socket) -> tuple[socket.socket, object]:
        if refusals:
            raise refusals.pop()
        return accept(listener)

    monkeypatch.setattr("cqstore.replication.feed.feeder._NO_ROOM_SECONDS", 0.01)
    monkeypatch.setattr(socket.socket, "accept", refusing)
    with leading(tmp_path / "master", count=3) as master, WireSlave(master.port) as slave:
        slave.report(0)
        assert joined(slave.take(master.end)) == master.log
    assert "cannot accept a connection: Too many open files" in master.reported


def test_a_port_that_is_taken_is_an_error_that_names_it(master: Master) -> None:
    taken = Feeder(master.store, port=master.port)
    words = f"cannot listen on 127.0.0.1:{master.port}"
    with pytest.raises(StoreIOError, match=words), feeding(taken):
        raise AssertionError


def test_ipv6_is_served_and_ipv4_over_it_has_its_own_address(tmp_path: Path) -> None:
    with (
        leading(tmp_path / "master", count=2, host="::1") as master,
        socket.create_connection(("::1", master.port), timeout=30) as peer,
    ):
        peer.sendall(struct.pack(">q", 0))
        assert peer.recv(12)[:8] == struct.pack(">q", 0)
        assert [link.address for link in master.feeder.followers.links()] == ["::1"]
        assert str(peer_ip("::ffff:10.0.0.7")) == "10.0.0.7"
        assert str(peer_ip("fe80::1%eth0")) == "fe80::1"


def test_a_feeder_that_ends_closes_every_connection(tmp_path: Path) -> None:
    before = open_descriptors()
    with leading(tmp_path / "master", count=60) as master:
        slaves = [WireSlave(master.port) for _ in range(10)]
        for slave in slaves[:5]:
            slave.report(0)
            slave.frame()
    for slave in slaves:
        assert slave.is_closed()
        slave.peer.close()
    until(lambda: open_descriptors() <= before)


def test_a_put_answers_as_ever_where_nobody_waits_for_followers(master: Master) -> None:
    assert master.store.put_message(Message("t", b"x", 0)).status is PutMessageStatus.PUT_OK
