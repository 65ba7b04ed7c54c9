"""``topics --times`` and ``--idle``: store times as RocketMQ's dump has them, and by hand."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.record.message import TIMER_TOPIC
from tests.kit.golden import CLEAN, each_kind, load_dump
from tests.kit.tree import tree_digest
from tests.kit.verbs import rows
from tests.migration.made_log import Made, make_store

Golden = Callable[[str], Path]
DAY = 86_400_000


@pytest.mark.parametrize("name", each_kind(name for name in CLEAN if "533" not in name))
def test_times_are_those_of_the_first_and_last_unit(golden: Golden, name: str) -> None:
    root, expected = golden(name), {}
    for queue in load_dump(name)["queues"]:
        units = [unit for unit in queue["units"] if unit and unit[0] >= queue["min"]]
        ends = (units[0][4], units[-1][4]) if units else (None, None)
        expected[queue["topic"], queue["queueId"]] = ends
    before = tree_digest(root)
    found = {
        (row["topic"], row["queueId"]): (row["oldestStoreTimestamp"], row["newestStoreTimestamp"])
        for row in rows("topics", root, "--times")
    }
    assert found == expected
    assert tree_digest(root) == before
    assert "oldestStoreTimestamp" not in rows("topics", root)[0]


@pytest.fixture
def root(backend: str, tmp_path: Path) -> Path:
    """A store whose topics had their last message 1, 10 and 100 days ago, in one of two queues."""
    now = time.time_ns() // 1_000_000
    records = [Made(TIMER_TOPIC, 0, now - 200 * DAY)]
    for days in (100, 10, 1):
        records += [
            Made(f"days{days}", 0, now - 150 * DAY),
            Made(f"days{days}", 1, now - days * DAY),
        ]
    make_store(tmp_path / "store", sorted(records, key=lambda made: made.stored_at), 4096, backend)
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("days", "idle"),
    [("0", [1, 10, 100]), ("5", [10, 100]), ("50.5", [100]), ("110", [])],
)
def test_a_topic_is_idle_by_the_newest_of_its_queues(
    root: Path, days: str, idle: list[int]
) -> None:
    found = {row["topic"]: row for row in rows("topics", root, "--idle", days)}
    assert set(found) == {f"days{each}" for each in idle}
    assert {(row["queues"], row["messages"]) for row in found.values()} <= {(2, 2)}
    for each in idle:
        age = time.time_ns() // 1_000_000 - found[f"days{each}"]["newestStoreTimestamp"]
        assert each * DAY <= age < each * DAY + DAY


def test_a_topic_whose_messages_have_expired_is_idle(tmp_path: Path, backend: str) -> None:
    now = time.time_ns() // 1_000_000
    records = [Made(topic, 0, now) for topic in ("gone", "here") for _ in range(20)]
    expired = tmp_path / "expired"
    offsets = make_store(expired, records, 1024, backend)
    for path in (expired / "commitlog").iterdir():
        if int(path.name) <= offsets[19]:  # the log's first files, as an expiry takes them
            path.unlink()
    (row,) = rows("topics", expired, "--idle", "1")
    assert (row["topic"], row["messages"], row["newestStoreTimestamp"]) == ("gone", 0, None)


def test_idle_topics_are_chosen_and_cut(root: Path) -> None:
    assert [row["topic"] for row in rows("topics", root, "--idle", "5", "--prefix", "days100")] == [
        "days100"
    ]
    assert len(rows("topics", root, "--idle", "0", "--limit", "2")) == 2
