"""What a connection brings continues the log, or nothing of it goes in; however it is cut."""

import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cqstore.replication.errors import DivergedError, WireError
from cqstore.replication.follow.log_receiver import LogReceiver
from cqstore.replication.wire import FrameParser
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.log_bytes import log_of, pieces
from tests.kit.served import served
from tests.kit.wire_master import frame
from tests.replication.conftest import CONFIG, Led

FRESH = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def frames(log: bytes, begin: int = 0, first: int = 0, batch: int = 300) -> bytes:
    """Return ``log``, which begins at ``first``, from ``begin`` on in frames of a file each."""
    sent, at, end = b"", begin, first + len(log)
    while at < end:
        size = min(batch, end - at, 4096 - at % 4096)
        sent += frame(at, log[at - first : at - first + size])
        at += size
    return sent


@dataclass(frozen=True)
class Outcome:
    """What a stream came to."""

    log: bytes
    error: str


def feed(store: MessageStore, parts: Iterable[bytes]) -> LogReceiver:
    """Give a new connection's bytes to ``store``."""
    receiver, parser = LogReceiver(store), FrameParser()
    for part in parts:
        receiver.receive(parser.feed(part))
    return receiver


def outcome(root: Path, parts: Iterable[bytes], config: StoreConfig = CONFIG) -> Outcome:
    """Feed a new store, or one that is there; it must be whole afterwards."""
    error = ""
    with MessageStore.open(root, config) as store:
        try:
            feed(store, parts)
        except (DivergedError, WireError) as exc:
            error = str(exc)
    with MessageStore.open(root, config) as store:
        assert not store.report.needed
        assert [finding for finding in store.check() if finding.damage] == []
        return Outcome(log_of(store) if store.max_phy_offset() else b"", error)


def half(led: Led, root: Path, end: int) -> Path:
    """Make a store that has the records of the log before ``end``."""
    with MessageStore.open(root, CONFIG) as store:
        assert store.append_to_commit_log(0, led.log[:end]) == end
    return root


