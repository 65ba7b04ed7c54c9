"""``cqstore mode --to`` goes on without what cannot be brought, as ``migrate switch`` does."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cqstore.broker.conversion import broker_process as stopped
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.writing import write_form
from cqstore.cli.app import app as cqstore
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.paths import StorePaths
from tests.kit.metadata_forms import databases, unpack_forms
from tests.kit.tree import tree_digest

Golden = Callable[[str], Path]
V1_SAID = "configManagerVersion=v1\n"


@pytest.fixture(autouse=True)
def _settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "_SETTLE_SECONDS", 0.05)


@pytest.fixture
def root(golden: Golden) -> Path:
    """Return a store of files without metadata."""
    made = golden("basic-default")
    shutil.rmtree(made / "config", ignore_errors=True)
    return made


def give(root: Path, form: Form) -> BrokerMetadata:
    unpack_forms(root.parent / "forms")
    shutil.copytree(root.parent / "forms" / form / "config", root / "config")
    return the_form(root, form)


def the_form(root: Path, form: Form) -> BrokerMetadata:
    [found] = [each for each in read_forms(StorePaths(root)) if each.form is form]
    assert not found.faults
    return found


def step(root: Path, *words: str, conf: str = "") -> Result:
    path = root.parent / "broker.conf"
    path.write_text(conf)
    more = ["--config", str(path), "--output", "json", *words]
    return CliRunner().invoke(cqstore, ["mode", str(root), *more])


def taken(root: Path, *words: str, conf: str = "") -> dict[str, object]:
    done = step(root, *words, conf=conf)
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def refused(root: Path, *words: str, conf: str = "") -> str:
    before = tree_digest(root)
    done = step(root, *words, conf=conf)
    assert isinstance(done.exception, RefusedStoreError | StoreConfigError), done.output
    assert tree_digest(root) == before
    return str(done.exception)


def test_what_groups_may_not_do_is_left_out_where_that_is_said(root: Path) -> None:
    conf, known = "configManagerVersion=v2\n", give(root, Form.JSON)
    assert any(known.forbidden.values())
    words = ("--to", "double-write-file")
    assert "--without forbidden" in refused(root, *words, conf=conf)
    assert "--without forbidden" in refused(root, *words, "--without", "pull-offsets", conf=conf)
    report = taken(root, *words, "--without", "forbidden", conf=conf)
    assert report["state"] == "double-write-file"
    done = report["convertedTables"]
    assert isinstance(done, dict)
    assert (done["to"], done["dropped"]) == ("v2", ["forbidden"])
    made = the_form(root, Form.V2)
    assert (made.topics, made.groups, made.offsets) == (known.topics, known.groups, known.offsets)


def test_offsets_of_pull_consumers_are_left_out_where_that_is_said(root: Path) -> None:
    given = give(root, Form.V2)
    offsets = {key: row for key, row in given.offsets.items() if key not in given.pull_offsets}
    known = replace(given, offsets=offsets)  # these groups have committed nothing
    shutil.rmtree(root / "config" / "rdb")
    write_form(known, Form.V2, root)
    words = ("--to", "double-write-file")
    assert "--without pull-offsets" in refused(root, *words, conf=V1_SAID)
    done = taken(root, *words, "--without", "pull-offsets", conf=V1_SAID)["convertedTables"]
    assert isinstance(done, dict)
    assert (done["to"], done["dropped"]) == ("json", ["pull-offsets"])
    made = the_form(root, Form.JSON)
    assert (made.topics, made.groups, made.offsets) == (known.topics, known.groups, known.offsets)


def test_fields_that_no_release_writes_are_left_out_where_that_is_said(root: Path) -> None:
    give(root, Form.JSON)
    path = root / "config" / "topics.json"
    path.write_text(json.dumps(broker_object(path.read_bytes()) | {"ours": {"x": 1}}))
    for state in ("double-write-file", "double-write-rocksdb"):
        taken(root, "--to", state)
    assert "--without unknown-fields" in refused(root, "--to", "rocksdb")
    report = taken(root, "--to", "rocksdb", "--without", "unknown-fields")
    done = report["convertedTables"]
    assert isinstance(done, dict)
    assert (done["to"], done["dropped"]) == ("v1", ["topics.json: ours"])


def test_a_database_that_cannot_be_read_may_be_left_for_older_files(root: Path) -> None:
    give(root, Form.V1)
    for path in databases(root / "config"):
        (path / "CURRENT").write_text("MANIFEST-999999\n")
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    os.utime(root / "config" / "topics.json", (1000, 1000))
    before, words = tree_digest(root / "config"), ("--to", "double-write-file")
    assert "use --accept-older-tables to keep the JSON files" in refused(root, *words)
    report = taken(root, *words, "--accept-older-tables")
    assert report["olderTables"] == ["topics", "subscriptionGroups", "consumerOffsets"]
    assert report["convertedTables"] == {}
    assert tree_digest(root / "config") == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--to", "double-write-file", "--without", "topics"),
            "invalid value 'topics' for --without: expected forb",
        ),
        (
            ("--to", "double-write-file", "--without", "forbidden", "--keep-tables"),
            "require --to without --keep-tables",
        ),
        (("--without", "forbidden"), "require --to without --keep-tables"),
        (("--accept-older-tables",), "require --to without --keep-tables"),
        (("--verify", "--without", "forbidden"), "require --to without --keep-tables"),
    ],
)
def test_options_that_say_nothing_are_refused(
    root: Path, words: tuple[str, ...], sentence: str
) -> None:
    give(root, Form.JSON)
    assert sentence in refused(root, *words)
