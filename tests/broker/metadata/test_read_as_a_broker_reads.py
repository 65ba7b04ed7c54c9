"""Files of a broker that are no standard JSON, or backups alone: one answer in every verb."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cqstore.broker.commands import groups_app
from cqstore.broker.commands import meta_app as app
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form, Remark
from cqstore.broker.metadata.writing import write_form
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.metadata_forms import unpack_forms
from tests.kit.pages import ROOT
from tests.kit.tree import tree_digest

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
OFFSETS = {"offsetTable": {"t@g": {"0": 1}}, "dataVersion": {"counter": 7}}
OLDER = {"offsetTable": {"t@g": {"0": 0}}, "dataVersion": {"counter": 6}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one message, whose offsets are in a backup alone."""
    with MessageStore.open(tmp_path, CONFIG, backend="file") as store:
        store.put_message(Message("t", b"x"))
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "consumerOffset.json.bak").write_text(json.dumps(OFFSETS))
    return tmp_path


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def test_a_backup_alone_is_read_with_a_note(root: Path) -> None:
    before = tree_digest(root)
    for done in (
        call("show", root, "offsets", "--output", "jsonl"),
        CliRunner().invoke(groups_app, ["show", str(root), "--by", "queue", "--output", "jsonl"]),
    ):
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["offset"] == 1
        assert ".bak is read instead, as by a broker: consumerOffset.json" in done.stderr
    assert tree_digest(root) == before
    checked = call("show", root, "--check", "--output", "jsonl")
    found = {row["code"]: row for row in map(json.loads, checked.stdout.splitlines())}
    assert "damaged" not in found
    assert found["backup-alone"]["severity"] == "info"
    assert call("convert", root, "--to", "v1", "--yes").exit_code == 0
    (made,) = read_forms(StorePaths(root))
    assert (made.form, made.offsets) == (Form.V1, {"t@g": {0: 1}})


@pytest.mark.parametrize(
    "text", ["\ufeff{}", "{} // by hand", "{},", "{}\0\0\0", "{}".replace("{}", "/* */{}")]
)
def test_repair_leaves_what_a_broker_reads(root: Path, text: str) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text(text.replace("{}", json.dumps(OFFSETS)))
    path.with_name(f"{path.name}.bak").write_text(json.dumps(OLDER))
    before = path.read_bytes()
    done = call("repair", root, "--yes", "--output", "jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert path.read_bytes() == before
    (found,) = read_forms(StorePaths(root))
    assert (found.offsets, found.faults, found.remarks) == ({"t@g": {0: 1}}, [], {})


def test_what_is_not_known_counts_as_no_damage_and_is_not_repaired(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"t@g":{0:"2026-01-01 00:00:00"}}}')
    before = tree_digest(root)
    (found,) = read_forms(StorePaths(root))
    (fault,) = found.faults
    assert found.offsets == {}
    assert "cannot determine how a broker reads this file: offsetTable: 't@g'" in str(fault)
    done = call("repair", root, "--yes")
    assert done.exit_code != 0
    assert "cannot determine how a broker reads this file" in str(done.exception)
    assert "cannot determine how a broker reads this file" in str(
        call("convert", root, "--to", "v1", "--yes").exception
    )
    assert tree_digest(root) == before


def test_a_null_row_and_a_bare_number_are_not_shown_as_read(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    for row in ("null", "5"):
        path.write_text(f'{{"offsetTable":{{"t@g":{row}}}}}')
        path.with_name(f"{path.name}.bak").write_text(json.dumps(OLDER))
        (found,) = read_forms(StorePaths(root))
        assert found.offsets == {"t@g": {0: 0}}
        assert "offsetTable: 't@g'" in str(found.faults[0])


def test_the_pull_offsets_of_5_5_0_are_a_note(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.write_text(json.dumps({**OFFSETS, "pullOffsetTable": {"t@g": {"0": 1}}}))
    (found,) = read_forms(StorePaths(root))
    assert found.remarks == {Remark.PULL_OFFSETS: ["consumerOffset.json"]}
    done = call("convert", root, "--to", "v1", "--yes")
    assert done.exit_code == 0, done.exception
    assert "pullOffsetTable of RocketMQ 5.5.0" in done.stderr


@pytest.mark.parametrize("to", [Form.JSON, Form.V1, Form.SINGLE])
def test_pull_offsets_of_groups_that_commit_are_left_out_with_a_note(
    tmp_path: Path, to: Form
) -> None:
    unpack_forms(tmp_path)
    (given,) = read_forms(StorePaths(tmp_path / Form.V2))
    offsets = {"t@g": {0: 3, 1: 4}}
    pushed = BrokerMetadata(
        Form.V2, tmp_path, topics=given.topics, groups=given.groups, offsets=offsets,
        pull_offsets={"t@g": {0: 5}},
    )  # fmt: skip
    write_form(pushed, Form.V2, tmp_path / "push")
    done = call("convert", tmp_path / "push", "--to", to, "--yes")
    assert done.exit_code == 0, done.exception
    assert "pull offsets are left out" in done.stderr
    (made,) = read_forms(StorePaths(tmp_path / "push"))
    assert (made.form, made.offsets, made.pull_offsets) == (to, offsets, {})
    pulled = replace(pushed, pull_offsets={"t@g": {0: 5}, "t@puller": {0: 9}})
    write_form(pulled, Form.V2, tmp_path / "pull")
    done = call("convert", tmp_path / "pull", "--to", to, "--yes")
    assert "does not support offsets of pull consumers: t@puller" in str(done.exception)


def test_a_page_explains_each_remark() -> None:
    pages = [ROOT / "docs" / name for name in ("operations.md", "migration.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    rows = [line for line in lines if line.startswith("| `")]
    for remark in Remark:
        assert any(f"`{remark.value}`" in row.split("|")[1] for row in rows), remark
