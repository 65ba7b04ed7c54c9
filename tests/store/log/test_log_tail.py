"""The end of a log, told from its files while another object writes them."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, StoreIOError
from cqstore.store.log.foreign_log_tail import ForeignLogTail, LogEnds
from cqstore.store.log.tail_topics import TailTopics
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

FILE = 4 << 20
CONFIG = StoreConfig(mapped_file_size_commit_log=FILE, flush_interval_commit_log=10_000_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as opened:
        yield opened


def put(store: MessageStore, *sizes: int) -> None:
    for size in sizes:
        assert store.put_message(Message("t", bytes(size))).ok
    if (ahead := components_of(store).log.files._ahead) is not None:
        ahead._join()  # the next file has been made, so that files can be counted


def ends(tail: ForeignLogTail, near: int = 0) -> LogEnds:
    found = tail.refresh(near)
    assert found is not None
    return found


def test_every_look_finds_the_end_and_what_came_since(store: MessageStore) -> None:
    tail = ForeignLogTail(components_of(store).layout.log_folders)
    assert tail.refresh() is None
    draw, total = random.Random(3), 0
    put(store, 1)
    found = ends(tail)
    for count in (0, 1, 50, 0, 700, 30):
        sizes = [draw.choice((0, 100, 40_000, 3 << 20 if count == 30 else 7)) for _ in range(count)]
        put(store, *sizes)
        total += count
        found = ends(tail)
        assert found.max_phy_offset == store.max_phy_offset()
        assert (found.records, found.file_size, found.min_phy_offset) == (total, FILE, 0)
        assert found.files == len(list((components_of(store).paths.commit_log).iterdir()))
    assert found.max_phy_offset > 5 * FILE


def test_the_first_look_walks_from_the_guess_or_from_the_newest_file(store: MessageStore) -> None:
    put(store, *[40_000] * 300)
    log = components_of(store).log
    places = [record.phy_offset for record in log.scan(0)]
    end, newest = log.max_phy_offset(), max(p for p in places if p % FILE == 0)
    for near in (0, -5, places[3], places[-5], places[-5] + 1, newest + 77, end, end + 9, 1 << 60):
        tail = ForeignLogTail(components_of(store).layout.log_folders)
        files = tail._list()
        start, _ = tail._start(files, near)
        assert start == (near if near == places[-5] else newest)
        assert ends(tail, near).max_phy_offset == end


def test_expiry_moves_the_beginning_and_loses_no_count(store: MessageStore) -> None:
    put(store, *[40_000] * 300)
    tail = ForeignLogTail(components_of(store).layout.log_folders)
    ends(tail)
    put(store, 5)
    store.delete_expired_files(FILE)
    found = ends(tail)
    assert (found.min_phy_offset, found.records) == (FILE, 1)
    store.delete_expired_files(1 << 60)
    assert (
        ends(ForeignLogTail(components_of(store).layout.log_folders)).max_phy_offset
        == found.max_phy_offset
    )


def test_a_file_that_goes_between_the_list_and_the_read_is_no_fault(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 5)
    tail = ForeignLogTail(components_of(store).layout.log_folders)
    (path,) = [
        path for path in components_of(store).paths.commit_log.iterdir() if int(path.name) == 0
    ]
    listed = tail._list()
    monkeypatch.setattr(tail, "_list", lambda: listed)
    path.rename(path.with_name("away"))
    assert ends(tail).max_phy_offset == 0
    path.with_name("away").rename(path)
    assert ends(tail).max_phy_offset == store.max_phy_offset()


def test_a_log_that_was_cut_is_walked_anew(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        put(store, 5, 6, 7)
        first, second, _ = [record.phy_offset for record in components_of(store).log.scan(0)]
        data = bytearray((components_of(store).paths.commit_log / f"{0:020d}").read_bytes())
    path = tmp_path / "log" / f"{0:020d}"
    path.write_bytes(data)
    tail = ForeignLogTail([path.parent])
    assert ends(tail).max_phy_offset > second
    data[second:] = bytes(len(data) - second)
    path.write_bytes(data)
    assert ends(tail).max_phy_offset == second
    assert first == 0


def test_bytes_that_are_no_records_end_the_walk(tmp_path: Path) -> None:
    draw = random.Random(5)
    for number in range(50):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"{0:020d}").write_bytes(draw.randbytes(draw.randrange(1, 5000)))
        (folder / f"{FILE:020d}").write_bytes(b"")  # being made
        (folder / "notes").write_text("of somebody")
        (folder / ("²" * 20)).write_bytes(b"digits, but not ours")
        found = ends(ForeignLogTail([folder]), draw.randrange(6000))
        assert (found.files, found.max_phy_offset, found.records) == (1, 0, 0)
    assert ForeignLogTail([tmp_path / "none"]).refresh() is None
    (tmp_path / f"{0:020d}").write_bytes(b"short")  # than the head of a record
    assert ends(ForeignLogTail([tmp_path])).max_phy_offset == 0


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.mkdir()
    with pytest.raises(CorruptionError, match=f"{path.name}.*a regular file, found a folder"):
        ForeignLogTail([tmp_path]).refresh()
    with pytest.raises(StoreIOError, match="list the commit log") as refused:
        ForeignLogTail([tmp_path / ("x" * 300)]).refresh()  # the system gives no answer
    assert refused.value.path == tmp_path / ("x" * 300)


def test_topics_are_those_of_the_records_that_were_passed(store: MessageStore) -> None:
    topics = TailTopics()
    tail = ForeignLogTail(components_of(store).layout.log_folders, topics)
    put(store, 1)
    tail.refresh()
    topics.take()
    start, draw = store.max_phy_offset(), random.Random(5)
    for number in range(60):  # across the ends of blocks and files, and longer than a block
        size = draw.choice((5, 40_000, 3 << 20 if number == 30 else 90_000))
        assert store.put_message(Message(f"topic{number % 7}", bytes(size))).ok
    tail.refresh()
    expected: dict[str, tuple[int, int]] = {}
    for record in components_of(store).log.scan(start):
        count, total = expected.get(record.topic, (0, 0))
        expected[record.topic] = count + 1, total + record.size
    assert topics.take() == expected
