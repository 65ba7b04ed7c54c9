"""``cqstore meta`` as an operator meets it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cqstore.broker.commands import meta_app as app
from cqstore.broker.metadata.model import Form
from tests.kit.metadata_forms import databases, expected_forms
from tests.kit.tree import tree_digest


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def rows(*words: object, code: int = 0) -> list[dict[str, Any]]:
    done = call(*words, "--output", "jsonl")
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def two_forms(root: Path, stores: Path) -> Path:
    """Return a store that a broker kept in JSON first, then in RocksDB."""
    root.mkdir()
    (stores / Form.JSON / "config").rename(root / "config")
    for each in databases(stores / Form.V1):
        each.rename(root / "config" / each.name)
    return root


def test_forms_are_counted_side_by_side(tmp_path: Path, stores: Path) -> None:
    found = rows(two_forms(tmp_path / "store", stores))
    assert [(row["form"], row["topics"], row["groups"]) for row in found] == [
        ("json", 30, 16),
        ("v1", 29, 16),  # a broker makes the timer's own topic at each start
    ]
    assert found[0]["offsets"] == found[1]["offsets"] == 38
    assert [row["offsetsCounter"] for row in found] == [0, None]  # v1 writes none until it changes


def test_one_form_is_shown_alone(tmp_path: Path, stores: Path) -> None:
    root = two_forms(tmp_path / "store", stores)
    assert {row["form"] for row in rows(root, "topics")} == {"json", "v1"}
    assert {row["form"] for row in rows(root, "topics", "--form", "v1")} == {"v1"}


@pytest.mark.parametrize("form", list(Form))
def test_offsets_are_a_row_a_queue(stores: Path, form: Form) -> None:
    before = tree_digest(stores)
    shown = {
        (row["topicAtGroup"], str(row["queueId"])): row["offset"]
        for row in rows(stores / form, "offsets")
        if row["kind"] == "offset" and not row["topicAtGroup"].startswith("%LMQ%")
    }
    expected = expected_forms()[form]["offsets"]
    assert shown == {
        (key, queue): offset
        for key, row in expected.items()
        if not key.startswith("%LMQ%")
        for queue, offset in row.items()
    }
    assert tree_digest(stores) == before


def test_what_a_group_may_not_do_is_shown_with_it(stores: Path) -> None:
    found = {row["group"]: row["forbidden"] for row in rows(stores / Form.JSON, "groups")}
    assert found["billing1"] == {"orders2": 8, "orders3": 1}
    assert found["billing2"] == {}


def test_delay_levels_are_shown_under_any_form(stores: Path) -> None:
    path = stores / Form.V2 / "config" / "delayOffset.json"
    path.write_text('{"dataVersion":{"counter":1},"offsetTable":{3:120,1:7}}')
    assert rows(stores / Form.V2, "delays") == [
        {"level": 1, "offset": 7},
        {"level": 3, "offset": 120},
    ]


def test_damage_ends_in_1_and_is_named(stores: Path) -> None:
    path = stores / Form.JSON / "config" / "topics.json"
    path.write_bytes(path.read_bytes()[:99])
    done = call(stores / Form.JSON)
    assert done.exit_code == 1
    assert str(path) in done.stderr


def test_the_verb_show_is_called_where_none_is_named(stores: Path) -> None:
    root = stores / Form.V1
    assert call("show", root, "topics").stdout == call(root, "topics").stdout
    assert call("--output", "jsonl", root).stdout == call(root, "--output", "jsonl").stdout
    assert "convert" in call("--help").stdout


def test_a_folder_with_the_name_of_a_verb_is_written_with_a_path(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stores / Form.V1).rename(stores / "convert")
    monkeypatch.chdir(stores)
    assert {row["form"] for row in rows("./convert")} == {"v1"}
