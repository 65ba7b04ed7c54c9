"""A store follows a master under a controller: epochs, cuts, and what no master sends."""

import random
import shutil
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

import pytest

from cqstore.replication.errors import BeyondEpochError, DivergedError, WireError
from cqstore.replication.follow.epoch_protocol import Learner
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress, Timing, Until
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from tests.kit.epoch_master import EpochMaster, answer, frame
from tests.kit.log_bytes import log_of
from tests.kit.served import served
from tests.kit.waiting import run
from tests.kit.wire_master import WireMaster
from tests.replication.conftest import CONFIG, Led
from tests.replication.follow.test_follower import ENDED, FAST, caught_up

LEARNER = CONFIG.as_learner()
ID = 77
Epochs = list[tuple[int, int]]


def follow(
    root: Path,
    master: EpochMaster | WireMaster,
    until: Until = caught_up,
    *,
    backend: str | None = None,
    on_event: Callable[[str], object] = len,
    last_file: bool = False,
    aside: Callable[[EpochMaster], None] | None = None,
    then: Until = caught_up,
    tail: int = 300,
    timing: Timing = FAST,
) -> FollowerProgress:
    """Follow ``master`` into ``root`` until ``until`` says so; after ``aside`` until ``then``."""

    async def story() -> FollowerProgress:
        with MessageStore.open(root, LEARNER, backend=backend, housekeeping=False) as store:
            async with master:
                follower = Follower(
                    store, "127.0.0.1", master.port, timing=timing, verify_tail_bytes=tail,
                    learner=Learner(ID, last_file), on_event=on_event,
                )  # fmt: skip
                stage = list[int]()

                def enough(progress: FollowerProgress) -> bool:
                    if aside is not None and not stage and until(progress):
                        assert isinstance(master, EpochMaster)
                        aside(master)
                        stage.append(1)
                        progress.caught_up = False
                        return False
                    if stage:  # a heartbeat from before ``aside`` may have come behind it
                        return then(progress) and progress.end == master.end
                    return until(progress)

                await follower.run(enough)
                return follower.progress

    return run(story())


def log_in(root: Path) -> bytes:
    if not any(root.glob("commitlog/*")):
        return b""
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        return log_of(store) if store.max_phy_offset() else b""


def epochs_in(root: Path) -> list[str]:
    return (root / "epochFileCheckpoint").read_text().split()[2:]


def put_back(root: Path, led: Led, end: int, epochs: Epochs) -> None:
    """Make a learner's store with that begin of the log, and these epochs."""
    with MessageStore.open(root, LEARNER, housekeeping=False) as store:
        store.append_to_commit_log(0, led.log[:end])
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs)
    if epochs:
        (root / "epochFileCheckpoint").write_text(f"{len(epochs)}\n0\n{lines}")


def of(led: Led) -> Epochs:
    return [(1, 0), (2, led.starts[30]), (5, led.starts[60])]


@pytest.mark.parametrize("backend", backend_names())
def test_a_whole_log_is_followed_through_cuts_at_any_byte(
    led: Led, tmp_path: Path, backend: str
) -> None:
    draw, own, reported = random.Random(7), tmp_path / "own", list[str]()
    cuts = [5, 19, 30, *(draw.randint(60, 3000) for _ in range(37))]
    master = EpochMaster(led.log, of(led), cuts=cuts)
    progress = follow(own, master, backend=backend, on_event=reported.append)
    assert (progress.end, log_in(own)) == (len(led.log), led.log)
    assert served(own) == served(led.root)
    assert epochs_in(own) == [f"{epoch}-{start}" for epoch, start in of(led)]
    assert {*master.hellos} == {(1, 0, 1, ID)}
    assert progress.connections == 41
    assert any(
        "no epochs received: is this the haListenPort of a master under" in line
        for line in reported
    )


def test_a_learner_acknowledges_nothing(led: Led, tmp_path: Path) -> None:
    """RocketMQ counts the acknowledgement of any connection for ``inSyncReplicas``."""
    own = tmp_path / "own"
    put_back(own, led, led.starts[40], of(led)[:2])
    master = EpochMaster(led.log[: led.starts[50]], of(led)[:2])
    rest = led.log[led.starts[50] :]
    follow(own, master, aside=lambda it: it.append(rest))
    assert log_in(own) == led.log
    assert len({*master.reports}) == 1
    assert max(master.reports) <= led.starts[40] - 300


