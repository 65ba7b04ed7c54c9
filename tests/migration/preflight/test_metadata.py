"""The queues against the broker's tables, in JSON or databases, as RocketMQ writes them."""

import os
import shutil
from pathlib import Path

import pytest

from cqstore.broker.metadata.model import Form
from cqstore.migration.preflight import Severity, preflight
from cqstore.migration.preflight.preflight_report import PreflightFinding
from cqstore.migration.preflight.topics_check import read_topic_table
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.golden import load_dump
from tests.kit.metadata_forms import expected_forms, unpack_forms
from tests.migration.preflight.kit import FakeMachine, Golden, names, the, topics_of, write_topics

in_rocksdb = pytest.mark.parametrize("form", [Form.V1, Form.SINGLE, Form.V2])


def given(root: Path, tmp_path: Path, form: Form) -> None:
    """Let ``form`` be the only one, as RocketMQ's managers wrote it."""
    unpack_forms(tmp_path / "forms")
    shutil.rmtree(root / "config")
    shutil.copytree(tmp_path / "forms" / form / "config", root / "config")


def look(root: Path) -> list[PreflightFinding]:
    return preflight(root, machine=FakeMachine()).findings


def consumers(root: Path, text: str, file: str = "consumerOffset.json") -> Path:
    path = root / "config" / file
    path.write_text(text)
    return path


# ---- topics


def test_three_topics_that_the_table_lacks_are_exactly_those(golden: Golden) -> None:
    root = golden("wide-default")
    topics = sorted(topics_of(root))
    lost = topics[5:200:90]
    write_topics(root, set(topics) - set(lost))
    finding = the(preflight(root, machine=FakeMachine()), "topics-without-metadata")
    counts: dict[str, tuple[int, int]] = {}
    for queue in load_dump("wide-default")["queues"]:
        queues, units = counts.get(queue["topic"], (0, 0))
        counts[queue["topic"]] = (queues + 1, units + len(queue["units"]))
    assert len(lost) == finding.affected_total == 3
    assert finding.severity is Severity.WARN
    assert {each.name: each.figures for each in finding.affected} == {
        topic: {"queues": counts[topic][0], "units": counts[topic][1]} for topic in lost
    }
    assert finding.figures == {
        "listedTopics": len(topics) - 3,
        "queuesAtRisk": sum(counts[topic][0] for topic in lost),
        "unitsAtRisk": sum(counts[topic][1] for topic in lost),
    }


