"""The linter of broker.conf, by the rules of the release that will read it."""

import re
from pathlib import Path

import pytest

from cqstore.migration.preflight import Severity, preflight
from cqstore.migration.preflight.broker_conf_check import lint
from cqstore.migration.preflight.folder_verdict import FolderKind
from cqstore.migration.preflight.preflight_report import PreflightFinding
from cqstore.store.errors import StoreConfigError, StoreIOError
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.broker_keys import NEVER, UNUSED, broker_keys, parse_version
from cqstore.store.settings.config import StoreConfig
from tests.kit.product_tree import ROOT
from tests.migration.preflight.kit import FakeMachine, codes, names

CLEAN_CONF = """
# as the distribution has it, and what operators add
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr = a:9876;b:9876
listenPort = 10911
autoCreateTopicEnable = true
sendMessageThreadPoolNums = 16
storePathRootDir = /data/store
mappedFileSizeCommitLog = 1073741824
aclEnable = false
diskMaxUsedSpaceRatio = 88
transientStorePoolSize = 8
storeType = DEFAULT
"""
DOUBLE_WRITE = "rocksdbCQDoubleWriteEnable=true\ncombineCQUseRocksdbForLmq=true"
"""As 5.5 and later start with it."""
OTHER_KEYS = """
warmMapedFileEnable mapperFileSizeBatchConsumeQueue rocksdbMaxSizeAmplificationPercent
combineCQUseRocksdbForLmq popRocksdbBlockCacheSize enableAcceleratedRecovery
cleanRocksDBDirtyCQIntervalMin haMaxGapNotInSync osPageCacheBusyTimeOutMills timerRollWindowSlot
bitMapLengthConsumeQueueExt compactionCqMappedFileSize realTimePersistRocksDBConfig
"""


def lint_text(
    text: str, version: str = "5.5.1", to: str = "rocksdb", verdict: FolderKind | None = None,
    *, folder: Path,
) -> list[PreflightFinding]:  # fmt: skip
    path = folder / "broker.conf"
    path.write_text(text)
    return list(lint(BrokerConf.read(path), parse_version(version), to, verdict))


def test_three_removed_keys_and_a_misspelt_value_are_four_findings(
    golden_folder: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        CLEAN_CONF.replace("= DEFAULT", "= defaultRockDB").replace("= 1073741824", "= 262144")
        + "rocksdbCQWriteEnable = true\ntransferMetadataJsonToRocksdb = true\n"
        "transferOffsetJsonToRocksdb = true\n"
    )
    root = golden_folder / "basic-default"
    machine = FakeMachine()
    plain = preflight(root, machine=machine, rocketmq_version="5.5")
    report = preflight(root, broker_conf=conf, machine=machine, rocketmq_version="5.5")
    found = [finding for finding in report.findings if finding not in plain.findings]
    assert sorted(codes(found)) == [
        "conf-of-another-folder", "key-removed", "key-removed", "key-removed", "value-bad",
    ]  # fmt: skip
    by_name = {names(finding)[0]: finding for finding in found}
    assert by_name["rocksdbCQWriteEnable"].figures["instead"] == "rocksdbCQDoubleWriteEnable"
    assert "merged in at every start" in by_name["transferOffsetJsonToRocksdb"].sentence
    assert "Did you mean defaultRocksDB?" in by_name["storeType"].sentence
    assert report.may_go_on


def test_a_conf_as_people_have_it_is_clean(tmp_path: Path) -> None:
    assert lint_text(CLEAN_CONF, folder=tmp_path) == []


def test_every_key_of_the_documents_is_known() -> None:
    keys = broker_keys()
    assert set(StoreConfig.known_keys()) <= keys.keys()
    assert [key for key in OTHER_KEYS.split() if key not in keys] == []
    assert keys.keys() >= UNUSED
    assert keys.keys() >= NEVER


def test_the_keys_of_5_3_4_are_dated_by_its_class_files() -> None:
    """Those of the store by its class, those of the broker by the calls of the broker's classes."""
    added = """combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
    combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType enableAcceleratedRecovery
    enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush sharedByteBufferNum
    timerWheelSnapshotFlush timerWheelSnapshotIntervalMs writeWithoutMmap
    enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics
    enableRemotingMetrics enableRequestMetrics enableSplitMetadata enableStatsMetrics
    enableTransactionMetrics popPollingMapExpireTimeSeconds splitMetadataSize
    useSingleRocksDBForAllConfigs"""
    dated = [name for name, key in broker_keys().items() if key.since == (5, 3, 4)]
    assert sorted(dated) == sorted(added.split())


