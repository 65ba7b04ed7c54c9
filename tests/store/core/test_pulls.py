"""Pulls on the fast and on the slow path return what the oracle returns, damage included."""

import os
import pickle
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading import _pull
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult, GetMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.golden import load_dump
from tests.kit.oracle.pulls import OraclePull
from tests.kit.shim.memory import without_memory

LOG_FILE = 4096
CONFIG = StoreConfig(
    mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=400,
    max_message_size=2000, max_transfer_bytes_on_message_in_memory=3000,
    max_transfer_count_on_message_in_memory=12, max_transfer_bytes_on_message_in_disk=2000,
    max_transfer_count_on_message_in_disk=7, max_filter_message_size=220,
)  # fmt: skip
CHANGES: tuple[dict[str, Any], ...] = (
    {}, {"access_message_in_memory_max_ratio": 0}, {"check_crc_on_pull": True},
    {"enable_consume_queue_ext": True},
)  # fmt: skip
QUEUES = 3
PUTS = 150
FILTERS = [
    None, None, TagFilter("*"), TagFilter("a"), TagFilter("a || b"), TagFilter("é"),
    TagFilter("none"), TagFilter("||".join(["c", *map(str, range(20))])),
]  # fmt: skip


@pytest.fixture(
    scope="module", params=[(name, changes) for name in backend_names() for changes in CHANGES],
    ids=str,
)  # fmt: skip
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessageStore]:
    draw = random.Random(1)
    root = tmp_path_factory.mktemp("pulls")
    name, changes = request.param
    config = CONFIG.model_copy(update=changes)
    with MessageStore.open(root / "store", config, backend=name) as opened:
        for number in range(PUTS):
            body = bytes(draw.choice((0, 1, 50, 300, 900)))
            tags = {"TAGS": draw.choice("aabcé"), "KEYS": "k"}
            assert opened.put_message(Message("t", body, number % QUEUES, tags)).ok
        assert opened.max_offset("t", 0) == PUTS // QUEUES  # hands on what waits
        yield opened


def pulls(store: MessageStore, queue_id: int, offset: int, *limits: Any) -> list[GetMessageResult]:
    """Return what a pull finds by compiled code, unit by unit, and by the oracle."""
    queue = components_of(store).queues.queue("t", queue_id)
    return [
        store._puller.get("t", queue_id, offset, *limits),
        store._puller.get_from(queue, offset, *limits),
        OraclePull(store, *limits).of("t", queue_id, offset),
    ]


def reported(result: GetMessageResult) -> object:
    """Return all that a result says, its messages before and after its records were asked for."""
    first = [bytes(message.record) for message in result.messages()]
    assert b"".join(first) == result.raw
    fields = [
        getattr(result, name) for name in GetMessageResult.__match_args__ if name != "records"
    ]
    fields.append([bytes(record) for record in result.records])
    return first, fields, [message.body for message in result.messages()]


