"""A store beside a running master: compared over the wire, and nothing acknowledged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqstore.replication.commands.ha_check import place
from cqstore.replication.errors import DivergedError
from cqstore.replication.ha.check_report import Checked
from cqstore.replication.ha.fetched import Master
from cqstore.replication.ha.ha_check import CheckScope, MasterAddress, checked
from cqstore.store.errors import RefusedStoreError, StoreIOError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.log_bytes import log_of
from tests.kit.parted import CONFIG, grow, log_in, parted
from tests.kit.tree import tree_digest
from tests.kit.wire_master import WireMaster, frame
from tests.kit.wire_server import serving

FAST = {"answer": 30.0, "report": 0.05, "quiet": 0.05, "linger": 60.0}


@contextmanager
def beside(store: MasterAddress, master: WireMaster, last: int | None = None) -> Iterator[Checked]:
    """Compare ``store`` with ``master``; its files stay as they are, and so does the folder."""
    before = tree_digest(store) if isinstance(store, Path) else ""
    with serving(master):
        there = Master("127.0.0.1", master.port, **FAST)
        with checked(store, there, CONFIG, CheckScope(last)) as found:
            yield found
    assert before == (tree_digest(store) if isinstance(store, Path) else "")
    last_file = max(master.end - master.end % 4096, 1)
    assert {*master.reports} <= {0, *range(1, last_file + 1)}
    assert [each for each in master.reports if each > last_file] == []


@pytest.mark.parametrize("more", [0, 1, 20])
def test_a_log_that_is_the_begin_of_the_masters_has_not_parted(tmp_path: Path, more: int) -> None:
    one, other, end = parted(tmp_path, 70, 0, more)
    with beside(one, WireMaster(log_in(other))) as found:
        assert (found.common.end, list(found.differences())) == (end, [])
        assert found.common.compared.start == end - end % 4096
        assert (found.tails[1].records, found.other.whole) == (more, True)
        assert found.other.log.max_phy_offset() == len(log_in(other))


@pytest.mark.parametrize("new", [1, 5, 90])
@pytest.mark.parametrize("common", [20, 70])
def test_a_former_master_is_told_where_it_parted(tmp_path: Path, common: int, new: int) -> None:
    """Also where its log is longer than the new one's, and by files."""
    one, other, end = parted(tmp_path, common, 60, new)
    log = log_in(other)
    with beside(one, WireMaster(log), last=1 << 40) as found:
        assert (found.common.end, found.common.differs_at is None) == (end, False)
        assert found.tails[0].topics == {"former": 60}
        assert found.tails[1].topics == {"new": new}
        assert f"the logs diverge at {end}" in " ".join(found.differences())


def test_a_masters_log_that_ends_before_is_told(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 50, 40, 0)
    with beside(one, WireMaster(log_in(other))) as found:
        assert (found.common.end, found.common.differs_at) == (end, None)
        assert (found.tails[0].records, found.tails[1].records) == (40, 0)


def test_a_master_is_never_asked_for_what_it_may_not_have(tmp_path: Path) -> None:
    """RocketMQ would take that for an acknowledgement of what it puts next."""
    one, other, end = parted(tmp_path, 20, 200, 1)
    log = log_in(other)
    assert (len(log) < 4096, len(log_in(one)) > 8192) == (True, True)
    master = WireMaster(log)
    with beside(one, master) as found:
        assert found.common.end == end
    assert {*master.reports} == {0, 1}


def test_as_much_is_compared_as_was_asked_for(tmp_path: Path) -> None:
    root, end = tmp_path / "own", len(grown(tmp_path / "own", 150))
    for last in (1, 4096, 8192, 1 << 40):
        begin = max(end - last, 0) // 4096 * 4096
        master = WireMaster(log_in(root))
        with beside(root, master, last) as found:
            assert found.common.compared == range(begin, end)
            assert {*master.reports} == {0, max(begin, 1)}
            assert list(found.differences()) == []


def grown(root: Path, count: int) -> bytes:
    grow(root, count)
    return log_in(root)


def test_no_more_is_fetched_than_a_file_behind_the_store(tmp_path: Path) -> None:
    log = grown(tmp_path / "all", 400)
    assert len(log) > 9 * 4096
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, log[:5000])
        end = store.max_phy_offset()
    with beside(tmp_path / "own", WireMaster(log)) as found:
        assert (found.common.end, found.other.whole) == (end, False)
        assert end + 4096 <= found.other.log.max_phy_offset() + 200 <= end + 3 * 4096
        assert list(found.differences()) == []
        rows = {row[""]: row["B"] for row in found.rows()}
        assert str(rows["log ends at"]).endswith(" or later")