def test_an_empty_log_begins_with_the_last_file_where_that_is_asked_for(
    led: Led, tmp_path: Path
) -> None:
    begin = len(led.log) - len(led.log) % 4096
    master = EpochMaster(led.log, of(led))
    follow(tmp_path / "own", master, last_file=True)
    assert log_in(tmp_path / "own") == led.log[begin:]
    assert master.hellos[0] == (1, 1, 1, ID)
    assert epochs_in(tmp_path / "own") == [f"5-{led.starts[60]}"]


@pytest.mark.parametrize("heartbeats", [False, True])
def test_an_epoch_that_begins_in_mid_stream_is_noted(
    led: Led, tmp_path: Path, *, heartbeats: bool
) -> None:
    own, at = tmp_path / "own", led.starts[60]
    rest = b"" if heartbeats else led.log[at:]
    master, noted = EpochMaster(led.log[:at], of(led)[:2]), list[bool]()

    def grow(it: EpochMaster) -> None:
        noted.append(f"5-{at}" in epochs_in(own))
        it.append(rest, epoch=5)

    follow(own, master, aside=grow, then=lambda it: it.caught_up and f"5-{at}" in epochs_in(own))
    assert noted == [False]
    assert epochs_in(own)[-1] == f"5-{at}"
    assert (own / "epochFileCheckpoint.bak").read_text().split()[2:] == epochs_in(own)[:-1]
    assert log_in(own) == led.log[: at + len(rest)]


def test_a_master_without_a_log_is_followed_from_its_first_byte_on(
    led: Led, tmp_path: Path
) -> None:
    follow(tmp_path / "own", EpochMaster(b"", [(1, 0)]), aside=lambda it: it.append(led.log))
    assert log_in(tmp_path / "own") == led.log


def test_who_goes_on_compares_epochs_and_the_last_bytes(led: Led, tmp_path: Path) -> None:
    own, end = tmp_path / "own", led.starts[40]
    put_back(own, led, end, of(led)[:2])
    other = bytearray(led.log)
    other[led.starts[39] + 60] ^= 1
    with pytest.raises(DivergedError, match="the master's log differs from this log"):
        follow(own, EpochMaster(bytes(other), of(led)))
    assert log_in(own) == led.log[:end]
    follow(own, EpochMaster(led.log, of(led)))
    assert log_in(own) == led.log


def test_a_log_without_epochs_takes_the_masters_once_its_bytes_are_proven(
    led: Led, tmp_path: Path
) -> None:
    own, end = tmp_path / "own", led.starts[45]
    put_back(own, led, end, [])
    other = bytearray(led.log)
    other[led.starts[44] + 60] ^= 1
    with pytest.raises(DivergedError):
        follow(own, EpochMaster(bytes(other), of(led)))
    assert not (own / "epochFileCheckpoint").exists()
    with pytest.raises(DivergedError, match=f"an end from 0 to {end - 1}, found {end}"):
        follow(own, EpochMaster(led.log[: end - 1], [(1, 0)]))
    with pytest.raises(DivergedError, match=f"an end from {end + 1} to"):
        follow(own, EpochMaster(led.log, [(1, end + 1)]))
    assert not (own / "epochFileCheckpoint").exists()
    follow(own, EpochMaster(led.log[:end], of(led)[:2]))
    assert epochs_in(own) == ["1-0", f"2-{led.starts[30]}"]
    follow(own, EpochMaster(led.log, of(led)))
    assert epochs_in(own) == [f"{epoch}-{start}" for epoch, start in of(led)]
    assert log_in(own) == led.log


