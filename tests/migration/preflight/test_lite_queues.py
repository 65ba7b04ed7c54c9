"""Lite queues that RocketMQ deletes minutes after its start: by the rules of its own classes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from cqstore.broker.lite_topics import LiteRules, lite_expiration, lite_rules, parent_topic
from cqstore.migration.preflight import Severity, preflight
from cqstore.migration.preflight.lite_queues import LiteQueues
from cqstore.migration.preflight.preflight_report import Affected, PreflightFinding, PreflightReport
from cqstore.migration.preflight.queue_survey import UnitRange
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.migration.preflight.kit import FakeMachine, names, the
from tests.migration.preflight.test_checks import Lists

if TYPE_CHECKING:
    from cqstore.store.queue.context import LogView

MINUTE = 60_000
NOW = 1_800_000_000_000
START = NOW + 15 * MINUTE
"""The first moment at which a broker that is started now deletes something."""
SMALL = StoreConfig(mapped_file_size_commit_log=1 << 20)


@pytest.mark.parametrize(
    ("topic", "parent"),
    [
        ("%LMQ%$p$a", "p"), ("%LMQ%$p$", None), ("%LMQ%$$a", None), ("%LMQ%$p", None),
        ("%LMQ%$p$a$b", None), ("%LMQ%p$a", None), ("p$a", None), ("%LMQ%$", None),
        ("%LMQ%$p$$", None), ("%LMQ%$%RETRY%g$a", "%RETRY%g"),
    ],
)  # fmt: skip
def test_a_lite_topic_has_one_parent_and_one_name(topic: str, parent: str | None) -> None:
    assert parent_topic(topic) == parent


@pytest.mark.parametrize(
    ("attributes", "minutes"),
    [
        ({"message.type": "LITE", "lite.topic.expiration": "60"}, 60),
        ({"message.type": "LITE", "lite.topic.expiration": "+5"}, 5),
        ({"message.type": "LITE", "lite.topic.expiration": "-1"}, -1),
        ({"message.type": "LITE"}, -1),
        ({"message.type": "LITE", "lite.topic.expiration": "an hour"}, -1),
        ({"message.type": "LITE", "lite.topic.expiration": " 60"}, -1),
        ({"message.type": "LITE", "lite.topic.expiration": "2147483648"}, -1),
        ({"message.type": "LITE", "lite.topic.expiration": 60}, -1),
        ({"message.type": "NORMAL", "lite.topic.expiration": "60"}, None),
        ({"lite.topic.expiration": "60"}, None),
        ({}, None), (None, None), ([], None),
    ],
)  # fmt: skip
def test_the_expiration_is_that_of_a_topic_of_lite_type(
    attributes: object, minutes: int | None
) -> None:
    assert lite_expiration({"topicName": "p", "attributes": attributes}) == minutes
    assert lite_expiration(attributes) is None


class _Log:
    """Records whose phy offset is their store time."""

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        assert size == 100
        return phy_offset


def looked(
    lists: Lists, expirations: dict[str, int] | None, rules: LiteRules | None = None
) -> list[PreflightFinding]:
    rules = rules or LiteRules(15 * MINUTE, limit_in_long=True)
    check = LiteQueues(lists.store, cast("LogView", _Log()), expirations, rules, NOW)
    for key in lists.queues():
        check.check(lists.span(key.topic))
    return list(check.findings())


def newest(at: int, first: int = 0, more: int = 0) -> tuple[int, list[tuple[int, int, int] | None]]:
    """A queue of light messages whose newest was stored ``at``; the others lie far back."""
    return first, [*[(1, 100, 7)] * more, (at, 100, 7)]


def test_those_that_are_idle_for_longer_than_their_parents_expiration_are_counted() -> None:
    lists = Lists(
        "file",
        **{
            "%LMQ%$hour$over": newest(START - 60 * MINUTE - 1, first=4, more=2),
            "%LMQ%$hour$level": newest(START - 60 * MINUTE),
            "%LMQ%$hour$new": newest(NOW, more=3),
            "%LMQ%$short$old": newest(START - 20 * MINUTE),
            "%LMQ%$short$future": newest(NOW + 1),
            "%LMQ%$never$old": newest(5),
            "%LMQ%$unknown$old": newest(5),
            "%LMQ%$hour$lost": newest(-1),
            "%LMQ%$hour$none": (7, []),
            "%LMQ%light": newest(5),
            "hour": newest(5),
        },
    )
    (finding,) = looked(lists, {"hour": 60, "short": 1, "never": -1, "zero": 0})
    assert (finding.code, finding.severity) == ("lite-queues-expire", Severity.WARN)
    assert finding.figures == {
        "liteQueues": 8, "parents": 2, "queuesAtRisk": 2, "unitsAtRisk": 3 + 1,
        "minLiteTTlMillis": 15 * MINUTE,
    }  # fmt: skip
    at = START - 60 * MINUTE - 1
    assert finding.affected == [
        Affected(name="%LMQ%$hour$over/0",
                 figures={"units": 3, "newest": at, "expirationMinutes": 60}),
        Affected(name="%LMQ%$short$old/0",
                 figures={"units": 1, "newest": START - 20 * MINUTE, "expirationMinutes": 1}),
    ]  # fmt: skip


def test_no_other_queue_id_than_0_is_a_lite_queue() -> None:
    lists = Lists("file", **{"%LMQ%$hour$old": newest(5)})
    rules = LiteRules(15 * MINUTE, limit_in_long=True)
    check = LiteQueues(lists.store, cast("LogView", _Log()), {"hour": 60}, rules, NOW)
    check.check(UnitRange("%LMQ%$hour$old", 1, 0, 1))
    assert list(check.findings()) == []


@pytest.mark.parametrize("minutes", [35_791, 35_792, 43_200])
def test_an_expiration_of_25_days_deletes_all_in_5_5_0(minutes: int) -> None:
    """Its milliseconds are an int there: 35,792 minutes are more than 2^31 of them."""
    lists = Lists("file", **{"%LMQ%$p$a": newest(NOW - 5 * MINUTE)})
    for version, wanted in (((5, 5, 0), minutes > 35_791), ((5, 5, 1), False), ((5, 6, 0), False)):
        found = looked(lists, {"p": minutes}, lite_rules(version, {}))
        assert bool(found) is wanted, version


def test_without_the_table_it_is_told_that_nothing_was_compared() -> None:
    lists = Lists("file", **{"%LMQ%$p$a": newest(5, more=2), "%LMQ%light": newest(5)})
    (finding,) = looked(lists, None)
    assert (finding.code, finding.severity) == ("lite-queues-not-compared", Severity.INFO)
    assert finding.figures == {"liteQueues": 1, "units": 3}
    assert looked(Lists("file", **{"%LMQ%light": newest(5)}), None) == []


@pytest.mark.parametrize("millis", [0, 86_400_000, 9_000_000_000])
def test_a_brokers_own_protection_counts(millis: int) -> None:
    rules = lite_rules((5, 5, 1), {"minLiteTTl": millis})
    assert rules == LiteRules(millis, limit_in_long=True)
    assert lite_rules((5, 5, 1), {}) == LiteRules(15 * MINUTE, limit_in_long=True)
    assert lite_rules((5, 4, 0), {"minLiteTTl": millis}) is None


# ---- of a store


def write_lite_topics(root: Path, expirations: dict[str, str | None]) -> None:
    """A broker's table of topics of lite type, each with its expiration if it has one."""
    table = {}
    for topic, minutes in expirations.items():
        expiration = {} if minutes is None else {"lite.topic.expiration": minutes}
        attributes = {"message.type": "LITE", **expiration}
        table[topic] = {
            "topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "attributes": attributes,
        }  # fmt: skip
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def lite_store(root: Path, backend: str) -> None:
    """A store whose newest messages are as old as this call."""
    with MessageStore.open(root, SMALL, backend=backend) as store:
        for topic in ("%LMQ%$brief$a", "%LMQ%$brief$b", "%LMQ%$long$a", "%LMQ%x", "brief"):
            for _ in range(3):
                store.put_message(Message(topic, b"x"))
    write_lite_topics(root, {"brief": "10", "long": "30"})