def test_a_new_log_asks_for_0_and_takes_all(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        receiver = feed(store, pieces(frames(led.log), 500))
        assert (receiver.request, receiver.is_verified) == (0, True)
        assert log_of(store) == led.log
    assert served(tmp_path / "own") == served(led.root)


def test_a_new_log_begins_where_the_master_begins(led: Led, tmp_path: Path) -> None:
    found = outcome(tmp_path / "own", [frames(led.log, 8192)])
    assert found == Outcome(led.log[8192:], "")
    sent = frames(led.log, 8192, batch=9)  # no record is whole for a while
    assert outcome(tmp_path / "slow", pieces(sent, 11)) == found


@pytest.mark.parametrize("seed", range(30))
def test_cuts_and_a_wrong_byte_come_to_the_same(led: Led, tmp_path: Path, seed: int) -> None:
    """A wrong byte may be in a head or a body; what is whole before it goes in however it comes."""
    draw = random.Random(seed)
    sent = bytearray(frames(led.log[:7000], batch=draw.randint(20, 3000)))
    if seed % 4:
        sent[draw.randrange(len(sent))] ^= 1 << draw.randrange(8)
    whole = outcome(tmp_path / "whole", [bytes(sent)])
    parts = pieces(bytes(sent), draw.randint(1, 2000), seed)
    assert outcome(tmp_path / "cut", parts) == whole
    wrong = sum(byte != there for byte, there in zip(whole.log, led.log, strict=False))
    assert wrong <= 1  # no checksum covers every byte of a record
    assert whole.error or len(whole.log) == max(at for at in led.starts if at <= 7000)


def test_the_last_bytes_are_asked_for_again_and_never_from_0(led: Led, tmp_path: Path) -> None:
    root = half(led, tmp_path / "own", led.starts[30])
    with MessageStore.open(root, CONFIG) as store:
        assert LogReceiver(store).request == 1  # 0 would mean: begin with your last file
        receiver = LogReceiver(store, 400)
        assert (receiver.request, receiver.is_verified) == (led.starts[30] - 400, False)
        for sent in (frames(led.log[: led.starts[30]], 1), frame(1, led.log[1 : led.starts[30]])):
            receiver = feed(store, [sent])  # also where a frame goes on into the next file
            assert (receiver.is_verified, receiver.heartbeats) == (True, 0)
        assert store.min_phy_offset() + 4096 < led.starts[30]
        rest = led.log[led.starts[30] : led.starts[31]]
        receiver.receive(
            FrameParser().feed(frame(led.starts[30]) + frame(led.starts[30], rest[:9]))
        )
        assert (receiver.heartbeats, receiver.is_torn) == (
            0,
            True,
        )  # those before the last byte say nothing
        receiver.receive(
            FrameParser().feed(frame(led.starts[30] + 9, rest[9:]) + frame(led.starts[31]))
        )
        assert (receiver.heartbeats, receiver.is_torn) == (1, False)
        assert LogReceiver(store, 1).request == led.starts[30]


def test_going_on_takes_what_follows(led: Led, tmp_path: Path) -> None:
    root = half(led, tmp_path / "own", led.starts[60])
    assert outcome(root, pieces(frames(led.log, 1), 700)) == Outcome(led.log, "")


def test_a_log_that_is_longer_than_the_masters_is_kept_and_both_ends_are_named(
    led: Led, tmp_path: Path
) -> None:
    own, other = led.starts[60], led.starts[50]
    with MessageStore.open(half(led, tmp_path / "own", own), CONFIG) as store:
        receiver = feed(store, [frames(led.log[:other], 1), frame(other)])
        assert (receiver.is_verified, receiver.heartbeats) == (False, 1)
        assert f"ends at {own}, but the master's ends at {other};" in str(receiver.divergence(None))
        for last_file, words in {
            None: "no byte at 1: its log ends before it, or begins after it;",
            range(1): "the master's ends at 1;",
            range(2, 9): "no longer has offset 1: its last file begins at 2, its log ends at 9;",
            range(2): "no byte at 1: its log ends before it, or begins after it;",  # it has grown
        }.items():
            receiver = feed(store, [frame(1)])
            error = str(receiver.divergence(last_file))
            assert f"this log ends at {own}, " in error
            assert words in error
        assert log_of(store) == led.log[:own]


def test_another_log_of_the_same_length_is_told_at_its_first_byte(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "other", CONFIG) as store:
        while store.max_phy_offset() < len(led.log):
            assert store.put_message(Message("t", b"other", 0)).ok
        other = log_of(store)
    own = led.starts[60]
    same = next(at for at, byte in enumerate(other[1:], 1) if byte != led.log[at])
    found = outcome(half(led, tmp_path / "own", own), [frames(other, 1)])
    assert found.log == led.log[:own]
    assert f"ends at {own}" in found.error
    assert f"phy_offset {same}" in found.error
    assert f"expected byte {led.log[same]:#04x}, found byte {other[same]:#04x}" in found.error


@pytest.mark.parametrize("rolled", [False, True])
def test_a_last_record_is_compared_from_its_head_on(tmp_path: Path, *, rolled: bool) -> None:
    """Two logs may end alike: with a long body, or with what is blank behind it in a full file."""
    logs, last, end = [], 0, 0
    for number in (1, 2):
        with MessageStore.open(tmp_path / f"master{number}", CONFIG) as store:
            for size in (500, 500, 2000, 2000):
                assert store.put_message(Message("t", bytes(size), 0, born_timestamp=number)).ok
            first, second, last, *_ = (
                record.phy_offset for record in components_of(store).log.scan(0)
            )
            end = last + second - first + 1500
            logs.append(log_of(store)[: 4096 if rolled else end])
    own, other = logs
    assert own[-600:] == other[-600:]
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        assert store.append_to_commit_log(0, own) == len(own)
        receiver = LogReceiver(store, 100)
        assert receiver.request == last
        with pytest.raises(DivergedError, match="differs from this log"):
            receiver.receive(FrameParser().feed(frame(receiver.request, other[receiver.request :])))


@pytest.mark.parametrize("where", [-301, -1, 1, 300])
def test_a_frame_that_does_not_follow_is_refused_with_both_offsets(
    led: Led, tmp_path: Path, where: int
) -> None:
    """Behind a record's torn end, too: 600 is inside the sixth."""
    found = outcome(tmp_path / "own", [frames(led.log[:600]), frame(600 + where, led.log[600:700])])
    end = max(start for start in led.starts if start <= 600)
    assert found.log == led.log[:end]
    assert f"ends at {end}" in found.error
    assert f"expected bytes from 600, found bytes from {600 + where}" in found.error
    beat = outcome(tmp_path / "beat", [frames(led.log[:600]), frame(600 + where)])
    assert beat == found


def test_bytes_that_are_no_record_are_refused_and_those_before_are_kept(
    led: Led, tmp_path: Path
) -> None:
    bad, start = bytearray(led.log), led.starts[12]
    bad[start + 5] ^= 1
    found = outcome(tmp_path / "own", [frames(bytes(bad))])
    assert found.log == led.log[:start]
    assert f"phy_offset {start}" in found.error
    assert f"This log ends at {start}" in found.error
    assert "expected magic 0xdaa320a7 or 0xdaa320ab, found 0xda" in found.error


@pytest.mark.parametrize("size", [2048, 8192, 3000])
def test_another_size_of_log_files_is_found_out_at_the_first_roll(
    led: Led, tmp_path: Path, size: int
) -> None:
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": size})
    found = outcome(tmp_path / "own", [frames(led.log)], config)
    assert len(found.log) <= 4096
    assert led.log.startswith(found.log)
    assert f"mappedFileSizeCommitLog is not {size}, set it here" in found.error


def test_a_last_file_that_begins_inside_one_of_ours_is_refused(led: Led, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"mapped_file_size_commit_log": 8192})
    found = outcome(tmp_path / "own", [frames(led.log, 4096)], config)
    assert found.log == b""
    assert "mappedFileSizeCommitLog" in found.error
    assert "a multiple of 8192, found 4096" in found.error


