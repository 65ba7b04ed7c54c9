"""Ranges of store times beside a look at every record, whatever the clock did."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cqstore
from cqstore.embedded.log import EmbeddedLog
from cqstore.store.errors import RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.java_numbers import LONG_MAX, LONG_MIN
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.store_times import time_ms, time_range
from cqstore.store.service.reading.topic_reader import TopicDamage, read_topic
from cqstore.store.settings.config import StoreConfig
from tests.kit.declining import Declines
from tests.kit.operating import rows as upper_rows
from tests.kit.shim.clock import CLOCK
from tests.kit.verbs import call, rows

CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 12, mapped_file_size_consume_queue=20 * 7,
    max_message_size=500, max_hash_slot_num=3, max_index_num=9,
)  # fmt: skip
NOON = 1_795_521_600_000
HOUR = 3_600_000
QUEUES = 2
CLOCKS: dict[str, list[int]] = {
    "several records of one ms": [NOON + at // 5 for at in range(40)],
    "set back by some ms": [NOON + at * 400 - (at > 20) * 2500 for at in range(40)],
    "set back by hours": [NOON + (at % 11) * HOUR + at for at in range(40)],
    "only one late record": [NOON + at + (at == 17) * HOUR for at in range(40)],
    "before 1970": [NOON + at if at % 3 else -at * HOUR for at in range(40)],
    "unlike any clock": [(-1) ** at * (9 * 10**12 - at * 1000) for at in range(40)],
    "falling all the time": [NOON - at * 999 for at in range(40)],
}  # fmt: skip


class Stored(NamedTuple):
    """What a look at a record tells."""

    queue_id: int
    queue_offset: int
    at: int
    number: int


@pytest.fixture(scope="module", params=product(CLOCKS, ["file", "rocksdb"]), ids=" ".join)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was written while the clock had these times; several files of each kind."""
    clock, backend = request.param
    root = tmp_path_factory.mktemp("ranges") / "store"
    times = iter(CLOCKS[clock])
    with pytest.MonkeyPatch.context() as patch:
        opened = MessageStore.open(root, CONFIG, backend=backend, housekeeping=False)
        with opened as store:
            for number, at in enumerate(times):
                patch.setattr(CLOCK, "stopped", at * 1_000_000 or 1)
                body = b"%d" % number
                put = store.put_message(
                    Message("t", body, number % QUEUES, {"KEYS": f"all k{number % 4}"})
                )
                assert put.ok
    return root


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with MessageStore.open(root, CONFIG, read_only=True) as opened:
        yield opened


def every(store: MessageStore) -> list[Stored]:
    found = []
    for record in components_of(store).log.scan(0):
        message = store.message_by_offset(record.phy_offset)
        at = message.store_timestamp
        found.append(Stored(message.queue_id, message.queue_offset, at, int(message.body)))
    assert len(found) == 40
    return found


def ends(records: list[Stored]) -> list[int | None]:
    """Return times at and around those of the records."""
    known = sorted({each.at for each in records})
    some = [*known[::7], known[0], known[-1]]
    return [None, *sorted({at + by for at in some for by in (-1, 0, 1)})]


def ranges(records: list[Stored], count: int) -> list[tuple[int | None, int | None, list[Stored]]]:
    """Return ``count`` ranges, that without ends first, and what is of them, in log order."""
    found = []
    for begin, end in product(ends(records), repeat=2):
        low = LONG_MIN if begin is None else begin
        high = LONG_MAX if end is None else end
        if low <= high:
            found.append((begin, end, [each for each in records if low <= each.at <= high]))
    return [found[0], *random.Random(7).sample(found[1:], min(count, len(found) - 1))]


def numbers(found: list[Stored]) -> list[int]:
    return sorted(each.number for each in found)


def test_the_clock_is_in_the_records(store: MessageStore, request: pytest.FixtureRequest) -> None:
    clock = request.node.callspec.params["root"][0]
    assert [each.at for each in every(store)] == CLOCKS[clock]


def test_readers_give_what_is_of_the_range(store: MessageStore) -> None:
    records = every(store)
    log = EmbeddedLog(store)
    for begin, end, wanted in ranges(records, 25):
        found = [int(each.message.body) for each in read_topic(store, "t", begin, end)]
        assert sorted(found) == numbers(wanted), (begin, end)
        assert sorted(int(each.body) for each in log.read("t", begin, end)) == sorted(found)
        for queue_id in range(QUEUES):
            mine = [each.queue_offset for each in wanted if each.queue_id == queue_id]
            one = read_topic(store, "t", begin, end, queue_ids={queue_id}, batch=3)
            assert [each.queue_offset for each in one] == mine


