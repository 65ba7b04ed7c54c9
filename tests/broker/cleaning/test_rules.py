"""Which topics the rules select, which of these are kept, and that exactly the others go."""

from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.cleaning.cleaning_round import delete_from_store
from cqstore.broker.cleaning.rules import CleanedTopic, CleaningRule, CleaningRules
from cqstore.broker.metadata.json_form import read_json
from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from tests.broker.cleaning.kit import (
    DAY,
    LISTED,
    LITE,
    NEVER_TOUCHED,
    NOW,
    UNLISTED,
    cleaned,
    fill,
    made_round,
    reasons,
    there,
)
from tests.kit.operating import write_config
from tests.kit.tree import unchanged
from tests.migration.made_log import Made, make_store

UNUSED = {
    "gone": None, "gone-read": None, "gone-lag": "backlog", "%RETRY%g": "backlog",
    "%DLQ%g": "dead-letters", "RMQ_SYS_mine": "system-topic",
}  # fmt: skip
LITE_ONES = {"%LMQ%$brief$old": None, "%LMQ%$brief$lag": "backlog"}
IDLE_30 = {"idle100": None, "idle-read": None, "idle-lag": "backlog"}
CASES = [
    (CleaningRules(unused=True), UNUSED),
    (CleaningRules(lite=True), LITE_ONES),
    (CleaningRules(lite=True, min_lite_ttl_ms=90 * 60_000), {}),
    (CleaningRules(idle_days=30), IDLE_30),
    (CleaningRules(idle_days=5), IDLE_30 | {"idle10": None}),
    (CleaningRules(idle_days=1000), {}),
    (CleaningRules(unused=True, lite=True, idle_days=30), UNUSED | LITE_ONES | IDLE_30),
    (CleaningRules(unused=True, prefix="gone-"), {"gone-read": None, "gone-lag": "backlog"}),
    (CleaningRules(idle_days=30, lagging=True), dict.fromkeys(IDLE_30)),
    (CleaningRules(lite=True, lagging=True), dict.fromkeys(LITE_ONES)),
    (
        CleaningRules(unused=True, lagging=True),
        dict.fromkeys(UNUSED) | {"RMQ_SYS_mine": "system-topic"},
    ),
]


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    fill(tmp_path / "s", request.param)
    return tmp_path / "s"


@pytest.mark.parametrize(("rules", "expected"), CASES)
def test_a_dry_run_tells_what_the_rules_select_and_changes_no_byte(
    root: Path, rules: CleaningRules, expected: dict[str, str | None]
) -> None:
    with unchanged(root), MessageStore.open(root, read_only=True) as store:
        assert reasons(made_round(store, rules).topics()) == expected


@pytest.mark.parametrize(("rules", "expected"), CASES)
def test_exactly_these_topics_go_with_their_offsets_for_good(
    root: Path, rules: CleaningRules, expected: dict[str, str | None]
) -> None:
    gone = {topic for topic, kept in expected.items() if kept is None}
    every = {*LISTED, *UNLISTED, *NEVER_TOUCHED, *LITE}
    with MessageStore.open(root, housekeeping=False) as store:
        before = there(store)
        assert before.keys() == every
        assert cleaned(store, rules) == expected
        left = {topic: count for topic, count in before.items() if topic not in gone}
        assert there(store) == left
        assert [each for each in store.check() if each.damage] == []
        again = cleaned(store, rules)
        assert again == {topic: kept for topic, kept in expected.items() if kept is not None}
    with MessageStore.open(root, housekeeping=False) as store:
        assert there(store) == left
    found = read_json(root / "config")
    assert found is not None
    assert {key.split("@")[0] for key in found.offsets} == {
        "idle-read", "idle-lag", "gone-read", "gone-lag", "%LMQ%$brief$lag", "orders",
    } - gone  # fmt: skip
    assert found.topics.keys() == LISTED.keys()


