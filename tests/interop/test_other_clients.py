"""Clients in Go and Python read golden stores of both backends as RocketMQ's dumps have them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqstore.store.service.message_store import MessageStore
from tests.interop.consumers import by_place, served
from tests.interop.other_clients import GoClient, PythonClient
from tests.interop.started import Row
from tests.interop.test_served import FIELDS, OF_CLIENTS, STORES, TOPIC, dumped
from tests.kit.tree import tree_digest

pytestmark = [pytest.mark.interop, pytest.mark.long]
_PYTHON_FIELDS = ("phy", "storeSize", "bornTimestamp", "storeTimestamp", "reconsumeTimes")
_OF_GO = {"UNIQ_KEY", *OF_CLIENTS}
"""Properties that a client adds to what it receives. It also keeps properties without a value,
which Java's decoder drops."""


def bodies(root: Path, rows: dict[Any, Row]) -> dict[int, bytes]:
    """Return the body at each phy offset."""
    with MessageStore.open(root, read_only=True) as store:
        return {
            each["phy"]: bytes(store.message_by_offset(each["phy"]).body) for each in rows.values()
        }


@pytest.mark.parametrize("name", STORES)
def test_a_go_consumer_receives_every_message(
    golden: Callable[[str], Path], go_client: GoClient, name: str
) -> None:
    root = golden(name)
    before, expected = tree_digest(root), dumped(name, TOPIC)
    with served(root) as port:
        found = by_place(go_client.push(port, "go", TOPIC, len(expected)))
    assert found.keys() == expected.keys()
    stored = bodies(root, expected)
    for place, row in found.items():
        of_dump = expected[place]
        assert {key: row[key] for key in FIELDS} == {key: of_dump[key] for key in FIELDS}
        assert row["body"] == hashlib.sha256(stored[row["phy"]]).hexdigest()
        ours = {key: each for key, each in row["properties"].items() if each and key not in _OF_GO}
        assert ours == {
            key: each for key, each in of_dump["properties"].items() if key not in _OF_GO
        }
    assert tree_digest(root) == before


@pytest.mark.parametrize("kind", ["pull", "push"])
@pytest.mark.parametrize("name", STORES)
def test_a_python_consumer_receives_every_message(
    golden: Callable[[str], Path], python_client: PythonClient, name: str, kind: str
) -> None:
    root = golden(name)
    before, expected = tree_digest(root), dumped(name, TOPIC)
    with served(root) as port:
        found = by_place(python_client.consume(kind, port, f"python{kind}", TOPIC, len(expected)))
    assert found.keys() == expected.keys()
    stored = bodies(root, expected)
    for place, row in found.items():
        of_dump = expected[place]
        assert {key: row[key] for key in _PYTHON_FIELDS} == {
            key: of_dump[key] for key in _PYTHON_FIELDS
        }
        assert bytes.fromhex(row["body"]) == stored[row["phy"]].split(b"\0")[0]
        assert row["tags"] == of_dump["properties"].get("TAGS", "")
        assert row["keys"] == of_dump["properties"].get("KEYS", "")
    assert tree_digest(root) == before
