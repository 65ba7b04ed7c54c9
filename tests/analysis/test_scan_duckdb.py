"""A scan read by DuckDB, which knows nothing of us: groups, joins, a query cut short."""

from collections import Counter
from pathlib import Path

import pytest

import cqstore
from tests.kit.descriptors import descriptors_of
from tests.kit.golden import load_dump
from tests.kit.scanned import dumped

duckdb = pytest.importorskip("duckdb")
pytestmark = pytest.mark.long  # the import alone takes a while
NAMES = ["special-default", "basic-defaultRocksDB"]


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_counts_what_rocketmq_read(name: str, golden_folder: Path) -> None:
    expected = dumped(name, load_dump(name))
    messages = cqstore.scan(golden_folder / name)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(
            "SELECT topic, queueId, count(*), min(epoch_ms(storeTimestamp)),"
            " max(properties['TAGS']) FROM messages GROUP BY ALL"
        ).fetchall()
        assert messages is not None
        assert {tuple(row[:3]) for row in found} == {
            (*key, count)
            for key, count in Counter((row["topic"], row["queueId"]) for row in expected).items()
        }
        first = min(row["storeTimestamp"] for row in expected)
        assert min(row[3] for row in found) == first
    assert descriptors_of(golden_folder / name) == []


def test_duckdb_joins_messages_with_units_and_with_themselves(golden_folder: Path) -> None:
    root = golden_folder / NAMES[0]
    messages = cqstore.scan(root, columns=["phy", "topic", "body"])
    units = cqstore.scan(root, table="units", columns=["phy_offset", "size", "topic"])
    with duckdb.connect() as connection:
        (count,) = connection.sql(
            "SELECT count(*) FROM messages JOIN units ON phy = phy_offset"
            " AND messages.topic = units.topic"
        ).fetchall()[0]
        assert count == len(dumped(NAMES[0], load_dump(NAMES[0])))
        twice = connection.sql(
            "SELECT count(*) FROM messages AS a JOIN messages AS b ON a.phy = b.phy"
        ).fetchall()
        assert twice == [(count,)]
        assert units is not messages
        rows = connection.sql("SELECT body FROM messages LIMIT 1").fetchall()
        assert len(rows) == 1
    assert descriptors_of(root) == []


def test_duckdb_is_told_of_damage(golden_folder: Path) -> None:
    messages = cqstore.scan(golden_folder / "torn-default")
    with (
        duckdb.connect() as connection,
        pytest.raises(duckdb.Error, match=r"(?s)offset \d+: .*phy_offset \d+"),
    ):
        connection.sql("SELECT sum(octet_length(body)) FROM messages").fetchall()
    assert messages is not None
