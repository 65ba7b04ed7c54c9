"""Queries by key on the fast and on the slow path find the same, whatever lies there."""

import os
import random
import signal
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cqstore.store.core._maps import FileMap
from cqstore.store.errors import StoreConfigError, StoreError
from cqstore.store.index._chain import ChainFile, ChainFiles
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.log._log import FastLog
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading._query import FastQuery
from cqstore.store.settings.config import StoreConfig
from tests.kit.chains import chain_file, walk_chain
from tests.kit.declining import Declines, decline_walks
from tests.kit.waiting import until

LOG_FILE = 1 << 15
CONFIG = StoreConfig(
    mapped_file_size_commit_log=LOG_FILE, max_message_size=500, max_hash_slot_num=7,
    max_index_num=120,
)  # fmt: skip
TOPICS = ["t", "u", "tö"]
WORDS = ["a", "b", "cc", "ä", "\ufffd", "a\u00a0b", "x" * 40]
ALWAYS = (0, (1 << 63) - 1)


def fill(store: MessageStore, draw: random.Random, count: int) -> None:
    for number in range(count):
        properties = {"KEYS": " ".join(draw.choices(WORDS, k=draw.randrange(1, 4)))}
        if draw.random() < 0.5:
            properties["UNIQ_KEY"] = draw.choice((*WORDS, "a b", str(number)))
        if draw.random() < 0.2:
            del properties["KEYS"]
        message = Message(draw.choice(TOPICS), b"%d" % number, 0, properties)
        assert store.put_message(message).ok


@pytest.fixture(scope="module", params=[False, True])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessageStore]:
    root = tmp_path_factory.mktemp("queries") / "store"
    with MessageStore.open(root, CONFIG) as opened:
        fill(opened, random.Random(1), 400)
        assert opened.max_offset("t", 0)  # hands on what waits
        if not request.param:
            yield opened
    if request.param:
        with MessageStore.open(root, CONFIG, read_only=True) as opened:
            yield opened


def outcome(ask: Callable[[], list[Any]]) -> object:
    try:
        return [bytes(message.record) for message in ask()]
    except StoreError as exc:
        return type(exc), str(exc)


def matching(store: MessageStore, topic: str, key: str, begin: int, end: int) -> list[bytes]:
    """Return every record with topic, key and store time, in log order."""
    found = []
    for record in components_of(store).log.scan(0):
        message = store.message_by_offset(record.phy_offset)
        properties = message.properties
        keys = [*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY")]
        if message.topic == topic and key in keys and begin <= message.store_timestamp <= end:
            found.append(bytes(message.record))
    return found


def compare(store: MessageStore, requested: tuple[str, str, int, int, int]) -> object:
    index = components_of(store).index
    assert index is not None
    found = index.query(*requested)
    with pytest.MonkeyPatch.context() as patch:
        decline_walks(patch)
        assert index.query(*requested) == found, requested
    topic, key, most, begin, end = requested
    messages = outcome(lambda: store.query_message(topic, key, most, begin, end))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._queries, "fast", Declines())
        slow = outcome(lambda: store.query_message(topic, key, most, begin, end))
    assert messages == slow, requested
    return messages


def any_question(draw: random.Random, now: int) -> tuple[str, str, int, int, int]:
    begin, end = draw.choice((ALWAYS, (now - 1000, now), (now, now + 5000), (5, 0), (-9, 1 << 70)))
    key = draw.choice((*WORDS, "", "a b", "3", "100", "none", "\ud800"))
    return draw.choice((*TOPICS, "none", "")), key, draw.choice((0, 1, 5, 64, 1 << 70)), begin, end


def times(store: MessageStore) -> list[int]:
    index = components_of(store).index
    assert index is not None
    return [file.begin_timestamp for file in index.files]


@pytest.mark.slow
def test_sound_queries_are_alike(store: MessageStore) -> None:
    draw, met = random.Random(2), 0
    for _ in range(400):
        try:
            requested = any_question(draw, draw.choice(times(store)))
            found = compare(store, requested)
        except UnicodeEncodeError:
            pytest.fail("a surrogate is no reason to fail")
        topic, key, most, begin, end = requested
        if begin > end:
            assert found == (StoreConfigError, f"begin {begin} is later than end {end}")
            continue
        every = matching(store, topic, key, begin, end) if key else []
        assert found == every[max(len(every) - most, 0) :], requested
        met += len(every) > 1
    assert met > 50