def report_of(root: Path, backend: str, version: str = "5.5.1") -> PreflightReport:
    to = "rocksdb" if backend == "file" else "file"
    return preflight(root, SMALL, to=to, rocketmq_version=version, machine=FakeMachine())


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_store_is_looked_at_as_if_its_broker_started_now(tmp_path: Path, backend: str) -> None:
    root = tmp_path / "s"
    lite_store(root, backend)
    report = report_of(root, backend)
    finding = the(report, "lite-queues-expire")
    assert names(finding) == ["%LMQ%$brief$a/0", "%LMQ%$brief$b/0"]
    assert finding.affected_total == 2
    assert report.may_go_on
    expected = {"liteQueues": 3, "parents": 1, "queuesAtRisk": 2, "unitsAtRisk": 6}
    assert {name: finding.figures[name] for name in expected} == expected
    assert report_of(root, backend, "5.4.0").find("lite-queues-expire") is None


def test_a_brokers_settings_are_heard(tmp_path: Path) -> None:
    lite_store(tmp_path / "s", "file")
    conf = tmp_path / "broker.conf"
    conf.write_text("minLiteTTl=300000\nmappedFileSizeCommitLog=1048576\n")
    report = preflight(tmp_path / "s", broker_conf=conf, machine=FakeMachine())
    assert report.find("lite-queues-expire") is None
    conf.write_text("minLiteTTl=2400000\nmappedFileSizeCommitLog=1048576\n")
    report = preflight(tmp_path / "s", broker_conf=conf, machine=FakeMachine())
    assert the(report, "lite-queues-expire").affected_total == 3


def test_topics_that_lie_in_rocksdb_are_not_compared(tmp_path: Path) -> None:
    root = tmp_path / "s"
    lite_store(root, "file")
    (root / "config" / "topics").mkdir()
    (root / "config" / "topics" / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    report = report_of(root, "file")
    assert report.find("lite-queues-expire") is None
    assert the(report, "lite-queues-not-compared").figures == {"liteQueues": 3, "units": 9}