def test_every_key_of_every_release_passes_for_itself(tmp_path: Path) -> None:
    there = [
        name for name, key in broker_keys().items()
        if key.until is None and name not in UNUSED
    ]  # fmt: skip
    values = {"int": "1", "long": "1", "double": "0.5", "boolean": "false"}
    conf = {
        name: values[broker_keys()[name].kinds]
        for name in there
        if broker_keys()[name].kinds in values
    }
    text = "".join(f"{name}={value}\n" for name, value in conf.items())
    odd = [finding for finding in lint_text(text, folder=tmp_path) if finding.code != "key-ignored"]
    sizes = {"mappedFileSizeCommitLog", "mapperFileSizeBatchConsumeQueue", "maxMessageSize"}
    # cqstore's own least values: RocketMQ has none
    assert {names(finding)[0] for finding in odd} - sizes <= {
        name for name in StoreConfig.known_keys() if _refuses_one(name)
    }


def _refuses_one(name: str) -> bool:
    try:
        StoreConfig.from_mapping({name: "1"})
    except StoreConfigError:
        return True
    return False


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("rocksDBCQDoubleWriteEnable", "rocksdbCQDoubleWriteEnable"),
        ("storetype", "storeType"),
        ("mappedFilesSizeCommitLog", "mappedFileSizeCommitLog"),
        ("useSeperateStorePathForRocksdbCQ", "useSeparateStorePathForRocksdbCQ"),
        ("enableDLedgerCommitLog", "enableDLegerCommitLog"),
    ],
)
def test_misspelt_keys_are_told_with_what_is_meant(
    tmp_path: Path, written: str, meant: str
) -> None:
    (finding,) = lint_text(f"{written} = true", folder=tmp_path)
    assert (finding.code, finding.severity) == ("key-misspelt", Severity.WARN)
    assert finding.figures == {"meant": meant}
    assert (names(finding), finding.affected_total) == ([written], 1)


def test_keys_that_nothing_resembles_are_one_finding(tmp_path: Path) -> None:
    (finding,) = lint_text("myPlugin.colour = red\nzzz = 1\n", folder=tmp_path)
    assert (finding.code, finding.severity) == ("keys-unknown", Severity.INFO)
    assert names(finding) == ["myPlugin.colour", "zzz"]


@pytest.mark.parametrize(
    ("key", "version", "code"),
    [
        ("useSeparateStorePathForRocksdbCQ", "5.4.0", "key-too-new"),
        ("useSeparateStorePathForRocksdbCQ", "5.5", None),
        ("rocksdbCQSelectiveDoubleWriteEnable", "5.5.0", "key-too-new"),
        ("rocksdbCQSelectiveDoubleWriteEnable", "5.5.1", None),
        ("combineCQUseRocksdbForLmq", "5.4.0", "key-too-new"),
        ("useSingleRocksDBForAllConfigs", "5.3.3", "key-too-new"),
        ("useSingleRocksDBForAllConfigs", "5.3.4", None),
        ("enablePopMetrics", "5.3.4", None),
        ("useSeparateRetryQueue", "5.3.4", "key-too-new"),
        ("priorityOrderAsc", "5.4.0", None),
        ("transferOffsetJsonToRocksdb", "5.3.0", "key-too-new"),
        ("transferOffsetJsonToRocksdb", "5.3.1", None),
        ("transferOffsetJsonToRocksdb", "5.3.2", "key-removed"),
        ("memTableFlushInterval", "5.2.0", "key-removed"),
        ("useRocksDBStore", "5.3.0", "key-removed"),
        ("putMsgIndexHightWater", "5.5.1", "key-unused"),
        # Documents name it, and no release that was looked at has it: it is not misspelt.
        ("enableFastStartIfAllTopicsInRocksdb", "5.5.1", "keys-unknown"),
    ],
)
def test_keys_are_judged_by_release(
    tmp_path: Path, key: str, version: str, code: str | None
) -> None:
    value = "1" if key.startswith(("mem", "put")) else "true"
    found = lint_text(f"rocksdbCQDoubleWriteEnable=true\n{key}={value}", version, folder=tmp_path)
    ours = [finding for finding in found if key in names(finding)]
    # the rules of keys together have tests of their own
    ours = [finding for finding in ours if finding.code != "key-ignored"]
    assert codes(ours) == ([code] if code else [])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rocksdbCQDoubleWriteEnable=treu", "neither true nor false"),
        ("rocksdbCQDoubleWriteEnable=true \n", "a space follows"),
        ("fileReservedTime=48h", "is not a valid whole number"),
        ("fileReservedTime=48 \n", "a space follows"),
        ("fileReservedTime=3000000000", "does not fit in a 32-bit whole number"),
        ("fileReservedTime=" + "9" * 5000, "does not fit in a 32-bit whole number"),
        ("logicalDiskSpaceCleanForciblyThreshold=much", "is not a valid number"),
        ("storeType=rocksdb", "is not one of default, defaultRocksDB"),
        ("flushDiskType=sync_flush", "Did you mean SYNC_FLUSH?"),
        ("brokerRole=MASTER", "not one of ASYNC_MASTER"),
        ("rocksdbCompressionType=zst", "Did you mean zstd?"),
        ("configManagerVersion=v3", "not one of v1, v2"),
        ("deleteWhen=25", "deletes at no hour"),
        ("combineCQLoadingCQTypes=default;defaultRoksDB", "Did you mean defaultRocksDB?"),
        ("combineCQLoadingCQTypes=;", "does not start"),
        ("mappedFileSizeCommitLog=10", "RocketMQ accepts but cqstore does not (expected greater"),
    ],
)
def test_values_that_are_not_what_they_look_like(tmp_path: Path, line: str, says: str) -> None:
    found = lint_text(line, folder=tmp_path)
    (finding,) = [finding for finding in found if finding.code == "value-bad"]
    assert says in finding.sentence
    name, _, value = line.partition("=")
    assert (names(finding), finding.affected_total) == ([name], 1)
    given = finding.figures
    assert (given["value"], given.keys() - {"value", "allowed"}) == (value.strip("\n"), set())
    assert ("allowed" in given) == (name.endswith(("Type", "Role", "Version")))