@pytest.mark.slow
@pytest.mark.parametrize("what", ["index", "commitlog"])
def test_damaged_queries_are_alike(store: MessageStore, what: str) -> None:
    files = sorted(path for path in (store.root / what).iterdir() if path.is_file())
    starts = [record.phy_offset for record in components_of(store).log.scan(0)]
    refused = 0
    for number in range(150):
        draw = random.Random(f"{what} {number}")
        new = draw.choice((b"\xff", b"\0\0", b"\x7f\xff\xff\xff", b"\x01"))
        file, at = draw.choice(files), draw.randrange(CONFIG.max_index_num * 20)
        if what == "commitlog":
            phy = draw.choice(starts)
            file = files[phy // LOG_FILE]
            at = phy % LOG_FILE + draw.choice((0, 2, 4, 39, 84, 87, draw.randrange(180)))
        fd = os.open(file, os.O_RDWR)
        before = os.pread(fd, len(new), at)
        os.pwrite(fd, new, at)
        for _ in range(6):
            refused += isinstance(compare(store, any_question(draw, times(store)[0])), tuple)
        os.pwrite(fd, before, at)
        os.close(fd)
    assert refused or what == "index"


@pytest.mark.parametrize("arguments", [
    (0, 5), (5, 0), (-1, 5), (5, -1), (1 << 62, 5), (5, 1 << 62), (1 << 62, 1 << 62),
])  # fmt: skip
def test_odd_geometries_lead_nowhere(tmp_path: Path, arguments: tuple[int, int]) -> None:
    path = tmp_path / "index"
    path.write_bytes(random.Random(5).randbytes(4000))
    for read_only in (False, True):
        mapped = mapped_file(path)
        walked = walk_chain([], mapped, *arguments, 7, 32, *ALWAYS, 0, 100, read_only=read_only)
        assert walked is None or walked == []


class OddFile(ChainFile):
    count = 5


@pytest.mark.parametrize("geometry", [
    (0, 5), (5, 0), (-1, 5), (5, -1), (1 << 62, 5), (5, 1 << 62), (1 << 62, 1 << 62),
])  # fmt: skip
def test_odd_geometries_lead_to_no_file(
    store: MessageStore, tmp_path: Path, geometry: tuple[int, int]
) -> None:
    path = tmp_path / "index"
    path.write_bytes(random.Random(5).randbytes(4000))
    index: Any = ChainFiles()
    file: Any = OddFile()
    file.begin_timestamp, file.end_timestamp = 0, 1
    file.waiting, file.read_only, file.geometry = (IndexBatch(), 100), False, geometry
    file.mapped = mapped_file(path)
    index.files, index.closed = (file,), False
    plain = FastQuery(FastLog(components_of(store).log), index, LOG_FILE)
    assert not plain.query("t", "a", 32, *ALWAYS)


def test_files_without_their_fields_and_of_other_kinds_are_left(store: MessageStore) -> None:
    index: Any = ChainFiles()
    plain = FastQuery(FastLog(components_of(store).log), index, LOG_FILE)
    assert plain.query("t", "a", 32, *ALWAYS) is None
    for files in ((OddFile(),), (object(),), (None,)):
        index.files = files
        assert plain.query("t", "a", 32, *ALWAYS) is None
    index.files = ()
    assert plain.query("t", "a", 32, *ALWAYS) == []
    index.closed = True
    assert plain.query("t", "a", 32, *ALWAYS) is None


def test_the_core_answers_by_itself_unless_the_key_waits_in_memory(tmp_path: Path) -> None:
    never = 3_600_000
    config = CONFIG.model_copy(update={
        "flush_interval_commit_log": never, "flush_commit_log_thorough_interval": never,
        "flush_interval_consume_queue": never, "flush_consume_queue_thorough_interval": never,
    })  # fmt: skip
    with MessageStore.open(tmp_path / "store", config) as store:
        for key in ("first", "disk", "disk"):
            assert store.put_message(Message("t", b"x", 0, {"KEYS": key})).ok
        store.flush()
        assert store.put_message(Message("t", b"x", 0, {"KEYS": "memory"})).ok
        key_index = components_of(store).index
        assert key_index is not None
        records = [record.phy_offset for record in components_of(store).log.scan(0)]
        assert store.query_message("t", "memory")  # hands it on: now it waits in the index
        assert places(store, "disk", 9) == [records[1], records[2]]
        assert places(store, "disk", 1) == [records[2]]
        assert places(store, "memory", 9) is None
        assert places(store, "none", 9) == []
        store.flush()
        assert places(store, "memory", 9) == [records[3]]
    assert places(store, "disk", 9) is None  # closed


def test_a_reader_finds_what_its_log_has_though_the_index_goes_on(tmp_path: Path) -> None:
    """Keys that the writer wrote down later are found, messages that came later are not."""
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, housekeeping=False) as writer:
        first = writer.put_message(Message("t", b"1", 0, {"KEYS": "a"}))
        writer.flush()
        assert first.appended is not None
        began = first.appended.store_timestamp
        until(lambda: time.time_ns() // 1_000_000 >= began + 1000)
        assert writer.put_message(Message("t", b"2", 0, {"KEYS": "a"})).ok

        def found(*times: int) -> list[bytes]:
            answers = []
            for plain in (reader._queries.fast, Declines()):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(reader._queries, "fast", plain)
                    messages = reader.query_message("t", "a", 32, *times)
                answers.append([message.body for message in messages])
            assert answers[0] == answers[1]
            return answers[0]

        with MessageStore.open(root, CONFIG, read_only=True) as reader:
            assert found() == [b"1"]
            writer.flush()
            assert found(began + 1000) == [b"2"]
            assert writer.put_message(Message("t", b"3", 0, {"KEYS": "a"})).ok
            writer.flush()
            assert found() == [b"1", b"2"]


@pytest.mark.parametrize("flushed", [False, True])
def test_a_query_finds_as_many_as_are_asked_for_and_says_that_there_are_more(
    tmp_path: Path, *, flushed: bool
) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for number in range(150):
            assert store.put_message(Message("t", b"%d" % number, 0, {"KEYS": "a"})).ok
        assert store.put_message(Message("t", b"other", 0, {"KEYS": "b"})).ok
        if flushed:
            store.flush()
        for ask in (store.query_message, store.query_index_files):
            for most in (0, 1, 32, 64, 127, 128, 129, 149, 150, 151, 1000):
                found = ask("t", "a", most)
                assert [int(each.body) for each in found] == [*range(max(150 - most, 0), 150)]
                assert found.has_more is (most < 150)
            assert ask("t", "a", -1) == []


def test_no_more_are_found_than_the_settings_allow(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"max_msgs_num_batch": 3})
    with MessageStore.open(tmp_path / "store", config) as store:
        for number in range(9):
            assert store.put_message(Message("t", b"%d" % number, 0, {"KEYS": "a"})).ok
        store.flush()
        found = store.query_message("t", "a", 32)
        assert found.has_more
        bodies = [message.body for message in found]
        assert bodies == [b"6", b"7", b"8"]


