"""A ``broker.conf``: the value that the broker has, and a note where the line shows another one.

What the broker has was read from RocketMQ 5.5.1 itself; ``tests/interop/test_broker_conf.py``
compares thousands of files.
"""

import logging
from pathlib import Path

import pytest

from cqstore.store.errors import StoreConfigError
from cqstore.store.settings.broker_conf import BrokerConf, read_broker_conf
from cqstore.store.settings.broker_keys import broker_keys
from cqstore.store.settings.conf_notes import near_key
from cqstore.store.settings.config import StoreConfig


def conf_of(folder: Path, text: str) -> BrokerConf:
    path = folder / "broker.conf"
    path.write_text(text, encoding="utf-8")
    return BrokerConf.read(path)


@pytest.mark.parametrize(
    ("text", "name", "has", "words"),
    [
        ("fileReservedTime = 48 ", "file_reserved_time", 72, "(a space follows it): RocketMQ"),
        ("fileReservedTime=48", "file_reserved_time", 48, ""),
        ("fileReservedTime=1_000", "file_reserved_time", 72, "keeps its default, 72"),
        ("diskMaxUsedSpaceRatio=75%", "disk_max_used_space_ratio", 75, "'75%' is not a valid"),
        ("diskMaxUsedSpaceRatio=95.0", "disk_max_used_space_ratio", 75, "keeps its default, 75"),
        ("maxMessageSize=10485760  # 10MB", "max_message_size", 4 << 20, "(a comment is part of"),
        ("enableLmq=true ", "enable_lmq", False, "RocketMQ reads it as false"),
        ("enableLmq=yes", "enable_lmq", False, "is neither true nor false"),
        ("enableLmq=1", "enable_lmq", False, "is neither true nor false"),
        ("enableLmq=TRUE", "enable_lmq", True, ""),
        ("cleanFileForciblyEnable=on", "clean_file_forcibly_enable", False, "reads it as false"),
        ("brokerRole=${ROLE}", "broker_role", "ASYNC_MASTER", "is not one of ASYNC_MASTER, SYNC"),
        ("brokerRole=SYNC_MASTER ", "broker_role", "SYNC_MASTER", ""),
        ("flushDiskType=sync_flush", "flush_disk_type", "ASYNC_FLUSH", "Did you mean SYNC_FLUSH?"),
        ("flushDiskType=SYNC_FLUSH\t", "flush_disk_type", "SYNC_FLUSH", ""),
        ("storeType=rocksdb", "store_type", "default", "RocketMQ reads it as default"),
        ("storeType=DEFAULTROCKSDB", "store_type", "DEFAULTROCKSDB", ""),
        ("deleteWhen=04; 16", "delete_hours", {4}, "deletes at 04 only"),
        ("deleteWhen=4:00", "delete_hours", set(), "at no hour, only when the disk is nearly full"),
        ("deleteWhen=4;25", "delete_hours", {4}, "deletes at 04 only"),
        ("deleteWhen=04;16;", "delete_hours", {4, 16}, ""),
        ("messageDelayLevel=1s  5s", "message_delay_level", "1s  5s", "two blanks in a row"),
        ("messageDelayLevel=1s 5x", "message_delay_level", None, "a broker does not start with it"),
        ("messageDelayLevel=1s 5s ", "message_delay_level", "1s 5s", ""),
    ],
)  # fmt: skip
def test_the_broker_s_value_counts_and_a_note_names_the_line(
    tmp_path: Path, text: str, name: str, has: object, words: str
) -> None:
    conf = conf_of(tmp_path, f"# a comment\n{text}\n")
    expected = StoreConfig().message_delay_level if has is None else has
    assert getattr(conf.settings(), name) == expected
    notes = list(conf.notes())
    assert len(notes) == bool(words)
    for note in notes:
        assert note.sentence.startswith(f"line 2: {text.partition('=')[0].strip()}=")
        assert words in note.sentence
        assert note.keeps_out_puts or "25" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maxMessageSize=0", "expected greater than or equal to 10"),
        ("fileReservedTime=-1", "expected greater than or equal to 0"),
        ("mappedFileSizeCommitLog=10", "expected greater than or equal to 256"),
    ],
)
def test_what_cqstore_cannot_have_is_left_at_its_default_and_refused_by_the_api(
    tmp_path: Path, text: str, words: str
) -> None:
    conf = conf_of(tmp_path, text)
    assert conf.settings() == StoreConfig()
    (note,) = conf.notes()
    assert note.keeps_out_puts
    assert words in note.sentence
    assert "that RocketMQ accepts but cqstore does not (" in note.sentence
    assert "cqstore uses " in note.sentence
    with pytest.raises(StoreConfigError, match="RocketMQ accepts but cqstore does not") as caught:
        read_broker_conf(conf.path)
    assert caught.value.path == conf.path