@pytest.mark.disk
def test_a_record_of_a_forged_size_asks_for_no_memory(led: Led, tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 30, max_message_size=1000)
    most = (1 << 20) + (64 << 10) + 8
    forged = (most + 1).to_bytes(4, "big") + led.log[4:8]
    found = outcome(tmp_path / "own", [frame(0, led.log[: led.starts[1]] + forged)], config)
    assert found.log == led.log[: led.starts[1]]
    assert "maxMessageSize" in found.error
    assert f"expected at most {most} bytes, found {most + 1} bytes" in found.error


def test_the_longest_record_that_there_may_be_waits_for_its_end(tmp_path: Path) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 24, max_message_size=3 << 20)
    with MessageStore.open(tmp_path / "led", config) as store:
        assert store.put_message(Message("t", b"x" * (3 << 20), 0, {"k": "v" * 20_000})).ok
        log = log_of(store)
    with MessageStore.open(tmp_path / "own", config) as store:
        receiver, parser = LogReceiver(store), FrameParser()
        for at in range(0, len(log), 1 << 20):
            assert store.max_phy_offset() == 0
            receiver.receive(parser.feed(frame(at, log[at : at + (1 << 20)])))
        assert log_of(store) == log


def spoilt(good: bytes, draw: random.Random) -> bytes:
    """Return ``good`` with some bytes changed, put in, or left out."""
    sent = bytearray(good)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(sent))
        sent[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 9))
    return bytes(sent)


@pytest.mark.long
def test_ten_thousand_spoilt_streams_leave_whole_stores(led: Led, tmp_path: Path) -> None:
    """Each goes on where the last one ended; what is refused is refused by our errors alone."""
    draw, streams, refused = random.Random(3), 0, 0
    while streams < 10_000:
        root = tmp_path / str(streams)
        with MessageStore.open(root, CONFIG) as store:
            end = store.append_to_commit_log(0, led.log[: led.starts[8]])
            while end < led.starts[60]:
                streams += 1
                receiver, parser = LogReceiver(store, 200), FrameParser()
                good = frames(led.log, receiver.request, batch=draw.randint(1, 900))[:3000]
                parts = pieces(spoilt(good, draw), draw.randint(1, 3000), streams)
                try:
                    for part in parts:
                        receiver.receive(parser.feed(part))
                        assert len(receiver._rest) <= len(good) + 40
                except (DivergedError, WireError):
                    refused += 1
                before, end = end, store.max_phy_offset()
                if log_of(store) != led.log[:end]:
                    break  # no checksum covers every byte: from here on it is another log
                assert end >= before
        with MessageStore.open(root, CONFIG) as store:
            assert not store.report.needed
            assert [finding for finding in store.check() if finding.damage] == []
        shutil.rmtree(root)
    assert refused > 8_000


@FRESH
@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_bytes_are_taken_or_refused_and_leave_a_whole_store(
    led: Led, tmp_path_factory: pytest.TempPathFactory, body: bytes, raw: bytes
) -> None:
    root = tmp_path_factory.mktemp("own")
    found = outcome(root / "own", [frames(led.log[:500]), frame(500, body), raw])
    assert found.log == led.log[: len(found.log)]
    shutil.rmtree(root)
