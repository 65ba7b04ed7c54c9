"""A cut that is interrupted anywhere: nothing of it is lost, and no half of it is used."""

import contextlib
import errno
import shutil
from pathlib import Path

import pytest

from cqstore.replication.ha.rejoin import rejoin
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreError
from cqstore.store.journals.begun_cut import begin_cut, begun_cut
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from tests.kit.call_order import CallOrder
from tests.kit.crash_images import restore, snapshots
from tests.kit.cut_back import check_sound, saved_in, served
from tests.kit.faults import Faults
from tests.kit.parted import CONFIG, log_in, parted

BY_FILES = (30, 90, 4)
"""Records in common, and of each side: whole files go."""


@pytest.mark.slow
@pytest.mark.parametrize("backend", backend_names())
def test_a_cut_that_is_cut_short_is_carried_out_by_the_next_opening(
    tmp_path: Path, backend: str
) -> None:
    one, other, end = parted(tmp_path, *BY_FILES, backend)
    mine = log_in(one)
    assert len(mine) - end > 8192
    with snapshots(one, tmp_path / "taken", 40) as taken:
        rejoin(one, other, CONFIG)
    whole, ends = served(one), list[int]()
    for copy in taken:
        restore(copy, one)
        with MessageStore.open(one, CONFIG) as store:
            ends.append(store.max_phy_offset())
        assert not (one / "cqstore" / "cutting").exists()
        if ends[-1] == end:
            assert served(one) == whole
            assert saved_in(one, end, len(mine) - end) == mine[end:]
            check_sound(one)
        # A copy of the store knows nothing of the cut, and is asked again.
        with contextlib.suppress(RefusedStoreError), MessageStore.open(copy, CONFIG) as store:
            assert store.max_phy_offset() in {end, len(mine)}
        assert rejoin(copy, other, CONFIG).phy_offset == end
        MessageStore.open(copy, CONFIG).close()
        assert (log_in(copy), served(copy)) == (mine[:end], whole)
        shutil.rmtree(copy)
    begun = ends.index(end)
    assert {*ends[:begun]} == {len(mine)}
    assert {*ends[begun:]} == {end}
    assert min(begun, len(ends) - begun) > 3


def test_a_cut_is_not_carried_out_in_a_store_that_somebody_else_had(tmp_path: Path) -> None:
    """RocketMQ writes ``lock`` at each start, and may have put more behind the cut."""
    one, _, end = parted(tmp_path, 30, 40, 0)
    mine, paths = log_in(one), StorePaths(one)
    begin_cut(paths, end)
    assert begun_cut(paths) == end
    with MessageStore.open(one, CONFIG, read_only=True) as store:
        assert (store.report.cut_at, store.report.needed) == (end, True)
    (one / "lock").write_bytes(b"lock")
    assert begun_cut(paths) is None
    with MessageStore.open(one, CONFIG) as store:
        assert store.report.cut_at is None
    assert log_in(one) == mine
    assert not paths.cutting.exists()


def test_a_damaged_note_of_a_cut_is_refused(tmp_path: Path) -> None:
    one, _, end = parted(tmp_path, 30, 40, 0)
    paths = StorePaths(one)
    begin_cut(paths, end)
    whole = paths.cutting.read_bytes()
    for text in (b"", whole[:-3], whole[:8] + b"x" + whole[9:], whole + whole, b"x" * 400):
        paths.cutting.write_bytes(text)
        with pytest.raises(
            CorruptionError, match="the note of an unfinished cut of the log is damaged"
        ):
            MessageStore.open(one, CONFIG)
        assert paths.cutting.read_bytes() == text


@pytest.mark.parametrize("backend", backend_names())
def test_what_is_cut_is_durable_elsewhere_before_it_goes(tmp_path: Path, backend: str) -> None:
    """Then it is noted, durably; then files go, the last one first; the note goes last."""
    one, other, end = parted(tmp_path, *BY_FILES, backend)
    calls = CallOrder(one)
    with calls.watching():
        rejoin(one, other, CONFIG)
    kept = calls.places("sync", "cqstore/cut/")
    noted = calls.places("rename", "cqstore/cutting")
    assert len(kept) >= 4  # one for each log file
    written = calls.places("write", "commitlog/")
    assert len(noted) == 1
    assert max(kept) < noted[0]
    assert calls.made[noted[0] + 1] == ("sync", "cqstore")
    assert noted[0] + 1 < min(written)
    removed = calls.places("remove", "commitlog/")
    names = [Path(calls.made[at][1]).name for at in removed]
    assert names == sorted(names, reverse=True)
    assert len(names) >= 2
    assert noted[0] + 1 < min(removed)
    for at in removed:
        assert calls.made[at + 1] == ("sync", "commitlog")
    assert max(removed) < min(written)
    ended = calls.made.index(("remove", "cqstore/cutting"))
    assert max(written) < ended
    assert calls.places("sync", f"commitlog/{end // 4096 * 4096:020d}")[0] < ended


@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("write", "/cqstore/cut"), ("fsync", "/cqstore/cut"), ("write", "/commitlog/"),
        ("fsync", "/commitlog/"), ("unlink", "/commitlog/"), ("write", "/lock"),
        ("rename", "/cqstore/synced"),
    ],
)  # fmt: skip
def test_a_disk_that_refuses_is_told_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, call: str, part: str
) -> None:
    one, other, end = parted(tmp_path, *BY_FILES, backend)
    mine, theirs = log_in(one), log_in(other)
    (one / "lock").write_bytes(b"")
    faults = Faults(monkeypatch)
    faults.fail(call, errno.EIO, part)
    with pytest.raises(StoreError):
        rejoin(one, other, CONFIG)
    assert faults.refused
    faults.heal()
    if part in {"/cqstore/cut", "/lock"}:
        assert log_in(one) == mine
    again = rejoin(one, other, CONFIG)  # or any opening, once it is noted
    assert again.phy_offset == end
    MessageStore.open(one, CONFIG).close()
    assert log_in(one) == theirs[:end]
    assert served(one).keys() == {("both", 0), ("both", 1)}
    assert saved_in(one, end, len(mine) - end) == mine[end:]
    check_sound(one)
