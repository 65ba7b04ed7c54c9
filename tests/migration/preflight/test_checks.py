"""The checks of the pass, and what settings mean, one by one: against queues that are lists."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from cqstore.migration.preflight.broker_rules import meaning, not_loaded
from cqstore.migration.preflight.combined import CombinedStart
from cqstore.migration.preflight.consumers_check import OffsetsCheck
from cqstore.migration.preflight.folder_verdict import FolderKind
from cqstore.migration.preflight.machine_facts import MachineLimits
from cqstore.migration.preflight.preflight_report import (
    Affected,
    NameCount,
    PreflightFinding,
    Severity,
    by_severity,
)
from cqstore.migration.preflight.queue_survey import UnitRange
from cqstore.migration.preflight.topics_check import TopicsCheck
from cqstore.migration.preflight.units import UnitCheck
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, QueueKey, UnitBlock
from tests.kit.queue_of import QueueOf
from tests.migration.preflight.kit import names

if TYPE_CHECKING:
    from cqstore.store.queue.context import LogView

Unit = tuple[int, int, int]
LOG = (1000, 9000)
"""Where the log of the lists begins and ends."""
GOOD: Unit = (1000, 100, 7)


class Lists:
    """Queues as lists of units from a first offset on; ``None`` is a hole."""

    units_per_file = 10

    def __init__(self, name: str, **queues: tuple[int, list[Unit | None]]) -> None:
        self.name, self.begins_with_blanks = name, name == "file"
        self.held = {QueueKey(name, 0): held for name, held in queues.items()}

    def queues(self, topic: str | None = None) -> Iterator[QueueKey]:
        return (key for key in self.held if topic in {None, key.topic})

    def queue_type(self, topic: str) -> QueueType:
        return QueueType.BATCH if topic == "batch" else QueueType.SIMPLE

    def queue(self, topic: str, queue_id: int) -> QueueOf:
        return QueueOf(self, topic, queue_id)

    def min_offset(self, *key: Any) -> int:
        return self.held.get(QueueKey(*key), (0, []))[0]

    def max_offset(self, *key: Any) -> int:
        first, units = self.held.get(QueueKey(*key), (0, []))
        return first + len(units)

    def read_units(self, topic: str, queue_id: int, offset: int, count: int) -> UnitBlock:
        assert 0 < count <= 4, "as many as are read at once"
        first, units = self.held[QueueKey(topic, queue_id)]
        blank = range(offset, first) if offset < first else None
        behind = [] if blank else units[offset - first :]
        some: list[Unit] = []
        for unit in behind[:count]:
            if unit is None:
                break
            some.append(unit)
        data = (
            b"".join(QUEUE_UNIT.pack(QUEUE_UNIT.record(*unit, 5)) for unit in some) if some else b""
        )
        hole = blank
        if len(some) < min(count, len(behind)):
            gone = next((n for n, unit in enumerate(behind[len(some) :]) if unit), len(behind))
            hole = range(offset + len(some), offset + len(some) + gone)
        stop = BlockStop.HOLE if hole else BlockStop.LIMIT if len(some) == count else BlockStop.END
        return UnitBlock(offset, data, QUEUE_UNIT.size, stop, hole)

    def span(self, topic: str) -> UnitRange:
        key = QueueKey(topic, 0)
        return UnitRange(*key, self.min_offset(*key), self.max_offset(*key))

    @property
    def store(self) -> ConsumeQueueStore:
        return cast("ConsumeQueueStore", self)


class _Log:
    def min_phy_offset(self) -> int:
        return LOG[0]

    def max_phy_offset(self) -> int:
        return LOG[1]


def scanned(
    lists: Lists, monkeypatch: pytest.MonkeyPatch, to: str = "rocksdb"
) -> list[PreflightFinding]:
    monkeypatch.setattr("cqstore.migration.preflight.units._BLOCK_UNITS", 4)
    scan = UnitCheck(lists.store, cast("LogView", _Log()), bulk_backend(to))
    for key in lists.queues():
        scan.check(lists.span(key.topic))
    return list(scan.findings())


# ---- units


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9])
def test_good_units_are_nothing_to_tell(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    edges: list[Unit | None] = [(1000, 8000, 0), (8999, 1, -(1 << 31)), (1000, 0, (1 << 63) - 1)]
    lists = Lists("rocksdb", a=(5, [GOOD] * count), b=(0, edges), batch=(0, [None]))
    assert scanned(lists, monkeypatch) == []


@pytest.mark.parametrize("at", [0, 1, 3, 4, 5, 8])
def test_odd_units_are_counted_wherever_they_lie(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    odd: list[Unit] = [
        (999, 50, 0), (8999, 2, 0), (1 << 62, 1 << 30, 0), (-1, 9, 0), (9001, -1, 0),
    ]  # fmt: skip
    far: list[Unit] = [(1000, 1, -(1 << 31) - 1), (1000, 1, -(1 << 63))]
    units: list[Unit | None] = [GOOD] * 9
    for number, unit in enumerate(odd[:4]):
        held = [*units[:at], unit, *units[at + 1 :]]
        (finding,) = scanned(Lists("rocksdb", a=(3, held), b=(0, units)), monkeypatch)
        assert (finding.code, finding.severity) == ("units-outside-log", Severity.REFUSE), number
        assert finding.figures == {"units": 1, "logMin": 1000, "logMax": 9000}
        assert finding.affected == [Affected(name="a/0", figures={"units": 1, "min": 3, "max": 12})]
    for unit in far:
        held = [*units[:at], unit, *units[at + 1 :]]
        (finding,) = scanned(Lists("rocksdb", a=(3, held), b=(0, units)), monkeypatch)
        assert (finding.code, finding.figures) == ("extension-addresses", {"units": 1})
        assert finding.affected == [Affected(name="a/0", figures={"units": 1})]


@pytest.mark.parametrize(("first", "gone"), [(1, 1), (0, 3), (3, 2), (4, 1), (2, 5), (8, 1)])
def test_missing_units_are_counted_and_those_behind_are_read(
    monkeypatch: pytest.MonkeyPatch, first: int, gone: int
) -> None:
    units: list[Unit | None] = [GOOD] * 9
    units[first : first + gone] = [None] * gone
    units += [(0, 1, 0)]
    lists = Lists("rocksdb", a=(2, units), b=(0, [None, GOOD]))
    for to, severity in (("rocksdb", Severity.REFUSE), ("file", Severity.WARN)):
        holes, outside = scanned(lists, monkeypatch, to)
        assert (holes.code, holes.severity) == ("holes", severity)
        assert holes.figures == {"missingUnits": gone + 1}
        assert holes.affected[0].figures == {"missingUnits": gone, "min": 2, "max": 12}
        assert outside.affected_total == 1


def test_a_queue_that_ends_before_its_maximum_lacks_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = Lists("rocksdb", a=(0, [GOOD] * 6))
    monkeypatch.setattr(lists, "span", lambda topic: UnitRange(topic, 0, 0, 11))
    (holes,) = scanned(lists, monkeypatch)
    assert holes.figures == {"missingUnits": 5}


@pytest.mark.parametrize(
    ("low", "units", "blanks"),
    [(0, 3, 0), (10, 3, 0), (20, 0, 10), (13, 2, 3), (19, 0, 9), (11, 1, 1), (0, 0, 0)],
)
def test_blanks_before_the_first_unit_are_those_of_its_file(
    monkeypatch: pytest.MonkeyPatch, low: int, units: int, blanks: int
) -> None:
    queues: dict[str, tuple[int, list[Unit | None]]] = {"a": (low, [GOOD] * units)}
    found = scanned(Lists("file", **queues), monkeypatch)
    assert [finding.figures for finding in found] == ([{"units": blanks}] if blanks else [])
    assert [finding.code for finding in found] == (["pre-blank-units"] if blanks else [])
    assert scanned(Lists("rocksdb", **queues), monkeypatch) == []


# ---- both backends


def test_queues_that_differ_between_backends_are_those_that_a_start_resets() -> None:
    mine = Lists("file", same=(5, [GOOD] * 5), longer=(0, [GOOD] * 9), later=(2, [GOOD] * 8),
                 alone=(4, [GOOD] * 3), behind=(0, [GOOD] * 3))  # fmt: skip
    other = Lists("rocksdb", same=(5, [GOOD] * 5), longer=(0, [GOOD] * 7), later=(6, [GOOD] * 4),
                  behind=(8, [GOOD] * 2))  # fmt: skip
    check = CombinedStart(mine.store, other.store)
    for key in mine.queues():
        check.check(mine.span(key.topic))
    reset, lacking = check.findings()
    assert reset.code == "combined-start-resets"
    assert reset.figures == {"unitsAtRisk": 7 + 0 + 2}
    assert [(one.name, one.figures) for one in reset.affected] == [
        ("longer/0", {"fileMax": 9, "rocksdbMax": 7}), ("alone/0", {"fileMax": 7, "rocksdbMax": 0}),
        ("behind/0", {"fileMax": 3, "rocksdbMax": 10}),
    ]  # fmt: skip
    assert lacking.figures == {"unitsLacking": 4 + 3 + 3}
    assert [(one.name, one.figures) for one in lacking.affected] == [
        ("later/0", {"fileMin": 2, "rocksdbMin": 6}), ("alone/0", {"fileMin": 4, "rocksdbMin": 0}),
        ("behind/0", {"fileMin": 0, "rocksdbMin": 8}),
    ]  # fmt: skip


# ---- consumers


@pytest.mark.parametrize(
    ("offset", "code"),
    [(10, None), (11, "consumers-beyond-max"), (4, None), (3, "consumers-below-min"),
     (0, "consumers-below-min"), (-1, None)],
)  # fmt: skip
def test_a_consumer_is_judged_by_its_queue(tmp_path: Path, offset: int, code: str | None) -> None:
    (tmp_path / "config").mkdir()
    table = {"a@g": {"0": offset}, "none@g": {"0": 0, "1": 0}, "b@h@i": {"0": 0}}
    (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    lists = Lists("file", a=(4, [GOOD] * 6), b=(0, []))
    check = OffsetsCheck(StorePaths(tmp_path), lists.store)
    found = list(check.findings())
    assert [finding.code for finding in found] == ([code] if code else [])
    assert check.compared == 4
    for finding in found:
        end = {"max": 10} if offset > 10 else {"min": 4}
        assert finding.affected == [Affected(name="g on a/0", figures={"offset": offset, **end})]
        assert finding.figures == {"compared": 4}


@pytest.mark.parametrize("offset", [0, 1, 9])
def test_a_consumer_of_a_topic_without_queues_is_told_if_it_has_read(
    tmp_path: Path, offset: int
) -> None:
    (tmp_path / "config").mkdir()
    light = {"%LMQ%x@g": offset, "a@h": 2}
    path = tmp_path / "config" / "lmqConsumerOffset.json"
    path.write_text(json.dumps({"lmqOffsetTable": light}))
    found = list(OffsetsCheck(StorePaths(tmp_path), Lists("file", a=(0, [GOOD] * 3)).store)
                 .findings())  # fmt: skip
    assert [names(finding) for finding in found] == ([["g on %LMQ%x/0"]] if offset else [])
    path.write_text(json.dumps({"lmqOffsetTable": {"no separator": 1}}))
    (finding,) = OffsetsCheck(StorePaths(tmp_path), Lists("file").store).findings()
    assert (finding.code, finding.severity) == ("offsets-not-compared", Severity.WARN)
    assert finding.sentence.startswith(
        "Invalid key 'no separator' in the consumer offsets: expected TOPIC@GROUP"
    )


# ---- the table of topics


def test_topics_that_the_table_lacks_are_counted_with_all_their_queues() -> None:
    check = TopicsCheck({"known", "idle", "RMQ_SYS_TRACE_TOPIC", "also idle"})
    for topic, units in [("gone", 3), ("gone", 4), ("known", 9), ("%LMQ%a", 1), ("last", 2)]:
        check.check(UnitRange(topic, 0, 5, 5 + units))
    missing, idle = check.findings()
    assert missing.figures == {"listedTopics": 4, "queuesAtRisk": 3, "unitsAtRisk": 9}
    assert [(one.name, one.figures) for one in missing.affected] == [
        ("gone", {"queues": 2, "units": 7}), ("last", {"queues": 1, "units": 2}),
    ]  # fmt: skip
    assert (idle.code, names(idle)) == ("topics-without-queues", ["also idle", "idle"])
    assert list(TopicsCheck({"a"}, complete=False).findings()) == []
    assert list(TopicsCheck(set()).findings()) == []


# ---- settings


DOUBLE, SEPARATE = "rocksdbCQDoubleWriteEnable", "useSeparateStorePathForRocksdbCQ"
LIES = {
    FolderKind.FILE: None, FolderKind.ROCKSDB_INSIDE: False, FolderKind.ROCKSDB_BESIDE: True,
    FolderKind.BOTH_INSIDE: False, FolderKind.BOTH_BESIDE: True,
}  # fmt: skip
"""Whether the database lies beside ``consumequeue``."""


@pytest.mark.parametrize("verdict", LIES)
@pytest.mark.parametrize("store_type", ["default", "defaultRocksDB", "DEFAULTROCKSDB"])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("separate", [False, True])
def test_settings_are_held_against_what_lies_there(
    verdict: FolderKind, store_type: str, *, double: bool, separate: bool
) -> None:
    """A broker opens RocksDB alone, files alone, or both; and looks in one place for a database."""
    values = {"storeType": store_type, DOUBLE: str(double), SEPARATE: str(separate).upper()}
    rocksdb_alone = store_type.lower() == "defaultrocksdb"
    opens_database = rocksdb_alone or double
    wanted = set()
    if opens_database and LIES[verdict] is not None and LIES[verdict] is not separate:
        wanted.add((SEPARATE, "consumequeue," if separate else "consumequeue_rocksdb,"))
    if rocksdb_alone and verdict is FolderKind.FILE:
        wanted.add(("storeType", "does not read them"))
    if not rocksdb_alone and verdict in {FolderKind.ROCKSDB_INSIDE, FolderKind.ROCKSDB_BESIDE}:
        wanted.add(("storeType", "begins expired queues at 0"))
    if not rocksdb_alone and double and verdict is FolderKind.FILE:
        wanted.add((DOUBLE, "only the last log file to RocksDB"))
    found = [one for one in meaning(values, (5, 5, 1), "rocksdb", verdict)
             if one.code == "conf-against-layout"]  # fmt: skip
    assert {names(one)[0] for one in found} == {name for name, _ in wanted}
    for one in found:
        words = dict(wanted)[names(one)[0]]
        assert words in one.sentence
        assert one.figures == {"layout": verdict.value}
    assert len(found) == len(wanted)
    assert not [one for one in meaning(values, (5, 5, 1), "rocksdb", None)
                if one.code == "conf-against-layout"]  # fmt: skip


@pytest.mark.parametrize("version", [(5, 1, 9), (5, 2, 0), (5, 3, 1), (5, 3, 2), (6, 0, 0)])
@pytest.mark.parametrize("to", ["rocksdb", "file"])
@pytest.mark.parametrize("store_type", ["default", "defaultRocksDB"])
@pytest.mark.parametrize("light", ["true", "false"])
def test_a_release_is_asked_for_what_it_can_do(
    version: tuple[int, int, int], to: str, store_type: str, light: str
) -> None:
    values = {"storeType": store_type, "enableLmq": light}
    found = [one for one in meaning(values, version, to, None) if "without-rocksdb" in one.code]
    concerned = "rocksdb" in {to, store_type.lower().removeprefix("default")}
    code = None
    if concerned and version < (5, 2, 0):
        code = "release-without-rocksdb"
    elif concerned and version < (5, 3, 2) and light == "true":
        code = "lmq-without-rocksdb"
    assert [one.code for one in found] == ([code] if code else [])
    for one in found:
        assert one.severity is (Severity.REFUSE if to == "rocksdb" else Severity.WARN)
        assert names(one) == (["enableLmq"] if light == "true" and version > (5, 2) else [])


@pytest.mark.parametrize("store_type", ["default", "defaultRocksDB"])
@pytest.mark.parametrize("double", ["true", "false"])
def test_keys_of_double_write_mean_something_with_it_alone(store_type: str, double: str) -> None:
    prefer, assign = "combineCQPreferCQType", "combineAssignOffsetCQType"
    values = {"storeType": store_type, DOUBLE: double, prefer: "default", assign: "default",
              "combineCQLoadingCQTypes": "defaultRocksDB"}  # fmt: skip
    found = list(meaning(values, (5, 5, 1), "rocksdb", None))
    ignored = [names(one) for one in found if one.code == "key-ignored"]
    bad = [names(one) for one in found if one.code == "value-bad"]
    both = store_type == "default" and double == "true"
    wanted = [[DOUBLE]] if store_type != "default" and double == "true" else []
    three = sorted([prefer, assign, "combineCQLoadingCQTypes"])
    assert ignored == ([] if both else [*wanted, three])
    assert bad == ([[prefer], [assign]] if both else [])


def test_what_is_chosen_by_default_must_be_loaded_too() -> None:
    loaded = "combineCQLoadingCQTypes"
    both = ["combineCQPreferCQType", "combineAssignOffsetCQType"]
    assert not_loaded({}) == []
    assert not_loaded({loaded: " DefaultRocksDB ;"}) == both
    assert not_loaded({loaded: "defaultRocksDB", both[0]: " defaultrocksdb "}) == both[1:]
    assert not_loaded({loaded: "default", both[0]: "no store type"}) == []


# ---- the machine


def test_memory_is_the_containers_where_that_is_less(tmp_path: Path) -> None:
    machine = MachineLimits(proc=tmp_path, cgroup=tmp_path)
    (tmp_path / "sys" / "vm").mkdir(parents=True)
    assert (machine.memory_bytes(), machine.max_map_count()) == (None, None)
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\nMemFree: 1 kB\n")
    assert machine.memory_bytes() == 7 * 1024
    for limit, used, left in [
        ("max", "5", 7168), ("9000\n", "2000\n", 7000), ("9000", "1000", 7168), ("5", "6", 0),
    ]:  # fmt: skip
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text(used)
        assert machine.memory_bytes() == left
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\n")
    assert machine.memory_bytes() == 0
    (tmp_path / "memory.max").write_text("77")
    assert machine.memory_bytes() == 71
    (tmp_path / "sys" / "vm" / "max_map_count").write_text("65530\n")
    assert machine.max_map_count() == 65530


def test_what_refuses_comes_first_and_names_are_kept_up_to_twenty() -> None:
    tally = NameCount()
    assert tally.finding("none", Severity.INFO, "x") == []
    for number in range(21):
        assert len(tally.affected) == number
        tally.add(str(number), at=number)
    (finding,) = tally.finding("code", Severity.WARN, "sentence", figure=1)
    assert (finding.affected_total, names(finding)) == (21, [str(n) for n in range(20)])
    order = [Severity.INFO, Severity.WARN, Severity.REFUSE, Severity.WARN, Severity.INFO]
    found = [
        PreflightFinding(code=str(at), severity=one, sentence="") for at, one in enumerate(order)
    ]
    assert [one.code for one in by_severity(found)] == ["2", "1", "3", "0", "4"]
