"""The arguments of an opening: one way to name a backend, and options in groups."""

import inspect
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import cqstore
from cqstore.analysis.scan import scan
from cqstore.store.errors import StoreConfigError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, RecoveryOptions, StoreHooks
from cqstore.store.settings.broker_conf import read_broker_conf
from cqstore.store.settings.config import StoreConfig
from tests.kit.tree import unchanged

SIZE = 1 << 16
OTHER = {"file": "rocksdb", "rocksdb": "file"}
TYPE = {"file": "default", "rocksdb": "defaultRocksDB"}


def settings(**given: object) -> StoreConfig:
    return StoreConfig.from_mapping({"mappedFileSizeCommitLog": SIZE, **given})


@pytest.mark.parametrize("backend", OTHER)
def test_a_backend_that_contradicts_the_store_type_is_refused(tmp_path: Path, backend: str) -> None:
    config, other = settings(storeType=TYPE[backend]), OTHER[backend]
    words = f"backend='{other}' contradicts storeType='{TYPE[backend]}', .* in '{backend}'"
    root = tmp_path / "s"
    for open_it in (MessageStore.open, cqstore.open, scan_in):
        with pytest.raises(StoreConfigError, match=words):
            open_it(root, config, backend=other)
    assert not root.exists()
    MessageStore.open(root, config, backend=backend).close()
    with unchanged(root):
        for read_only in (True, False):
            with pytest.raises(StoreConfigError, match=words):
                MessageStore.open(root, config, backend=other, read_only=read_only)


def scan_in(root: Path, config: StoreConfig, *, backend: str) -> object:
    return scan(root, config=config, backend=backend)


@pytest.mark.parametrize("backend", OTHER)
def test_the_store_type_is_what_the_backend_defaults_to(tmp_path: Path, backend: str) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storeType={TYPE[backend]}\nmappedFileSizeCommitLog={SIZE}\n")
    config = read_broker_conf(conf)[0]
    with MessageStore.open(tmp_path / "s", config) as store:
        assert [each.name for each in components_of(store).queues.backends()] == [backend]
    with MessageStore.open(tmp_path / "given", settings(), backend=backend) as store:
        assert [each.name for each in components_of(store).queues.backends()] == [backend]


def test_settings_that_keep_both_backends_let_each_be_named(tmp_path: Path) -> None:
    config = settings(storeType="default", rocksdbCQDoubleWriteEnable="true")
    with MessageStore.open(tmp_path, config) as store:
        assert store.put_message(Message("t", b"x")).ok
    for backend in OTHER:
        with MessageStore.open(tmp_path, config, backend=backend, read_only=True) as store:
            assert components_of(store).queues.backends()[0].name == backend
            assert store.max_offset("t", 0) == 1


def test_an_unknown_backend_is_named_before_a_contradiction(tmp_path: Path) -> None:
    with pytest.raises(StoreConfigError, match="nonsense"):
        MessageStore.open(tmp_path, settings(storeType="default"), backend="nonsense")


def test_tools_read_the_backend_that_the_settings_do_not_name(tmp_path: Path) -> None:
    MessageStore.open(tmp_path, settings(), backend="rocksdb").close()
    options = OpenOptions(read_only=True, backend="rocksdb")
    with open_served(MessageStore, tmp_path, settings(storeType="default"), options) as store:
        assert components_of(store).queues.backends()[0].name == "rocksdb"


def test_the_options_of_an_opening_are_few_and_named() -> None:
    given = inspect.signature(MessageStore.open).parameters.values()
    assert [each.name for each in given if each.kind is not each.KEYWORD_ONLY] == ["root", "config"]
    assert len(given) <= 9
    named = inspect.signature(cqstore.open).parameters.values()
    assert [each.name for each in named if each.kind is not each.KEYWORD_ONLY] == ["root", "config"]


WRONG: list[tuple[type, dict[str, object], str]] = [
    (RecoveryOptions, {"rebuild": "queues"}, "rebuild is 'queues': expected a Rebuild"),
    (RecoveryOptions, {"pass_over": 5}, "pass_over is 5: expected a collection of phy offsets"),
    (RecoveryOptions, {"pass_over": "5"}, "pass_over is '5': expected a collection of phy offsets"),
    (RecoveryOptions, {"cut": 5}, "unexpected keyword argument 'cut'"),
    (StoreHooks, {"installed_hooks": False}, "unexpected keyword argument"),
]


@pytest.mark.parametrize(("kind", "given", "said"), WRONG)
def test_wrong_options_are_refused_where_they_are_made(
    kind: type, given: dict[str, object], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        kind(**given)


@pytest.mark.parametrize("kind", [RecoveryOptions, StoreHooks])
def test_options_are_frozen_and_have_names(kind: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        kind(5)
    with pytest.raises(FrozenInstanceError):
        setattr(kind(), fields(kind)[0].name, 5)


def test_a_folder_with_a_comma_in_its_name_is_one_folder(tmp_path: Path) -> None:
    root = tmp_path / "a,b"
    with MessageStore.open(root, settings()) as store:
        store.put_message(Message("t", b"x"))
    (root / "commitlog").rename(tmp_path / "log,there")
    config = settings(storePathCommitLog=str(tmp_path / "log,there"))
    with MessageStore.open(root, config, read_only=True) as store:
        assert [bytes(each.body) for each in store.get_message("t", 0, 0).messages()] == [b"x"]