@pytest.mark.disk
def test_light_queues_and_system_topics_are_exempt(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s") as store:
        for topic in ("mine", "%LMQ%a", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_x"):
            store.put_message(Message(topic, b"x"))
    write_topics(tmp_path / "s", ["mine", "idle", "TBW102"])
    report = preflight(tmp_path / "s", machine=FakeMachine())
    assert names(the(report, "topics-without-metadata")) == ["%RETRY%g", "rmq_x"]
    assert names(the(report, "topics-without-queues")) == ["idle"]


def test_without_a_table_every_topic_is_at_risk(golden: Golden) -> None:
    root = golden("basic-default")
    (root / "config" / "topics.json").unlink()
    report = preflight(root, machine=FakeMachine())
    assert the(report, "no-topic-table").severity is Severity.WARN
    assert the(report, "topics-without-metadata").affected_total == 5
    assert report.may_go_on


@in_rocksdb
def test_topics_in_rocksdb_are_compared_in_every_form(
    golden: Golden, tmp_path: Path, form: Form
) -> None:
    root = golden("basic-default")
    given(root, tmp_path, form)
    report = preflight(root, machine=FakeMachine())
    queued = {queue["topic"] for queue in load_dump("basic-default")["queues"]}
    listed = expected_forms()[form]["topics"].keys()
    finding = the(report, "topics-without-metadata")
    assert names(finding) == sorted(queued - listed)
    assert report.find("no-topic-table") is None
    assert {"orders1", "at@sign"} <= set(names(the(report, "topics-without-queues")))
    assert read_topic_table(StorePaths(root))[0].lite_expirations == {"parent": 60}


@pytest.mark.parametrize("folder", ["topics", "rdb", "metadata"])
def test_topics_in_a_database_that_cannot_be_read_are_one_finding(
    golden: Golden, folder: str
) -> None:
    root = golden("basic-default")
    write_topics(root, [])
    (root / "config" / folder).mkdir()
    (root / "config" / folder / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    report = preflight(root, machine=FakeMachine())
    finding = the(report, "no-topic-table")
    assert finding.severity is Severity.WARN
    assert str(root / "config" / folder) in finding.sentence
    assert report.find("topics-without-metadata") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable": 3}', "\xff"])
def test_a_table_that_cannot_be_read_is_one_finding(golden: Golden, text: str) -> None:
    root = golden("basic-default")
    (root / "config" / "topics.json").write_text(text, encoding="latin-1")
    report = preflight(root, machine=FakeMachine())
    assert "topics.json" in the(report, "no-topic-table").sentence
    assert report.find("topics-without-metadata") is None


# ---- consumer offsets


def test_consumers_outside_their_queues_are_named(golden: Golden) -> None:
    root = golden("special-default")
    dump = load_dump("special-default")
    queue = next(queue for queue in dump["queues"] if queue["units"] and queue["units"][0][0] > 0)
    topic, low, high = queue["topic"], queue["units"][0][0], queue["units"][-1][0] + 1
    name = f"{topic}/{queue['queueId']}"
    at = queue["queueId"]
    table = (
        f'{{"dataVersion":{{"counter":7}},"offsetTable":{{"{topic}@low":{{{at}:{low - 1}}},'
        f'"{topic}@first":{{{at}:{low}}},"{topic}@end":{{{at}:{high}}},'
        f'"{topic}@high":{{{at}:{high + 1}}},"gone@g":{{0:4,1:0}},"%RETRY%g@g":{{0:0}}}}}}'
    )
    consumers(root, table)
    report = preflight(root, machine=FakeMachine())
    beyond, below = the(report, "consumers-beyond-max"), the(report, "consumers-below-min")
    unknown = the(report, "consumers-of-unknown-topics")
    assert names(beyond) == [f"high on {name}"]
    assert beyond.affected[0].figures == {"offset": high + 1, "max": high}
    assert beyond.severity is Severity.WARN
    assert names(below) == [f"low on {name}"]
    assert below.affected[0].figures == {"offset": low - 1, "min": low}
    assert below.severity is Severity.INFO
    assert names(unknown) == ["g on gone/0"]
    assert beyond.figures == {"compared": 7}


@pytest.mark.disk
def test_offsets_of_light_queues_are_compared_too(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root) as store:
        store.put_message(Message("%LMQ%a", b"x"))
    write_topics(root, [])
    text = '{"lmqOffsetTable":{"%LMQ%a@%LMQ%c":2},"offsetTable":{"%LMQ%a@d":{0:1}}}'
    consumers(root, text, "lmqConsumerOffset.json")
    beyond = the(preflight(root, machine=FakeMachine()), "consumers-beyond-max")
    assert names(beyond) == ["%LMQ%c on %LMQ%a/0"]
    assert beyond.figures == {"compared": 2}


@in_rocksdb
def test_offsets_in_rocksdb_are_compared_in_every_form(
    golden: Golden, tmp_path: Path, form: Form
) -> None:
    root = golden("basic-default")
    given(root, tmp_path, form)
    with MessageStore.open(root, backend="file") as store:
        for queue_id in (1, 2):
            store.put_message(Message("orders10", b"x", queue_id))
        store.put_message(Message("at@sign", b"x", 1))
    report = preflight(root, machine=FakeMachine())
    offsets = expected_forms()[form]["offsets"]
    beyond = {
        f"{key.partition('@')[2]} on orders10/{queue_id}"
        for key, row in offsets.items() if key.startswith("orders10@")
        for queue_id, offset in row.items() if offset > (queue_id in {"1", "2"})
    }  # fmt: skip
    assert "billing3 on orders10/2" in beyond
    assert set(names(the(report, "consumers-beyond-max"))) == {*beyond, "grüppe@x on at@sign/1"}
    assert report.find("offsets-not-compared") is None


def test_offsets_in_a_database_that_cannot_be_read_are_one_finding(golden: Golden) -> None:
    root = golden("basic-default")
    (root / "config" / "rdb").mkdir()
    (root / "config" / "rdb" / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    aged(consumers(root, '{"offsetTable":{"gone@g":{0:4}}}'), 10)
    report = preflight(root, machine=FakeMachine())
    finding = the(report, "offsets-not-compared")
    assert (finding.severity, "in form v2" in finding.sentence) == (Severity.WARN, True)
    assert report.find("consumers-of-unknown-topics") is None


@pytest.mark.parametrize("value", ['{"x":1}', '{0:"y"}', "[1]", "null", "Infinity", "5"])
def test_an_offset_that_is_none_is_one_finding(golden: Golden, value: str) -> None:
    root = golden("basic-default")
    consumers(root, f'{{"offsetTable":{{"gone@g":{value}}}}}')
    finding = the(preflight(root, machine=FakeMachine()), "offsets-not-compared")
    assert finding.severity is Severity.WARN
    assert "gone@g" in finding.sentence


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_backup_alone_and_a_file_edited_by_hand_are_compared(golden: Golden, name: str) -> None:
    root = golden("basic-default")
    consumers(root, '{"offsetTable":{"gone@g":{0:4}}}')
    found = [(each.code, each.sentence) for each in look(root)]
    path = root / "config" / name
    path.write_text(f"\ufeff// by hand\n{path.read_text()}")
    assert [(each.code, each.sentence) for each in look(root)] == found
    path.rename(path.with_name(f"{name}.bak"))
    alone = [(each.code, each.sentence) for each in look(root)]
    remark = "These files are missing; their .bak is read instead, as by a broker"
    assert [each for each in alone if each not in found] == [
        ("tables-backup-alone", f"{remark}: {name}.")
    ]
    assert [each for each in alone if each in found] == found


# ---- tables of the other form


def aged(path: Path, seconds: int) -> None:
    os.utime(path, (seconds, seconds))


def with_database(root: Path, name: str, seconds: int) -> None:
    folder = root / "config" / name
    folder.mkdir()
    (folder / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    aged(folder / "CURRENT", seconds)


def test_offsets_of_light_queues_are_named_where_rocksdb_will_not_read_them(golden: Golden) -> None:
    root = golden("basic-default")
    aged(consumers(root, '{"offsetTable":{}}'), 10)
    aged(consumers(root, '{"offsetTable":{}}', "lmqConsumerOffset.json"), 20)
    finding = the(preflight(root, machine=FakeMachine()), "offsets-of-light-queues")
    assert finding.severity is Severity.INFO
    aged(root / "config" / "consumerOffset.json", 30)
    assert preflight(root, machine=FakeMachine()).find("offsets-of-light-queues") is None


def test_tables_in_rocksdb_that_cannot_be_read_are_named(golden: Golden) -> None:
    root = golden("basic-defaultRocksDB")
    aged(consumers(root, '{"offsetTable":{}}'), 10)
    with_database(root, "consumerOffsets", 20)
    finding = the(preflight(root, to="file", machine=FakeMachine()), "tables-not-convertible")
    assert finding.severity is Severity.REFUSE
    assert f"{root}/config/consumerOffsets" in finding.sentence
    aged(root / "config" / "consumerOffset.json", 30)
    report = preflight(root, to="file", machine=FakeMachine())
    assert report.find("tables-not-convertible") is None
    finding = the(preflight(root, machine=FakeMachine()), "older-databases")
    assert names(finding) == ["config/consumerOffsets"]


@pytest.mark.parametrize(("form", "to"), [("json", "rocksdb"), ("v1", "file"), ("single", "file")])
def test_what_a_move_converts_is_named_with_counts(
    golden: Golden, tmp_path: Path, form: str, to: str
) -> None:
    """By what RocketMQ's managers read of the same files."""
    root = golden("basic-default")
    unpack_forms(tmp_path / "forms")
    shutil.copytree(tmp_path / "forms" / form / "config", root / "config", dirs_exist_ok=True)
    expected = expected_forms()[form]
    finding = the(preflight(root, to=to, machine=FakeMachine()), "tables-converted")
    into = "v1" if to == "rocksdb" else "json"
    assert f"topics from {form}" in finding.sentence
    assert f"to form {into}: " in finding.sentence
    assert f" {len(expected['groups'])} groups" in finding.sentence


def test_tables_are_converted_for_version_2(golden: Golden, tmp_path: Path) -> None:
    root, conf = golden("basic-default"), tmp_path / "broker.conf"
    conf.write_text("configManagerVersion=v2\n")
    aged(consumers(root, '{"offsetTable":{}}'), 10)
    report = preflight(root, broker_conf=conf, machine=FakeMachine())
    assert "to form v2" in the(report, "tables-converted").sentence
    with_database(root, "rdb", 1 << 34)
    report = preflight(root, broker_conf=conf, machine=FakeMachine())
    assert report.find("tables-in-version-2") is None
    finding = the(preflight(root, machine=FakeMachine()), "tables-in-version-2")
    assert finding.severity is Severity.WARN


@pytest.mark.parametrize("name", ["metadata", "topics", "rdb"])
def test_topics_that_a_broker_keeps_in_a_database_are_not_taken_from_older_files(
    golden: Golden, name: str
) -> None:
    root = golden("basic-default")
    write_topics(root, ["only-here"])
    aged(root / "config" / "topics.json", 10)
    with_database(root, name, 20)
    finding = the(preflight(root, machine=FakeMachine()), "no-topic-table")
    assert f"config/{name}" in finding.sentence
    aged(root / "config" / "topics.json", 30)
    assert preflight(root, machine=FakeMachine()).find("no-topic-table") is None


def test_what_a_followed_move_leaves_is_named(golden: Golden) -> None:
    root = golden("basic-default")
    for name in (
        "timerwheel",
        "timerwheel.104",
        "timerlog",
        "kvStore",
        "rocksdbstore",
        "tieredstore",
    ):
        (root / name).mkdir(exist_ok=True)
    report = preflight(root, machine=FakeMachine())
    assert names(the(report, "left-by-follow")) == ["compaction", "tieredstore"]
