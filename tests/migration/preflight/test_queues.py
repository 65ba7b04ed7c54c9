"""What the pass over the queues finds, in stores that RocketMQ wrote and that were then damaged."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.migration.preflight import Severity, preflight
from cqstore.migration.preflight.names import QueueIds, TopicNames
from cqstore.migration.preflight.preflight_report import NAMES_MAX
from cqstore.migration.preflight.queue_survey import QueueCheck, QueueSurvey, Totals, UnitRange
from cqstore.migration.preflight.units import UnitCheck
from cqstore.store.queue.bulk import bulk_backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import SCHEDULE_TOPIC, Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.file_queues import PRE_BLANK
from tests.kit.golden import load_dump
from tests.migration.preflight.kit import (
    FakeMachine,
    Golden,
    first_file,
    names,
    overwrite,
    rows_of,
    the,
)


def a_queue(name: str, least: int = 20) -> tuple[str, int, int]:
    """Return topic, queue id and units of a queue with at least so many."""
    queues = load_dump(name)["queues"]
    queue = next(queue for queue in queues if least <= len(queue["units"]) < 100)
    return queue["topic"], queue["queueId"], len(queue["units"])


def codes_of(check: QueueCheck) -> list[str]:
    return [finding.code for finding in check.findings()]


def test_a_hole_of_three_units_is_three_units(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, units = a_queue("basic533-default")
    overwrite(first_file(root, topic, queue_id), 5, [(0, 0, 0)] * 3)
    finding = the(preflight(root, machine=FakeMachine()), "holes")
    assert finding.severity is Severity.REFUSE
    assert finding.figures == {"missingUnits": 3}
    assert names(finding) == [f"{topic}/{queue_id}"]
    assert finding.affected[0].figures == {"missingUnits": 3, "min": 0, "max": units}


def test_units_that_lead_out_of_the_log_are_counted(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, _ = a_queue("basic533-default")
    path = first_file(root, topic, queue_id)
    rows = rows_of(path)
    far = (1 << 62, rows[7][1], rows[7][2])
    huge = (rows[8][0], 0x7FFFFFFE, rows[8][2])
    overwrite(path, 7, [far, huge])
    finding = the(preflight(root, machine=FakeMachine()), "units-outside-log")
    assert finding.severity is Severity.REFUSE
    assert finding.figures["units"] == 2
    assert names(finding) == [f"{topic}/{queue_id}"]


def test_pre_blanks_are_told_and_are_no_hole(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, units = a_queue("basic533-default")
    overwrite(first_file(root, topic, queue_id), 0, [PRE_BLANK] * 5)
    report = preflight(root, machine=FakeMachine())
    assert report.may_go_on
    finding = the(report, "pre-blank-units")
    assert finding.figures == {"units": 5}
    assert names(finding) == [f"{topic}/{queue_id}"]
    assert report.units == 500 - 5
    assert units > 5


def test_expired_units_are_neither_holes_nor_blanks(golden_folder: Path) -> None:
    report = preflight(golden_folder / "special-defaultRocksDB", to="file", machine=FakeMachine())
    assert report.find("holes") is None
    assert report.find("pre-blank-units") is None


def test_extension_addresses_are_counted(golden_folder: Path) -> None:
    finding = the(preflight(golden_folder / "ext-default", machine=FakeMachine()),
                  "extension-addresses")  # fmt: skip
    units = [unit for queue in load_dump("ext-default")["queues"] for unit in queue["units"]]
    assert finding.severity is Severity.INFO
    assert finding.figures == {"units": len(units)}
    assert finding.affected_total == 20
    plain = preflight(golden_folder / "basic-default", machine=FakeMachine())
    assert plain.find("extension-addresses") is None
    tags = [unit[3] for queue in load_dump("basic-default")["queues"] for unit in queue["units"]]
    assert min(tags) < 0


def test_batch_queues_are_named(golden_folder: Path) -> None:
    finding = the(preflight(golden_folder / "special-default", machine=FakeMachine()),
                  "batch-queues")  # fmt: skip
    assert finding.severity is Severity.REFUSE
    assert names(finding) == ["batch_1/0", "batch_1/1"]


def test_a_queue_file_that_is_too_short_is_a_refusal(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, _ = a_queue("basic533-default")
    path = first_file(root, topic, queue_id)
    path.write_bytes(path.read_bytes()[:1000])
    assert not preflight(root, machine=FakeMachine()).may_go_on


def test_a_queue_that_cannot_be_read_is_named_and_the_others_looked_at(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, _ = a_queue("basic533-default")
    with MessageStore.open(root, read_only=True) as store:
        os.truncate(first_file(root, topic, queue_id), 100)
        totals = Totals(100)
        scan = UnitCheck(
            components_of(store).queues, components_of(store).log, bulk_backend("rocksdb")
        )
        findings = list(QueueSurvey(components_of(store).queues, [scan, totals]).run())
    finding = findings[0]
    assert (finding.code, finding.severity) == ("unreadable-queues", Severity.REFUSE)
    assert names(finding) == [f"{topic}/{queue_id}"]
    assert "is truncated" in str(finding.affected[0].figures["reason"])
    assert totals.queues == 19


def test_queues_are_listed_once(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    reported, listed = list[tuple[int, int | None]](), list[int]()
    with MessageStore.open(golden("basic533-default"), read_only=True) as store:
        listing = components_of(store).queues.queues

        def noted() -> Iterator[QueueKey]:
            listed.append(1)
            return listing()

        monkeypatch.setattr(components_of(store).queues, "queues", noted)
        list(QueueSurvey(components_of(store).queues, [], lambda *at: reported.append(at)).run())
    assert listed == [1]
    assert reported == [(number, 20) for number in range(20)]


# ---- both backends


def test_a_start_with_double_write_would_reset_a_queue_that_lags(golden: Golden) -> None:
    root = golden("basic533-combine")
    topic, queue_id, units = a_queue("basic533-combine")
    overwrite(first_file(root, topic, queue_id), units - 1, [(0, 0, 0)])
    finding = the(preflight(root, machine=FakeMachine()), "combined-start-resets")
    assert finding.severity is Severity.WARN
    assert finding.figures == {"unitsAtRisk": units}
    assert names(finding) == [f"{topic}/{queue_id}"]
    assert finding.affected[0].figures == {"fileMax": units - 1, "rocksdbMax": units}


def test_a_beginning_that_the_other_backend_lacks_is_told(golden: Golden) -> None:
    root = golden("basic533-combine")
    topic, queue_id, _ = a_queue("basic533-combine")
    overwrite(first_file(root, topic, queue_id), 0, [PRE_BLANK] * 4)
    report = preflight(root, to="file", machine=FakeMachine())
    finding = the(report, "other-backend-lacks-history")
    assert report.surveyed == "rocksdb"
    assert finding.figures == {"unitsLacking": 4}
    assert finding.affected[0].figures == {"rocksdbMin": 0, "fileMin": 4}
    assert report.find("combined-start-resets") is None


# ---- names and ids


def names_for(target: str) -> TopicNames:
    return TopicNames(bulk_backend(target), StoreConfig())


def test_281_bytes_fit_a_key_and_282_do_not() -> None:
    check = names_for("rocksdb")
    check.check(UnitRange("é" * 140 + "x", 0, 0, 5))
    assert codes_of(check) == []
    check.check(UnitRange("é" * 141, 3, 0, 5))
    (finding,) = check.findings()
    assert (finding.code, finding.severity) == ("name-too-long", Severity.REFUSE)
    assert finding.figures == {"maxBytes": 281, "longestBytes": 282}
    assert names(finding) == ["é" * 141 + "/3"]


def test_the_reserved_name_and_names_that_are_no_text_are_refused() -> None:
    check = names_for("rocksdb")
    check.check(UnitRange("CHECKPOINT_TOPIC", 0, 0, 5))
    check.check(UnitRange("\udcff", 1, 0, 5))
    assert codes_of(check) == ["name-reserved", "name-not-utf-8"]
    assert [names(finding) for finding in check.findings()] == [
        ["CHECKPOINT_TOPIC/0"],
        ["\\udcff/1"],
    ]


@pytest.mark.parametrize("topic", ["a/b", "..", ".", "a\0b", "x" * 256])
def test_names_that_are_no_folders_are_refused(topic: str) -> None:
    check = names_for("file")
    check.check(UnitRange("x" * 255, 0, 0, 1))
    assert codes_of(check) == []
    check.check(UnitRange(topic, 4, 0, 1))
    (finding,) = check.findings()
    assert (finding.code, finding.severity) == ("name-no-folder", Severity.REFUSE)
    assert names(finding) == [f"{topic}/4"]


def test_a_name_that_is_no_text_is_told_in_json(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, _, _ = a_queue("basic533-default")
    folder = root / "consumequeue" / topic
    folder.rename(folder.with_name(os.fsdecode(b"t\xff")))
    report = preflight(root, machine=FakeMachine())
    assert "t\\udcff/0" in names(the(report, "name-not-utf-8"))
    assert "t\\\\udcff" in report.model_dump_json()


@pytest.mark.disk
def test_a_queue_that_cannot_go_back_to_files_is_named(tmp_path: Path) -> None:
    config = StoreConfig(enable_lmq=True)
    with MessageStore.open(tmp_path / "s", config, backend="rocksdb") as store:
        light = {"INNER_MULTI_DISPATCH": "%LMQ%in/side"}  # RocketMQ lets them have such names
        assert store.put_message(Message("fine", b"x", 2, light)).ok
    report = preflight(tmp_path / "s", to="file", machine=FakeMachine())
    assert names(the(report, "name-no-folder")) == ["%LMQ%in/side/0"]
    assert [finding.code for finding in report.refusals] == ["name-no-folder"]


def test_topics_named_like_files_of_the_database_are_refused(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, _ = a_queue("basic533-default")
    (root / "consumequeue" / topic).rename(root / "consumequeue" / "LOCK")
    finding = the(preflight(root, machine=FakeMachine()), "name-of-database-file")
    assert f"LOCK/{queue_id}" in names(finding)
    check = names_for("rocksdb")
    check.check(UnitRange("LOCKS", 0, 0, 1))
    assert codes_of(check) == []


def test_negative_queue_ids_are_refused(golden: Golden) -> None:
    root = golden("basic533-default")
    topic, queue_id, units = a_queue("basic533-default")
    folder = root / "consumequeue" / topic
    (folder / str(queue_id)).rename(folder / "-1")
    finding = the(preflight(root, machine=FakeMachine()), "negative-queue-id")
    assert finding.severity is Severity.REFUSE
    assert finding.affected[0].name == f"{topic}/-1"
    assert finding.affected[0].figures == {"units": units}


# ---- what a million queues cost


def test_names_are_capped_and_counted() -> None:
    checks: list[QueueCheck] = [QueueIds(), names_for("rocksdb"), names_for("file")]
    for number in range(10_000):
        for check in checks:
            check.check(UnitRange("/" * 282, -1 - number, 0, 1))
    for check in checks:
        (finding,) = check.findings()
        assert finding.affected_total == 10_000
        assert len(finding.affected) == NAMES_MAX


def test_totals_count_the_files_that_queues_will_have() -> None:
    totals = Totals(units_per_file=100)
    for low, high in ((0, 0), (0, 1), (0, 100), (0, 101), (99, 101), (250, 250), (150, 450)):
        totals.check(UnitRange("é", 0, low, high))
    assert (totals.topics, totals.queues, totals.units) == (1, 7, 504)
    assert totals.files == 1 + 1 + 1 + 2 + 2 + 1 + 4
    assert totals.key_bytes == 7 * 2
    assert (totals.empty, totals.from_zero, totals.longest) == (2, 4, 300)


@pytest.mark.parametrize("to", ["rocksdb", "file"])
def test_levels_by_which_no_delayed_message_is_due_are_told(golden: Golden, to: str) -> None:
    name = {"rocksdb": "special-default", "file": "special-defaultRocksDB"}[to]
    put = [each for each in load_dump(name)["messages"] if each["topic"] == SCHEDULE_TOPIC]
    newest = {each["queueId"]: each["properties"].get("DELAY") for each in put}  # in their order
    root, conf = golden(name), StoreConfig(message_delay_level=" ".join(["7s"] * 18))
    assert preflight(root, to=to, machine=FakeMachine()).find("delay-levels") is None
    finding = the(preflight(root, conf, to=to, machine=FakeMachine()), "delay-levels")
    delayed = [queue_id for queue_id in sorted(newest) if newest[queue_id]]
    assert names(finding) == [f"{SCHEDULE_TOPIC}/{each}" for each in delayed] != []
    assert finding.severity is Severity.REFUSE
    assert finding.affected[0].figures == {"level": "2", "waitsMs": 5000, "bySettingsMs": 7000}


def test_a_delayed_message_that_cannot_be_read_is_passed_over(golden: Golden) -> None:
    root = golden("special-default")
    path = first_file(root, SCHEDULE_TOPIC, 1)
    phy_offset, size, due = rows_of(path)[0]
    overwrite(path, 0, [(phy_offset + 1, size, due)])  # no record begins there
    report = preflight(root, machine=FakeMachine())
    assert report.find("cannot-be-opened") is report.find("delay-levels") is None
