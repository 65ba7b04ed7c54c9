"""``cqstore top --by group`` beside a store that is written: where groups are, look after look.

Ends are compared with what the writer itself knows of its queues, and whole rows with ``cqstore
groups``, whose ends are tested against RocketMQ's.
"""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cqstore.broker.groups.group_watch import GroupLook, GroupWatch, group_rows, group_view
from cqstore.cli.commands.top import TopView, show
from cqstore.cli.table import Row
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands
from tests.kit.operating import rows, write_config, write_offsets
from tests.kit.quiet_config import quiet_config
from tests.kit.tree import unchanged

FILE = 65536
CONFIG = quiet_config(
    mapped_file_size_commit_log=FILE, mapped_file_size_consume_queue=2000, enable_lmq=True,
    enable_multi_dispatch=True, rocksdb_memory_bytes=16 << 20,


)  # fmt: skip
RETRY, DLQ = "%RETRY%billing", "%DLQ%billing"
PUT = (("orders", 0, 6), ("orders", 1, 4), (RETRY, 0, 3), (DLQ, 0, 2), ("other", 0, 5))
OFFSETS = {
    "orders@billing": {0: 2, 1: 4}, f"{RETRY}@billing": {0: 1}, "orders@audit": {0: 6},
    "other@audit": {0: 9},
}  # fmt: skip
NAMES = ("group", "topics", "offset", "end", "lag", "retryLag", "deadLetters")
View = TopView[GroupLook]


def put(store: MessageStore, topic: str, queue_id: int, count: int, size: int = 1) -> None:
    for _ in range(count):
        assert store.put_message(Message(topic, b"x" * size, queue_id)).ok


@pytest.fixture
def backend() -> str:
    return "file"


both_backends = pytest.mark.parametrize("backend", ["file", "rocksdb"])


@pytest.fixture
def writer(backend: str, tmp_path: Path) -> Iterator[MessageStore]:
    """A store that is open, and has brought nothing to disk since."""
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend=backend, housekeeping=False) as store:
        for topic, queue_id, count in PUT:
            put(store, topic, queue_id, count)
        write_offsets(root, OFFSETS)
        yield store


def view_of(store: MessageStore, limit: int = 9) -> View:
    return group_view(store.root, StoreConfig(), None, None, limit)


def of(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in NAMES)


def looked(view: View) -> dict[object, tuple[object, ...]]:
    """Look once; return the rows by group."""
    return {row["group"]: of(row)[1:] for row in view.rows(view.watch.sample(), None)}


@both_backends
def test_beside_a_writer_all_is_seen_that_is_in_the_log(writer: MessageStore) -> None:
    view = view_of(writer)
    first = view.watch.sample()
    assert [of(row) for row in view.rows(first, None)] == [
        ("billing", 1, 6, 10, 4, 2, 2),
        ("audit", 2, 15, 15, 4, 0, 0),  # queue 1 of orders from 0, and 4 beyond other's end
    ]
    assert {row["perSecond"] for row in view.rows(first, None)} == {None}
    put(writer, "orders", 0, 3)
    put(writer, RETRY, 0, 1)
    put(writer, "%DLQ%audit", 0, 2)  # a topic that was not there
    write_offsets(writer.root, OFFSETS | {"orders@billing": {0: 5, 1: 4}})
    assert [of(row) for row in view.rows(view.watch.sample(), first)] == [
        ("audit", 2, 15, 18, 7, 0, 2),
        ("billing", 1, 9, 13, 4, 3, 2),
    ]
    assert writer.max_offset("orders", 0) == 9


def test_a_rate_is_that_between_two_changes_of_the_offsets(writer: MessageStore) -> None:
    """They are written every five seconds, and looked at more often."""
    view, now = view_of(writer), 100.0
    assert isinstance(view.watch, GroupWatch)
    view.watch.clock = lambda: now

    def paces(offset: int) -> dict[object, object]:
        write_offsets(writer.root, {"orders@a": {0: offset}, "other@b": {0: 1}})
        return {row["group"]: row["perSecond"] for row in view.rows(view.watch.sample(), None)}

    steps = [
        (0, 1, None), (1, 1, None),
        (2, 3, None),  # since when it was at 1 is not known
        (4, 3, None), (7, 5, 0.4), (9, 5, 0.4), (11, 6, 0.2), (22, 6, 0.2), (23, 6, 0.0),
        (25, 6, 0.0), (27, 4, -0.5),  # set back
    ]  # fmt: skip
    for seconds, offset, expected in steps:
        now = 100.0 + seconds
        found = paces(offset)
        assert found["a"] == expected, seconds
        assert found["b"] == (None if expected is None else 0)


