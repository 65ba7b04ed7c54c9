"""What a turn has spent, what disturbed it, what lies on the disk; and how logs are shared."""

import errno
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from cqstore.ab.measuring import measures
from cqstore.ab.measuring.measures import (
    OTHERS,
    STEAL,
    MachineTimes,
    ResourceUsage,
    disturbance,
)
from cqstore.ab.run.rounds import Effort
from cqstore.ab.run.run_plan import plan_of
from cqstore.ab.sides.side import parse_sides
from cqstore.ab.stores import copies
from cqstore.ab.stores.store_survey import survey
from cqstore.ab.trace.derived import DEFAULT_MIX
from cqstore.ab.workloads import TRACE, chosen, parse_mix, workloads
from cqstore.store.errors import StoreConfigError, StoreIOError
from cqstore.store.service.offline import store_copy
from cqstore.store.settings.config import StoreConfig
from tests.ab.made_store import CONFIG, FILE, make_varied_store
from tests.kit.tree import unchanged
from tests.kit.waiting import until


def test_only_what_is_timed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By clocks of its own: that of the CPU goes on for every thread of the process."""
    looks, cpu = iter((1.0, 1.5, 4.0, 4.25)), iter((0.25, 0.5, 3.0, 3.125))
    clocks = SimpleNamespace(perf_counter=lambda: next(looks), process_time=lambda: next(cpu))
    monkeypatch.setattr(measures, "time", clocks)
    spent = ResourceUsage()
    for _ in range(2):
        with spent.timed():
            pass
    assert (spent.seconds, spent.cpu_seconds) == (0.75, 0.375)


def test_what_others_take_is_what_was_busy_and_not_ours() -> None:
    before = MachineTimes(at=10.0, total=100.0, busy=40.0, steal=1.0, ours=5.0)
    after = MachineTimes(at=12.0, total=104.0, busy=43.0, steal=1.2, ours=7.0)
    steal, others = after.since(before)
    assert steal == pytest.approx(0.05)
    assert others == pytest.approx(0.5)
    assert before.since(before) == (0.0, 0.0)


def test_a_turn_is_disturbed_by_other_guests_or_other_processes() -> None:
    assert disturbance(STEAL, OTHERS) == ""
    assert disturbance(0.25, 0) == "other guests took 25% of the CPU"
    assert disturbance(0, 1.5) == "other processes took 1.50 CPU seconds per second"
    assert disturbance(0.25, 1.5).count(";") == 1


def test_the_machine_is_looked_at_with_all_that_is_ours() -> None:
    mine = MachineTimes.now([])
    assert mine.total >= mine.busy > 0
    with subprocess.Popen(["sleep", "9"]) as other:
        both = MachineTimes.now([other.pid])
        other.kill()
    assert both.ours >= mine.ours > 0


def test_disk_use_is_that_of_du(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "full").write_bytes(os.urandom(100_000))
    with (tmp_path / "a" / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    reported = subprocess.run(["du", "-sB1", "a"], cwd=tmp_path, capture_output=True, check=True)
    assert measures.disk_use([tmp_path / "a"]) == (int(reported.stdout.split()[0]), 2)
    assert measures.disk_use([tmp_path / "a" / "sparse", tmp_path / "gone"]) == (0, 1)


def test_this_process_is_measured() -> None:
    assert measures.pss_bytes() > 1 << 20
    assert measures.maps() > 10

    def is_counted() -> bool:
        """Where no other thread opens or closes one meanwhile."""
        before = measures.descriptors()
        fd = os.open("/", os.O_RDONLY)
        after = measures.descriptors()
        os.close(fd)
        return after == before + 1

    until(is_counted)


def test_dropping_a_folder_from_the_cache_changes_no_byte(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 100)
    with unchanged(tmp_path / "s"):
        measures.drop_from_cache(tmp_path / "s")


def test_where_nothing_can_be_linked_all_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_varied_store(tmp_path / "s")
    found = survey(tmp_path / "s", CONFIG, 1)

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(store_copy, "_reflink", lambda *_: False)
    target = tmp_path / "side"
    way = copies.share_log(found.log_folders, target, found.max_phy_offset, FILE)
    assert way == store_copy.COPIES
    for path in target.iterdir():
        original = tmp_path / "s" / "commitlog" / path.name
        assert path.stat().st_ino != original.stat().st_ino
        assert path.read_bytes() == original.read_bytes()


# ---- what is chosen, and the plan


def test_workloads_are_picked_by_name_or_pattern_in_their_order() -> None:
    everything = [name for name in workloads() if name != TRACE]
    assert chosen([], given_trace=False) == everything
    assert chosen([], given_trace=True) == [TRACE]
    assert chosen(["*"], given_trace=True) == [*everything, TRACE]
    assert chosen(["time-search", "*-pull"], given_trace=False) == [
        "tail-pull", "catch-up-pull", "random-pull", "filtered-pull", "time-search",
    ]  # fmt: skip
    with pytest.raises(StoreConfigError, match="no workload 'trace'"):
        chosen(["trace"], given_trace=False)


def test_a_mixture_is_parts_of_kinds() -> None:
    assert parse_mix(None) == DEFAULT_MIX
    assert parse_mix("put=1, tail-pull=9") == {"put": 1, "tail-pull": 9}
    for text in ("put", "put=x", "put=0", "sleep=1", "put=1,put=2", ""):
        with pytest.raises(StoreConfigError, match="expected KIND=PARTS"):
            parse_mix(text)


def test_a_plan_says_what_is_left_out_and_takes_longer_for_more(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 50)  # one log file that is not full, no rare tags
    found = survey(tmp_path / "s", CONFIG, 1)
    found.tags = ""
    specs = parse_sides(["file", "rocksdb"], StoreConfig())
    requested = list(workloads().values())

    def seconds(rounds: int, turn: float, project: int | None = None) -> float:
        return plan_of(found, specs, requested, Effort(rounds, turn), 1, project).seconds

    plan = plan_of(found, specs, requested, Effort(12, 0.1), 1, None)
    assert plan.left_out.keys() == {"filtered-pull", "expiry"}
    assert len(plan.workloads) == len(requested) - 2
    assert seconds(12, 0.1) < seconds(13, 0.1) < seconds(13, 0.2) < seconds(13, 0.2, 10**6)
    kept = plan_of(found, specs, requested, Effort(12, 0.1, new_processes=False), 1, None)
    assert kept.seconds < seconds(12, 0.1)


# ---- how whole files are shared


def cloning(new: int, request: int, old: int) -> int:
    """What a file system with reflinks does."""
    assert request == 0x40049409
    os.pwrite(new, os.pread(old, 1 << 20, 0), 0)
    return 0


@pytest.mark.parametrize(
    ("clones", "link_errors", "way"),
    [
        ([True, True], [], store_copy.REFLINKS),
        ([True, False], [0], store_copy.HARD_LINKS),
        ([False, True], [errno.EPERM], store_copy.COPIES),
        ([False, False], [errno.EMLINK, 0], store_copy.COPIES),
        ([False, False], [errno.EOPNOTSUPP, errno.EXDEV], store_copy.COPIES),
        ([False], [errno.EIO], ""),
    ],
)
def test_the_poorest_way_of_sharing_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clones: list[bool],
    link_errors: list[int],
    way: str,
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    for at in range(3):
        (log / f"{at * 8:020d}").write_bytes(bytes([65 + at]) * 8)
    (log / "letter").touch()
    linking = Path.hardlink_to

    def clone(new: int, request: int, old: int) -> int:
        if not clones.pop(0):
            raise OSError(errno.EOPNOTSUPP, "no reflinks")
        return cloning(new, request, old)

    def link(new: Path, old: Path) -> None:
        if number := link_errors.pop(0):
            raise OSError(number, "no")
        linking(new, old)

    monkeypatch.setattr(store_copy.fcntl, "ioctl", clone)  # type: ignore[attr-defined]
    monkeypatch.setattr(Path, "hardlink_to", link)
    before = measures.descriptors()
    target = tmp_path / "side"
    if not way:
        with pytest.raises(StoreIOError, match="share the commit log") as caught:
            copies.share_log([log], target, 16, 8)
        assert caught.value.path == target
        assert not list(target.iterdir())
    else:
        assert copies.share_log([log], target, 16, 8) == way
        assert {path.name: path.read_bytes() for path in target.iterdir()} == {
            f"{0:020d}": b"A" * 8, f"{8:020d}": b"B" * 8
        }  # fmt: skip
    assert measures.descriptors() == before
    assert clones == link_errors == []


def test_every_page_of_a_file_is_written_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "file")
    calls: list[tuple[object, ...]] = []

    def note(what: str, fd: int, *how: int) -> None:
        calls.append((what, Path(f"/proc/self/fd/{fd}").readlink().name, *how))

    monkeypatch.setattr(os, "fdatasync", lambda fd: note("sync", fd))
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *how: note("drop", fd, *how))
    before = measures.descriptors()
    measures.drop_from_cache(tmp_path)
    whole = (0, 0)  # from the begin to the end
    assert calls == [("sync", "file"), ("drop", "file", *whole, os.POSIX_FADV_DONTNEED)]
    assert measures.descriptors() == before
