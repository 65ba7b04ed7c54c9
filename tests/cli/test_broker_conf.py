"""A ``broker.conf`` that says something else than it seems to, and folders that hold no store.

A line a case: what the file has, what is said before anything is opened, and what ``put`` does.
"""

import os
import shutil
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.broker_conf import unused_keys
from cqstore.store.settings.broker_keys import broker_keys
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import cqstore, run
from tests.kit.tree import tree_digest, unchanged

SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16)
SIZE = "mappedFileSizeCommitLog=65536\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend="file") as store:
        assert store.put_message(Message("t", b"x", 0)).ok
    return root


MISSPELT = [
    ("flushDiskTypo=SYNC_FLUSH", "flushDiskType"),
    ("storeTpye=defaultRocksDB", "storeType"),
    ("flush_disk_type=SYNC_FLUSH", "flushDiskType"),
    ("flush.disk.type=SYNC_FLUSH", "flushDiskType"),
    ("storetype=defaultRocksDB", "storeType"),
    ("fileReservedTme=1", "fileReservedTime"),
    ("brokrRoel=SYNC_MASTER", "brokerRole"),
    ("deletewhen=04", "deleteWhen"),
    ("maxMessageSizes=1", "maxMessageSize"),
]


@pytest.mark.parametrize(("line", "meant"), MISSPELT)
def test_a_misspelt_key_is_said_to_readers_and_keeps_out_puts(
    root: Path, tmp_path: Path, line: str, meant: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{SIZE}{line}\n")
    key, _, _ = line.partition("=")
    sentence = f"{key} is not a setting of cqstore: did you mean {meant}?"
    read = run(["get", root, "--topic", "t", "--config", conf])
    assert (read.returncode, read.stdout.count("\n")) == (0, 1)
    assert read.stderr.startswith(f"cqstore: {conf}: {sentence}\n")
    with unchanged(root):
        put = run(["put", root, "--topic", "t", "--body", "b", "--config", conf])
        assert (put.returncode, put.stdout) == (2, "")
        assert put.stderr == f"cqstore: {sentence}; no message was appended ({conf})\n"


def test_no_key_of_rocketmq_s_is_taken_for_another(root: Path, tmp_path: Path) -> None:
    others = broker_keys().keys() - StoreConfig.known_keys().keys()
    assert len(others) > 400
    assert unused_keys(others) == {}


LINES = [
    ("brokerName\n", "line 2 has no '=': it is read as the key 'brokerName'"),
    ("# a\n\nthis is prose\n", "line 4 has no '=': it is read as the key 'this'"),
    ("brokerName=a\nbrokerName=b\n", "brokerName is given twice: line 3 is used"),
    ("a\nb\nc\nd\ne\n", "2 more lines have no '='"),
    ("a\\\n b=1\n\nlast\n", "line 5 has no '=': it is read as the key 'last'"),
    ("storePathRootDir=/elsewhere\n", "storePathRootDir=/elsewhere is not "),
]
SILENT = [
    "brokerName = b", "brokerName: b", "brokerName=b\nbrokerName=b", "! a note", "#", "",
    "a=b c\\\n  d", "brokerIP1=10.0.0.1", "note=\u6d88\u606f", "empty=",
]  # fmt: skip


def says(words: list[object], conf: Path, sentence: str) -> None:
    done = run([*words, "--config", conf])
    assert done.stderr.startswith(f"cqstore: {conf}: "), (words, done.stderr)
    assert sentence in done.stderr, words
    assert "another store" not in done.stdout


@pytest.mark.parametrize(("text", "sentence"), LINES)
def test_lines_that_say_nothing_and_other_stores_are_said(
    root: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(SIZE + text)
    says(["info", root], conf, sentence)
    says(["put", root, "--topic", "t", "--body", "b"], conf, sentence)


@pytest.mark.parametrize(("text", "sentence"), [LINES[0], LINES[-1]])
def test_every_verb_says_it(root: Path, tmp_path: Path, text: str, sentence: str) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(SIZE + text)
    for words in (
        ["get", root, "--topic", "t"], ["check", root], ["mode", root], ["topics", root],
        ["clean", root], ["top", root, "--once"], ["recover", root],
    ):  # fmt: skip
        says(words, conf, sentence)


@pytest.mark.parametrize("text", SILENT)
def test_lines_that_are_properties_are_not_remarked_on(
    root: Path, tmp_path: Path, text: str
) -> None:
    conf = tmp_path / "broker.conf"
    link = tmp_path / "link"
    link.symlink_to(root)
    conf.write_text(f"{SIZE}{text}\nstorePathRootDir={link}/\n", encoding="utf-8")
    assert run(["info", root, "--config", conf]).stderr == ""


@pytest.mark.parametrize(
    "data", [b"\0", b"storeType=x\n\x01", bytes(5000), b"\x7fELF\x02\x01\x01", b"PK\x03\x04"]
)
def test_a_file_that_is_no_text_is_refused(root: Path, tmp_path: Path, data: bytes) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(data)
    before = tree_digest(root)
    for words in (
        ["info"],
        ["put", "--topic", "t", "--body", "b"],
        ["recover"],
        ["mode"],
        ["check"],
    ):
        done = run([words[0], root, *words[1:], "--config", conf])
        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr.startswith("cqstore: not a properties file: found the control character")
        assert str(conf) in done.stderr
    assert tree_digest(root) == before


def test_a_comment_in_another_encoding_is_text(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(SIZE.encode() + "# \u6d88\u606f\n".encode("gbk"))
    done = run(["info", root, "--config", conf])
    assert (done.returncode, done.stderr) == (0, "")


# ---- folders without a store


@pytest.mark.parametrize("verb", ["put", "recover", "rebuild"])
@pytest.mark.parametrize("kind", ["none", "empty", "config", "other"])
def test_no_store_is_made_where_none_is(tmp_path: Path, verb: str, kind: str) -> None:
    root = tmp_path / "mount"
    if kind != "none":
        root.mkdir()
    if kind == "config":
        (root / "config").mkdir()
        (root / "config" / "topics.json").write_text("{}")
    if kind == "other":
        (root / "lost+found").mkdir()
        (root / "commitlog").mkdir()
    with unchanged(tmp_path):
        words = ["--topic", "t", "--body", "x"] if verb == "put" else []
        done = run([verb, root, *words])
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "is its file system mounted?" in done.stderr
        assert str(root) in done.stderr
        assert ("use --new to create a store" in done.stderr) == (verb == "put")
    assert root.exists() == (kind != "none")


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_new_makes_a_store_and_an_empty_one_is_one(tmp_path: Path, backend: str) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(SIZE)
    words = ["put", root, "--config", conf, "--backend", backend]
    with MessageStore.open(root, StoreConfig(mapped_file_size_commit_log=65536), backend=backend):
        pass
    assert not any((root / "commitlog").glob("*"))
    assert run(["recover", root, "--config", conf]).returncode == 0
    done = run([*words, "--topic", "t", "--body", "x"])
    assert (done.returncode, done.stderr) == (0, "")
    os.utime(root / "checkpoint")
    again = run([*words, "--new", "--topic", "t", "--body", "y"])
    assert (again.returncode, '"queueOffset":1' in again.stdout) == (0, True)


@pytest.mark.parametrize(
    ("line", "deleted"), [("fileReservedTime=1", 1), ("fileReservedTime=1 ", 0),
                          ("fileReservedTime=1h", 0), ("fileReservedTime=-1", 0)],
)  # fmt: skip
def test_clean_deletes_no_more_than_the_broker_would(
    tmp_path: Path, line: str, deleted: int
) -> None:
    root, conf = tmp_path / "store", tmp_path / "broker.conf"
    with MessageStore.open(root, SMALL, backend="file") as store:
        for _ in range(90):
            assert store.put_message(Message("t", b"x" * 1000, 0)).ok
    for file in (root / "commitlog").iterdir():
        os.utime(file, (file.stat().st_mtime - 7200,) * 2)
    conf.write_text(f"{line}\n")
    done = run(["clean", root, "--config", conf, "--output", "jsonl"])
    assert done.stdout.count("not written for 1 hours") == deleted
    assert (f"{conf}: line 1: fileReservedTime=" in done.stderr) == (not deleted)
    count = len(list((root / "commitlog").iterdir()))
    assert run(["clean", root, "--config", conf, "--yes"]).returncode == 0
    assert len(list((root / "commitlog").iterdir())) == count - deleted


@pytest.mark.parametrize(
    "line",
    [
        "flushDiskType=sync_flush", "maxMessageSize=10MB", "enableLmq=true ", "maxMessageSize=0",
        "storeType=rocksdb", "messageDelayLevel=1s  5s",
    ],
)  # fmt: skip
def test_a_value_that_a_broker_does_not_take_is_said_to_readers_and_keeps_out_puts(
    root: Path, tmp_path: Path, line: str
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{SIZE}{line}\n")
    for words in (["info"], ["check"], ["clean"], ["topics"], ["migrate", "preflight"]):
        done = run([*words, root, "--config", conf])
        assert done.returncode == 0, (words, done.stderr)
        assert f"cqstore: {conf}: line 2: {line.partition('=')[0]}=" in done.stderr, words
    with unchanged(root):
        put = run(["put", root, "--topic", "t", "--body", "y", "--config", conf])
        assert (put.returncode, put.stdout) == (2, "")
        assert "; no message was appended (" in put.stderr


def test_settings_of_a_container_lead_to_the_log_in_the_folder(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    base = "/home/rocketmq/store"
    conf.write_text(f"{SIZE}storePathRootDir={base}\nstorePathCommitLog={base}/commitlog\n")
    used = f"storePathCommitLog={base}/commitlog is below that storePathRootDir: using "
    for words in (["info"], ["check"], ["topics"], ["migrate", "preflight"], ["mode"]):
        done = run([*words, root, "--config", conf])
        assert done.returncode == 0, (words, done.stderr)
        assert f"{conf}: {used}{root}/commitlog" in done.stderr, words
    assert run(["put", root, "--topic", "t", "--config", conf, "--body", "y"]).returncode == 0
    done = run(["migrate", "preflight", root, "--broker-conf", conf, "--output", "json"])
    assert done.returncode == 0, done.stdout
    assert f"using {root}/commitlog" in done.stdout
    conf.write_text(f"{SIZE}storePathCommitLog={base}/commitlog\n")
    done = run(["info", root, "--config", conf])
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{root}/commitlog holds a log. Did you mean that one?" in done.stderr
    done = run(["migrate", "preflight", root, "--broker-conf", conf])
    assert done.returncode == 1
    assert "remove the key" in done.stdout.replace("\n", " ")


def test_a_size_that_the_files_contradict_is_no_damage(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=300000\n")
    for words in (["info"], ["check"], ["get", "--topic", "t"]):
        done = run([words[0], root, *words[1:], "--config", conf])
        assert (done.returncode, done.stdout) == (2, ""), words
        assert "mappedFileSizeConsumeQueue=300000 is a wrong setting" in done.stderr
        assert "queue files here have 6000000 bytes" in done.stderr
        assert "damage" not in done.stderr
    conf.write_text("mappedFileSizeCommitLog=4096\n")
    done = run(["check", root, "--config", conf])
    assert (done.returncode, "damage" in done.stderr) == (2, False)
    assert "mappedFileSizeCommitLog=4096 is a wrong setting: the commit log files" in done.stderr
    conf.write_text("mapedFileSizeConsumeQueue=300000\n")
    done = run(["put", root, "--topic", "t", "--config", conf, "--body", "y"])
    assert done.returncode == 0
    assert "RocketMQ removed mapedFileSizeConsumeQueue in 4.5.2; it is ignored" in done.stderr


@pytest.mark.parametrize("by", ["--config", "--commitlog"])
def test_an_exported_store_has_a_log_of_its_own(root: Path, tmp_path: Path, by: str) -> None:
    log, target = tmp_path / "elsewhere", tmp_path / "exported"
    (root / "commitlog").rename(log)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={log}\n")
    words = [by, conf if by == "--config" else log]
    cqstore("export", root, "--to", target, "--format", "store", *words)
    shutil.rmtree(log)  # the export needs it no more
    with MessageStore.open(target, read_only=True) as store:
        assert [each.body for each in store.get_message("t", 0, 0).messages()] == [b"x"]
