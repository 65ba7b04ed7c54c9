"""Files that are assembled from the text of their rows, compared with the content as a whole."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.broker.metadata.json_text import FileText
from cqstore.broker.metadata.json_writer import content_of
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Table
from cqstore.store.broker_files.fastjson import encoded

KEYS = st.sampled_from(["t@g", "t@%LMQ%a", 'q"\\@é', "a@b@c", "%LMQ%x@%LMQ%b", "none"])
ROWS = st.dictionaries(st.integers(0, 3), st.integers(0, 1 << 62), min_size=1)
CHANGES = st.lists(st.dictionaries(KEYS, ROWS | st.none(), max_size=3), max_size=5)
OTHERS: dict[str, object] = {"theirs": [1, {"é": None}], "resetOffsetTable": {"t@g": {"0": 1}}}
Row = dict[int, int]
Change = dict[str, Row | None]


def made(rows: dict[str, dict[int, int]], counter: int) -> BrokerMetadata:
    versions = {Table.OFFSETS: DataVersion(0, 1, counter)}
    return BrokerMetadata(Form.JSON, Path("config"), offsets=rows, versions=versions)


@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json"])
def test_many_changes_are_as_one_writing(name: str) -> None:
    """With changes in between that are undone."""

    @given(CHANGES, CHANGES)
    def compare(changes: list[Change], undone: list[Change]) -> None:
        text, model = FileText(name, OTHERS), dict[str, dict[int, int]]()
        text.change(made({}, 0), ())
        for counter, change in enumerate(changes, 1):
            for each in undone:
                rows = {key: row for key, row in each.items() if row}
                text.restore(text.change(made(rows, 99), each))
            model = {key: row for key, row in {**model, **change}.items() if row}
            text.change(made({key: row for key, row in change.items() if row}, counter), change)
            expected = encoded(OTHERS | content_of(name, made(model, counter)))
            assert in_any_order(text.text()) == in_any_order(expected)

    compare()


def in_any_order(data: bytes) -> object:
    found = json.loads(data)
    for topics in found.get("groupTopicMap", {}).values():
        topics.sort()
    return found