@pytest.mark.parametrize(
    ("line", "found", "words"),
    [
        ("mapedFileSizeConsumeQueue=300000", 6_000_000, "6000000 bytes: remove the key."),
        ("mapedFileSizeConsumeQueue=300000", 300_000, "set mappedFileSizeConsumeQueue=300000."),
        ("mapedFileSizeCommitLog=1073741824", 1 << 30, "1073741824 bytes: remove the key."),
        (
            "mappedFileSizeConsumeQueue=300000",
            6_000_000,
            "a broker does not start with another size;",
        ),
        ("mappedFileSizeConsumeQueue=6000000", 6_000_000, None),
        ("mappedFileSizeConsumeQueue=5999981", 6_000_000, None),
        ("mappedFileSizeConsumeQueue=x", 6_000_000, "keeps its default, 6000000"),
        ("mappedFileSizeCommitLog=1048576", 2097152, "set mappedFileSizeCommitLog=2097152."),
    ],
)
def test_advice_about_a_size_is_that_of_the_files(
    tmp_path: Path, line: str, found: int, words: str | None
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(line)
    key = line.partition("=")[0].replace("maped", "mapped")
    conf, sizes = BrokerConf.read(path), {key: found}
    seen = list(lint(conf, parse_version("5.5.1"), "rocksdb", None, sizes))
    assert [words in finding.sentence for finding in seen if words] == ([True] if words else [])
    assert len(seen) == bool(words)
    for release in ("4.3.2", "4.5.1"):
        if "maped" in line:
            at_once = list(lint(conf, parse_version(release), "file", None, sizes))
            assert [each.code for each in at_once] == (
                [] if str(found) in line else ["conf-against-layout"]
            )


OF_4_9_8 = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
haSlaveFallbehindMax=268435456
commercialTransCount=1
fetchNamesrvAddrByAddressServer=true
rmqAddressServerDomain=addr.example.com:8080
rmqAddressServerSubGroup=nsaddr
"""


def test_keys_of_4_x_are_known_with_the_release_in_which_they_went(tmp_path: Path) -> None:
    for release in ("4.0.0", "4.9.8"):
        assert lint_text(OF_4_9_8, release, "file", folder=tmp_path) == []
    found = lint_text(OF_4_9_8, folder=tmp_path)
    assert {names(each)[0]: each.code for each in found} == {
        "haSlaveFallbehindMax": "key-removed", "commercialTransCount": "key-removed",
    }  # fmt: skip
    assert "use haMaxGapNotInSync" in found[0].sentence
    assert lint_text("autoDeleteTopicEnable=true", folder=tmp_path)[0].code == "keys-unknown"
    assert lint_text("brokerRole=SLAVE ", "5.1.4", folder=tmp_path)[0].code == "value-bad"
    assert lint_text("brokerRole=SLAVE ", "5.2.0", folder=tmp_path) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brokerRole=SLAVE\nbrokerRole=ASYNC_MASTER", "brokerRole is given twice: line 2 is used."),
        ("a sentence\n", "Line 1 has no '=': it is read as the key 'a'."),
    ],
)
def test_lines_that_do_nothing_are_findings(tmp_path: Path, text: str, words: str) -> None:
    found = lint_text(text, folder=tmp_path)
    assert words in [each.sentence for each in found]
    assert {each.code for each in found} <= {"key-twice", "no-separator", "keys-unknown"}


def test_double_write_is_ignored_with_a_rocksdb_store(tmp_path: Path) -> None:
    both = (
        "storeType=defaultrocksdb\nrocksdbCQDoubleWriteEnable=true\ncombineCQPreferCQType=default"
    )
    found = lint_text(both, folder=tmp_path)
    assert [(finding.code, names(finding)) for finding in found] == [
        ("key-ignored", ["rocksdbCQDoubleWriteEnable"]),
        ("key-ignored", ["combineCQPreferCQType"]),
    ]


def test_what_is_preferred_must_be_loaded(tmp_path: Path) -> None:
    text = f"{DOUBLE_WRITE}\ncombineCQLoadingCQTypes=default\ncombineCQPreferCQType=defaultRocksDB"
    (finding,) = lint_text(text, folder=tmp_path)
    assert (finding.code, names(finding)) == ("value-bad", ["combineCQPreferCQType"])
    assert lint_text(text.replace("Types=default", "Types=x;DEFAULTrocksdb"), folder=tmp_path)
    assert lint_text(text.replace("Types=default", "Types=defaultRocksDB; default"),
                     folder=tmp_path) == []  # fmt: skip


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        ([], None),
        (["combineAssignOffsetCQType=default", "combineCQPreferCQType=defaultRocksDB"], None),
        (["combineCQUseRocksdbForLmq=false"], ["combineCQUseRocksdbForLmq"]),
        (
            ["combineAssignOffsetCQType=DEFAULTrocksdb"],
            ["combineAssignOffsetCQType", "combineCQUseRocksdbForLmq"],
        ),
    ],
)
def test_double_write_with_which_a_broker_ends_at_its_start(
    tmp_path: Path, more: list[str], keys: list[str] | None
) -> None:
    """As 5.5.1 does: ``tests/interop/test_double_write_broker.py``."""
    found = lint_text("\n".join([DOUBLE_WRITE, *more]), folder=tmp_path)
    found = [each for each in found if each.code == "double-write-no-start"]
    assert [(each.code, names(each)) for each in found] == (
        [("double-write-no-start", keys)] if keys else []
    )


def test_a_selection_of_topics_is_read_and_assigned_by_files(tmp_path: Path) -> None:
    selective = "rocksdbCQSelectiveDoubleWriteEnable"
    text = f"rocksdbCQDoubleWriteEnable=true\n{selective}=true\n"
    for key in ("combineAssignOffsetCQType", "combineCQPreferCQType"):
        found = lint_text(f"{text}{key}=defaultRocksDB", folder=tmp_path)
        assert ("double-write-no-start", [key, selective]) in [
            (each.code, names(each)) for each in found
        ]


def test_releases_without_lite_topics_start_without_light_queues_in_rocksdb(
    tmp_path: Path,
) -> None:
    found = lint_text("rocksdbCQDoubleWriteEnable=true", "5.4.0", folder=tmp_path)
    assert "double-write-no-start" not in codes(found)


@pytest.mark.parametrize("version", ["5.2.0", "5.3.0", "5.3.1"])
def test_light_queues_need_532_on_rocksdb(tmp_path: Path, version: str) -> None:
    text = "storeType=defaultRocksDB\nenableLmq=true"
    (finding,) = lint_text(text, version, folder=tmp_path)
    assert (finding.code, finding.severity) == ("lmq-without-rocksdb", Severity.REFUSE)
    (away,) = lint_text(text, version, "file", folder=tmp_path)
    assert away.severity is Severity.WARN
    assert lint_text(text, "5.3.2", folder=tmp_path) == []
    assert lint_text("enableLmq=true", version, "file", folder=tmp_path) == []


def test_releases_without_queues_in_rocksdb_are_refused(golden_folder: Path) -> None:
    root = golden_folder / "basic-default"
    old = preflight(root, rocketmq_version="5.1.4", machine=FakeMachine())
    assert codes(old.refusals) == ["release-without-rocksdb"]
    assert preflight(root, rocketmq_version="5.2.0", machine=FakeMachine()).may_go_on


def test_what_excludes_each_other(tmp_path: Path) -> None:
    found = lint_text("writeWithoutMmap=true\ntransientStorePoolEnable=true", folder=tmp_path)
    assert codes(found) == ["keys-exclude"]


@pytest.mark.parametrize(
    ("text", "verdict", "key"),
    [
        ("storeType=defaultRocksDB", FolderKind.FILE, "storeType"),
        (DOUBLE_WRITE, FolderKind.FILE, "rocksdbCQDoubleWriteEnable"),
        ("brokerId=0", FolderKind.FILE, None),
        ("brokerId=0", FolderKind.ROCKSDB_INSIDE, "storeType"),
        ("storeType=defaultRocksDB", FolderKind.ROCKSDB_INSIDE, None),
        ("storeType=defaultRocksDB", FolderKind.ROCKSDB_BESIDE, "useSeparateStorePathForRocksdbCQ"),
        (
            "storeType=defaultRocksDB\nuseSeparateStorePathForRocksdbCQ=true",
            FolderKind.ROCKSDB_BESIDE,
            None,
        ),
        (
            f"{DOUBLE_WRITE}\nuseSeparateStorePathForRocksdbCQ=true",
            FolderKind.BOTH_INSIDE,
            "useSeparateStorePathForRocksdbCQ",
        ),
        (DOUBLE_WRITE, FolderKind.BOTH_INSIDE, None),
    ],
)
def test_what_contradicts_the_disk(
    tmp_path: Path, text: str, verdict: FolderKind, key: str | None
) -> None:
    found = lint_text(text, verdict=verdict, folder=tmp_path)
    assert [(finding.code, names(finding)) for finding in found] == (
        [("conf-against-layout", [key])] if key else []
    )


def test_settings_of_the_conf_open_the_store(golden_folder: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=4000\nfileReservedTime=x\n")
    report = preflight(golden_folder / "basic-default", broker_conf=conf, machine=FakeMachine())
    assert "cannot-be-opened" in codes(report.refusals)
    conf.write_text("mappedFileSizeConsumeQueue=2000 \nmappedFileSizeCommitLog=10\n")
    report = preflight(golden_folder / "basic-default", broker_conf=conf, machine=FakeMachine())
    assert report.queues == 20
    assert BrokerConf.read(conf).settings().model_fields_set == set()


@pytest.mark.parametrize("text", ["", "5", "five", "5.x", "5.5.1.1.1x y"])
def test_what_is_no_release_is_refused(golden_folder: Path, text: str) -> None:
    with pytest.raises(StoreConfigError, match=re.escape(repr(text))):
        preflight(golden_folder / "basic-default", rocketmq_version=text)


def test_a_conf_that_cannot_be_read_is_refused(golden_folder: Path, tmp_path: Path) -> None:
    root = golden_folder / "basic-default"
    with pytest.raises(StoreIOError, match="missing\\.conf"):
        preflight(root, broker_conf=tmp_path / "missing.conf")
    (tmp_path / "bad.conf").write_text("a=\\u12")
    with pytest.raises(StoreConfigError, match="bad\\.conf"):
        preflight(root, broker_conf=tmp_path / "bad.conf")
    with pytest.raises(StoreConfigError, match="'lmdb'"):
        preflight(root, to="lmdb")


def test_the_runbook_has_every_key_of_a_folder_below_the_root() -> None:
    """By the keys of RocketMQ's sources; the four of its old examples are none in any release."""
    text = (ROOT / "docs" / "migration.md").read_text()
    section = text.partition("## Folders in broker.conf")[2].partition("\n## ")[0]
    folders = {key for key in broker_keys() if re.search("[sS]tore(File)?[pP]ath|StorePaths", key)}
    folders -= {"useSeparateStorePathForRocksdbCQ"}  # a switch
    assert {"storePathRootDir", "storePathCommitLog"} < folders
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    in_rows = set(re.findall("`(\\w+)`", " ".join(row.split(" | ")[0] for row in rows)))
    assert folders | {"tieredStoreFilePath", "tieredStoreFilepath"} == in_rows
    ignored = {"storePathConsumeQueue", "storePathIndex", "storeCheckpoint", "abortFile"}
    assert not ignored & set(broker_keys())
    assert all(f"`{key}`" in section for key in ignored)
