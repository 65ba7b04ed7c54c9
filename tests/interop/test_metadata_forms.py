"""The forms of metadata, written by RocketMQ's managers of 5.5.1 and by us, read by the other."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cqstore.broker.commands import groups_app
from cqstore.broker.commands import meta_app as app
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import Form, Table
from cqstore.broker.metadata.writing import write_form
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.interop.started import JVM, class_archive
from tests.kit.metadata_forms import LIGHT, SETTINGS, unpack_forms
from tools.bench.peer.maven import JavaProgram, UnavailableError

CONFIG = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000)
pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def managers() -> JavaProgram:
    try:
        return JavaProgram.build(Path(__file__).parent / "metadata", "interop.Metadata", "5.5.1")
    except UnavailableError as exc:
        pytest.skip(f"the managers of RocketMQ 5.5.1 cannot be had: {exc}")


def requested(
    managers: JavaProgram, word: str, root: Path, form: Form, *questions: str
) -> dict[str, Any]:
    words = [word, str(root), *SETTINGS[form], *questions]
    with class_archive(managers) as archived:
        done = subprocess.run(
            [*managers.command(root.parent, [*JVM, *archived]), *words],
            capture_output=True, check=True, timeout=120, env=JavaProgram.environment(),
        )  # fmt: skip
    tables: dict[str, Any] = json.loads(done.stdout)
    return tables


@pytest.mark.parametrize("form", list(Form))
def test_what_the_managers_wrote_is_read(managers: JavaProgram, tmp_path: Path, form: Form) -> None:
    root = tmp_path / "store"
    written = requested(managers, "write", root, form)
    (found,) = read_forms(StorePaths(root))
    assert found.form is form
    assert not found.faults
    kept = {name: written["topics"][name] for name in found.topics}
    assert found.topics == kept
    assert "prüfung测试" in kept
    assert found.groups == {name: written["groups"][name] for name in found.groups}
    read = {key: {str(each): at for each, at in row.items()} for key, row in found.offsets.items()}
    light = {key for key in read if key.startswith("%LMQ%")}
    # Version 2 keeps light queues' offsets on disk, not in this table.
    assert {key: read[key] for key in read.keys() - light} == {
        key: row for key, row in written["offsets"].items() if not key.startswith("%LMQ%")
    }


@pytest.mark.parametrize("of", [Form.JSON, Form.V2])
@pytest.mark.parametrize("form", list(Form))
def test_what_we_write_is_what_the_managers_read(
    managers: JavaProgram, tmp_path: Path, of: Form, form: Form
) -> None:
    unpack_forms(tmp_path / "golden")
    (found,) = read_forms(StorePaths(tmp_path / "golden" / of))
    if form is Form.V2:
        found.forbidden.clear()
    else:
        found.pull_offsets.clear()
    root = tmp_path / "store"
    write_form(found, form, root)
    light = "?billing0,%LMQ%$parent$x,0"
    read = requested(
        managers, "dump", root, form, light, "?billing3,orders10,2", "?grüppe@x,at@sign,1"
    )
    assert {name: read["topics"][name] for name in found.topics} == found.topics
    assert {name: read["groups"][name] for name in found.groups} == found.groups
    assert read["forbidden"] == found.forbidden
    offsets = {
        key: {str(each): at for each, at in row.items()} for key, row in found.offsets.items()
    }
    if form is Form.V2:  # asked of the database, not read into this table
        del offsets[LIGHT]
    assert read["offsets"] == offsets
    assert read["asked"] == {light: 5, "?billing3,orders10,2": 1002, "?grüppe@x,at@sign,1": 1 << 40}
    for table in (Table.TOPICS, Table.GROUPS):  # a broker adds topics and groups of its own
        assert read[f"{table}Version"]["counter"] >= found.versions[table].counter


@pytest.mark.parametrize("form", list(Form))
def test_changed_offsets_are_what_the_managers_read(
    managers: JavaProgram, tmp_path: Path, form: Form
) -> None:
    unpack_forms(tmp_path)
    root = tmp_path / form
    before = requested(managers, "dump", root, form)
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_messages([Message("orders11", b"1", 2)] * 3)
    for words in (
        ["copy", root, "billing3", "new"], ["forget", root, "billing4", "--topic", "orders11"],
        ["reset", root, "late", "--topic", "orders11", "--to", "latest"],
    ):  # fmt: skip
        assert CliRunner().invoke(groups_app, [*map(str, words), "--yes"]).exit_code == 0
    read = requested(managers, "dump", root, form)
    expected = dict(before["offsets"])
    assert expected.pop("orders11@billing4")
    expected |= {
        key.replace("@billing3", "@new"): row
        for key, row in before["offsets"].items() if key.endswith("@billing3")
    }  # fmt: skip
    assert read["offsets"] == expected | {"orders11@late": {"2": 3}}
    assert read["offsetsVersion"]["counter"] > before["offsetsVersion"]["counter"]
    assert (read["topics"], read["groups"]) == (before["topics"], before["groups"])


@pytest.mark.parametrize("form", [Form.JSON, Form.V1, Form.SINGLE])
def test_topics_made_of_queues_are_taken_in(
    managers: JavaProgram, tmp_path: Path, form: Form
) -> None:
    unpack_forms(tmp_path)
    root = tmp_path / form
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_messages([Message("lost", b"1", queue_id) for queue_id in (0, 5)])
    (found,) = read_forms(StorePaths(root))
    assert CliRunner().invoke(app, ["make-topics", str(root), "--yes"]).exit_code == 0
    read = requested(managers, "dump", root, form)
    assert (read["topics"]["lost"]["readQueueNums"], read["topics"]["lost"]["perm"]) == (6, 6)
    assert {name: read["topics"][name] for name in found.topics} == found.topics
    assert read["groups"].keys() >= found.groups.keys()
