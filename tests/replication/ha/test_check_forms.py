"""``cqstore ha check`` and ``ha rejoin`` beside metadata in every form, as RocketMQ wrote it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from cqstore.broker.metadata.model import Form
from cqstore.store.broker_files.fastjson import broker_object
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.metadata_forms import databases, expected_forms, unpack_forms
from tests.kit.parted import CONFIG, grow, parted
from tests.kit.tree import tree_digest
from tests.replication.ha.test_check import check, found_by
from tests.replication.ha.test_rejoin import rejoined

EXPECTED = expected_forms()
Pair = tuple[Path, Path]
OF_THE_CLUSTER = ("a", "c", "c_REPLY_TOPIC")
"""Named like the broker and its cluster: made at each start, and not kept by version 2."""
in_rocksdb = pytest.mark.parametrize("form", [Form.V1, Form.SINGLE, Form.V2])


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    unpack_forms(tmp_path / "golden")
    return tmp_path / "golden"


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Return two stores whose logs are one."""
    one, other, _ = parted(tmp_path, 3, 0, 0)
    return one, other


def give(root: Path, golden: Path, form: Form) -> None:
    shutil.copytree(golden / form / "config", root / "config", dirs_exist_ok=True)


def differences(pair: Pair) -> list[str]:
    found = found_by(*pair, code=1)["differences"]
    assert isinstance(found, list)
    return found


def all_of(form: Form) -> dict[str, object]:
    return {"forms": dict.fromkeys(("topics", "groups", "offsets"), form), "olderForms": []}


@pytest.mark.parametrize(
    ("mine", "others"),
    [*((form, form) for form in Form), *((Form.JSON, form) for form in Form),
     (Form.V1, Form.SINGLE), (Form.V2, Form.SINGLE)],
)  # fmt: skip
def test_each_form_is_read_and_named(pair: Pair, golden: Path, mine: Form, others: Form) -> None:
    """RocketMQ's managers had the same tables in each form, but for what version 2 has no place."""
    give(pair[0], golden, mine)
    give(pair[1], golden, others)
    before = tree_digest(pair[0]), tree_digest(pair[1])
    has_no_place = mine is not others and Form.V2 in {mine, others}
    found = found_by(*pair, code=int(has_no_place))
    assert (tree_digest(pair[0]), tree_digest(pair[1])) == before
    names = [(each["table"], each["name"]) for each in found["metadata"]]  # type: ignore[attr-defined]
    assert names == [("topics", name) for name in OF_THE_CLUSTER if has_no_place]
    assert found["metadataForms"] == {"a": all_of(mine), "b": all_of(others)}
    reported = str(found["notCompared"])
    assert ("forbidden are not compared" in reported) == has_no_place
    assert ("pull_offsets are not compared" in reported) == has_no_place
    row = next(line for line in check(*pair).stdout.splitlines() if "metadata form" in line)
    assert row.split()[-2:] == [mine, others]


@in_rocksdb
def test_what_a_database_has_otherwise_is_told_by_name(
    pair: Pair, golden: Path, form: Form
) -> None:
    give(pair[0], golden, Form.JSON)
    give(pair[1], golden, form)
    paths = [pair[0] / "config" / f"{name}.json" for name in ("topics", "consumerOffset")]
    topics, offsets = (broker_object(path.read_bytes()) for path in paths)
    del topics["topicConfigTable"]["orders11"]  # type: ignore[attr-defined]
    offsets["offsetTable"]["orders10@billing3"]["2"] = 7  # type: ignore[index]
    for path, content in zip(paths, (topics, offsets), strict=True):
        path.write_text(json.dumps(content))
    expected = EXPECTED[form]
    unlike = [
        each for each in found_by(*pair, code=1)["metadata"]  # type: ignore[attr-defined]
        if each["name"] not in OF_THE_CLUSTER
    ]  # fmt: skip
    assert unlike == [
        {"table": "topics", "name": "orders11", "a": None, "b": expected["topics"]["orders11"]},
        {"table": "offsets", "name": "orders10@billing3", "a": {"2": 7},
         "b": {"2": expected["offsets"]["orders10@billing3"]["2"]}},
    ]  # fmt: skip
    assert "topics: orders11; offsets: orders10@billing3" in check(*pair).stderr


