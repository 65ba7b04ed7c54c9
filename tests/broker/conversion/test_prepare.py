"""A broker's tables in the form that the next broker reads; files and databases by their times."""

import json
import os
from pathlib import Path

import pytest

from cqstore.broker.conversion.prepare import prepare_tables, reads_databases
from cqstore.broker.metadata.model import Form
from cqstore.broker.metadata.table_forms import table_forms
from cqstore.store.errors import CorruptionError
from cqstore.store.paths import StorePaths

VERSION = {"counter": 0, "stateVersion": 0, "timestamp": 5}
LMQ_FILE = {
    "offsetTable": {"t@g": {"0": 7, "1": 8}},
    "lmqOffsetTable": {"%LMQ%a@%LMQ%g": 3},
    "dataVersion": VERSION,
}
ALL = {"t@g": {"0": 7, "1": 8}, "%LMQ%a@%LMQ%g": {"0": 3}}


class Tables:
    """Files and databases of a folder ``config``, with times in seconds."""

    def __init__(self, root: Path) -> None:
        self.paths = StorePaths(root)
        self.folder = root / "config"
        self.folder.mkdir()
        self.away: list[str] = []

    def file(self, name: str, content: object, at: int) -> None:
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        os.utime(path, (at, at))

    def database(self, name: str, at: int) -> None:
        (self.folder / name).mkdir()
        for each in ("CURRENT", "MANIFEST-000004", "000009.log", "LOG", "LOCK"):
            path = self.folder / name / each
            path.write_bytes(b"")
            # To read a database writes its LOG.
            os.utime(path, (at + 100 * (each == "LOG"), at + 100 * (each == "LOG")))

    def prepare(self, *backends: str, lmq: bool = False) -> list[str]:
        return prepare_tables(
            self.paths, backends, lambda path: self.away.append(path.name), lmq=lmq
        )

    def read(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / name).read_text())
        return found

    def forms(self) -> list[Form | None]:
        return [table.form for table in table_forms(self.paths)]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_offsets_of_a_broker_with_light_queues_are_what_rocksdb_takes_in(tables: Tables) -> None:
    tables.file("consumerOffset.json", {"offsetTable": {"t@g": {"0": 1}}}, at=10)
    tables.file("lmqConsumerOffset.json", LMQ_FILE, at=20)
    assert tables.prepare("rocksdb")
    found = tables.read("consumerOffset.json")
    assert found == {"offsetTable": ALL, "dataVersion": VERSION | {"counter": 1}}
    assert tables.read("lmqConsumerOffset.json") == LMQ_FILE
    assert tables.prepare("rocksdb") == []


def test_an_older_file_of_light_queues_is_not_taken(tables: Tables) -> None:
    plain = {"offsetTable": {"t@g": {"0": 9}}, "dataVersion": VERSION | {"counter": 4}}
    tables.file("lmqConsumerOffset.json", LMQ_FILE, at=10)
    tables.file("consumerOffset.json", plain, at=20)
    assert tables.prepare("rocksdb") == []
    assert tables.read("consumerOffset.json") == plain


@pytest.mark.parametrize("backends", [["file"], ["file", "rocksdb"]])
def test_a_broker_with_light_queues_in_files_finds_the_offsets(
    tables: Tables, backends: list[str]
) -> None:
    tables.file("consumerOffset.json", {"offsetTable": ALL, "dataVersion": VERSION}, at=20)
    assert not reads_databases(backends)
    tables.prepare(*backends)
    assert not (tables.folder / "lmqConsumerOffset.json").exists()
    tables.prepare(*backends, lmq=True)
    assert tables.read("lmqConsumerOffset.json")["offsetTable"] == LMQ_FILE["offsetTable"]
    assert tables.read("lmqConsumerOffset.json")["lmqOffsetTable"] == LMQ_FILE["lmqOffsetTable"]


