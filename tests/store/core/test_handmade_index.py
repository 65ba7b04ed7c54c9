"""Queries on the fast path over an index made by hand: any order, no memory, and bounded reads."""

import random
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.core._maps import FileMap
from cqstore.store.index._chain import ChainFiles
from cqstore.store.log._log import FastLog
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading._query import FastQuery
from cqstore.store.settings.config import StoreConfig
from tests.kit.chains import chain_file
from tests.kit.given_memory import given_memory
from tests.kit.guarded import PAGE, guarded_page
from tests.kit.oracle.java_hash import java_hash
from tests.kit.shim.memory import without_memory

LOG_FILE = 1 << 15
CONFIG = StoreConfig(mapped_file_size_commit_log=LOG_FILE, max_message_size=500)
ENTRY = struct.Struct(">iqii")
HASH = abs(java_hash("t#a"))
MESSAGES = 200
ALWAYS = (0, (1 << 63) - 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    root = tmp_path_factory.mktemp("handmade")
    with MessageStore.open(root, CONFIG, housekeeping=False) as opened:
        for number in range(MESSAGES):
            assert opened.put_message(Message("t", b"%d" % number * 99, 0, {"KEYS": "a"})).ok
        assert opened.max_offset("t", 0) == MESSAGES  # dispatches
        yield opened


def starts(store: MessageStore) -> list[int]:
    return [record.phy_offset for record in components_of(store).log.scan(0)]


def index_of(folder: Path, *files: Sequence[int]) -> Any:
    """Make index files with one slot; each has an entry for each of these phy offsets, in order."""
    index: Any = ChainFiles()
    made = []
    for number, phys in enumerate(files):
        count = len(phys)
        head = bytes(36) + struct.pack(">ii", count + 1, count) + bytes(ENTRY.size)
        rows = (ENTRY.pack(HASH, phy, 0, before) for before, phy in enumerate(phys))
        path = folder / f"{number}"
        path.write_bytes(head + b"".join(rows))
        with path.open("rb") as file:
            mapped = FileMap(file.fileno(), path.stat().st_size)
        made.append(chain_file(mapped, 1, count + 1, 0, count + 1, read_only=False))
    index.files, index.closed = tuple(made), False
    return index


def fast_query(log: Any, index: Any, file_size: int = LOG_FILE) -> FastQuery:
    return FastQuery(FastLog(log), index, file_size)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 32, 73, MESSAGES])
def test_messages_are_in_log_order_whatever_the_order_of_the_entries(
    tmp_path: Path, store: MessageStore, count: int
) -> None:
    """RocketMQ sorts the phy offsets that its index has (``DefaultMessageStore.queryMessage``)."""
    known = starts(store)
    for seed in range(5):
        draw = random.Random(seed)
        phys = draw.sample(known, count)
        cut = draw.randrange(count + 1)
        for number, files in enumerate(([phys], [phys[:cut], phys[cut:]], [sorted(phys)])):
            folder = tmp_path / f"{seed}-{number}"
            folder.mkdir()
            index = index_of(folder, *filter(None, files))
            found = fast_query(components_of(store).log, index).query("t", "a", count, *ALWAYS)
            assert found is not None
            assert [message.phy_offset for message in found] == sorted(phys)
            assert not found.has_more


def test_memory_of_a_query_with_many_entries_is_given_back(
    tmp_path: Path, store: MessageStore
) -> None:
    query = fast_query(components_of(store).log, index_of(tmp_path, starts(store)))
    ask = partial(query.query, "t", "a", MESSAGES, *ALWAYS)
    found = ask()
    assert found is not None
    assert len(found) == MESSAGES
    before = given_memory()
    for _ in range(500):
        ask()
    assert given_memory() - before < 500 * 8 * 72  # so many entries need no memory of their own


def test_a_query_for_which_there_is_no_memory_fails_and_the_next_one_does_not(
    tmp_path: Path, store: MessageStore
) -> None:
    query = fast_query(components_of(store).log, index_of(tmp_path, starts(store)))

    def ask() -> None:
        found = query.query("t", "a", MESSAGES, *ALWAYS)
        assert found is not None
        assert [message.phy_offset for message in found] == starts(store)

    assert without_memory("_chain", ask, ask) >= 1


class OnePage:
    """A log of one page, which ends with ``data``; nobody may read behind it."""

    def __init__(self, page: memoryview) -> None:
        self.page = page

    def readable(self, _: int) -> tuple[int, memoryview, int]:
        return 0, self.page, PAGE

    def min_phy_offset(self) -> int:
        return 0

    def max_phy_offset(self) -> int:
        return PAGE


@pytest.mark.parametrize("left", [1, 2, 3, 4, 8, 40, 88, 90])
def test_nothing_behind_the_map_is_read_of_a_record_that_cannot_be_one(
    tmp_path: Path, left: int
) -> None:
    """An index file may have any phy offset."""
    with guarded_page(b"\1" * left) as page:
        query = fast_query(OnePage(page), index_of(tmp_path, [PAGE - left]), PAGE)
        assert query.query("t", "a", 9, *ALWAYS) is None


@pytest.mark.parametrize("less", [0, 1])
def test_the_last_record_of_the_map_is_read_if_it_is_whole(
    tmp_path: Path, store: MessageStore, less: int
) -> None:
    """A record ends where the map ends, or says that it is longer."""
    start, size = starts(store)[0], starts(store)[1] - starts(store)[0]
    record = bytes(components_of(store).log.message(start).record)
    assert len(record) == size
    with guarded_page(record[: size - less]) as page:
        query = fast_query(OnePage(page), index_of(tmp_path, [PAGE - size + less]), 2 * PAGE)
        found = query.query("t", "a", 9, *ALWAYS)
        assert (found is None) == bool(less)
        if found is not None:
            assert [bytes(message.record) for message in found] == [record]
            found.clear()