@pytest.mark.parametrize(
    ("records", "own_epochs", "kept"),
    [
        (30, [(1, 0), (2, 30)], [(1, 0), (2, 30)]),  # the last one has no byte yet
        (30, [(1, 0), (3, 30)], [(1, 0)]),  # of a reign without a record
        (20, [(1, 0), (3, 30)], [(1, 0)]),  # a power cut took its bytes
    ],
)
def test_epochs_without_a_byte_do_not_part_logs(
    led: Led, tmp_path: Path, records: int, own_epochs: Epochs, kept: Epochs
) -> None:
    own = tmp_path / "own"
    end = led.starts[records]
    put_back(own, led, end, [(epoch, led.starts[start]) for epoch, start in own_epochs])
    follow(own, EpochMaster(led.log[:end], [(1, 0), (2, led.starts[30])][: 1 + (records == 30)]))
    wanted = [f"{epoch}-{led.starts[start]}" for epoch, start in kept]
    assert epochs_in(own)[: len(wanted)] == wanted
    assert "3-" not in "".join(epochs_in(own))
    follow(own, EpochMaster(led.log, of(led)))
    assert log_in(own) == led.log
    assert epochs_in(own) == [f"{epoch}-{start}" for epoch, start in of(led)]


# ---- what is refused


def refused(root: Path, master: EpochMaster, error: type[Exception] = DivergedError) -> str:
    """Return why ``master`` is not followed; nothing may have changed but what an opening does."""
    before = log_in(root)
    with pytest.raises(error) as caught:
        follow(root, master, timing=ENDED)
    assert log_in(root) == before
    return str(caught.value)


def test_a_longer_log_is_refused_with_both_ends(led: Led, tmp_path: Path) -> None:
    own, end = tmp_path / "own", led.starts[50]
    put_back(own, led, end, of(led)[:2])
    at = led.starts[40]
    why = refused(own, EpochMaster(led.log[:at], of(led)[:2]), BeyondEpochError)
    assert (
        f"this log ends at {end}, the master's at {at}, but they are equal only up to {at}" in why
    )
    assert "in epoch 2; nothing was removed. Use --truncate" in why
    longer = EpochMaster(led.log, [*of(led)[:2], (3, at)])  # as long, but in another epoch
    why = refused(own, longer, BeyondEpochError)
    assert f"the master's at {len(led.log)}, but they are equal only up to {at}, in epoch 2" in why
    assert epochs_in(own) == ["1-0", f"2-{led.starts[30]}"]
    assert longer.reports == []  # a master takes the number for an acknowledgement


def test_logs_without_a_common_epoch_are_refused_with_both_lists(led: Led, tmp_path: Path) -> None:
    own, end = tmp_path / "own", led.starts[50]
    put_back(own, led, end, of(led)[:2])
    why = refused(own, EpochMaster(led.log, [(2, 0), (3, led.starts[40])]))
    assert f"expected one of the epochs 2 from 0, 3 from {led.starts[40]}" in why
    assert f"found 1 from 0, 2 from {led.starts[30]}" in why
    many = [(10 + number, number) for number in range(12)]
    assert "expected one of the epochs 4 older ones, 14 from 4" in refused(
        own, EpochMaster(led.log, many)
    )


def test_a_master_that_lost_bytes_that_are_wanted_is_told(led: Led, tmp_path: Path) -> None:
    own = tmp_path / "own"
    put_back(own, led, led.starts[20], of(led)[:1])
    begin = 8192
    master = EpochMaster(led.log[begin:], of(led), begin=begin)
    why = refused(own, master)
    assert "the master does not send its bytes from" in why
    assert f"its log ends at {len(led.log)}" in why


def test_an_epoch_that_a_heartbeat_names_for_lost_bytes_is_not_noted(
    led: Led, tmp_path: Path
) -> None:
    """RocketMQ names the first epoch that it still has."""
    own = tmp_path / "own"
    put_back(own, led, led.starts[20], of(led)[:1])
    beat = frame(led.starts[19], (2, led.starts[30]))
    master = EpochMaster(led.log, of(led), behind=beat, cuts=repeat(len(answer(of(led), 0)) + 36))
    follow(own, master, lambda progress: progress.connections > 1, tail=1)
    assert set(master.reports) == {led.starts[19]}
    assert epochs_in(own) == ["1-0"]
    assert not (own / "epochFileCheckpoint.bak").exists()