def test_a_file_of_light_queues_that_is_there_is_brought_up_to_date(tables: Tables) -> None:
    tables.file("lmqConsumerOffset.json", LMQ_FILE | {"lmqOffsetTable": {}}, at=10)
    tables.file("consumerOffset.json", {"offsetTable": ALL, "dataVersion": VERSION}, at=20)
    tables.prepare("file")
    assert tables.read("lmqConsumerOffset.json") == LMQ_FILE


@pytest.mark.parametrize("left", [None, "", "{"])
@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json"])
def test_what_a_kill_left_in_the_backup_alone_is_taken(
    tables: Tables, name: str, left: str | None
) -> None:
    """RocketMQ moves the file there before it writes a new one, and reads it from there."""
    backup = {"offsetTable": {"t@g": {"0": 9}}}
    tables.file(f"{name}.bak", backup, at=20)
    if left is not None:
        tables.file(name, left, at=21)
    tables.prepare("rocksdb")
    assert tables.read("consumerOffset.json")["offsetTable"] == {"t@g": {"0": 9}}
    assert tables.read(f"{name}.bak") == backup


@pytest.mark.parametrize(
    ("torn", "other", "backend"),
    [
        ("consumerOffset.json", "lmqConsumerOffset.json", "rocksdb"),
        ("lmqConsumerOffset.json", "consumerOffset.json", "file"),
    ],
)
def test_a_torn_file_does_not_take_the_place_of_its_backup(
    tables: Tables, torn: str, other: str, backend: str
) -> None:
    tables.file(f"{torn}.bak", LMQ_FILE | {"offsetTable": {"t@g": {"0": 5}}}, at=10)
    tables.file(torn, '{"offsetTab', at=11)
    light = other == "lmqConsumerOffset.json"
    tables.file(other, LMQ_FILE if light else {"offsetTable": ALL, "dataVersion": VERSION}, at=20)
    backup = tables.read(f"{torn}.bak")
    assert tables.prepare(backend)
    assert tables.read(torn)["offsetTable"] == (ALL if light else LMQ_FILE["offsetTable"])
    assert tables.read(f"{torn}.bak") == backup


def test_a_file_that_is_none_is_named(tables: Tables) -> None:
    tables.file("topics.json", "{", at=20)
    for backup in (None, "{"):
        if backup is not None:
            tables.file("topics.json.bak", backup, at=10)
        with pytest.raises(CorruptionError, match=r"topics\.json\.bak;") as caught:
            tables.prepare("rocksdb")
        assert caught.value.path == tables.folder / "topics.json"


def test_databases_that_are_older_than_the_files_do_not_hide_them(tables: Tables) -> None:
    for name in ("topics", "consumerOffsets", "rdb"):
        tables.database(name, at=10)
    tables.file("topics.json", {"topicConfigTable": {}}, at=20)
    tables.file("lmqConsumerOffset.json", LMQ_FILE, at=20)
    assert tables.forms() == [Form.JSON, Form.V2, Form.JSON]
    tables.prepare("file")
    assert tables.away == []
    tables.prepare("rocksdb")
    assert sorted(tables.away) == ["consumerOffsets", "topics"]


def test_one_database_of_all_tables_stays_while_it_has_one_that_is_newer(tables: Tables) -> None:
    tables.database("metadata", at=15)
    tables.file("topics.json", {"topicConfigTable": {}}, at=10)
    tables.file("consumerOffset.json", {"offsetTable": ALL}, at=20)
    tables.prepare("rocksdb")
    assert tables.forms() == [Form.SINGLE, Form.SINGLE, Form.JSON]
    assert tables.away == []


def test_a_broker_of_version_2_reads_neither_files_nor_older_databases(tables: Tables) -> None:
    tables.database("rdb", at=20)
    tables.file("topics.json", {"topicConfigTable": {}}, at=10)
    assert tables.forms() == [Form.V2] * 3
    assert tables.prepare("rocksdb") == []
