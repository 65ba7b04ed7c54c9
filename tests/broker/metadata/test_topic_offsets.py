"""Offsets of deleted topics: gone from every form, and nothing else is."""

import json
import os
from errno import EIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.rocksdb_v2 import offset_keys
from cqstore.broker.metadata.table_forms import table_forms
from cqstore.broker.metadata.topic_offsets import planned
from cqstore.broker.metadata.writing import differences, write_form
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.cq_rocksdb.engine.raw_writer import RawWriter
from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.kit.metadata_forms import expected_forms, raw_rows, unpack_forms

GONE = {"gone@a": {0: 10, 1: 3}, "gone@b": {0: 7}, "%LMQ%gone@%LMQ%b": {0: 4}}
STAYS = {"other@a": {0: 10}, "gone2@a": {0: 1}, "%RETRY%gone@gone": {0: 2}}
TOPICS = ("gone", "%LMQ%gone")


def remove(root: Path, *topics: str) -> int:
    """Remove the offsets; return how many files and databases were replaced."""
    before = inodes(root / "config")
    planned(root / "config", topics).remove(topics)
    return len(before ^ inodes(root / "config")) // 2


def inodes(folder: Path, names: str = "*") -> set[tuple[str, int]]:
    return {(path.name, path.stat().st_ino) for path in folder.glob(names)}


def written(root: Path, form: Form) -> None:
    found = BrokerMetadata(form, root, offsets=GONE | STAYS)
    found.topics = {name: {"topicName": name} for name in ("gone", "other", "gone2")}
    found.groups = {name: {"groupName": name} for name in ("a", "b")}
    if form is Form.V2:
        found.pull_offsets = {"gone@pulling": {0: 5}, "other@pulling": {0: 6}}
    write_form(found, form, root, lmq=True)


FOLDERS = {Form.V1: "consumerOffsets", Form.SINGLE: "metadata", Form.V2: "rdb"}


@pytest.mark.parametrize("form", FOLDERS)
def test_a_database_keeps_its_tables_and_all_other_rows(tmp_path: Path, form: Form) -> None:
    """Their files are shared, so that the cost does not depend on the number of other rows."""
    written(tmp_path, form)
    folder = tmp_path / "config" / FOLDERS[form]
    rows, tables = raw_rows(tmp_path), inodes(folder, "*.sst")
    assert tables
    assert remove(tmp_path, *TOPICS) == 1
    gone = {key for _, _, key in rows.keys() - raw_rows(tmp_path).keys()}
    if form is Form.V2:
        head, at = b"\1\0%c\2\0", b"\1\0\4gone\1\0\0\0"
        assert gone == {
            head % 1 + b"\1a" + at + b"\0", head % 1 + b"\1a" + at + b"\1",
            head % 1 + b"\1b" + at + b"\0", head % 2 + b"\7pulling" + at + b"\0",
            head % 1 + b"\6%LMQ%b\1\0\x09%LMQ%gone\1\0\0\0\0",
        }  # fmt: skip
    else:
        assert gone == {key.encode() for key in GONE}
    assert raw_rows(tmp_path) == {name: row for name, row in rows.items() if name[2] not in gone}
    assert tables <= inodes(folder, "*.sst")


def test_version_2_is_searched_by_group_and_topic(tmp_path: Path) -> None:
    """Topics before, between and after those of a group, and a key that no release writes."""
    keys = [(topic, group) for group in ("a", "b", "cc") for topic in ("m", "n", "oo", "qq")]
    found = BrokerMetadata(Form.V2, tmp_path)
    found.offsets = {f"{topic}@{group}": {0: 1, 7: 2} for topic, group in keys}
    found.offsets |= {"only@b": {0: 3}, "x@y": {0: 4}}
    write_form(found, Form.V2, tmp_path)
    writer = RawWriter(StorePaths(tmp_path), tmp_path / "config" / "rdb", ())
    writer.write([("default", b"\1\0\1\2", b""), ("default", b"\1\0\1\2\0\1", b"")])
    writer.close()
    topics = ["a", "l", "mm", "n", "only", "p", "qq", "zzz", "n1", "qqq"]
    with RawDatabase(tmp_path / "config" / "rdb") as database:
        at = [topic for topic, _, _ in offset_keys(database, topics)]
    assert sorted(at) == ["n"] * 6 + ["only"] + ["qq"] * 6


