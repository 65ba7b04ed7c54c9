"""Forms of a broker's tables whose versions speak against the times of their files."""

import json
import os
import shutil
from pathlib import Path

import pytest

from cqstore.broker.conversion.versions import table_doubts
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import Form, Table
from cqstore.migration.preflight.metadata_check import table_findings
from cqstore.store.paths import StorePaths
from tests.kit.metadata_forms import unpack_forms
from tests.kit.tree import unchanged


class Both:
    """A folder with the JSON files and the databases that RocketMQ wrote."""

    def __init__(self, folder: Path) -> None:
        unpack_forms(folder)
        self.paths = StorePaths(folder / "both")
        self.config = self.paths.config
        shutil.copytree(folder / Form.V1, self.paths.root)
        self.file = self.config / "topics.json"
        for name in ("topics.json", "subscriptionGroup.json"):
            shutil.copy(folder / Form.JSON / "config" / name, self.config / name)
        (found,) = [each for each in read_forms(self.paths) if each.form is Form.V1]
        self.version = found.versions[Table.TOPICS]
        self.at(json_newer=False)

    def at(self, *, json_newer: bool) -> None:
        for path in self.config.rglob("*"):
            os.utime(path, (1000, 1000))
        for name in ("topics.json", "subscriptionGroup.json"):
            os.utime(self.config / name, (2000 if json_newer else 500,) * 2)

    def counts(self, counter: int, timestamp: int) -> None:
        """Let both files say so."""
        for name in ("topics.json", "subscriptionGroup.json"):
            path = self.config / name
            content = json.loads(path.read_text())
            content["dataVersion"] = {
                "counter": self.version.counter + counter, "stateVersion": 0,
                "timestamp": self.version.timestamp + timestamp,
            }  # fmt: skip
            path.write_text(json.dumps(content))


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


@pytest.mark.parametrize(
    ("json_newer", "counter", "timestamp", "said"),
    [
        (True, 10**6, 10**13, ""),
        (True, 0, 0, ""),
        (True, 10**6, -5000, "the data versions do not show which one is newer"),
        (True, -(10**6), -(10**13), "the database has the newer data version"),
        (False, 10**6, 10**13, "the JSON file has the newer data version"),
        (False, -(10**6), -(10**13), ""),
        (False, 0, 0, ""),
        (False, 0, 5, "the JSON file has the newer data version"),
    ],
)
def test_versions_that_speak_against_the_times_are_told(
    both: Both, *, json_newer: bool, counter: int, timestamp: int, said: str
) -> None:
    both.counts(counter, timestamp)
    both.at(json_newer=json_newer)
    with unchanged(both.paths.root):
        doubts = [each for each in table_doubts(both.paths) if each.startswith("topics: ")]
    assert [said in each for each in doubts] == [True] * bool(said)
    if doubts:
        assert f"{both.version.counter + counter} changes" in doubts[0]
        assert f"{both.version.counter} changes" in doubts[0]


@pytest.mark.parametrize("to", ["rocksdb", "file"])
def test_preflight_warns_of_tables_in_doubt(both: Both, to: str) -> None:
    both.counts(10**6, 10**13)
    both.at(json_newer=False)
    found = {each.code: each for each in table_findings(both.paths, to, {})}
    name = found["tables-in-doubt"].affected[0].name
    assert name.startswith("topics: the database was modified later, but ")
    both.at(json_newer=True)
    assert "tables-in-doubt" not in {each.code for each in table_findings(both.paths, to, {})}


@pytest.mark.parametrize("version", [None, {"counter": 0, "stateVersion": 0, "timestamp": 0}])
def test_a_file_without_a_version_says_nothing(both: Both, version: object) -> None:
    """As an export of a database may be."""
    for name in ("topics.json", "subscriptionGroup.json"):
        content = json.loads((both.config / name).read_text()) | {"dataVersion": version}
        (both.config / name).write_text(json.dumps(content))
    both.at(json_newer=True)
    assert table_doubts(both.paths) == []


def test_one_form_alone_is_in_no_doubt(tmp_path: Path) -> None:
    unpack_forms(tmp_path)
    for form in Form:
        assert table_doubts(StorePaths(tmp_path / form)) == []