@in_rocksdb
def test_a_form_that_cannot_be_read_is_named_and_not_compared(
    pair: Pair, golden: Path, form: Form
) -> None:
    for root in pair:
        give(root, golden, form)
    broken = databases(pair[1] / "config")[0]
    broken.joinpath("CURRENT").write_text("MANIFEST-999999\n")
    done = check(*pair)
    assert done.exit_code == 1
    [sentence] = [line for line in done.stderr.splitlines() if "from the form" in line][:1]
    assert f"cannot be read from the form {form}" in sentence
    assert sentence.startswith(f"cqstore: {pair[1]}: ")
    assert str(broken) in done.stderr
    assert found_by(*pair, code=1)["metadata"] == []


def test_one_database_of_the_three_leaves_the_others_compared(pair: Pair, golden: Path) -> None:
    for root in pair:
        give(root, golden, Form.V1)
    (pair[1] / "config" / "topics" / "CURRENT").write_text("MANIFEST-999999\n")
    groups = pair[1] / "config" / "subscriptionGroups"
    shutil.rmtree(groups)
    found = found_by(*pair, code=1)
    assert {each["table"] for each in found["metadata"]} == {"groups", "forbidden"}  # type: ignore[attr-defined]
    assert [each for each in differences(pair) if "the topics cannot be read" in each]


@in_rocksdb
def test_the_form_that_was_written_last_counts(pair: Pair, golden: Path, form: Form) -> None:
    """JSON files lie on beside the databases after a switch, and grow old."""
    give(pair[0], golden, form)
    give(pair[1], golden, form)
    give(pair[0], golden, Form.JSON)
    path = pair[0] / "config" / "topics.json"
    path.write_text('{"topicConfigTable":{}}')
    for file in (pair[0] / "config").glob("*.json*"):
        os.utime(file, (1000, 1000))
    found = found_by(*pair, code=0)
    assert found["metadataForms"]["a"] == all_of(form) | {"olderForms": ["json"]}  # type: ignore[index]
    assert f"{form} (older: json)" in check(*pair).stdout
    os.utime(path, (1 << 32, 1 << 32))
    found = found_by(*pair, code=1)
    forms = found["metadataForms"]["a"]["forms"]  # type: ignore[index]
    assert forms == {"topics": "json", "groups": form, "offsets": form}
    assert {each["table"] for each in found["metadata"]} == {"topics"}  # type: ignore[attr-defined]


def test_a_torn_file_is_compared_by_its_backup_and_named(pair: Pair, golden: Path) -> None:
    for root in pair:
        give(root, golden, Form.JSON)
    path = pair[0] / "config" / "topics.json"
    shutil.copyfile(path, path.with_name("topics.json.bak"))
    path.write_bytes(path.read_bytes()[:100])
    found = found_by(*pair, code=1)
    assert found["metadata"] == []
    [sentence] = differences(pair)
    assert "topics.json cannot be read, its .bak was" in sentence
    path.with_name("topics.json.bak").unlink()
    [sentence] = differences(pair)
    assert "the topics cannot be read from the form json" in sentence
    assert str(path) in sentence


@pytest.mark.parametrize("form", list(Form))
def test_offsets_behind_a_cut_are_told_from_every_form(
    tmp_path: Path, golden: Path, form: Form
) -> None:
    one, other, _ = parted(tmp_path, 5, 0, 1)
    with MessageStore.open(one, CONFIG) as store:
        assert store.put_message(Message("orders10", b"x", 2)).ok
        assert store.put_message(Message("at@sign", b"x", 1)).ok
    give(one, golden, form)
    done = rejoined(one, other, "--output", "json")
    assert done.exit_code == 0, done.output
    offsets = EXPECTED[form]["offsets"]
    groups = [(key.removeprefix("orders10@"), row["2"]) for key, row in offsets.items()
              if key.startswith("orders10@") and "2" in row]  # fmt: skip
    assert ("billing3", 1002) in groups
    printed_output = json.loads(done.stdout)["offsetsBehindTheCut"]
    assert {(each["group"], each["offset"], each["topic"]) for each in printed_output} == {
        *((group, offset, "orders10") for group, offset in groups),
        ("grüppe@x", 1 << 40, "at@sign"),
    }


def test_offsets_that_cannot_be_read_are_named_before_a_cut(tmp_path: Path, golden: Path) -> None:
    one, other, _ = parted(tmp_path, 5, 1, 1)
    grow(one, 1)
    give(one, golden, Form.V2)
    (one / "config" / "rdb" / "CURRENT").write_text("MANIFEST-999999\n")
    done = rejoined(one, other)
    assert done.exit_code == 0, done.output
    assert "the offsets cannot be read from the form v2" in done.stderr
