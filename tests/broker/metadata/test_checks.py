"""``cqstore meta --check``: each finding where there is one, and not where there is none."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cqstore.broker.commands import meta_app as app
from cqstore.broker.metadata.findings import MAX_NAMES, MetadataSeverity, MetaFinding
from cqstore.broker.metadata.form_checks import check_forms
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.broker.metadata.queue_checks import check_queues
from cqstore.store.queue.facts import QueueSpan
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.metadata_forms import databases, unpack_forms
from tests.kit.tree import unchanged

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)


def held(form: Form = Form.JSON, *, counter: int = 1, **tables: Any) -> BrokerMetadata:
    versions = {table: DataVersion(0, 0, counter) for table in Table}
    return BrokerMetadata(form, Path("config"), **{"versions": versions, **tables})


def topics(*names: str) -> dict[str, dict[str, object]]:
    return {name: {"topicName": name} for name in names}


def codes(findings: list[MetaFinding]) -> dict[str, list[str]]:
    return {finding.code: finding.names for finding in findings}


def checked(*found: BrokerMetadata) -> dict[str, list[str]]:
    return codes([*check_forms(found)])


def test_forms_that_hold_the_same_and_names_that_fit_once_are_fine() -> None:
    tables: dict[str, Any] = {
        "topics": topics("orders"), "groups": {"g": {"groupName": "g"}},
        "offsets": {"orders@g": {0: 3}},
    }  # fmt: skip
    forbidden = {"g": {"orders": 8}}
    everything = [held(Form.JSON, **tables), held(Form.V1, **tables), held(Form.V2, **tables)]
    everything[0].forbidden = everything[1].forbidden = forbidden  # v2 has no place for them
    everything[2].pull_offsets = {"orders@g": {0: 1}}  # and it alone has one for these
    everything[0].topics = tables["topics"] | topics("rmq_sys_wheel_timer")  # made at each start
    assert not checked(*everything)


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ({"topics": topics("new")}, "topics-disagree"),
        ({"groups": {"g": {"groupName": "g"}}}, "groups-disagree"),
        ({"forbidden": {"g": {"t": 8}}}, "groups-disagree"),
        ({"offsets": {"t@g": {0: 9}}}, "offsets-disagree"),
    ],
)
def test_two_forms_that_differ_in_any_table(tables: dict[str, Any], code: str) -> None:
    assert code in checked(held(Form.JSON, **tables), held(Form.SINGLE))
    assert code not in checked(held(Form.JSON, **tables), held(Form.SINGLE, **tables))


@pytest.mark.parametrize(
    ("counters", "forms", "code"),
    [
        ((2, 1), (Form.JSON, Form.V1), "offsets-taken-in"),
        ((1, 1), (Form.JSON, Form.V1), "offsets-passed-over"),
        ((0, 7), (Form.JSON, Form.SINGLE), "offsets-passed-over"),
        ((8, 7), (Form.V1, Form.SINGLE), "offsets-taken-in"),
        ((8, 7), (Form.JSON, Form.V2), None),  # reads nothing else whatever the counter
    ],
)
def test_a_counter_says_whether_a_broker_takes_a_form_in(
    counters: tuple[int, int], forms: tuple[Form, Form], code: str | None
) -> None:
    one = held(forms[0], counter=counters[0], offsets={"t@g": {0: 9}})
    found = checked(one, held(forms[1], counter=counters[1], offsets={"t@g": {0: 4}}))
    traps = found.keys() & {"offsets-taken-in", "offsets-passed-over"}
    assert traps == ({code} if code else set())
    if code:
        assert found[code] == [f"counters {counters[0]} and {counters[1]}"]


def test_offsets_of_a_young_broker_count_no_change() -> None:
    young = held(counter=0, offsets={"t@g": {0: 9}})
    assert checked(young)["counter-zero"] == ["offsets"]
    assert "counter-zero" not in checked(held(counter=1, offsets={"t@g": {0: 9}}))
    assert "counter-zero" not in checked(held(Form.V1, counter=0, offsets={"t@g": {0: 9}}))


def test_keys_that_fit_twice_or_not_at_all() -> None:
    offsets: dict[str, dict[int, int]] = {key: {0: 1} for key in ("a@b@c", "x", "a@d", "p@q@r")}
    found = checked(held(topics=topics("a", "a@b", "p@q"), offsets=offsets))
    assert found["ambiguous-key"] == ["a@b@c"]
    assert found["no-topic-at-group"] == ["x"]
    assert found["name-with-separator"] == ["p@q@r"]


@pytest.mark.parametrize(
    ("count", "is_found"), [(1, False), (2000, False), (2001, True), (2002, False), (4001, True)]
)
def test_a_slave_loses_the_last_of_2000k_plus_1(count: int, is_found: bool) -> None:  # noqa: FBT001
    names = [f"t{number}" for number in range(count)]
    assert ("topics-2000k-plus-1" in checked(held(topics=topics(*names)))) is is_found
    groups = {name: {"groupName": name} for name in names}
    assert ("groups-2000k-plus-1" in checked(held(groups=groups))) is is_found


def test_a_configuration_under_another_name() -> None:
    assert checked(held(topics={"t": {"topicName": "u"}}))["name-mismatch"] == ["t"]


def test_version_2_loses_a_reset_by_swapped_names() -> None:
    tables: dict[str, Any] = {"topics": topics("t", "u"), "groups": {"g": {"groupName": "g"}}}
    offsets = {"t@g": {0: 111}, "g@t": {0: 50}, "u@g": {0: 1}}
    assert checked(held(Form.V2, **tables, offsets=offsets))["reset-lost"] == ["t@g"]
    assert "reset-lost" not in checked(held(Form.V1, **tables, offsets=offsets))
    del offsets["g@t"]
    assert "reset-lost" not in checked(held(Form.V2, **tables, offsets=offsets))


# ---- against queues


def span(topic: str, queue_id: int, low: int, high: int) -> QueueSpan:
    return QueueSpan(QueueKey(topic, queue_id), low, high)


SPANS = [span("t", 0, 10, 20), span("t", 1, 0, 0), span("u", 0, 0, 5), span("%LMQ%x", 0, 0, 9)]


@pytest.mark.parametrize(
    ("offsets", "code", "name"),
    [
        ({"t@g": {0: 21}}, "offset-beyond-queue", "t@g 0: 21 > 20"),
        ({"t@g": {0: 9}}, "offset-below-queue", "t@g 0: 9 < 10"),
        ({"t@g": {0: 0}}, "offset-below-queue", "t@g 0: 0 < 10"),
        ({"t@g": {2: 1}}, "offset-without-queue", "t@g 2: 1"),
        ({"%LMQ%x@g": {0: 10}}, "offset-beyond-queue", "%LMQ%x@g 0: 10 > 9"),
        ({"t@g": {0: 20}}, None, ""), ({"t@g": {0: 10}}, None, ""), ({"t@g": {2: 0}}, None, ""),
        ({"t@g": {0: -1}}, None, ""),
    ],
)  # fmt: skip
def test_offsets_are_compared_with_their_queues(
    offsets: dict[str, dict[int, int]], code: str | None, name: str
) -> None:
    found = codes([*check_queues([held(topics=topics("t", "u"), offsets=offsets)], SPANS)])
    assert found == ({code: [name]} if code else {})


def test_topics_with_queues_and_no_row_and_the_reverse() -> None:
    known = topics("t", "idle", "SELF_TEST_TOPIC")
    found = codes([*check_queues([held(topics=known)], [*SPANS, span("TBW102", 0, 0, 1)])])
    assert found == {"topics-without-metadata": ["u"], "topics-without-queues": ["idle"]}


def test_names_are_capped_and_counted() -> None:
    spans = [span(f"t{number}", 0, 0, 1) for number in range(50)]
    (finding,) = check_queues([held()], spans)
    assert (len(finding.names), finding.total) == (MAX_NAMES, 50)


# ---- the verb


def call(root: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [str(root), "--check", "--output", "jsonl", *words])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, {row["code"]: row for row in rows}


def store_with(root: Path, *names: str) -> Path:
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_messages([Message(name, b"1", 0) for name in names])
    return root


def test_a_store_is_compared_and_not_changed(tmp_path: Path) -> None:
    unpack_forms(tmp_path / "forms")
    root = store_with(tmp_path / "store", "orders0", "lost", "at@sign")
    (tmp_path / "forms" / Form.JSON / "config").rename(root / "config")
    for each in databases(tmp_path / "forms" / Form.V1):
        each.rename(root / "config" / each.name)
    with unchanged(root):
        code, found = call(root)
        assert code == 1
        assert found["topics-without-metadata"]["names"] == ["lost"]
        assert "orders0@billing0 1: 1" in found["offset-without-queue"]["names"]
        assert found["offset-without-queue"]["severity"] == MetadataSeverity.WARN
    first = next(iter(found.values()))
    assert first["severity"] == MetadataSeverity.WARN


def test_information_alone_ends_in_0(tmp_path: Path) -> None:
    unpack_forms(tmp_path)
    code, found = call(tmp_path / Form.V2)
    assert code == 0
    assert found.keys() == {"name-with-separator", "no-queues"}


def test_damage_is_a_finding(tmp_path: Path) -> None:
    unpack_forms(tmp_path)
    path = tmp_path / Form.JSON / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:99])
    code, found = call(tmp_path / Form.JSON)
    assert code == 1
    assert str(path) in found["damaged"]["names"][0]


def test_queues_that_cannot_be_read_are_a_finding(tmp_path: Path) -> None:
    unpack_forms(tmp_path)
    root = tmp_path / Form.JSON
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "orders0").write_bytes(b"no folder")
    (root / "commitlog").mkdir()
    (root / "commitlog" / "x").write_bytes(b"1")
    code, found = call(root)
    assert code == 1
    assert found["queues-unreadable"]["total"] == 1
