"""The sides' stores are of the original's bytes, and whatever they do does not reach it."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.ab.stores import copies
from cqstore.ab.stores.equality import queue_digests, unit_rows, whole_digest
from cqstore.ab.stores.store_survey import _filter, survey
from cqstore.store.errors import DiskFullError, RefusedStoreError, StoreLockedError
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline import store_copy
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.ab.made_store import CONFIG, FILE, make_varied_store
from tests.kit.tree import tree_digest, unchanged


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_varied_store(tmp_path / "s")
    return tmp_path / "s"


def side_of(root: Path, target: Path) -> str:
    found = survey(root, CONFIG, 1)
    way = copies.share_log(
        found.log_folders, target / "commitlog", found.max_phy_offset, found.log_file_size
    )
    copies.bring_journals(root, target, found)
    return way


@pytest.mark.parametrize("own", [True, False], ids=["with our journals", "as RocketMQ's"])
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_side_has_the_queues_of_the_original_also_those_that_have_expired(
    root: Path, tmp_path: Path, backend: str, *, own: bool
) -> None:
    if not own:
        shutil.rmtree(root / "cqstore")
    side_of(root, tmp_path / "side")
    with (
        MessageStore.open(root, CONFIG, read_only=True) as original,
        MessageStore.open(tmp_path / "side", CONFIG, backend=backend) as side,
    ):
        assert whole_digest(side) == whole_digest(original)
        assert side.min_offset("early", 0) == side.max_offset("early", 0) == 3
        assert "gone" not in set(side.topics())


def test_a_side_that_writes_expires_and_deletes_changes_nothing_of_the_original(
    root: Path, tmp_path: Path
) -> None:
    before = tree_digest(root)
    side_of(root, tmp_path / "side")
    with MessageStore.open(tmp_path / "side", CONFIG, backend="file") as side:
        for _ in range(40):
            assert all(each.ok for each in side.put_messages([Message("new", b"x" * 500)] * 10))
        side.delete_topics(["hot"])
        side.delete_expired_files(3 * FILE)
    (tmp_path / "side" / "abort").write_bytes(b"1")  # as after a kill: the log's tail is looked at
    with MessageStore.open(tmp_path / "side", CONFIG) as side:
        side.put_message(Message("new", b"x"))
    copies.copy_tree(tmp_path / "side", tmp_path / "again", 4 * FILE, FILE)
    with MessageStore.open(tmp_path / "again", CONFIG) as again:
        again.put_message(Message("new", b"x"))
    shutil.rmtree(tmp_path / "side")
    assert tree_digest(root) == before


def test_full_files_share_their_bytes_and_the_one_that_is_written_does_not(
    root: Path, tmp_path: Path
) -> None:
    way = side_of(root, tmp_path / "side")
    pairs = [
        (path.stat().st_ino, (root / "commitlog" / path.name).stat().st_ino)
        for path in sorted((tmp_path / "side" / "commitlog").iterdir())
    ]
    assert way in {store_copy.HARD_LINKS, store_copy.REFLINKS}
    assert len(pairs) >= 3
    assert pairs[-1][0] != pairs[-1][1]
    if way == store_copy.HARD_LINKS:
        assert all(mine == its for mine, its in pairs[:-1])


def test_a_log_is_cut_where_it_is_asked_to_end(root: Path, tmp_path: Path) -> None:
    found = survey(root, CONFIG, 1)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        records = list(components_of(store).log.scan(found.min_phy_offset))[:700]
    end = records[-1].phy_offset + records[-1].size
    copies.share_log(found.log_folders, tmp_path / "side" / "commitlog", end, FILE)
    with MessageStore.open(tmp_path / "side", CONFIG, backend="file") as side:
        assert side.max_phy_offset() == end
        assert side.report.dispatched_units == len(records)


def test_without_room_nothing_is_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = survey(root, CONFIG, 1)
    wanted = copies.check_room(found, tmp_path / "work" / "deeper", 3)
    assert wanted > 3 * FILE
    usage = shutil.disk_usage(tmp_path)
    little = type(usage)(usage.total, usage.used, wanted - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: little)
    with pytest.raises(DiskFullError, match=f"{wanted:,} bytes"):
        copies.check_room(found, tmp_path / "work", 3)
    assert not (tmp_path / "work").exists()


def test_a_store_that_is_open_or_was_not_closed_is_not_surveyed(
    root: Path, golden: Callable[[str], Path]
) -> None:
    with MessageStore.open(root, CONFIG), pytest.raises(StoreLockedError):
        survey(root, CONFIG, 1)
    for name in ("crash-default", "torn-defaultRocksDB"):
        with pytest.raises(RefusedStoreError, match="recover"):
            survey(golden(name), StoreConfig(), 1)
    with pytest.raises(RefusedStoreError, match="batch queues"):
        survey(golden("special-default"), StoreConfig(), 1)


def test_a_survey_changes_nothing_and_says_what_is_there(root: Path) -> None:
    with unchanged(root):
        found = survey(root, CONFIG, 1)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        spans = list(store.queue_spans())
    lengths = sorted(span.max_offset - span.min_offset for span in spans)
    assert (found.shape.queues, found.shape.units) == (len(spans), sum(lengths))
    assert found.shape.units_of_queue["max"] == lengths[-1]
    assert found.shape.units_of_queue["min"] == lengths[0] == 0
    assert found.shape.share_of_hottest["10"] > 0.3
    assert (found.tags, found.expired) == ("rare", [(QueueKey("early", 0), 3)])
    assert 0.005 < found.tags_share < 0.02
    assert 50 <= found.body_bytes < 250
    assert found.backend in backend_names()


def test_units_of_a_queue_are_told_with_what_they_say(root: Path) -> None:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        rows = list(unit_rows(store, QueueKey("hot", 1)))
        low, high = store.min_offset("hot", 1), store.max_offset("hot", 1)
        digests = {(each.topic, each.queue_id): each for each in queue_digests(store)}
        units = list(components_of(store).queues.queue("hot", 1).iterate(low))
    assert [int(row.split(":")[0]) for row in rows] == list(range(low, high))
    first = units[0]
    assert rows[0] == (
        f"{low}: phy offset {first.phy_offset}, size {first.size}, tags code {first.tags_code}"
    )
    assert digests["hot", 1].units == high - low == len(units)


@pytest.mark.parametrize(
    ("tags", "chosen", "share"),
    [
        ({"a": 1, "b": 99}, "a", 0.01),
        ({"a": 50, "b": 50}, "", 0.5),
        ({"a": 2, "": 998}, "a", 0.002),
        ({"a": 1, "": 999}, "", 0.001),
        ({"a": 5, "": 95}, "a", 0.05),
        ({"a": 6, "": 94}, "", 0.06),
        ({"b": 5, "a": 4, "c": 991}, "a || b", 0.009),
        ({"b": 4, "a": 4, "c": 992}, "a || b", 0.008),
        ({"b": 9, "a": 9, "c": 982}, "a", 0.009),
        ({"x|y": 1, " z": 1, "a": 10, "": 988}, "a", 0.01),
        ({"": 5}, "", 0.0),
    ],
)
def test_tags_that_let_about_one_percent_through_are_picked(
    tags: dict[str, int], chosen: str, share: float
) -> None:
    found, share_of_it = _filter(Counter(tags))
    assert found == chosen
    assert share_of_it == pytest.approx(share)


def test_a_log_that_cannot_be_shared_takes_room_a_side_and_for_two_copies(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = survey(root, CONFIG, 1)
    shared = {sides: copies.check_room(found, tmp_path / "work", sides) for sides in (3, 4)}
    monkeypatch.setattr(copies, "_may_share", lambda *_: False)
    for sides, room in shared.items():
        copied = copies.check_room(found, tmp_path / "work", sides)
        assert copied - room == (sides + 2) * found.shape.log_bytes
    a_side = shared[4] - shared[3]
    assert a_side > FILE
    assert shared[3] == 5 * a_side + 2 * FILE, "of a copy, one file more"