def test_a_master_that_grows_on_and_on_is_left(tmp_path: Path) -> None:
    log = grown(tmp_path / "all", 120)
    master = WireMaster(log[:5000], heartbeat=60)
    with MessageStore.open(tmp_path / "own", CONFIG) as store:
        store.append_to_commit_log(0, log[:5000])
    with serving(master):
        there = Master("127.0.0.1", master.port, answer=30, report=0.02, quiet=60, linger=0.05)
        grows = iter(range(5000, 6000))

        def reported(_: int) -> None:
            at = next(grows, len(log))
            master.loop.call_soon_threadsafe(master.append, log[at : at + 1])

        with checked(tmp_path / "own", there, CONFIG, progress=reported) as found:
            assert found.other.whole is False
            assert list(found.differences()) == []


def test_two_masters_are_compared_from_their_last_files_on(tmp_path: Path) -> None:
    one, other, end = parted(tmp_path, 70, 3, 4)
    assert end % 4096
    with serving(WireMaster(log_in(one))) as first:
        with beside(Master("127.0.0.1", first.port, **FAST), WireMaster(log_in(other))) as found:
            assert found.common.end == end
            assert (found.tails[0].topics, found.tails[1].topics) == ({"former": 3}, {"new": 4})
        assert {*first.reports} == {0, end - end % 4096}


def test_logs_that_differ_from_the_first_compared_byte_on_have_nothing_in_common(
    tmp_path: Path,
) -> None:
    mine, others = grown(tmp_path / "own", 60), tmp_path / "other"
    grow(others, 60, "other")
    log = log_in(others)
    with beside(tmp_path / "own", WireMaster(log)) as found:
        begin = min(len(mine) - len(mine) % 4096, len(log) - len(log) % 4096)
        assert (found.common.end, found.common.is_empty) == (begin, True)
        (sentence,) = found.differences()
        assert "the logs have no compared record in common" in sentence
        assert f"diverge at {begin} or before (--last BYTES compares more)" in sentence


def test_bytes_that_are_no_records_are_told(tmp_path: Path) -> None:
    log = bytearray(grown(tmp_path / "own", 60))
    with MessageStore.open(tmp_path / "own", CONFIG, read_only=True) as store:
        assert log_of(store) == log
        starts = [record.phy_offset for record in components_of(store).log.scan(8192)]
    log[starts[3] + 5] ^= 1
    with beside(tmp_path / "own", WireMaster(bytes(log))) as found:
        assert found.common.end == starts[3]
        assert found.other.bytes_behind_end == len(log) - starts[3]
        assert "304 bytes after its end are not records" in " ".join(found.differences())


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    log = grown(tmp_path / "own", 400)
    expired = WireMaster(b"", begin=0)
    expired.expire(log[8 * 4096 :], 8 * 4096)
    with (
        pytest.raises(RefusedStoreError, match="no longer has offset 0: its last file begins at"),
        beside(tmp_path / "own", expired, last=1 << 40),
    ):
        pass
    with (
        pytest.raises(RefusedStoreError, match="inside a file of 4096 bytes: is its mapped"),
        beside(tmp_path / "own", WireMaster(log, file_size=6000)),
    ):
        pass
    with (
        pytest.raises(
            StoreIOError, match=r"connection refused \(nothing is listening on this port\); is this"
        ),
        checked(tmp_path / "own", Master("127.0.0.1", 1, answer=0.2)),
    ):
        pass


@pytest.mark.parametrize(
    ("instead", "kind"),
    [(frame(1 << 40, b"x"), DivergedError), (b"\0" * 8 + b"\x7f\xff\xff\xff", StoreIOError)],
)
def test_what_no_master_sends_is_refused(
    tmp_path: Path, instead: bytes, kind: type[Exception]
) -> None:
    log = grown(tmp_path / "own", 60)
    with pytest.raises(kind), beside(tmp_path / "own", WireMaster(log, instead=instead)):
        pass


def test_a_connection_that_goes_is_told(tmp_path: Path) -> None:
    log = grown(tmp_path / "own", 60)
    for cuts, words in {(400, 100): "the master closed the connection"}.items():
        with (
            pytest.raises(StoreIOError, match=words),
            beside(tmp_path / "own", WireMaster(log, cuts=cuts)),
        ):
            pass


def test_a_name_that_is_a_folder_is_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "a:1"
    root.mkdir()
    assert place(str(root), None) == root
    assert place("[::1]:10912", None) == Master("::1", 10912)
    conf = tmp_path / "broker.conf"
    conf.write_text("haHousekeepingInterval=7000\nhaSendHeartbeatInterval=900\n")
    assert place("there:10912", conf) == Master("there", 10912, 7.0, 0.9)
