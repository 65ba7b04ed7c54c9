"""``cqstore topics --delete`` and ``cqstore clean``: shown first, done with ``--yes``."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.cli.test_commands import lines
from tests.kit.commands import cqstore
from tests.kit.log_bytes import log_of
from tests.kit.tree import tree_digest

FILE = 65536
CONFIG = StoreConfig(
    mapped_file_size_commit_log=FILE, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip
GOING = [{"topic": "a", "queues": 3, "messages": 30}, {"topic": "b", "queues": 1, "messages": 5}]


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=request.param) as store:
        for number in range(30):
            assert store.put_message(Message("a", b"x", number % 3)).ok
        for topic in ("b", "c", "d-d"):
            assert all(result.ok for result in store.put_messages([Message(topic, b"x")] * 5))
    return tmp_path / "s"


def topics(root: Path) -> set[str]:
    with MessageStore.open(root, read_only=True) as store:
        return set(store.topics())


def test_what_would_go_is_listed_and_no_byte_changes(root: Path) -> None:
    before = tree_digest(root)
    shown = cqstore("topics", root, "--delete", "a", "b", "--output", "jsonl")
    assert lines(shown) == GOING
    assert "2 topics with 4 queues and 35 messages would be deleted" in shown.stderr
    assert "--yes" in shown.stderr
    assert json.loads(cqstore("topics", root, "--delete", "b", "a", "--output", "json").stdout) == [
        GOING[1], GOING[0],
    ]  # fmt: skip
    table = cqstore("topics", root, "--delete", "a", "b").stdout.split()
    assert table == ["topic", "queues", "messages", "a", "3", "30", "b", "1", "5"]
    assert tree_digest(root) == before


def test_with_yes_they_go_for_good(root: Path) -> None:
    done = cqstore("topics", root, "--delete", "a", "--delete", "b", "--yes", "--output", "jsonl")
    assert lines(done) == GOING
    assert "2 topics with 4 queues and 35 messages deleted" in done.stderr
    assert topics(root) == {"c", "d-d"}
    assert not (root / "abort").exists()
    cqstore("check", root)
    cqstore("rebuild", root)
    assert topics(root) == {"c", "d-d"}
    nothing = cqstore("topics", root, "--delete", "c", "a", "--yes", code=2)
    assert nothing.stdout == ""
    assert "no topic 'a' in this store" in nothing.stderr
    assert topics(root) == {"c", "d-d"}


def test_offsets_go_with_their_topics(root: Path) -> None:
    table = root / "config" / "consumerOffset.json"
    table.parent.mkdir()
    table.write_text('{"offsetTable":{"a@g":{0:10},"c@g":{0:5},"d-d@g":{0:1}}}')
    cqstore("topics", root, "--delete", "a", "d-d", "--yes")
    assert json.loads(table.read_text()) == {"offsetTable": {"c@g": {"0": 5}}}
    table.write_text('{"offsetTable":{"c@g":{0:')
    refused = cqstore("topics", root, "--delete", "c", "--yes", code=1)
    assert "consumerOffset.json" in refused.stderr
    assert "cqstore meta repair" in refused.stderr
    assert "c" in topics(root)


def test_topics_of_retries_are_named_and_stay(root: Path, tmp_path: Path) -> None:
    retries = ["%RETRY%g+a", "%RETRY%g+c", "%RETRY%g_a"]
    shutil.copytree(root, tmp_path / "broker")
    with MessageStore.open(tmp_path / "broker", CONFIG) as store:
        end = store.max_phy_offset()
        for name in retries:
            assert store.put_message(Message(name.replace("+", "-"), b"x")).ok
        more = log_of(store)[end:].replace(b"RETRY%g-", b"RETRY%g+")
    with MessageStore.open(root, CONFIG) as store:  # a broker makes such a topic, no producer
        assert store.append_to_commit_log(end, more) == end + len(more)
    done = cqstore("topics", root, "--delete", "a", "b", "--yes")
    assert "POP retry topics are kept: '%RETRY%g+a'. Name them" in done.stderr
    assert topics(root) == {"c", "d-d", *retries}
    deleted = cqstore("topics", root, "--delete", "c", "%RETRY%g+c").stderr
    assert "POP retry topics are kept" not in deleted


@pytest.mark.parametrize("by", ["file", "stdin"])
def test_names_come_one_a_line(root: Path, tmp_path: Path, by: str) -> None:
    text = "d-d\r\n\na\nnone\nd-d\nnone too"
    (tmp_path / "names").write_text(text)
    source = "-" if by == "stdin" else tmp_path / "names"
    feed = text if by == "stdin" else ""
    done = cqstore(
        "topics", root, "--delete", "b", "--delete-from", source, "--yes", "--output", "jsonl",
        feed=feed,
    )  # fmt: skip
    assert [line["topic"] for line in lines(done)] == ["b", "d-d", "a"]
    assert "no queues found for 'none', 'none too'" in done.stderr
    assert topics(root) == {"c"}


def test_all_topics_that_begin_alike_go_but_the_brokers_own(root: Path) -> None:
    names = ["ab", "rmq_sys_ab", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"]
    with MessageStore.open(root, housekeeping=False) as store:
        for name in names:
            assert store.put_message(Message(name, b"x")).ok
    before = topics(root)
    shown = cqstore("topics", root, "--delete", "--prefix", "a", "--output", "jsonl")
    assert [line["topic"] for line in lines(shown)] == ["a", "ab"]
    assert topics(root) == before
    cqstore("topics", root, "--delete", "--prefix", "a", "--yes")
    assert topics(root) == before - {"a", "ab"}
    for prefix in ("rmq_", "RMQ_", "SCHEDULE"):
        none = cqstore("topics", root, "--delete", "--prefix", prefix, "--yes", "--output", "jsonl")
        assert lines(none) == []
    assert topics(root) == before - {"a", "ab"}


ONE = pytest.mark.parametrize("root", ["file"], indirect=True)
"""Where the backend makes no difference."""


@ONE
@pytest.mark.parametrize("bad", ["x" * 300, "TBW102", "rmq_sys_ab"])
def test_nothing_goes_if_one_name_is_none(root: Path, bad: str) -> None:
    there = {"a", "b", "c", "d-d"}
    if bad.startswith("rmq_sys_"):  # RocketMQ: TopicValidator.isSystemTopic
        with MessageStore.open(root, housekeeping=False) as store:
            assert store.put_message(Message(bad, b"x")).ok
        there.add(bad)
    refused = cqstore("topics", root, "--delete", "a", bad, "b", "--yes", code=2)
    assert bad[:20] in refused.stderr
    assert topics(root) == there


@ONE
def test_names_that_are_no_text_are_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "names").write_bytes(b"a\n\xff\n")
    refused = cqstore("topics", root, "--delete-from", tmp_path / "names", "--yes", code=2)
    assert "UTF-8" in refused.stderr
    assert "a" in topics(root)


@ONE
@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_a_store_that_is_open_or_not_there_is_refused(
    root: Path, tmp_path: Path, yes: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for words in (["topics", "--delete", "a"], ["clean"]):
        verb, *rest = words
        with MessageStore.open(root):
            refused = cqstore(verb, root, *rest, *yes, code=2)
        assert f"process {os.getpid()} has the store open" in refused.stderr
        for nowhere in (tmp_path / "empty", tmp_path / "none"):
            cqstore(verb, nowhere, *rest, *yes, code=2)
    assert list((tmp_path / "empty").iterdir()) == []
    assert not (tmp_path / "none").exists()
    assert topics(root) == {"a", "b", "c", "d-d"}


def fill(root: Path) -> list[Path]:
    """Put until there are five log files; return them."""
    with MessageStore.open(root, CONFIG, housekeeping=False) as store:
        while len(components_of(store).log.files.files()) < 5:
            assert store.put_message(Message("c", b"x" * 2000)).ok
        return [file.path for file in components_of(store).log.files.files()]


def let_age(path: Path, hours: float) -> None:
    then = time.time() - hours * 3600
    os.utime(path, (then, then))


def test_expired_files_are_told_and_stay_until_yes(root: Path) -> None:
    paths = fill(root)
    for path, hours in zip(paths, (100, 80, 1, 80, 80), strict=True):
        let_age(path, hours)
    before = tree_digest(root)
    shown = cqstore("clean", root, "--output", "jsonl")
    assert [line["goes"] for line in lines(shown)] == [True, True, False, False, False]
    assert [line["phyOffset"] for line in lines(shown)] == [at * FILE for at in range(5)]
    reasons = [str(line["reason"]) for line in lines(shown)]
    assert "72 hours" in reasons[0]
    assert "within" in reasons[2]
    assert f"2 of 5 log files, {2 * FILE} bytes, would be deleted" in shown.stderr
    assert "(commit log), " in shown.stderr.partition("used disk space: ")[2]
    assert "goes" in cqstore("clean", root).stdout.splitlines()[0]
    assert len(json.loads(cqstore("clean", root, "--output", "json").stdout)) == 5
    assert tree_digest(root) == before

    done = cqstore("clean", root, "--yes", "--output", "jsonl")
    assert lines(done)[:4] == lines(shown)[:4]  # an open that writes touches the last one
    assert f"2 of 5 log files, {2 * FILE} bytes, deleted" in done.stderr
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    with MessageStore.open(root, read_only=True) as store:
        assert store.min_offset("a", 0) == store.max_offset("a", 0) == 10
        assert store.min_phy_offset() == 2 * FILE
    cqstore("check", root)


@ONE
def test_nothing_goes_where_nothing_is_old_and_the_settings_count(
    root: Path, tmp_path: Path
) -> None:
    paths = fill(root)
    let_age(paths[0], 50)
    assert "0 of 5 log files, 0 bytes, deleted" in cqstore("clean", root, "--yes").stderr
    (tmp_path / "conf").write_text(f"fileReservedTime=48\nmappedFileSizeCommitLog={FILE}\n")
    done = cqstore("clean", root, "--config", tmp_path / "conf", "--yes")
    assert f"1 of 5 log files, {FILE} bytes, deleted" in done.stderr
    assert not paths[0].exists()
