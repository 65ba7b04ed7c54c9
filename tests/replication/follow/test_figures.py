"""How far a follower is, as another process sees it; and what that reads meanwhile."""

import asyncio
import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cqstore.cli.commands.top import facts
from cqstore.metrics.prometheus import register
from cqstore.replication.commands import running_follower
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.follower_progress import FollowerProgress
from cqstore.store import path_kind
from cqstore.store.errors import CorruptionError
from cqstore.store.journals import note
from cqstore.store.journals.following import Following, read_following, write_following
from cqstore.store.paths import StorePaths
from cqstore.store.service.layout.store_layout import detect
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.metrics.watch import StoreWatch
from cqstore.store.service.opening.components import components_of
from tests.kit import commands
from tests.kit.waiting import becomes, until
from tests.kit.wire_broker import WireBroker, topic
from tests.kit.wire_master import WireMaster
from tests.kit.wire_server import serving
from tests.replication.conftest import CONFIG, Led
from tests.replication.follow.test_follower import FAST
from tests.replication.test_follow_command import FAINT, running

NOTE = Following(
    pid=os.getpid(), time=1000.0, master="a:1", connected=True, verified=True, caught_up=False,
    end=500, reported=400, master_end=900, lag_bytes=400, last_stored_ms=990_000, connections=2,
    body_bytes=700, metadata_time=995.0, metadata_fault="",
)  # fmt: skip


def cqstore(*words: object) -> list[dict[str, object]]:
    """Run the command in a process of its own; return the rows that it prints."""
    done = commands.cqstore(*words, "--output", "jsonl")
    return [json.loads(line) for line in done.stdout.splitlines()]