def test_an_epoch_inside_a_record_is_refused(led: Led, tmp_path: Path) -> None:
    at = led.starts[30] + 5
    with pytest.raises(DivergedError, match="epoch 2 begins inside a record") as caught:
        follow(tmp_path / "own", EpochMaster(led.log, [(1, 0), (2, at)]))
    assert caught.value.phy_offset == at
    assert log_in(tmp_path / "own") == led.log[: led.starts[30]]


def test_a_damaged_file_of_epochs_is_refused(led: Led, tmp_path: Path) -> None:
    own = tmp_path / "own"
    put_back(own, led, led.starts[20], of(led)[:1])
    (own / "epochFileCheckpoint").write_text("2\n0\n1-0\n")
    assert "wrong number of epochs" in refused(own, EpochMaster(led.log, of(led)), CorruptionError)


def test_masters_of_the_other_wire_are_told(led: Led, tmp_path: Path) -> None:
    with pytest.raises(WireError, match="Any other is followed without --controller"):
        follow(tmp_path / "own", WireMaster(led.log))


def test_a_master_that_is_none_yet_is_asked_again(led: Led, tmp_path: Path) -> None:
    reported, master = list[str](), EpochMaster(led.log, [])

    def on_event(sentence: str) -> None:
        reported.append(sentence)
        master.epochs = of(led)

    follow(tmp_path / "own", master, on_event=on_event)
    assert log_in(tmp_path / "own") == led.log
    assert "the master has no epoch" in reported[0]


def test_a_controllers_store_is_opened_by_its_follower_alone(led: Led, tmp_path: Path) -> None:
    own = tmp_path / "own"
    follow(own, EpochMaster(led.log, of(led)))
    with pytest.raises(
        RefusedStoreError, match=r"a controller elects its master .*follow --controller"
    ):
        MessageStore.open(own, CONFIG)
    config = CONFIG.model_copy(update={"enable_controller_mode": True})
    with pytest.raises(RefusedStoreError, match=r"\(epochFileCheckpoint, enableControllerMode\)"):
        MessageStore.open(led.root, config)


# ---- forged streams


@pytest.mark.slow
def test_forged_streams_end_in_our_errors(led: Led, tmp_path: Path) -> None:
    """Whatever comes, what was here stays, and what is added is the begin of the master's log."""
    draw, own = random.Random(11), tmp_path / "own"
    epochs = [(1, 0), (2, led.starts[3]), (5, led.starts[6])]
    end = led.starts[9]
    hello, frames = answer(epochs, end), b""
    for epoch, behind in zip(epochs, [*epochs[1:], (9, end)], strict=True):
        for at in range(epoch[1], behind[1], 200):
            frames += frame(at, epoch, led.log[at : min(at + 200, behind[1])], end)
    seen, begun = set[str](), tmp_path / "begun"
    put_back(begun, led, led.starts[4], epochs[:2])
    for number in range(300):
        shutil.rmtree(own, ignore_errors=True)
        stream = bytearray(hello + frames)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(hello)) if number % 3 else draw.randrange(len(stream))
            stream[at : at + draw.choice([1, 1, 4])] = draw.randbytes(draw.choice([1, 1, 4]))
        kept = led.starts[4] if number % 2 else 0
        if kept:
            shutil.copytree(begun, own)
        how, found = _forged(own, bytes(stream))
        seen.add(how)
        assert found[:kept] == led.log[:kept]
        for path in own.glob("epochFileCheckpoint*"):
            assert path.read_text().count("\n") > 2
    assert {"DivergedError", "WireError", "end"} <= seen


def _forged(root: Path, stream: bytes) -> tuple[str, bytes]:
    """Follow a master that sends ``stream`` and hangs up; return how that ended, and the log."""

    async def story() -> tuple[str, bytes]:
        with MessageStore.open(root, LEARNER, housekeeping=False) as store:
            async with EpochMaster(b"", [], instead=stream, cuts=repeat(len(stream))) as master:
                follower = Follower(
                    store, "127.0.0.1", master.port, timing=FAST, learner=Learner(ID),
                    on_event=lambda _: None,
                )  # fmt: skip
                how = "end"
                try:
                    await follower.run(lambda progress: progress.connections > 1)
                except (DivergedError, WireError) as exc:
                    how = type(exc).__name__
                return how, log_of(store) if store.max_phy_offset() else b""

    return run(story())
