"""``cqstore groups reset``, ``copy`` and ``forget``, in every form of the metadata."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cqstore.broker.commands import groups_change
from cqstore.broker.groups.group_offsets import reset
from cqstore.broker.metadata import changing
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, DataVersion, Form, Offsets, Table
from cqstore.broker.metadata.writing import write_form
from cqstore.store.errors import (
    RefusedStoreError,
    StoreError,
    StoreIOError,
    StoreLockedError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.call_order import CallOrder
from tests.kit.commands import cqstore, run
from tests.kit.killed_at_change import ALL
from tests.kit.killed_conversion import changes_until_killed
from tests.kit.operating import SMALL, call, rows, write_config
from tests.kit.tree import tree_digest, unchanged

FORMS = list(Form)
OFFSETS: Offsets = {
    "orders@billing": {0: 2, 1: 4}, "%RETRY%billing@billing": {0: 1}, "orders@audit": {0: 6},
    "other@audit": {0: 3}, "orders@late": {1: 1},
}  # fmt: skip
VERSION = DataVersion(3, 1_700_000_000_000, 41)


def make_store(root: Path, form: Form) -> Path:
    """Six and four orders, three of ``other``, stored one second after another."""
    with MessageStore.open(root, SMALL, backend="file") as store:
        for topic, queue_id, count in (("orders", 0, 6), ("orders", 1, 4), ("other", 0, 3)):
            for number in range(count):
                store.put_message(Message(topic, b"%d" % number, queue_id))
    names = {"billing", "audit", "late"}
    found = BrokerMetadata(form, root, offsets={key: dict(row) for key, row in OFFSETS.items()})
    found.topics = {
        name: {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        for name in ("orders", "other")
    }
    found.groups = {name: {"groupName": name, "consumeEnable": True} for name in names}
    found.versions = dict.fromkeys(Table, VERSION)
    write_form(found, form, root)
    return root


@pytest.fixture(params=FORMS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_store(tmp_path / "store", request.param)


def read(root: Path) -> BrokerMetadata:
    (found,) = read_forms(StorePaths(root))
    assert found.faults == []
    return found


def after(**changes: dict[int, int] | None) -> Offsets:
    made: dict[str, Any] = OFFSETS | {key.replace("_at_", "@"): row for key, row in changes.items()}
    return {key: row for key, row in made.items() if row is not None}


CHANGES: dict[str, tuple[list[object], Offsets, list[tuple[object, ...]]]] = {
    "earliest": (
        ["reset", "billing", "--topic", "orders", "--to", "earliest"],
        after(orders_at_billing={0: 0, 1: 0}), [("orders", 0, 2, 0), ("orders", 1, 4, 0)],
    ),
    "latest": (
        ["reset", "audit", "--topic", "orders", "--to", "latest"],
        after(orders_at_audit={0: 6, 1: 4}), [("orders", 0, 6, 6), ("orders", 1, None, 4)],
    ),
    "one queue": (
        ["reset", "billing", "--topic", "orders", "--queue-id", 1, "--to", 3],
        after(orders_at_billing={0: 2, 1: 3}), [("orders", 1, 4, 3)],
    ),
    "before all": (
        ["reset", "new", "--topic", "other", "--time", "2001-01-01"],
        after(other_at_new={0: 0}), [("other", 0, None, 0)],
    ),
    "copy": (
        ["copy", "billing", "late"], after(orders_at_late={0: 2, 1: 4}),
        [("orders", 0, None, 2), ("orders", 1, 1, 4)],
    ),
    "copy one": (
        ["copy", "audit", "new", "--topic", "other"], after(other_at_new={0: 3}),
        [("other", 0, None, 3)],
    ),
    "forget": (
        ["forget", "billing"],
        {key: row for key, row in OFFSETS.items() if not key.endswith("@billing")},
        [("orders", 0, 2, None), ("orders", 1, 4, None), ("%RETRY%billing", 0, 1, None)],
    ),
    "forget one": (
        ["forget", "audit", "--topic", "other"], after(other_at_audit=None),
        [("other", 0, 3, None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_offsets_are_what_was_asked_and_all_else_stays(root: Path, name: str) -> None:
    (verb, *words), offsets, shown = CHANGES[name]
    before, digest = read(root), tree_digest(root)
    called = [verb, root, *words]
    reported = rows("groups", *called)
    assert tree_digest(root) == digest
    found = [tuple(row[key] for key in ("topic", "queueId", "before", "after")) for row in reported]
    assert sorted(map(str, found)) == sorted(map(str, shown))
    assert rows("groups", *called, "--yes") == reported
    now = read(root)
    assert now.offsets == offsets
    assert (now.form, now.topics, now.groups) == (before.form, before.topics, before.groups)
    assert now.versions[Table.OFFSETS].counter == 42
    assert now.versions[Table.OFFSETS].timestamp > VERSION.timestamp
    assert {now.versions[table] for table in (Table.TOPICS, Table.GROUPS)} == {VERSION}


def test_it_is_told_what_would_change_what_did_and_that_nothing_had_to(root: Path) -> None:
    words = ["--topic", "orders", "--queue-id", 1, "--to"]

    def said(*to: object) -> str:
        return call("groups", "reset", root, "billing", *words, *to).stderr

    assert said(3) == "cqstore: 1 of 1 offsets would change (use --yes to apply)\n"
    assert said(4) == "cqstore: 0 of 1 offsets would change (use --yes to apply)\n"
    with unchanged(root / "config"):
        assert said(4, "--yes") == "cqstore: no offset needs to be changed\n"
    changed = "cqstore: 1 of 1 offsets changed; the previous metadata is in "
    assert said(3, "--yes").startswith(changed)


def test_what_was_there_is_kept(root: Path) -> None:
    done = call("groups", "forget", root, "late", "--yes")
    kept = Path(done.stderr.rsplit("is in ", 1)[1].strip())
    form = read(root).form
    other = root.parent / "other"
    shutil.copytree(root / "config", other / "config")
    for path in kept.iterdir():  # over the present files: one table, or all
        target = other / "config" / path.name
        if path.is_dir():
            shutil.rmtree(target)
            shutil.copytree(path, target)
        else:
            shutil.copy(path, target)
    assert read(other).form is form
    assert read(other).offsets == OFFSETS
    assert not StorePaths(root).new_metadata.exists()


def test_a_group_can_be_forgotten_with_its_settings(root: Path) -> None:
    assert call("groups", "forget", root, "audit", "--settings", "--yes").exit_code == 0
    now = read(root)
    assert set(now.groups) == {"billing", "late"}
    assert {key for key in now.offsets if key.endswith("@audit")} == set()
    assert now.versions[Table.GROUPS].counter == 42


def test_a_time_leads_to_the_first_message_at_or_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_store(tmp_path / "store", Form.JSON)
    with MessageStore.open(root, SMALL, read_only=True) as store:
        times = [message.store_timestamp for message in
                 store.get_message("orders", 0, 0).messages()]  # fmt: skip
    expected = next(at for at, time in enumerate(times) if time >= times[3])
    found = rows("groups", "reset", root, "billing", "--topic", "orders", "--queue-id", 0,
                 "--time", times[3])  # fmt: skip
    assert [row["after"] for row in found] == [expected]


def test_the_counter_is_above_that_of_every_form(tmp_path: Path) -> None:
    """Else a broker that keeps offsets in RocksDB takes older ones from JSON at its next start."""
    root = make_store(tmp_path / "store", Form.V1)
    write_config(root, "consumerOffset.json", {"dataVersion": {"counter": 99}, "offsetTable": {}})
    refused = call("groups", "forget", root, "late", "--yes")
    assert isinstance(refused.exception, RefusedStoreError)
    assert call("groups", "forget", root, "late", "--form", "v1", "--yes").exit_code == 0
    found = {each.form: each for each in read_forms(StorePaths(root))}
    assert found[Form.V1].versions[Table.OFFSETS].counter == 100
    assert found[Form.JSON].versions[Table.OFFSETS].counter == 99


def test_the_file_of_light_queues_is_written_too(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", Form.JSON)
    lmq = {"lmqOffsetTable": {}, "offsetTable": OFFSETS}
    write_config(root, "lmqConsumerOffset.json", lmq)
    assert call("groups", "forget", root, "late", "--yes").exit_code == 0
    for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
        for path in (root / "config" / name, root / "config" / f"{name}.bak"):
            assert "orders@late" not in json.loads(path.read_bytes())["offsetTable"]


# ---- refusals


def test_a_store_that_is_open_is_refused(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", Form.JSON)
    with MessageStore.open(root, SMALL, backend="file", housekeeping=False):
        done = call("groups", "forget", root, "late", "--yes")
    assert isinstance(done.exception, StoreLockedError)


def test_no_topic_is_deleted_between_the_plan_and_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, refused = make_store(tmp_path / "store", Form.JSON), list[str]()

    def delete_first(*args: Any) -> Any:
        done = cqstore("topics", root, "orders", "--delete", "--yes", code=2)
        refused.append(done.stderr)
        return reset(*args)

    monkeypatch.setattr(groups_change, "reset", delete_first)
    found = rows("groups", "reset", root, "billing", "--topic", "orders", "--to", "latest", "--yes")
    assert [row["after"] for row in found] == [6, 4]
    assert [f"process {os.getpid()}" in each for each in refused] == [True]
    assert run(["topics", root, "orders", "--delete", "--yes"]).returncode == 0
    assert "orders@billing" not in read(root).offsets


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    root = make_store(tmp_path / "store", Form.JSON)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).write_text('{"offsetTable":{"orders@bil')
    done = call("groups", "reset", root, "billing", "--topic", "orders", "--to", "latest", "--yes")
    assert isinstance(done.exception, RefusedStoreError)
    assert "meta repair" in str(done.exception)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (errno.EINVAL, RefusedStoreError, "Convert to json"),
        (errno.EIO, StoreIOError, "cannot change the metadata: Input/output error"),
    ],
)
def test_an_exchange_that_the_file_system_refuses_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[StoreError], said: str
) -> None:
    root = make_store(tmp_path / "store", Form.V1)

    class Refusing:
        def __init__(self, *_: object, **__: object) -> None:
            self.renameat2 = lambda *_: -1

    monkeypatch.setattr(changing.ctypes, "CDLL", Refusing)  # type: ignore[attr-defined]
    monkeypatch.setattr(changing.ctypes, "get_errno", lambda: code)  # type: ignore[attr-defined]
    refusal = call("groups", "forget", root, "late", "--yes").exception
    assert isinstance(refusal, kind)
    assert said in str(refusal)
    assert refusal.path is not None
    below = {RefusedStoreError: root / "config", StoreIOError: root / "cqstore" / "replaced"}[kind]
    assert below in refusal.path.parents
    assert read(root).offsets == OFFSETS


def test_names_that_have_changed_places_are_on_disk_before_the_call_ends(tmp_path: Path) -> None:
    """The kept one first: after a power failure both folders have a whole table, or one has two."""
    for folder in ("kept", "config"):
        (tmp_path / folder / "offsets").mkdir(parents=True)
        (tmp_path / folder / "offsets" / folder).touch()
    order = CallOrder(tmp_path)
    with order.watching():
        changing.exchange(tmp_path / "kept" / "offsets", tmp_path / "config" / "offsets")
    assert order.made == [("sync", "kept"), ("sync", "config")]
    assert (tmp_path / "kept" / "offsets" / "config").exists()
    assert (tmp_path / "config" / "offsets" / "kept").exists()


# ---- cut short


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("form", FORMS)
def test_killed_anywhere_each_table_is_old_or_new(tmp_path: Path, form: Form, every: int) -> None:
    made = make_store(tmp_path / "made", form)

    def forgotten(root: Path, count: int) -> int | None:
        words = ("groups", "forget", str(root), "audit", "--settings", "--yes")
        return changes_until_killed(root, *words, count=count)

    shutil.copytree(made, tmp_path / "0")
    changes = forgotten(tmp_path / "0", ALL)
    new = read(tmp_path / "0")
    assert changes is not None
    assert changes > 5
    for number in range(1, changes + 1, every):
        root = tmp_path / str(number)
        shutil.copytree(made, root)
        assert forgotten(root, number) is None
        now = read(root)
        assert now.offsets in (OFFSETS, new.offsets)
        assert len(now.groups) in {2, 3}
        if (now.offsets, now.groups) != (new.offsets, new.groups):
            assert forgotten(root, ALL) is not None
        assert (read(root).offsets, read(root).groups) == (new.offsets, new.groups)