def test_a_file_keeps_its_time_if_its_name_cannot_be_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an outdated form would be the newest one after a kill."""
    written(tmp_path, Form.JSON)
    path = tmp_path / "config" / "consumerOffset.json"
    os.utime(path, (1000, 1000))
    before = path.stat().st_ino

    def fail(folder: Path) -> None:
        raise OSError(EIO, os.strerror(EIO), folder)

    monkeypatch.setattr("cqstore.store.files.sync_folder", fail)
    with pytest.raises(StoreIOError):
        remove(tmp_path, *TOPICS)
    assert path.stat().st_ino != before
    assert path.stat().st_mtime == 1000


@pytest.mark.parametrize("form", Form)
def test_many_removals_read_the_forms_once(tmp_path: Path, form: Form) -> None:
    written(tmp_path, form)
    removal = planned(tmp_path / "config", TOPICS)
    [found] = read_forms(StorePaths(tmp_path))
    assert removal.is_current()
    for topic in TOPICS:
        removal.remove([topic])
        assert removal.is_current()
        [found] = read_forms(StorePaths(tmp_path))
        assert not [key for key in found.offsets if key.startswith(f"{topic}@")]
    assert found.offsets == STAYS
    for path in (tmp_path / "config").glob("*.bak"):
        path.unlink()
    if form is not Form.JSON:
        found.pull_offsets = {}
        write_form(found, Form.JSON, tmp_path)
    assert not removal.is_current()


@given(
    form=st.sampled_from(Form),
    offsets=st.dictionaries(
        st.sampled_from([f"{topic}@{group}" for topic in "tuvw" for group in ("g", "hh", "é")]),
        st.dictionaries(st.integers(0, 3), st.integers(0, 1 << 40), min_size=1, max_size=3),
    ),
    batches=st.lists(st.sets(st.sampled_from("tuvwx"), max_size=3), max_size=4),
)
@settings(max_examples=25)
def test_removals_leave_what_a_dict_has(
    tmp_path_factory: pytest.TempPathFactory, form: Form, offsets: dict[str, dict[int, int]],
    batches: list[set[str]],
) -> None:  # fmt: skip
    root = tmp_path_factory.mktemp("forms")
    write_form(BrokerMetadata(form, root, offsets=dict(offsets)), form, root)
    removal = planned(root / "config", "tuvwx")
    for batch in batches:
        offsets = {key: row for key, row in offsets.items() if key[0] not in batch}
        removal.remove(batch)
        assert [each.offsets for each in read_forms(StorePaths(root))] == [offsets]
    assert removal.is_current()


@pytest.mark.parametrize("form", Form)
def test_a_form_loses_the_offsets_of_the_topics_alone(tmp_path: Path, form: Form) -> None:
    written(tmp_path, form)
    [before] = read_forms(StorePaths(tmp_path))
    assert remove(tmp_path, *TOPICS) > 0
    [after] = read_forms(StorePaths(tmp_path))
    assert after.offsets == STAYS
    assert after.pull_offsets.keys() <= {"other@pulling"}
    after.offsets, after.pull_offsets = before.offsets, before.pull_offsets
    assert list(differences(before, after)) == []  # versions too
    assert after.faults == []
    assert remove(tmp_path, *TOPICS) == 0
    assert not (tmp_path / "cqstore" / "replaced").is_dir() or not list(
        (tmp_path / "cqstore" / "replaced").iterdir()
    )


def test_every_form_of_a_real_broker_loses_them(tmp_path: Path) -> None:
    """Each as RocketMQ's managers wrote it; what they read is what stays."""
    unpack_forms(tmp_path)
    for name, expected in expected_forms().items():
        root = tmp_path / name
        assert "orders0@billing0" in expected["offsets"]
        before = read_forms(StorePaths(root))
        remove(root, "orders0")
        for old, new in zip(before, read_forms(StorePaths(root)), strict=True):
            kept = {key: row for key, row in old.offsets.items() if not key.startswith("orders0@")}
            assert new.offsets == kept != old.offsets
            assert (new.topics, new.groups, new.versions) == (old.topics, old.groups, old.versions)