@pytest.mark.parametrize("later", [0, 31, 32, 40, 300])
def test_a_key_is_found_behind_many_of_another_that_has_its_hash(
    tmp_path: Path, later: int
) -> None:
    """``Aa`` and ``BB`` have one hash; RocketMQ ends where the others fill the answer."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        wanted = [Message("t", body, 0, {"KEYS": "Aa"}) for body in (b"first", b"second")]
        assert all(each.ok for each in store.put_messages(wanted))
        others = [Message("t", b"other", 0, {"KEYS": "BB"})] * later
        assert all(each.ok for each in store.put_messages(others))
        store.flush()
        assert [found.body for found in store.query_message("t", "Aa", 32)] == [b"first", b"second"]
        assert [found.body for found in store.query_message("t", "Aa", 1)] == [b"second"]
        assert len(store.query_message("t", "BB", 32)) == min(later, 32)


def test_a_closed_index_without_files_answers_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        assert places(store, "k", 9) == []
    assert places(store, "k", 9) is None


def places(store: MessageStore, key: str, most: int) -> list[int] | None:
    """Return where the core finds a key by itself."""
    found = store._queries.fast.query("t", key, most, *ALWAYS)
    return None if found is None else [message.phy_offset for message in found]


def test_a_record_whose_topic_is_no_text_is_refused_alike(store: MessageStore) -> None:
    index = components_of(store).index
    assert index is not None
    phy = min(index.query("t", "a", 64, *ALWAYS))
    record = components_of(store).log.message(phy)
    at = bytes(record.record).index(b"\x01t", 88) + 1
    path = components_of(store).paths.commit_log / f"{phy // LOG_FILE * LOG_FILE:020d}"
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"\xff", phy % LOG_FILE + at)
        found = compare(store, ("t", "a", 64, *ALWAYS))
        os.pwrite(file.fileno(), b"t", phy % LOG_FILE + at)
    assert isinstance(found, tuple)
    assert "not UTF-8" in found[1]


def test_entries_that_were_drained_since_are_those_that_were_pending(tmp_path: Path) -> None:
    """They were found among the keys in memory already, and are passed over on disk."""
    slots, entries = 1, 9
    rows = [(7, 100 * number, 0, number - 1) for number in range(1, 6)]
    data = bytes(36) + (6).to_bytes(4, "big") + (5).to_bytes(4, "big") + bytes(20)
    data += b"".join(struct.pack(">iqii", *row) for row in rows)
    path = tmp_path / "index"
    path.write_bytes(data)
    for drained in (1, 3, 6):
        expected = [100 * number for number in range(drained - 1, 0, -1)]
        assert walk_chain(
            [], mapped_file(path), slots, entries, 7, 32, *ALWAYS, 5, drained, read_only=False
        ) == expected  # fmt: skip


def test_the_walk_ends_at_an_entry_that_is_too_old(tmp_path: Path) -> None:
    """Also where a damaged one behind it is not."""
    rows = [(7, 100 * number, diff, number - 1) for number, diff in enumerate((0, 9, 0, 7), 1)]
    data = bytes(36) + (5).to_bytes(4, "big") + (4).to_bytes(4, "big") + bytes(20)
    path = tmp_path / "index"
    path.write_bytes(data + b"".join(struct.pack(">iqii", *row) for row in rows))
    assert walk_chain(
        [], mapped_file(path), 1, 9, 7, 32, 5000, ALWAYS[1], 5, 9, read_only=False
    ) == [400]  # fmt: skip


def long_chain(path: Path, count: int) -> Any:
    """Make an index file with one slot, whose oldest entry alone has the hash 7."""
    rows = np.zeros(
        count, [("key_hash", ">i4"), ("phy", ">i8"), ("diff", ">i4"), ("before", ">i4")]
    )
    rows["key_hash"], rows["phy"], rows["before"] = 8, np.arange(count) + 1, np.arange(count)
    rows["key_hash"][0] = 7
    head = bytes(36) + (count + 1).to_bytes(4, "big") + count.to_bytes(4, "big") + bytes(20)
    path.write_bytes(head + rows.tobytes())
    return mapped_file(path)


@pytest.mark.parametrize("count", [4095, 4097, 66_000])
def test_a_chain_is_walked_however_long_it_is(tmp_path: Path, count: int) -> None:
    """One tag of many messages makes one, and a key may share its slot."""
    mapped = long_chain(tmp_path / "index", count)
    found = walk_chain([], mapped, 1, count + 1, 7, 32, *ALWAYS, 0, count + 1, read_only=False)
    assert found == [1]


def test_signals_are_served_within_a_long_walk(tmp_path: Path) -> None:
    """No line of Python runs from one walk to the next, so nothing else serves them."""
    mapped = long_chain(tmp_path / "index", 66_000)
    walk = partial(
        chain_file(mapped, 1, 66_001, 0, 66_001, read_only=False).walk, wanted=7, max_num=32,
        begin=0, end=ALWAYS[1], drained=66_001, is_checked=False,
    )  # fmt: skip
    walks = iter([list[int]()] * 100_000)

    def ring(*_: object) -> None:
        raise TimeoutError

    def walk_on() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        deque(map(walk, walks), maxlen=0)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(TimeoutError):
            walk_on()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert length_hint(walks)


def mapped_file(path: Path) -> Any:
    with path.open("rb") as file:
        return FileMap(file.fileno(), path.stat().st_size)


class OtherLog:
    """A log whose fields lie elsewhere: its methods are asked, and how often."""

    def __init__(self, real: CommitLog) -> None:
        self.real = real
        self.requested: list[int] = []

    def readable(self, offset: int) -> tuple[int, object, int] | None:
        self.requested.append(offset)
        return self.real.readable(offset)

    def min_phy_offset(self) -> int:
        return self.real.min_phy_offset()

    def max_phy_offset(self) -> int:
        return self.real.max_phy_offset()


def requested(store: MessageStore, log: Any, index: Any) -> list[bytes] | None:
    """Return what the core finds of one key in a log and an index."""
    plain = FastQuery(FastLog(log), index, LOG_FILE)
    found = plain.query("t", "cc", 64, *ALWAYS)
    return None if found is None else [bytes(message.record) for message in found]


def test_a_log_that_keeps_its_fields_elsewhere_is_asked(store: MessageStore) -> None:
    index = components_of(store).index
    assert index is not None
    places = sorted(index.query("t", "cc", 64, *ALWAYS))
    assert len(places) > 5
    other, own = OtherLog(components_of(store).log), components_of(store).log
    found = requested(store, own, index)
    assert found == [bytes(own.message(place).record) for place in places]
    assert requested(store, other, index) == found
    # each file is held while its records follow each other
    assert {place // LOG_FILE for place in other.requested} == {
        place // LOG_FILE for place in places
    }
    assert len(other.requested) == len({place // LOG_FILE for place in places})


def test_places_outside_the_log_take_the_slow_path(store: MessageStore) -> None:
    """An index that is ahead of its log: that has no answer to give."""
    index = components_of(store).index
    assert index is not None
    own = components_of(store).log
    last = max(index.query("t", "cc", 64, *ALWAYS))

    class Shorter(OtherLog):
        def readable(self, offset: int) -> tuple[int, object, int] | None:
            file = super().readable(offset)
            assert file is not None
            start, mapped, there = file
            return start, mapped, min(there, last - start)

    assert requested(store, Shorter(own), index) is None


def test_a_file_of_another_kind_is_left_to_the_log(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the fields of its own files lie is not forgotten over it."""
    index = components_of(store).index
    assert index is not None
    files = components_of(store).log.files
    expected = requested(store, components_of(store).log, index)
    places = sorted(index.query("t", "cc", 64, *ALWAYS))
    first = files.find(places[0])
    assert first is not None
    assert places[-1] >= first.file_from_offset + LOG_FILE
    other: Any = SimpleNamespace(
        file_from_offset=first.file_from_offset, mapped=first.map(), heap=None,
        wrote_position=first.wrote_position, readable_position=first.readable_position,
    )  # fmt: skip
    plain = FastQuery(FastLog(components_of(store).log), index, LOG_FILE)
    monkeypatch.setattr(files, "by_start", {**files.by_start, first.file_from_offset: other})
    for _ in range(2):
        messages = plain.query("t", "cc", 64, *ALWAYS)
        assert messages is not None
        assert [bytes(message.record) for message in messages] == expected


def test_a_record_with_entries_in_two_files_counts_once(tmp_path: Path) -> None:
    """Also where no more records are wanted than there are entries."""
    config = CONFIG.model_copy(update={"max_index_num": 5})  # four entries
    with MessageStore.open(tmp_path / "store", config) as store:
        for keys in ("a", "a", "a", "b a", "a a a", "a b"):
            assert store.put_message(Message("t", keys.encode(), 0, {"KEYS": keys})).ok
        store.flush()
        index = components_of(store).index
        assert index is not None
        assert len(index.files) > 2
        starts = [record.phy_offset for record in components_of(store).log.scan(0)]
        for most in range(1, 8):
            expected = starts[::-1][:most]
            assert index.query("t", "a", most, *ALWAYS) == expected
            found = store.query_message("t", "a", most)
            assert [message.phy_offset for message in found] == expected[::-1]
