"""What verbs refuse before they touch anything, and text beyond ASCII; all in one process."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqstore.cli.app import app
from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig

KEY = "Schlüssel-消息"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with MessageStore.open(root, StoreConfig(mapped_file_size_commit_log=8192)) as store:
        assert store.put_message(Message("t", b"x", 0, {"KEYS": KEY})).ok
    return root


@pytest.mark.parametrize(
    "field",
    [
        {"topic": 1},
        {"properties": ["TAGS"]},
        {"properties": "TAGS"},
        {"queueId": "0"},
        {"queueId": 0.0},
        {"flag": "0"},
        {"flag": None},
        {"bodyBase64": "eA="},
    ],
    ids=json.dumps,
)
def test_a_field_of_another_type_is_refused(tmp_path: Path, field: dict[str, object]) -> None:
    feed = json.dumps({"topic": "t", **field})
    done = CliRunner().invoke(app, ["put", str(tmp_path / "s"), "--new"], input=feed)
    assert isinstance(done.exception, IllegalMessageError), done.output
    assert not list((tmp_path / "s").glob("commitlog/*"))


@pytest.mark.parametrize("form", ["table", "json", "jsonl"])
@pytest.mark.parametrize("words", [["--messages"], ["--commitlog-offset", "0"]])
def test_text_beyond_ascii_is_printed_as_it_is(root: Path, form: str, words: list[str]) -> None:
    done = CliRunner().invoke(app, ["dump", str(root), *words, "--output", form])
    assert done.exit_code == 0
    assert KEY in done.stdout