def test_both_forms_lose_them_and_the_newer_one_stays_the_newer_one(tmp_path: Path) -> None:
    """A stale form too: a broker that takes it in would bring the offsets back."""
    paths = StorePaths(tmp_path)
    written(tmp_path, Form.JSON)
    for path in paths.config.iterdir():
        os.utime(path, (1000, 1000))
    written(tmp_path, Form.V1)
    assert [each.form for each in table_forms(paths)] == [Form.V1] * 3
    remove(tmp_path, *TOPICS)
    assert [each.form for each in table_forms(paths)] == [Form.V1] * 3
    assert [each.offsets for each in read_forms(paths)] == [STAYS] * 2
    for path in paths.config.glob("*.json*"):
        os.utime(path)
    assert [each.form for each in table_forms(paths)] == [Form.JSON] * 3
    (paths.config / "consumerOffset.json").write_text('{"offsetTable":{"gone@a":{0:1}}}')
    remove(tmp_path, *TOPICS)
    assert [each.form for each in table_forms(paths)] == [Form.JSON] * 3


@pytest.mark.parametrize("form", FOLDERS)
def test_an_outdated_database_stays_outdated(tmp_path: Path, form: Form) -> None:
    paths = StorePaths(tmp_path)
    written(tmp_path, form)
    for path in paths.config.glob("*/*"):
        os.utime(path, (1000, 1000))
    written(tmp_path, Form.JSON)
    assert remove(tmp_path, *TOPICS) > 1
    assert [each.offsets for each in read_forms(paths)] == [STAYS] * 2
    assert [each.form for each in table_forms(paths)] == [Form.JSON] * 3


def test_tables_of_a_file_that_are_not_read_otherwise_lose_them(tmp_path: Path) -> None:
    text = (
        '{"dataVersion":{"counter":7},"offsetTable":{},"pullOffsetTable":{"gone@a":{0:1},'
        '"b@a":{0:2}},"resetOffsetTable":{"gone@a":{0:1}},"groupTopicMap":{"a":["gone"]}}'
    )
    config = tmp_path / "config"
    config.mkdir()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_text(text)
    assert remove(tmp_path, "gone") == 2
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        found = json.loads((config / name).read_text())
        assert found == {
            "dataVersion": {"counter": 7}, "offsetTable": {}, "pullOffsetTable": {"b@a": {"0": 2}},
            "resetOffsetTable": {}, "groupTopicMap": {"a": ["gone"]},
        }  # fmt: skip


def test_the_backup_of_a_torn_file_loses_them(tmp_path: Path) -> None:
    """A broker reads the backup then."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"gone@a":')
    (config / "consumerOffset.json.bak").write_text('{"offsetTable":{"gone@a":{0:1}}}')
    assert remove(tmp_path, "gone") == 1
    assert (config / "consumerOffset.json").read_text() == '{"offsetTable":{"gone@a":'
    assert json.loads((config / "consumerOffset.json.bak").read_text()) == {"offsetTable": {}}
    (config / "consumerOffset.json.bak").write_text("{")
    with pytest.raises(CorruptionError, match="offsets of the deleted topics cannot be removed"):
        remove(tmp_path, "gone")


def test_a_key_with_several_readings_goes_if_the_best_one_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    offsets = '{"offsetTable":{"x@y@z":{0:1}}}'
    (config / "consumerOffset.json").write_text(offsets)
    assert remove(tmp_path, "x") == 0  # the topic x, or the topic x@y
    assert "the offset of 'x@y@z' is kept" in caplog.text
    (config / "topics.json").write_text('{"topicConfigTable":{"x@y":{}}}')
    assert remove(tmp_path, "x") == 0
    assert remove(tmp_path, "x@y") == 1


def test_the_delay_levels_go_with_their_queues(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "delayOffset.json").write_text('{"offsetTable":{1:5,2:9}}')
    assert remove(tmp_path, "gone") == 0
    assert remove(tmp_path, SCHEDULE_TOPIC) == 1
    assert json.loads((config / "delayOffset.json").read_text()) == {"offsetTable": {}}


def test_the_queue_of_a_timer_is_not_deleted(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    planned(config, [TIMER_TOPIC]).remove([TIMER_TOPIC])
    (config / "timercheck").write_bytes(bytes(4096))
    with pytest.raises(RefusedStoreError, match="the broker's timer keeps its position"):
        planned(config, [TIMER_TOPIC])