def compare(store: MessageStore, draw: random.Random, count: int) -> list[GetMessageResult]:
    results = []
    for _ in range(count):
        requested = (draw.randrange(QUEUES + 1), draw.randrange(-2, PUTS // QUEUES + 4),
                 draw.choice((0, 1, 5, 12, 32, 1 << 70)), draw.choice(FILTERS),
                 draw.choice((0, 500, 2000, 1 << 27, 1 << 70)))  # fmt: skip
        found, slow, expected = pulls(store, *requested)
        assert found.record_count() == slow.record_count() == len(expected.records)
        assert found.raw == b"".join(expected.records)
        assert found == slow == expected, requested
        assert reported(found) == reported(slow) == reported(expected), requested
        results.append(found)
    return results


def test_sound_pulls_are_alike(store: MessageStore) -> None:
    statuses = [result.status for result in compare(store, random.Random(2), 400)]
    assert {*statuses} == {
        GetMessageStatus.FOUND, GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_ONE,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY, GetMessageStatus.NO_MATCHED_MESSAGE,
    }  # fmt: skip
    unknown = statuses.count(GetMessageStatus.NO_MESSAGE_IN_QUEUE)
    assert {*store.metrics.snapshot().read_fallbacks.values()} <= {0, unknown}


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize(("limit", "expected"), [(0, 1), (1, 1), (2, 2)])
def test_a_pull_has_one_message_whatever_the_limit(
    tmp_path: Path, place: str, limit: int, expected: int
) -> None:
    """RocketMQ compares the count of those before, and never refuses the first."""
    name = f"max_transfer_count_on_message_in_{place}"
    ratio = 40 if place == "memory" else 0
    changes = {name: limit, "access_message_in_memory_max_ratio": ratio}
    with MessageStore.open(tmp_path, CONFIG.model_copy(update=changes)) as store:
        for _ in range(4):
            assert store.put_message(Message("t", b"x")).ok
        assert store.max_offset("t", 0) == 4  # dispatches
        for found in pulls(store, 0, 0, 4, None, 1 << 20):
            assert found.record_count() == expected


@pytest.mark.parametrize("place", ["memory", "disk", "any"])
@pytest.mark.parametrize("less", [0, 1])
def test_a_pull_has_all_bytes_that_a_limit_allows(tmp_path: Path, place: str, less: int) -> None:
    """RocketMQ refuses the message with which the result would be longer (``isTheBatchFull``)."""
    with MessageStore.open(tmp_path, CONFIG) as store:
        results = [store.put_message(Message("t", bytes(number))) for number in (200, 1, 90, 40)]
        sizes = [result.appended.size for result in results if result.appended]
    for count in (1, 2, 3, 4):
        limit = sum(sizes[:count]) - less
        changes = {
            "access_message_in_memory_max_ratio": 0 if place == "disk" else 40,
            f"max_transfer_bytes_on_message_in_{place.replace('any', 'memory')}": limit,
        }
        if place == "any":
            changes = {}
        with MessageStore.open(tmp_path, CONFIG.model_copy(update=changes)) as store:
            for found in pulls(store, 0, 0, 4, None, limit if place == "any" else 1 << 20):
                assert found.record_count() == max(count - less, 1)


def test_a_pull_reads_on_in_steps_that_double(tmp_path: Path) -> None:
    """Up to a limit: with a filter, a pull may pass over hundreds of units."""
    config = CONFIG.model_copy(update={"mapped_file_size_consume_queue": 20 * 6000})
    with MessageStore.open(tmp_path, config) as store:
        pull = _pull.Pull(store._puller, 100, 4000, None, 1 << 20)
        assert pull.starts(0, 5000)
        assert pull.end == 4100
        read, steps = 100 + pull.first, list[int]()
        while step := pull.further(read):
            steps.append(step)
            read += step
        assert read == 4100
        assert steps == [32, 44, 88, 176, 352, 704, 800, 800, 800, 192]


def test_a_pull_for_which_there_is_no_memory_fails_and_the_next_one_does_not(
    store: MessageStore,
) -> None:
    get = partial(store._puller.get, "t", 0, 0, 3, None, 1 << 20)

    def works() -> None:
        assert [message.queue_offset for message in get().messages()] == [0, 1, 2]

    assert without_memory("_pull", get, works) == 1


@pytest.mark.parametrize("units", [1, 2, 3])
def test_a_pull_ends_with_its_queue_file(tmp_path: Path, units: int) -> None:
    config = CONFIG.model_copy(update={"mapped_file_size_consume_queue": 20 * units})
    with MessageStore.open(tmp_path, config, backend="file") as store:
        for _ in range(10):
            assert store.put_message(Message("t", b"x")).ok
        assert store.max_offset("t", 0) == 10  # dispatches
        for found in pulls(store, 0, 2 * units, 10, None, 1 << 20):
            assert found.record_count() == units


def damage(draw: random.Random, file: Path, store: MessageStore) -> tuple[int, bytes]:
    """Overwrite a few bytes of a record, most often of its head; return what was there."""
    block = components_of(store).queues.queue("t", draw.randrange(QUEUES)).read_units(0, PUTS)
    phys = [phy for phy, _, _ in block.rows() if phy // LOG_FILE * LOG_FILE == int(file.name)]
    at = draw.choice(phys) % LOG_FILE + draw.choice(
        (0, 1, 3, 4, 7, 20, 28, 35, 36, 39, 84, 87, 88, 89, 95)
    )
    with file.open("r+b") as opened:
        before = os.pread(opened.fileno(), 2, at)
        os.pwrite(opened.fileno(), draw.choice((b"\xff", b"\0", b"\x40\x01", b"\x7f\xff")), at)
    return at, before


def test_damaged_pulls_are_alike(store: MessageStore) -> None:
    files = sorted(components_of(store).paths.commit_log.iterdir())[:-1]
    left_out = set()
    for number in range(100):
        draw = random.Random(f"damaged {number}")
        file = draw.choice(files)
        at, before = damage(draw, file, store)
        for result in compare(store, draw, 12):
            left_out |= {damaged.reason.partition("(")[0] for damaged in result.damaged}
        with file.open("r+b") as opened:
            os.pwrite(opened.fileno(), before, at)
    assert len(left_out) >= 4, "damage of several kinds has to be met"


def test_a_record_damaged_after_the_pull_is_left_out_of_the_messages(store: MessageStore) -> None:
    phy = store.get_message("t", 1, 1, 1).messages()[0].phy_offset
    for result in pulls(store, 1, 0, 3, None, 1 << 20):
        file = components_of(store).paths.commit_log / f"{phy // LOG_FILE * LOG_FILE:020d}"
        with file.open("r+b") as opened:
            os.pwrite(opened.fileno(), b"\x7f", phy % LOG_FILE + 84)
            messages = result.messages()
            os.pwrite(opened.fileno(), b"\0", phy % LOG_FILE + 84)
        assert [message.queue_offset for message in messages] == [0, 2] == result.queue_offsets
        assert [damaged.queue_offset for damaged in result.damaged] == [1]
        assert result.total_bytes == sum(map(len, result.records))
        assert "body runs past" in result.damaged[0].reason


def test_a_damaged_record_where_the_log_begins_has_not_expired(store: MessageStore) -> None:
    log = components_of(store).log
    phy = log.min_phy_offset()
    units = components_of(store).queues.queue("t", 0).read_units(0, 1)
    assert next(iter(units.rows()))[0] == phy
    with (components_of(store).paths.commit_log / f"{phy:020d}").open("r+b") as file:
        before = os.pread(file.fileno(), 4, 4)  # the magic code
        os.pwrite(file.fileno(), b"\1\2\3\4", 4)
        found = pulls(store, 0, 0, 3, None, 1 << 20)
        reports = [
            ([each.queue_offset for each in result.damaged], result.queue_offsets)
            for result in found
        ]
        os.pwrite(file.fileno(), before, 4)
    assert reports == [([0], [1, 2, 3])] * 3


@pytest.mark.parametrize("hole", [range(5, 6), range(12), range(7, 23), range(30, 50)], ids=str)
def test_pulls_at_a_hole_are_alike(tmp_path: Path, hole: range) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as store:
        for number in range(50):
            assert store.put_message(Message("t", bytes(number), 0, {"TAGS": "a"})).ok
        assert store.max_offset("t", 0) == 50
        for number in hole:
            path = tmp_path / "consumequeue" / "t" / "0" / f"{number // 20 * 400:020}"
            with path.open("r+b") as file:
                os.pwrite(file.fileno(), bytes(20), number % 20 * 20)
        statuses = {result.status for result in compare(store, random.Random(3), 100)}
        assert GetMessageStatus.OFFSET_FOUND_NULL in statuses


@pytest.mark.parametrize("backend", backend_names())
def test_pulls_of_expired_files_are_alike(tmp_path: Path, backend: str) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend=backend, housekeeping=False) as store:
        for number in range(PUTS):
            message = Message("t", b"x" * 200, number % QUEUES, {"TAGS": "ab"[number % 2]})
            assert store.put_message(message).ok
        assert store.max_offset("t", 0) == PUTS // QUEUES
        components_of(store).log.files.delete_before(3 * LOG_FILE)
        low = store.min_offset("t", 0)
        assert low > 0
        compare(store, random.Random(4), 60)
        queue = components_of(store).queues.queue("t", 0)
        pull = _pull.Pull(store._puller, 0, 5, None, 1 << 20)
        assert pull.starts(0, low)  # as it was before the expiry
        for offset, (phy, size, code) in enumerate(queue.read_units(0, 2).rows()):
            assert pull.add(offset, phy, size, code)
        assert pull.finished() == GetMessageResult(
            GetMessageStatus.MESSAGE_WAS_REMOVING, pull.result.next_begin_offset, 0, low
        )


def test_pulls_of_batch_queues_are_alike(golden_folder: Path) -> None:
    queues = load_dump("special-default")["queues"]
    queue = next(each for each in queues if each["type"] == "BatchCQ" and each["units"])
    key = queue["topic"], queue["queueId"]
    with MessageStore.open(golden_folder / "special-default", read_only=True) as store:
        for offset in range(queue["min"] - 1, queue["max"] + 2):
            for max_msgs in (1, 5, 1000):
                for tags in (None, TagFilter("none")):
                    found = store.get_message(*key, offset, max_msgs, tags)
                    assert found == OraclePull(store, max_msgs, tags, 1 << 30).of(*key, offset)


def test_a_pull_begins_once(store: MessageStore) -> None:
    pull = _pull.Pull(store._puller, 0, 5, None, 1 << 20)
    with pytest.raises(TypeError, match="begun already"):
        pull.__init__(store._puller, 0, 5, None, 1 << 20)


def test_messages_of_two_files_hold_on_to_their_own(tmp_path: Path) -> None:
    kept = []
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for number in range(40):
            assert store.put_message(Message("t", b"%d" % number * 100, 0)).ok
        for offset in range(0, 40, 2):
            kept += store.get_message("t", 0, offset, 2).messages()
        files = {message.phy_offset // LOG_FILE for message in kept}
        pairs = zip(kept[::2], kept[1::2], strict=True)
        assert any(one.phy_offset // LOG_FILE < two.phy_offset // LOG_FILE for one, two in pairs)
        components_of(store).log.files.delete_before(1 << 40)
    assert len(files) > 2
    for number in reversed(range(40)):
        message = kept.pop()
        assert message.body == b"%d" % number * 100
        assert bytes(message.record).count(b"%d" % number) >= 100


def test_one_message_holds_on_to_its_file_alone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        for number in range(40):
            assert store.put_message(Message("t", b"%d" % number * 100, 0)).ok
        result = store.get_message("t", 0, 0, 12)
        kept = result.messages()[5]
        del result
        components_of(store).log.files.delete_before(1 << 40)
    assert kept.body == b"5" * 100
    assert kept.record[88:91] == b"555"
    assert isinstance(kept.record, memoryview)
    assert kept.record.readonly


FIELDS: tuple[Any, ...] = (
    GetMessageStatus.FOUND,
    3,
    1,
    9,
    [memoryview(b"x")],
    [2],
    1,
    range(1, 3),
    [],
)


def test_results_are_values() -> None:
    result = GetMessageResult(*FIELDS)
    assert result == GetMessageResult(*FIELDS)
    assert result != GetMessageResult(*FIELDS[:7])
    assert result.__eq__(FIELDS) is NotImplemented
    assert [getattr(result, name) for name in GetMessageResult.__match_args__] == [*FIELDS]
    assert repr(result) == (
        "GetMessageResult(status=<GetMessageStatus.FOUND: 1>, next_begin_offset=3, min_offset=1,"
        " max_offset=9, records=<1 views>, queue_offsets=[2], total_bytes=1, hole=range(1, 3),"
        " damaged=[])"
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_results_are_filled_in_one_by_one() -> None:
    result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 0, 0, 0)
    assert (result.records, result.queue_offsets, result.damaged) == ([], [], [])
    assert (result.total_bytes, result.hole, result.record_count()) == (0, None, 0)
    assert result.messages() == []
    result.records.append(memoryview(b"no record"))
    result.queue_offsets.append(4)
    result.total_bytes = 9
    assert result.record_count() == 1
    assert result.messages() == []
    assert (result.status, result.records, result.total_bytes) == (
        GetMessageStatus.MESSAGE_WAS_REMOVING, [], 0,
    )  # fmt: skip
    assert [damaged.queue_offset for damaged in result.damaged] == [4]
    result.leave_out(5, 6, 7, CorruptionError("odd"))
    assert result.damaged[1] == (5, 6, 7, "odd")
    assert pickle.loads(pickle.dumps(result)) == result