def test_a_program_gets_the_broker_s_value_and_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = conf_of(tmp_path, "fileReservedTime=1 \nbrokerName=b #x\n").path
    with caplog.at_level(logging.WARNING, "cqstore"):
        config, unknown = read_broker_conf(path)
    assert (config.file_reserved_time, unknown) == (72, {"brokerName": "b #x"})
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: fileReservedTime='1 ' is not a valid")


@pytest.mark.parametrize("text", ["rocksdbMemoryBytes=lots", "abShare=2", "queueFilesMax=1"])
def test_a_bad_setting_of_cqstore_s_own_is_refused(tmp_path: Path, text: str) -> None:
    conf = conf_of(tmp_path, text)
    with pytest.raises(StoreConfigError, match=text.partition("=")[0]) as caught:
        conf.settings()
    assert caught.value.path == conf.path
    assert conf_of(tmp_path, "rocksdbMemoryBytes=9000000 ").settings().rocksdb_memory_bytes == 9e6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerName=broker-a   # the first", "the comment is part of the value"),
        ("namesrvAddr=192.0.2.1:9876 // name server", "the comment is part of the value"),
        ('brokerClusterName="DefaultCluster"', "the quotes are part of the value"),
        ("brokerName=名", "write them as \\uXXXX"),
        ("metricsExporterType=prom", "Did you mean PROM?"),
        ("rocksdbCompressionType=zst", "Did you mean zstd?"),
        ("fileReservedTime=1\nfileReservedTime=2", "fileReservedTime is given twice: line 2"),
        ("just words", "line 1 has no '='"),
        ("\ufefffileReservedTime=1", "a byte-order mark, which is part of the key"),
        ("mapedFileSizeConsumeQueue=300000", "RocketMQ removed mapedFileSizeConsumeQueue in 4.5.2"),
    ],
)  # fmt: skip
def test_what_changes_nothing_here_is_noted_and_keeps_out_no_put(
    tmp_path: Path, text: str, words: str
) -> None:
    (note,) = conf_of(tmp_path, text).notes()
    assert words in note.sentence
    assert not note.keeps_out_puts


@pytest.mark.parametrize(
    "text",
    [
        "metricsExporterType=PROM", "metricsExporterType=2", "tieredStorageLevel=FORCE",
        "tieredStorageLevel=3", "rmqAddressServerDomain=a:80", "brokerName=a#b",
        "brokerIP1=10.0.0.1", "metricsLabel=a:b,c://d", "brokerName=it's",
        "commercialEnable=true", "myPlugin=1", "brokerName=\\u540d", "storePathRootDir=/data/store",
    ],
)  # fmt: skip
def test_nothing_is_noted_of_what_a_broker_takes(tmp_path: Path, text: str) -> None:
    assert list(conf_of(tmp_path, text).notes()) == []


@pytest.mark.parametrize(
    "key",
    [
        "autoDeleteTopicEnable", "s3AccessKey", "minMessageSize", "brokerIP3",
        "commercialTransCount", "maxMessageAge", "storeTime",
    ],
)  # fmt: skip
def test_no_key_of_another_meaning_is_guessed(key: str) -> None:
    assert near_key(key, broker_keys()) in {None, key}