def test_groups_that_do_nothing_have_a_rate_of_none_after_a_while(writer: MessageStore) -> None:
    view, now = view_of(writer), 100.0
    assert isinstance(view.watch, GroupWatch)
    view.watch.clock = lambda: now
    for seconds, expected in ((0, None), (11, None), (12, 0), (13, 0)):
        now = 100.0 + seconds
        found = list(view.rows(view.watch.sample(), None))
        assert {row["perSecond"] for row in found} == {expected}


@both_backends
def test_a_closed_store_is_told_as_groups_tells_it(writer: MessageStore) -> None:
    view, root = view_of(writer), writer.root
    looked(view)
    put(writer, "orders", 1, 2)
    writer.close()
    reported = {row["group"]: row for row in rows("groups", root)}
    assert looked(view) == looked(view_of(writer))
    for group, (topics, _, _, *figures) in looked(view).items():
        row = reported[group]
        names = ("topics", "lag", "retryLag", "deadLetters")
        assert [topics, *figures] == [row[name] for name in names]


@both_backends
def test_a_group_that_begins_with_a_topic_is_seen(writer: MessageStore) -> None:
    view = view_of(writer)
    writer.flush()  # so that the log behind the queues has no retries
    assert {*looked(view)} == {"billing", "audit"}
    put(writer, "fresh", 0, 4)
    write_config(writer.root, "subscriptionGroup.json", {"subscriptionGroupTable": {"idle": {}}})
    write_offsets(writer.root, {"fresh@late": {0: 1}, "gone@late": {0: 7, 1: -1}})
    assert looked(view) == {
        "late": (2, 8, 4, 3, 0, 0),
        "idle": (0, 0, 0, 0, 0, 0),
        "billing": (0, 0, 0, 0, 3, 2),  # known by its retries alone
    }


@both_backends
def test_a_topic_that_begins_anew_ends_where_it_is_now(writer: MessageStore) -> None:
    view = view_of(writer)
    write_offsets(writer.root, {"orders@g": {0: 1, 1: 0}})
    assert looked(view)["g"] == (1, 1, 10, 9, 0, 0)
    writer.delete_topic("orders")
    put(writer, "orders", 0, 2)
    assert "g" not in looked(view)  # a deletion removes the offsets of the topic's groups
    write_offsets(writer.root, {"orders@g": {0: 1, 1: 0}})
    assert looked(view)["g"] == (1, 1, 2 + 4, 1 + 4, 0, 0)  # queue 1 as it was
    assert looked(view_of(writer))["g"] == (1, 1, 2, 1, 0, 0)


@both_backends
def test_what_was_deleted_before_counts_no_more(writer: MessageStore) -> None:
    """The log has its records still, behind what the queues of the opened store cover."""
    writer.delete_topic("orders")
    write_offsets(writer.root, {"orders@g": {0: 0}})
    put(writer, "orders", 0, 1)
    assert looked(view_of(writer))["g"] == (1, 0, 1, 1, 0, 0)