def follower_facts(root: Path) -> dict[object, object]:
    return {row["fact"]: row["value"] for row in cqstore("top", root) if row["part"] == "follower"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["file", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_top_shows_a_follower_and_its_store_is_read_meanwhile(
    led: Led,
    tmp_path: Path,
    conf: Path,
    backend: str,
) -> None:
    root = tmp_path / "own"
    conf.write_text(conf.read_text() + "flushConsumeQueueThoroughInterval=300\n")
    broker = WireBroker()
    broker.topics["t"], broker.log_end = topic("t"), len(led.log) + 77

    def noted() -> Following | None:
        return read_following(StorePaths(root))

    half = led.starts[70]
    with serving(WireMaster(led.log[:half], heartbeat=FAINT)) as master, serving(broker):
        more = ("--backend", backend, "--broker", f"127.0.0.1:{broker.port}")
        with running(master, root, conf, *more) as process:
            until(lambda: (now := noted()) is not None and is_whole(now))
            shown = follower_facts(root)
            assert shown["master"] == f"127.0.0.1:{master.port}"
            assert shown["state"] == "caught up"
            assert shown["phy offset"] == shown["reported to the master"] == half
            assert shown["master's max phy offset"] == len(led.log) + 77
            assert (shown["lag, bytes"], shown["lag, s"]) == (0, 0)
            assert shown["metadata"] == "whole"
            read(root, led, half)
            until(lambda: has_key(root, 68))  # keys are written when the queues are flushed
            (hit,) = cqstore("query", root, "--topic", "t", "--key", "k68")
            assert led.starts[68] in hit.values()
            master.loop.call_soon_threadsafe(master.append, led.log[half:])
            until(lambda: (now := noted()) is not None and now.end == len(led.log))
            read(root, led, len(led.log))
            process.terminate()
            process.communicate(timeout=60)
        shown = follower_facts(root)
        assert f"process {process.pid} does not exist here" in str(shown["state"])


def is_whole(now: Following) -> bool:
    """Return whether the log and all tables have come, and where the master's log ends."""
    return now.caught_up and now.metadata_time > 0 and now.master_end >= 0


def has_key(root: Path, number: int) -> bool:
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        return len(store.query_message("t", f"k{number}")) == 1


def read(root: Path, led: Led, end: int) -> None:
    """Read what another process follows, up to ``end``, in the ways that there are."""
    number = max(at for at, start in enumerate(led.starts) if start < end and at % 3)
    queue_id, queue_offset = number % 2, number // 2

    def is_handed_on() -> bool:
        with MessageStore.open(root, CONFIG, read_only=True) as store:
            return store.max_offset("t", queue_id) > queue_offset

    until(is_handed_on)
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        assert store.max_phy_offset() == end
        (found,) = store.get_message("t", queue_id, queue_offset, 1).messages()
        assert found.body == b"x" * number * 5
    place = ("--topic", "t", "--queue-id", queue_id, "--offset", queue_offset, "--count", 1)
    (got,) = cqstore("get", root, *place)
    assert got["body"] == "x" * number * 5
    (unit,) = cqstore("dump", root, *place)
    assert led.starts[number] in unit.values()


def test_rates_are_between_two_looks(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        watch = StoreWatch(detect(tmp_path, CONFIG))
        assert watch.sample().following is None
        write_following(components_of(store).paths, NOTE)
        first = dataclasses.replace(watch.sample(), time=1002.0, seconds=1.0)
        moved = dataclasses.replace(NOTE, end=800, body_bytes=1100, metadata_fault="no right")
        write_following(components_of(store).paths, moved)
        second = dataclasses.replace(watch.sample(), time=1004.0, seconds=3.0)
    rows = {row["fact"]: row for row in facts(second, first) if row["part"] == "follower"}
    assert {fact: row["value"] for fact, row in rows.items()} == {
        "master": "a:1", "state": "verified", "noted, s ago": 4.0, "phy offset": 800,
        "reported to the master": 400, "master's max phy offset": 900,
        "lag, bytes": 400, "lag, s": 14.0, "connections": 2,
        "received, bytes": 1100, "metadata whole, s ago": 9.0, "metadata": "no right",
    }  # fmt: skip
    assert (rows["phy offset"]["perSecond"], rows["received, bytes"]["perSecond"]) == (150, 200)


@pytest.mark.parametrize(
    ("changes", "fact", "value"),
    [
        ({"connected": False}, "state", "not connected"),
        ({"verified": False}, "state", "asked"),
        ({"master_end": -1, "lag_bytes": None}, "master's max phy offset", None),
        ({"master_end": -1, "lag_bytes": None}, "lag, bytes", None),
        ({"reported": -1}, "reported to the master", None),
        ({"last_stored_ms": 0}, "lag, s", None),
        ({"metadata_time": 0.0, "metadata_fault": "x"}, "metadata whole, s ago", None),
    ],
)
def test_what_is_not_known_is_not_said(
    tmp_path: Path, changes: dict[str, Any], fact: str, value: object
) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        write_following(components_of(store).paths, dataclasses.replace(NOTE, **changes))
        look = StoreWatch(detect(tmp_path, CONFIG)).sample()
    rows = {row["fact"]: row["value"] for row in facts(look) if row["part"] == "follower"}
    assert rows[fact] == value


@pytest.mark.parametrize("text", ["", "x", "{}", "00000000 {}\n"])
def test_a_damaged_note_is_named(tmp_path: Path, text: str) -> None:
    paths = StorePaths(tmp_path)
    assert read_following(paths) is None
    write_following(paths, NOTE)
    assert read_following(paths) == NOTE
    paths.following.write_text(text)
    with pytest.raises(CorruptionError) as caught:
        read_following(paths)
    assert caught.value.path == paths.following


def test_the_first_note_may_come_while_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, exists = StorePaths(tmp_path), path_kind.exists

    def and_then_it_comes(path: Path) -> bool:
        was = exists(path)
        monkeypatch.undo()
        write_following(paths, NOTE)
        return was

    monkeypatch.setattr(note, "exists", and_then_it_comes)
    assert read_following(paths) is None
    assert read_following(paths) == NOTE


def test_a_note_of_other_kinds_of_values_is_damaged(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    odd: list[dict[str, Any]] = [
        {"end": "5"}, {"connected": 1}, {"lag_bytes": 1.5}, {"end": True}, {"time": 5},
    ]  # fmt: skip
    for changes in odd:
        write_following(paths, dataclasses.replace(NOTE, **changes))
        with pytest.raises(CorruptionError):
            read_following(paths)


async def test_prometheus_has_the_figures_of_a_follower(led: Led, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "own", CONFIG, housekeeping=False) as store:
        async with WireMaster(led.log) as master:
            follower = Follower(store, "127.0.0.1", master.port, timing=FAST)
            registry = CollectorRegistry()
            register(store, followers=[follower], registry=registry)
            before = samples(registry, store)
            assert before["connected"] == before["phy_offset_bytes"] == 0
            assert not before.keys() & {
                "reported_phy_offset_bytes", "lag_bytes", "last_stored_seconds",
                "metadata_seconds",
            }  # fmt: skip
            task = asyncio.create_task(follower.run())
            await becomes(lambda: follower.progress.caught_up)
            follower.progress.metadata_time = 5.0
            begin = len(led.log) - len(led.log) % 4096
            stored = components_of(store).log.followed_timestamp
            assert samples(registry, store) == {
                "connected": 1, "verified": 1, "caught_up": 1,
                "phy_offset_bytes": len(led.log), "reported_phy_offset_bytes": len(led.log),
                "lag_bytes": 0, "last_stored_seconds": stored / 1000, "metadata_seconds": 5.0,
                "connections_total": 1, "body_bytes_total": len(led.log) - begin,
            }  # fmt: skip
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def samples(registry: CollectorRegistry, store: MessageStore) -> dict[str, float]:
    lines = [line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"]
    label = f'{{store="{store.root}"}} '
    found = (line.split(label) for line in lines if line.startswith("cqstore_follow_"))
    return {name.removeprefix("cqstore_follow_"): float(value) for name, value in found}


class Requesting:
    """A follower and its store, as far as those ask who tell of them; every look counts."""

    def __init__(self, root: Path) -> None:
        self.looks = 0
        self.progress = FollowerProgress(end=5, connected=True)
        self.paths = StorePaths(root)
        self._components = SimpleNamespace(log=self, paths=self.paths)

    @property
    def followed_timestamp(self) -> int:
        self.looks += 1
        return 0

    def figures(self) -> Following:
        self.looks += 1
        return NOTE


async def test_how_far_it_is_is_said_where_that_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, said = Requesting(tmp_path), list[str]()
    monkeypatch.setattr(running_follower, "note", said.append)
    task = asyncio.create_task(running_follower._report_progress(requested, requested, 0.001))  # type: ignore[arg-type]
    await becomes(lambda: requested.looks > 3)
    requested.progress.end = 9
    await becomes(lambda: said[-1] == "replicated up to 9")
    looks = requested.looks
    await becomes(lambda: requested.looks > looks + 3)
    task.cancel()
    assert said == ["replicated up to 5", "replicated up to 9"]


async def test_a_note_that_cannot_be_written_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, said = Requesting(tmp_path), list[str]()
    monkeypatch.setattr(running_follower, "note", said.append)
    monkeypatch.setattr(running_follower, "_NOTE_SECONDS", 0.001)
    requested.paths.following.mkdir(parents=True)  # in its way
    task = asyncio.create_task(running_follower._note(requested, requested))  # type: ignore[arg-type]
    await becomes(lambda: requested.looks > 3)
    task.cancel()
    (one,) = said
    assert one.startswith("cannot record the progress for cqstore top: cannot ")
    assert str(requested.paths.following) in one
