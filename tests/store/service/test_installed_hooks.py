"""Hooks of programs and of installed packages, as a store is opened."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

import cqstore
from cqstore import (
    MessageStore,
    StoreConfigError,
)
from cqstore.ab.stores.side_store import SideStore
from cqstore.cli.message_files.export_store import new_store
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.installed_hooks import DISPATCHERS, PUT_HOOKS
from cqstore.store.service.opening.options import StoreHooks
from cqstore.store.service.writing.putter import Putter
from tests.kit.hooks import CONFIG, ILLEGAL, Hook, Taker, bodies_of, opened, put, refuse


@pytest.mark.parametrize(
    "options",
    [{"put_hooks": [object()]}, {"dispatchers": [object()]}, {"put_hooks": [Hook(name=5)]}],  # type: ignore[arg-type]
)
def test_what_is_no_hook_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(
        StoreConfigError, match=r"invalid (put hook|dispatcher) <.*>: it (lacks|has no) "
    ):
        opened(tmp_path / "s", hooks=StoreHooks(**options))
    assert not (tmp_path / "s").exists()


def test_a_store_that_is_opened_to_read_calls_none(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"a")
    for hooks in (StoreHooks(put_hooks=[Hook()]), StoreHooks(dispatchers=[Taker()])):
        with pytest.raises(StoreConfigError, match="opened read-only"):
            MessageStore.open(tmp_path, read_only=True, hooks=hooks)


class Installed:
    """What the entry points of ``install`` make, by name."""

    made: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def make(name: str, root: Path) -> Any:
        if name.startswith("broken"):
            raise LookupError(name)
        Installed.made[name] = (Hook if name.startswith("hook") else Taker)()
        Installed.made[name].hook_name = name
        return None if root.name == "without" else Installed.made[name]


def hook_a(root: Path) -> Any:
    return Installed.make("hook_a", root)


def hook_b(root: Path) -> Any:
    return Installed.make("hook_b", root)


def taker(root: Path) -> Any:
    return Installed.make("taker", root)


def broken(root: Path) -> Any:
    return Installed.make("broken", root)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, hooks: list[str]) -> None:
    """Make the entry points known to this process, hooks in an order that is not theirs."""
    info = folder / "cqstore_hooks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cqstore-hooks\nVersion: 1.0\n")
    lines = [f"[{PUT_HOOKS}]", *(f"{name} = {__name__}:{name}" for name in hooks)]
    lines += [f"[{DISPATCHERS}]", f"taker = {__name__}:taker", ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(Installed, "made", {})


def test_hooks_of_installed_packages_come_first_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, ["hook_b", "hook_a"])
    order: list[str] = []
    own, own_taker = Hook(lambda _: order.append("own"), "own"), Taker()
    with opened(
        tmp_path / "s", hooks=StoreHooks(put_hooks=[own], dispatchers=[own_taker])
    ) as store:
        for name in ("hook_a", "hook_b"):
            Installed.made[name]._step = lambda _, name=name: order.append(name)
        put(store, b"x")
        assert store.max_offset("t", 0) == 1
        assert order == ["hook_a", "hook_b", "own"]
        assert Installed.made["taker"].bodies == own_taker.bodies == [b"x"]
    for root, installed in (("without", True), ("off", False)):
        with opened(tmp_path / root, hooks=StoreHooks(installed=installed)) as store:
            assert isinstance(store._putter, Putter)
            assert components_of(store).dispatcher.dispatchers is None


def test_a_hook_that_cannot_be_made_refuses_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, ["broken"])
    with pytest.raises(StoreConfigError, match=r"'broken' of cqstore\.put_hooks .*LookupError"):
        opened(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    with opened(tmp_path / "s", hooks=StoreHooks(installed=False)) as store:
        put(store, b"x")
    with MessageStore.open(tmp_path / "s", read_only=True) as store:
        assert bodies_of(store) == [b"x"]


def test_copies_that_serve_nobody_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, ["broken"])
    with opened(tmp_path / "s", hooks=StoreHooks(installed=False)) as store:
        put(store, b"x")
    with (
        MessageStore.open(tmp_path / "s", read_only=True) as source,
        new_store(tmp_path / "export", source) as made,
    ):
        put(made, b"y")
    with SideStore(tmp_path / "side", "file", CONFIG).open_at(tmp_path / "trial") as trial:
        put(trial, b"z")


def test_an_embedded_log_has_them(tmp_path: Path) -> None:
    hook, taker = Hook(lambda message: refuse(message, b"no")), Taker()
    with cqstore.open(
        tmp_path, config=CONFIG, hooks=StoreHooks(put_hooks=[hook], dispatchers=[taker])
    ) as log:
        log.put("t", b"yes")
        with pytest.raises(cqstore.PutRefusedError, match="not that one") as met:
            log.put("t", b"no")
        assert met.value.status is ILLEGAL
    assert taker.bodies == [b"yes"]