def test_queries_by_key_compare_the_time_of_each_record(store: MessageStore) -> None:
    records = every(store)
    for begin, end, wanted in ranges(records, 25):
        requested: list[Callable[..., Any]] = [store.query_message, store.query_index_files]
        for ask, key, most in product(requested, ("all", "k1"), (2, 100)):
            mine = [each.number for each in wanted if key == "all" or each.number % 4 == 1]
            found = ask("t", key, most, begin, end)
            assert [int(each.body) for each in found] == mine[-most:], (begin, end, key, most)
            assert found.has_more is (len(mine) > most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components_of(store).queries, "fast", Declines())
        for begin, end, wanted in ranges(records, 25):
            found = store.query_message("t", "all", 5, begin, end)
            assert sorted(int(each.body) for each in found) == numbers(wanted[-5:])


def test_a_time_leads_to_the_first_and_the_last_of_its_side(store: MessageStore) -> None:
    records = every(store)
    for at in filter(None, ends(records)):
        for queue_id in range(QUEUES):
            mine = [each for each in records if each.queue_id == queue_id]
            later = [each.queue_offset for each in mine if each.at >= at]
            earlier = [each.queue_offset for each in mine if each.at <= at]
            lower = store.offset_at_time("t", queue_id, at)
            upper = store.offset_at_time("t", queue_id, at, BoundaryType.UPPER)
            assert lower == (later[0] if later else len(mine)), at
            assert upper == (earlier[-1] if earlier else 0), at


def test_scans_have_the_rows_of_the_range(root: Path, store: MessageStore) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa  # noqa: PLC0415

    for begin, end, wanted in ranges(every(store), 6):
        table = pa.table(
            cqstore.scan(root, "t", table="units", begin=begin, end=end, config=CONFIG)
        )
        places = [*zip(*(table[name].to_pylist() for name in ("queue_id", "queue_offset")))]  # noqa: B905
        assert sorted(places) == sorted((each.queue_id, each.queue_offset) for each in wanted)
        assert sorted(table["store_timestamp"].to_pylist()) == sorted(each.at for each in wanted)
        for columns in (["queueOffset", "storeTimestamp"], ["body", "storeTimestamp"]):
            messages = pa.table(
                cqstore.scan(root, "t", begin=begin, end=end, columns=columns, config=CONFIG)
            )
            stamps = messages["storeTimestamp"].cast(pa.int64())
            assert sorted(stamps.to_pylist()) == sorted(each.at for each in wanted)