@both_backends
def test_what_expires_is_no_dead_letter_any_more(writer: MessageStore) -> None:
    view = view_of(writer)
    assert looked(view)["billing"][-1] == 2
    put(writer, "other", 0, 3, FILE // 2)
    put(writer, DLQ, 0, 1)
    assert looked(view)["billing"][-1] == 3
    writer.delete_expired_files(FILE)
    assert writer.min_offset(DLQ, 0) == 2
    assert looked(view)["billing"][-1] == 1
    writer.delete_topic(DLQ)
    put(writer, DLQ, 0, 2)  # from 0 on
    assert looked(view)["billing"][-1] == 2


@both_backends
def test_light_queues_have_ends_too(writer: MessageStore) -> None:
    write_offsets(writer.root, {"%LMQ%a@g": {0: 1}})
    view = view_of(writer)
    both = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    for number in range(3):
        assert writer.put_message(Message("orders", b"x", 0, both)).ok
        assert looked(view)["g"][2] == number + 1
    assert writer.max_offset("%LMQ%a", 0) == 3


def test_half_messages_end_no_queue(writer: MessageStore) -> None:
    view = view_of(writer)
    before = looked(view)
    assert writer.put_message(Message("orders", b"x", 0, {}, 0, 4)).ok
    assert looked(view) == before


def test_a_log_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        put(store, "orders", 0, 3)
        write_offsets(tmp_path, {"orders@g": {0: 0}})
        view = view_of(store)
        assert looked(view)["g"] == (1, 0, 3, 3, 0, 0)
        last = [record.phy_offset for record in components_of(store).log.scan(0)][-1]
    path = tmp_path / "commitlog" / ("0" * 20)
    log = bytearray(path.read_bytes())
    log[last:] = bytes(len(log) - last)
    path.write_bytes(log)
    with MessageStore.open(tmp_path, CONFIG, recovery=RecoveryOptions(cut_at=last)) as store:
        put(store, "other", 0, 1)
        assert looked(view)["g"] == (1, 0, 2, 2, 0, 0)


def test_metadata_that_is_being_written_is_that_of_the_look_before(writer: MessageStore) -> None:
    view, root = view_of(writer), writer.root
    before = looked(view)
    path = root / "config" / "consumerOffset.json"
    path.write_bytes(path.read_bytes()[:-9])
    look = view.watch.sample()
    assert {row["group"]: of(row)[1:] for row in view.rows(look, None)} == before
    fault, missing = view.faults(look, None)
    assert str(path) in fault
    assert f"{path}.bak" in missing
    path.with_name(f"{path.name}.bak").write_text(json.dumps({"offsetTable": {"orders@bak": {}}}))
    assert looked(view) == before
    anew = view_of(writer)  # has seen no whole metadata: what the next look finds may be newer
    assert {*looked(anew)} == {"bak", "billing"}
    path.with_name(f"{path.name}.bak").write_text(json.dumps({"offsetTable": {"orders@new": {}}}))
    assert {*looked(anew)} == {"new", "billing"}
    write_offsets(root, {"orders@whole": {0: 1}})
    assert not view.faults(view.watch.sample(), None)
    assert {*looked(view)} == {"whole", "billing"}


@pytest.mark.parametrize("lost", ["file", "both"])
def test_a_torn_table_is_said_and_the_exit_code_is_1_as_that_of_groups(
    writer: MessageStore, lost: str
) -> None:
    root = writer.root
    path = root / "config" / "consumerOffset.json"
    backup = path.with_name(f"{path.name}.bak")
    backup.write_bytes(path.read_bytes() if lost == "file" else b"{")
    path.write_bytes(path.read_bytes()[:-9])
    for words in (["top", root, "--by", "group"], ["groups", root]):
        done = commands.run([*words, "--output", "jsonl"])
        assert done.returncode == 1, words
        assert "a broker cannot read this file" in done.stderr
        assert f"{path})" in done.stderr
        assert (f"{backup})" in done.stderr) == (lost == "both")
        assert ("audit" in done.stdout) == (lost == "file")


def test_where_there_is_no_group_a_sentence_says_so(writer: MessageStore) -> None:
    root = writer.root
    write_offsets(root, {})
    writer.delete_topic(RETRY)
    writer.delete_topic(DLQ)
    writer.close()
    done = commands.run(["top", root, "--by", "group"])
    config = root / "config"
    reported = f"cqstore: no consumer groups found in {config}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "", reported)


def test_the_view_shows_what_it_cannot_read_and_ends_so(writer: MessageStore) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=200, height=60)
    path = writer.root / "config" / "consumerOffset.json"
    whole = path.read_bytes()
    steps = [whole[:-9], whole, b"{"]

    def wait() -> None:
        if not steps:
            raise KeyboardInterrupt
        path.write_bytes(steps.pop(0))

    assert not show(view_of(writer), console, wait)
    assert "a broker cannot read this file" in screen.getvalue()
    path.write_bytes(whole)
    assert show(view_of(writer), console, wait)


def test_groups_that_have_no_row_are_summed(writer: MessageStore) -> None:
    root = writer.root
    view = view_of(writer, 1)
    write_offsets(root, {f"orders@g{number}": {0: number, 1: 4} for number in range(5)})
    looked(view)
    write_offsets(root, {f"orders@g{number}": {0: number + 1, 1: 4} for number in range(5)})
    look = view.watch.sample()
    assert [of(row) for row in view.rows(look, None)] == [
        ("g0", 1, 5, 10, 5, 0, 0),
        ("(others)", 4, 30, 40, 10, 3, 2),  # billing has no offset of its retries now
    ]
    known = replace(look, per_second={"g0": 1.0, "g1": 2.0, "g2": 3.0})
    assert [row["perSecond"] for row in view.rows(known, None)] == [1, 5]
    assert list(group_rows(GroupLook({}, {}), None, 3)) == []


def test_the_command_looks_once_and_changes_no_byte(writer: MessageStore) -> None:
    root = writer.root
    done = commands.run(["top", root, "--by", "group", "--output", "jsonl"])
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [of(row) for row in found] == [
        ("billing", 1, 6, 10, 4, 2, 2), ("audit", 2, 15, 15, 4, 0, 0)
    ]  # fmt: skip
    writer.close()
    with unchanged(root):
        table = commands.run(["top", root, "--by", "group", "--once", "--limit", 1]).stdout
        assert max(map(len, table.splitlines())) <= 80
        assert "(others)" in table


def test_the_view_goes_on(writer: MessageStore) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=60)
    left = [3, 5]

    def wait() -> None:
        if not left:
            raise KeyboardInterrupt
        put(writer, "orders", 0, left.pop(0))

    show(view_of(writer), console, wait)
    for end in (10, 13, 18):
        assert re.search(rf"billing +1 +6 +{end} +{end - 6} ", screen.getvalue())
