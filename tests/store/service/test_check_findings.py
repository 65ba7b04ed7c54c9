"""What a full check finds where units and records do not fit, and what it counts."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, UnsupportedFormatError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.maintenance import check
from cqstore.store.service.maintenance.check import CheckFinding, StoreCheck
from cqstore.store.service.maintenance.queue_incarnations import QueueIncarnation
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
COUNT, UNIT = 20, 20
KEY = QueueKey("t", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", CONFIG, backend="file") as store:
        for number in range(COUNT):
            assert store.put_message(Message("t", b"%d" % number, 0, {"TAGS": "a"})).ok
        prepared = Message("t", b"", 5, sys_flag=SysFlag.TRANSACTION_PREPARED)
        assert store.put_message(prepared).queue_offset == 0
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        yield store


def queue_file(root: Path) -> Path:
    (path,) = (root / "consumequeue" / "t" / "0").iterdir()
    return path


def look(store: MessageStore, ticks: list[int] | None = None) -> StoreCheck:
    parts = components_of(store)
    return StoreCheck(
        CONFIG, parts.log, store.max_phy_offset(), parts.queues, parts.index,
        parts.deleted, ticks.append if ticks is not None else None,
    )  # fmt: skip


def test_records_and_units_are_counted_and_told_now_and_then(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_IGNORED_TICKS", 6)
    places = [record.phy_offset for record in components_of(store).log.scan(0)]
    ticks: list[int] = []
    looked = look(store, ticks)
    assert list(looked.run()) == []
    assert (looked.records, looked.units) == (COUNT + 1, COUNT)
    # Once by records, which begin there, then by units, whose records end there.
    assert ticks == [places[at] for at in (5, 11, 17, 6, 12, 18)]
    assert list(look(store).run()) == []


def test_an_index_that_was_left_out_is_told(store: MessageStore) -> None:
    faults = (CorruptionError("odd", path=Path("/x"), position=7), UnsupportedFormatError("odd"))
    parts = components_of(store)
    for fault in faults:
        looked = StoreCheck(
            CONFIG, parts.log, store.max_phy_offset(), parts.queues, None,
            parts.deleted, index_left_out=fault,
        )  # fmt: skip
        (found,) = looked.run()
        assert found.problem.startswith("the index cannot be read")
        assert found.damage == isinstance(fault, CorruptionError)
        assert (found.path, found.position) == (("/x", 7) if fault.path else ("", None))


def test_queues_that_cannot_be_listed_are_one_finding_and_the_index_is_checked(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queues() -> Iterator[QueueKey]:
        yield KEY
        raise CorruptionError("odd", path=Path("/x"), position=7, expected=1, got=2)

    monkeypatch.setattr(components_of(store).queues, "queues", queues)
    components_of(store).index = None
    looked = look(store)
    looked._index_left_out = CorruptionError("also odd")
    found, of_index = looked.run()
    assert found == CheckFinding("odd", path="/x", position=7, expected=1, found=2, all_queues=True)
    assert of_index.problem.endswith(
        "run cqstore rebuild --index to rebuild the index from the commit log"
    )
    assert looked.records == COUNT + 1


def test_what_was_deleted_is_worth_no_word(root: Path) -> None:
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        store.delete_topics(["t"])
        assert list(store.check()) == []
        assert store.put_message(Message("t", b"")).queue_offset == 0
        assert list(store.check()) == []


def test_a_unit_that_comes_twice_is_found_where_it_does(root: Path) -> None:
    (path,) = (root / "consumequeue" / "t" / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[7 * UNIT : 8 * UNIT] = data[6 * UNIT : 7 * UNIT]
    path.write_bytes(data)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        found = [each for each in look(store).run() if each.damage]
    assert [(each.queue, each.queue_offset) for each in found] == [(KEY, 7)] * 2
    assert found[0].problem == "the unit's record is before that of the previous unit"
    assert found[1].problem == "the unit points to another message, ('t', 0, 6)"
    assert found[1].phy_offset is not None
    assert [(each.path, each.position) for each in found] == [(str(path), 7 * UNIT)] * 2


def test_a_unit_that_points_behind_the_log_is_found(root: Path) -> None:
    (path,) = (root / "consumequeue" / "t" / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[4 * UNIT : 4 * UNIT + 8] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(data)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        found = list(look(store).run())
    assert [(each.queue, each.queue_offset) for each in found] == [(KEY, 4), (KEY, 5)]
    assert found[0].problem.startswith("the unit does not point to a message: ")
    assert found[0].phy_offset == 1 << 40


@pytest.mark.parametrize("topic", ["other", "%LMQ%a"])
def test_a_queue_that_is_not_there_is_named_by_its_first_record(root: Path, topic: str) -> None:
    config = CONFIG.model_copy(update={"enable_lmq": True, "enable_multi_dispatch": True})
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    with MessageStore.open(root, config, housekeeping=False) as store:
        first, _ = [store.put_message(Message("other", b"", 0, dict(names))) for _ in range(2)]
    shutil.rmtree(root / "consumequeue" / topic)
    shutil.rmtree(root / "cqstore")  # which knows that it was there
    with MessageStore.open(root, config, read_only=True) as store:
        (found,) = [each for each in look(store).run() if not each.damage]
    assert (found.queue, found.phy_offset) == (QueueKey(topic, 0), first.phy_offset)
    assert "the queue does not exist" in found.problem


def test_a_wrong_tags_code_is_found(root: Path) -> None:
    (path,) = (root / "consumequeue" / "t" / "0").iterdir()
    data = bytearray(path.read_bytes())
    data[3 * UNIT - 8 : 3 * UNIT] = (98).to_bytes(8, "big")
    path.write_bytes(data)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        (found,) = look(store).run()
    assert (found.queue, found.queue_offset) == (KEY, 2)
    # Java's hash of "a" is 97.
    assert found.problem == "the unit's tags code is 98, but the message's is 97"


def test_the_first_record_can_be_damaged_too(root: Path) -> None:
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(4)
        file.write(b"\xff")
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        looked = look(store)
        found = list(looked.run())
        assert [each.phy_offset for each in found] == [0, 0]
        assert (found[1].path, found[1].position) == (str(queue_file(root)), 0)
        assert (found[0].path, found[0].position) == (str(root / "commitlog" / f"{0:020d}"), 0)
        assert looked.records == COUNT


@pytest.mark.parametrize(
    ("incarnation", "low", "high", "found"),
    [
        (None, 3, 5, []),
        (QueueIncarnation(2, 9), 2, 10, []),
        (QueueIncarnation(2, 9), 0, 12, []),
        (QueueIncarnation(2, 9), 2, 9, [("records 9 to 9 of the log have no unit", 9)]),
        (QueueIncarnation(2, 9), 0, 1, [("records 2 to 9 of the log have no unit", 1)]),
        (
            QueueIncarnation(2, 9),
            3,
            10,
            [("records 2 to 2 of the log are below the queue's min offset", 3)],
        ),
    ],
)
def test_a_queue_has_a_unit_for_each_record_that_the_log_holds(
    store: MessageStore,
    incarnation: QueueIncarnation | None,
    low: int,
    high: int,
    found: list[tuple[str, int]],
) -> None:
    reported = list(look(store)._compare_with_log(KEY, incarnation, low, high))
    assert [(each.problem, each.queue_offset) for each in reported] == found
    assert all(each.damage and each.queue == KEY for each in reported)