def test_verbs_print_what_is_of_the_range(root: Path, store: MessageStore) -> None:
    verbs: dict[str, list[object]] = {
        "get": ["--topic", "t"], "export": ["--topic", "t"],
        "query": ["--topic", "t", "--key", "all", "--max", 100],
    }  # fmt: skip
    records = every(store)
    for begin, end, wanted in ranges(records, 4):
        words: list[object] = [] if begin is None else ["--begin", begin]
        words += [] if end is None else ["--end", end]
        for verb, more in verbs.items():
            if verb == "get" and not words:
                continue  # then it is the first messages of one queue
            done = call(verb, root, *more, *words)
            assert done.exit_code == 0, done.output
            found = [line for line in done.stdout.splitlines() if line]
            assert len(found) == len(wanted), (verb, words, done.stderr)
            stamps = [f'"storeTimestamp":{each.at}' for each in wanted]
            assert all(any(stamp in line for line in found) for stamp in stamps)
    (lower,) = rows("offset", root, "--topic", "t", "--time", records[0].at)
    assert lower["offset"] == 0
    by_day = upper_rows("usage", root, "--by", "day")
    days: dict[str, int] = {}
    for each in records:
        name = str(np.datetime64(each.at // 86_400_000, "D"))
        days[name] = days.get(name, 0) + 1
    assert sum(row["units"] for row in by_day) == len(records)
    assert len(by_day) == len(days)


def test_a_group_that_begins_at_a_time_misses_nothing(root: Path, tmp_path: Path) -> None:
    import shutil  # noqa: PLC0415

    copy = tmp_path / "store"
    shutil.copytree(root, copy)
    with MessageStore.open(copy, CONFIG, housekeeping=False) as opened:
        records = every(opened)
    with cqstore.open(copy, config=CONFIG) as log:
        for at in (records[20].at, records[39].at, records[0].at):
            for change in log.reset_group("g", "t", time=at):
                mine = [each for each in records if each.queue_id == change.queue_id]
                later = [each.queue_offset for each in mine if each.at >= at]
                assert change.after == (later[0] if later else len(mine))


def test_units_whose_time_is_not_known_are_reported_in_every_range(tmp_path: Path) -> None:
    """A record that is not there may be of the range: it is damage there too."""
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        results = store.put_messages([Message("t", b"%d" % at) for at in range(30)])
        when = [each.store_timestamp for each in store.get_message("t", 0, 0).messages()]
    path = next(
        path
        for path in (tmp_path / "commitlog").iterdir()
        if int(path.name) == results[9].phy_offset // 4096 * 4096
    )
    with path.open("r+b") as file:
        file.seek(results[9].phy_offset % 4096)
        file.write(b"\0\0\0\1")
    found: list[TopicDamage] = []
    with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
        reads = [*read_topic(store, "t", when[0], on_damage=found.append)]
        assert len(reads) == 29
        assert [each.queue_offset for each in found] == [9]
        found.clear()
        assert not [*read_topic(store, "t", when[-1] + HOUR, on_damage=found.append)]
        assert [each.queue_offset for each in found] == [9]
    queue = tmp_path / "consumequeue" / "t" / "0"
    first = min(queue.iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:40] + bytes(60) + data[100:])
    found.clear()
    with MessageStore.open(tmp_path, CONFIG, read_only=True) as store:
        assert not [*read_topic(store, "t", when[-1] + HOUR, on_damage=found.append)]
    assert TopicDamage(0, 2, 3, "missing in the queue") in found


def test_batch_queues_of_rocketmq_have_all_of_a_range(golden_folder: Path) -> None:
    with MessageStore.open(golden_folder / "special-default", read_only=True) as store:
        whole = [*read_topic(store, "batch_1")]
        times = [each.message.store_timestamp for each in whole]
        assert len(times) > len({*times}) > 2
        for begin, end in product(sorted({*times, times[0] - 1, times[-1] + 1}), repeat=2):
            if begin <= end:
                found = [each.order for each in read_topic(store, "batch_1", begin, end)]
                pairs = zip(whole, times, strict=True)
                assert found == [each.order for each, at in pairs if begin <= at <= end]
        for each in store.queue_spans("batch_1"):
            after = store.offset_at_time(*each.queue, max(times) + 1)
            assert after == each.max_offset, "nothing is consumed again"


MEANT = [
    (
        1_795_218_170,
        "1795218170 ms is 1970-01-21T18:40:18Z. If you meant seconds, pass 17952181700",
    ),
    (20_261_120, "20261120 ms is 1970-01-01T05:37:41Z. If you meant a date, pass 2026-11-20 "),
    (202_611_201_530, "If you meant a date, pass 2026-11-20T15:30:00 "),
    (20_261_120_153_059, "If you meant a date, pass 2026-11-20T15:30:59 "),
]


@pytest.mark.parametrize(("given", "said"), MEANT)
def test_seconds_and_dates_in_the_place_of_ms_are_refused(
    tmp_path: Path, given: int, said: str
) -> None:
    with cqstore.open(tmp_path, config=CONFIG) as log:
        log.put("t", b"x", key="k")
        store = log.store
        for ask in (
            lambda: log.read("t", begin=given),
            lambda: log.read("t", end=given),
            lambda: log.tail("t", group="g", begin=given),
            lambda: log.reset_group("h", "t", time=given),
            lambda: store.query_message("t", "k", 5, given),
            lambda: store.query_index_files("t", "k", 5, 0, given),
            lambda: store.offset_by_time("t", 0, given),
            lambda: store.offset_at_time("t", 0, given),
            lambda: read_topic(store, "t", given),
            lambda: cqstore.scan(tmp_path, "t", begin=given),
            lambda: time_ms(np.int64(given)),  # type: ignore[arg-type]
        ):
            with pytest.raises(RefusedStoreError, match=said):
                ask()
        assert log.committed("g", "t") == {}


def test_times_that_may_be_meant_are_taken() -> None:
    for ms in (
        0,
        -1,
        1,
        12_345_678,
        20_261_320,
        946_684_799,
        4_102_444_800,
        NOON,
        1 << 50,
        1 << 62,
    ):
        assert time_ms(ms) == ms
    assert time_range() == time_range(LONG_MIN, LONG_MAX) == time_range(-1 << 80, 1 << 80)
    noon = datetime(2026, 11, 24, 12, tzinfo=UTC)
    assert time_ms(noon) == NOON
    half = timedelta(microseconds=500)
    assert time_range(noon + half, noon + half + timedelta(milliseconds=1)) == (NOON + 1,) * 2
    with pytest.raises(StoreConfigError, match="begin 2 is later than end 1"):
        time_range(2, 1)
    for odd in ("now", 1.5, True, float("nan"), b"1"):
        with pytest.raises(
            StoreError, match=r"invalid time .*: expected ms since the epoch, or a datetime"
        ):
            time_ms(odd)  # type: ignore[arg-type]