def test_a_log_below_the_file_s_own_root_is_looked_for_in_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    for name in ("commitlog", "logs/a", "logs/b"):
        (root / name).mkdir(parents=True)
    for given, used in (
        ("/home/rocketmq/store/commitlog", f"{root}/commitlog"),
        ("/home/rocketmq/store/x/../commitlog/ ", f"{root}/commitlog"),
        ("/home/rocketmq/store/logs/a,/home/rocketmq/store/logs/b", f"{root}/logs/a,{root}/logs/b"),
        ("/home/rocketmq/store/logs/a,/home/rocketmq/store/logs/c", None),
        ("/home/rocketmq/store2/commitlog", None),
        ("/home/rocketmq/commitlog", None),
        ("commitlog", None),
    ):
        lines = f"storePathRootDir=/home/rocketmq/store\nstorePathCommitLog={given}\n"
        conf = conf_of(tmp_path, lines)
        assert conf.settings(root).store_path_commit_log == (used or given.strip())
        notes = [note.sentence for note in conf.notes(root)]
        assert any(used is not None and f"using {used}" in each for each in notes) == bool(used)
        assert conf.settings().store_path_commit_log == given.strip()
    own = conf_of(tmp_path, f"storePathRootDir={root}\nstorePathCommitLog={root}/logs/a\n")
    assert own.settings(root).store_path_commit_log == f"{root}/logs/a"
    assert list(own.notes(root)) == []


def test_read_only_folders_are_looked_for_in_the_folder_too(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    for name in ("a", "b", "old"):
        (root / name).mkdir(parents=True)
    lines = (
        "storePathRootDir=/o\nstorePathCommitLog=/o/a,/o/b\nreadOnlyCommitLogStorePaths=/o/old,/o/b"
    )
    used = conf_of(tmp_path, f"{lines}\n").settings(root)
    assert used.store_path_commit_log == f"{root}/a,{root}/b"
    assert used.read_only_commit_log_store_paths == f"{root}/old,{root}/b"
    (root / "old").rmdir()  # then none of the folders is meant
    used = conf_of(tmp_path, f"{lines}\n").settings(root)
    assert used.store_path_commit_log == "/o/a,/o/b"
    assert used.read_only_commit_log_store_paths == "/o/old,/o/b"
    assert used.store_path_root_dir == "/o"
    beside = conf_of(tmp_path, f"{lines}\n").settings(root, beside=[Path("/o"), root])
    assert beside.store_path_commit_log is None
    assert beside.read_only_commit_log_store_paths is None
    colons = lines.replace(",", ":") + "\nmultiPathSplitter=:\n"
    (root / "old").mkdir()
    used = conf_of(tmp_path, colons).settings(root)
    assert used.store_path_commit_log == f"{root}/a:{root}/b"


@pytest.mark.parametrize(
    ("lines", "is_noted"),
    [
        ("readOnlyCommitLogStorePaths=/r\n", True),
        ("readOnlyCommitLogStorePaths=/r\nstorePathCommitLog=/a\n", True),
        ("readOnlyCommitLogStorePaths=/r\nstorePathCommitLog=/a,\n", False),
        ("readOnlyCommitLogStorePaths=/r\nstorePathCommitLog=/a,\nmultiPathSplitter=:\n", True),
        ("readOnlyCommitLogStorePaths= \nstorePathCommitLog=/a\n", False),
    ],
)
def test_read_only_folders_that_a_broker_ignores_are_noted(
    tmp_path: Path, lines: str, *, is_noted: bool
) -> None:
    notes = [note.sentence for note in conf_of(tmp_path, lines).notes()]
    assert any("readOnlyCommitLogStorePaths has no effect" in each for each in notes) == is_noted


def test_a_comment_after_a_lone_backslash_is_a_comment(tmp_path: Path) -> None:
    """As RocketMQ 5.5.1 reads it; javaproperties makes a key of it."""
    conf = conf_of(tmp_path, "\\\n#a\\\nfileReservedTime=5\n \\\n  deleteWhen=03\n")
    assert dict(conf.values) == {"fileReservedTime": "5", "deleteWhen": "03"}
    assert [line.number for line in conf.lines] == [3, 5]