def test_a_topic_is_told_with_its_rule_size_and_newest_message(root: Path) -> None:
    with MessageStore.open(root, read_only=True) as store:
        rules = CleaningRules(unused=True, idle_days=30)
        found = {each.topic: each for each in made_round(store, rules).topics()}
        size = found["gone"].queue_bytes
    assert found["gone"] == CleanedTopic("gone", CleaningRule.UNUSED, 2, 2, size, NOW - DAY + 1)
    assert found["idle100"].rule is CleaningRule.IDLE
    assert found["gone-lag"].detail == "billing: 1"
    queues = root / "consumequeue"
    if (queues / "gone").exists():
        assert size == sum(
            path.stat().st_blocks * 512 for path in (queues / "gone").rglob("*") if path.is_file()
        )
    else:
        # Keys of a topic of four bytes: 4 + 1 + 4 of each, then 1 + 4 + 1 + 8 of a unit, or
        # 1 + 3 + 1 + 4 of a max or min entry. Values: 28 of a unit, 16 of an entry.
        assert size == 2 * ((9 + 14 + 28) + 2 * (9 + 9 + 16))


@pytest.mark.parametrize("backend", backend_names())
def test_queues_whose_messages_have_all_expired_are_idle_and_expired(
    tmp_path: Path, backend: str
) -> None:
    """As ``topics --idle`` has it: no message is left, so none is lost."""
    topics = ["idle", "%LMQ%$brief$a"]
    records = [Made(topic, 0, NOW - DAY) for topic in topics]
    records += [Made("orders", 0, NOW - 60, b"x" * 700)] * 3
    make_store(tmp_path, records, 1024, backend)
    attributes = {"message.type": "LITE", "lite.topic.expiration": "43200"}
    table = {"brief": {"topicName": "brief", "attributes": attributes}}
    write_config(tmp_path, "topics.json", {"topicConfigTable": table})
    rules = CleaningRules(idle_days=30, lite=True)
    with MessageStore.open(tmp_path, housekeeping=False) as store:
        assert cleaned(store, rules) == {}
        store.delete_expired_files(1024)
        assert store.min_offset("idle", 0) == store.max_offset("idle", 0) == 1
        assert cleaned(store, rules) == dict.fromkeys(topics)
        assert [*store.topics()] == ["orders"]


@pytest.mark.parametrize("backend", backend_names())
def test_consumed_and_expired_messages_are_no_backlog(tmp_path: Path, backend: str) -> None:
    records = [Made("gone", 0, NOW - DAY)] + [Made("orders", 0, NOW, b"x" * 700)] * 3
    make_store(tmp_path, records, 1024, backend)
    write_config(tmp_path, "topics.json", {"topicConfigTable": {"orders": {}}})
    write_config(tmp_path, "consumerOffset.json", {"offsetTable": {"gone@g": {0: 0}}})
    with MessageStore.open(tmp_path, housekeeping=False) as store:
        assert cleaned(store, CleaningRules(unused=True)) == {"gone": "backlog"}
        store.delete_expired_files(1024)
        assert cleaned(store, CleaningRules(unused=True)) == {"gone": None}


def test_without_a_sound_table_no_topic_is_unused(root: Path) -> None:
    table = root / "config" / "topics.json"
    whole = table.read_text()
    for text, why in (("", "has no topics|is damaged"), (whole[:-40], "is damaged"),
                      ('{"topicConfigTable":{}}', "has no topics")):  # fmt: skip
        table.write_text(text)
        with (
            MessageStore.open(root, housekeeping=False) as store,
            pytest.raises(RefusedStoreError, match=why),
        ):
            made_round(store, CleaningRules(unused=True), delete_from_store(store))
    table.unlink()
    with (
        MessageStore.open(root, housekeeping=False) as store,
        pytest.raises(RefusedStoreError, match="has no topics"),
    ):
        made_round(store, CleaningRules(unused=True))


def test_without_sound_offsets_nothing_is_deleted(root: Path) -> None:
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"idle-lag@')
    with (
        MessageStore.open(root, housekeeping=False) as store,
        pytest.raises(RefusedStoreError, match=r"metadata is damaged: .*consumerOffset\.json"),
    ):
        made_round(store, CleaningRules(idle_days=30), delete_from_store(store))


@pytest.mark.parametrize(
    "given",
    [
        {}, {"lagging": True}, {"idle_days": -1}, {"idle_days": float("nan")},
        {"unused": True, "topics_per_second": 0}, {"lite": True, "topics_per_second": float("inf")},
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(StoreConfigError, match=r"no rule is given|invalid \w+ .*: expected"):
        CleaningRules(**given)
