"""Keys of a broker.conf that cqstore does not use: none is passed over in silence that matters."""

import json
import logging
from pathlib import Path

import pytest
from pydantic.alias_generators import to_camel

from cqstore.replication.ha_settings import HaSettings
from cqstore.store.settings import ignored_keys as module
from cqstore.store.settings.broker_conf import read_broker_conf
from cqstore.store.settings.broker_keys import UNUSED, broker_keys
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.ignored_keys import IgnoredKey, by_reason, ignored_keys
from tests.store.settings.test_broker_conf import conf_of

TABLE = json.loads(Path(module.__file__).with_suffix(".json").read_text(encoding="utf-8"))
NEWEST = {name for name, key in broker_keys().items() if key.until is None and not key.is_own}
"""RocketMQ's own setters: ``tools/broker_keys.py`` reads them from its class files."""
NAMED = {name: key for name, key in ignored_keys().items() if key.is_named}
OF_ROCKSDB = [
    name
    for name in sorted(NEWEST)
    if "rocksdb" in name.lower() or "compression" in name.lower() or name.startswith("memTable")
]


def other(name: str, key: IgnoredKey) -> str:
    """Return a text for a key that is not its default."""
    if isinstance(key.default, bool):
        return str(not key.default).lower()
    kind = broker_keys()[name].kinds
    return "plug.in.Class" if kind == "text" else str(int(key.default or 0) - 1)


def test_each_key_of_the_newest_release_is_obeyed_or_has_a_reason() -> None:
    obeyed = StoreConfig.known_keys().keys() & NEWEST
    assert obeyed | ignored_keys().keys() == NEWEST
    assert not obeyed & ignored_keys().keys()
    assert all(key.reason for key in ignored_keys().values())


def test_no_key_is_in_two_classes() -> None:
    listed = [name for kind in TABLE.values() for each in kind.values() for name in each["keys"]]
    assert len(listed) == len({*listed}) == len(ignored_keys().keys() - UNUSED)


@pytest.mark.parametrize("name", OF_ROCKSDB)
def test_each_key_about_rocksdb_is_obeyed_or_named(name: str) -> None:
    assert (name in StoreConfig.known_keys()) != (name in NAMED)


def test_the_keys_of_replication_are_those_that_follow_and_feed_read() -> None:
    assert {*TABLE["broker"]["replication"]["keys"]} == {*map(to_camel, HaSettings.model_fields)}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_key_is_named_unless_it_has_rocketmqs_default(tmp_path: Path, name: str) -> None:
    key = NAMED[name]
    default = str(key.default).lower() if isinstance(key.default, bool) else key.default
    if default is not None:
        assert list(conf_of(tmp_path, f"{name}={default}\n").notes()) == []
    (note,) = conf_of(tmp_path, f"{name}={other(name, key)}\n").notes()
    assert note.sentence == f"cqstore does not use {name}: {key.reason}"
    assert not note.keeps_out_puts


def test_keys_with_one_reason_are_in_one_line_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "timerMaxDelaySec=1\nindexRocksDBEnable=true\nhaListenPort=1\ntimerRocksDBEnable=true\n"
    sentences = [note.sentence for note in conf_of(tmp_path, text).notes()]
    assert [each.partition(":")[0] for each in sentences] == [
        "cqstore does not use timerMaxDelaySec, timerRocksDBEnable",
        "cqstore does not use indexRocksDBEnable",
    ]


def test_a_value_that_a_broker_does_not_take_is_named_once(tmp_path: Path) -> None:
    (note,) = conf_of(tmp_path, "maxRocksDBIndexQueryDays=3 \n").notes()
    assert "RocketMQ keeps its default" in note.sentence


def test_a_program_gets_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = conf_of(tmp_path, "rocksdbFlushWalFrequency=1\nrocksdbFlushWalFrequency=2\n").path
    with caplog.at_level(logging.WARNING, "cqstore"):
        read_broker_conf(path)
    (record,) = caplog.records
    sentence = (
        f"cqstore does not use rocksdbFlushWalFrequency: {NAMED['memTableFlushIntervalMs'].reason}"
    )
    assert record.getMessage() == f"{path}: {sentence}"


def test_unknown_and_removed_keys_have_a_reason_too() -> None:
    found = by_reason(["myPlugin", "rocksdbCQWriteEnable", "filterServerNums", "brokerId"])
    assert found == {
        "not a key of RocketMQ": ["myPlugin", "rocksdbCQWriteEnable"],
        "removed in RocketMQ 5.1.1": ["filterServerNums"],
        ignored_keys()["brokerId"].reason: ["brokerId"],
    }
