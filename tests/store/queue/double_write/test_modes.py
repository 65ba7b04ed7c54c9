"""The states of a store: what each keeps, the steps between them, and what speaks against them."""

import json
import os
import shutil
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore.store.errors import RefusedStoreError, StoreLockedError
from cqstore.store.journals.backend_state import BackendState
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.mode import (
    StoreMode,
    change_mode,
    possible_steps,
    set_mode,
    store_modes,
)
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.commands import cqstore
from tests.kit.crash_images import crash_image
from tests.kit.double_write import OTHER, StoredOffsets, backend_state, config, open_store, refuse
from tests.kit.golden import load_dump
from tests.kit.tree import tree_digest, unchanged
from tests.store.comparing.test_comparison import Database

Golden = Callable[[str], Path]
THERE_AND_BACK = [*store_modes(), *reversed(store_modes()[:-1])]
PLAIN = config(rocksdb_cq_double_write_enable=False)


def plain_store(root: Path, stored: StoredOffsets, backend: str = "file") -> Path:
    with MessageStore.open(root, PLAIN, backend=backend) as store:
        stored.put(store, 30)
    return root


def reasons(root: Path, to: StoreMode) -> str:
    before = tree_digest(root)
    (step,) = [step for step in possible_steps(root) if step.to == to]
    assert tree_digest(root) == before, "to look changes nothing"
    with pytest.raises(RefusedStoreError) as caught:
        change_mode(root, to)
    assert all(reason in str(caught.value) for reason in step.reasons)
    assert not step.is_possible
    return "; ".join(step.reasons)


@pytest.mark.parametrize("kept", ["file", "rocksdb"])
def test_a_backend_that_comes_in_lags_until_it_has_caught_up(tmp_path: Path, kept: str) -> None:
    """What a crash on the way would find."""
    root = plain_store(tmp_path / "store", StoredOffsets(), kept)
    calls, seen = CallOrder(root), list[BackendState]()
    calls.at_each = lambda _: seen.append(backend_state(root))
    both = {"file": StoreMode("double-write-file"), "rocksdb": StoreMode("double-write-rocksdb")}[
        kept
    ]
    with calls.watching():
        change_mode(root, both)
    (comes,) = {"file", "rocksdb"} - {kept}
    records = [record for record in seen if record.mode == both]
    assert records[0].lagging == {comes: 0}
    assert seen[-1] == backend_state(root)
    assert (seen[-1].mode, seen[-1].lagging) == (both, {})


def test_a_cut_before_the_line_of_a_backend_lowers_it(tmp_path: Path) -> None:
    root = plain_store(tmp_path / "store", StoredOffsets())
    change_mode(root, StoreMode("double-write-file"))
    with MessageStore.open(root, PLAIN) as store:
        places = [record.phy_offset for record in components_of(store).log.scan(0)]
    bad, line = places[10], places[20]
    set_mode(StorePaths(root), StoreMode("double-write-file"), {"rocksdb": line})
    log = next(path for path in (root / "commitlog").iterdir() if int(path.name) <= bad)
    data = bytearray(log.read_bytes())
    data[bad + 4] ^= 1  # the magic code
    log.write_bytes(data)
    calls, seen = CallOrder(root), list[BackendState]()
    calls.at_each = lambda _: seen.append(backend_state(root))
    with (
        calls.watching(),
        MessageStore.open(root, PLAIN, recovery=RecoveryOptions(cut_at=bad)) as store,
    ):
        assert store.verify().is_clean
    lines = [record.lagging.get("rocksdb") for record in seen]
    assert set(lines) == {line, bad, None}
    assert lines.index(bad) < lines.index(None)


def test_a_store_goes_all_the_way_and_back_with_puts_in_every_state(tmp_path: Path) -> None:
    stored = StoredOffsets()
    root = plain_store(tmp_path / "store", stored)
    for before, to in pairwise(THERE_AND_BACK):
        assert {step.to for step in possible_steps(root) if step.is_possible} == set(
            before.neighbours
        )
        done = change_mode(root, to)
        assert (done.before, done.after, done.detached) == (before, to, {})
        record = backend_state(root)
        assert record.mode == to
        left = {"file", "rocksdb"} - set(to.backends)
        assert set(record.lagging) == left
        with MessageStore.open(root, PLAIN) as store:
            assert [each.name for each in components_of(store).queues.backends()] == list(
                to.backends
            )
            stored.put(store, 15)
            if not left:
                assert store.verify().is_clean
                assert all(
                    components_of(store).queues.queue(*key).max_offset() == len(stored.phys[key])
                    for key in stored.phys
                )
        if not left:
            stored.check(root)


@pytest.mark.parametrize("left", ["file", "rocksdb"])
def test_a_backend_left_behind_is_not_served_nor_touched(tmp_path: Path, left: str) -> None:
    stored, root = StoredOffsets(), tmp_path / "store"
    kept = StoreMode(OTHER[left])
    with open_store(root, OTHER[left]) as store:
        stored.put(store, 30)
        end = store.max_phy_offset()
    for step in (StoreMode(f"double-write-{kept}"), kept):
        change_mode(root, step, config(OTHER[left]))
    with MessageStore.open(root, config(left)) as store:  # double write by the settings
        assert [each.name for each in components_of(store).queues.backends()] == [kept]
        stored.put(store, 30)
    assert backend_state(root).lagging == {left: end}
    for read_only in (True, False):
        with pytest.raises(RefusedStoreError, match=f"state is {kept}"):
            MessageStore.open(root, read_only=read_only, backend=left)
    done = change_mode(root, StoreMode(f"double-write-{kept}"))
    assert done.recovery is not None
    assert done.recovery.watermarks[left] == end
    assert done.recovery.dispatched_units == 30, "from the line on, not from the beginning"
    stored.check(root)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_a_line_counts_more_than_what_the_backend_says(tmp_path: Path, name: str) -> None:
    stored, root = StoredOffsets(), tmp_path / "store"
    with open_store(root, OTHER[name]) as store:
        stored.put(store, 40)
    line = sorted(phy for phys in stored.phys.values() for phy in phys)[25]
    set_mode(StorePaths(root), StoreMode(f"double-write-{OTHER[name]}"), {name: line})
    with MessageStore.open(root, PLAIN) as store:
        assert store.report.watermarks[name] == line
    assert backend_state(root).lagging == {}
    stored.check(root)


@pytest.mark.parametrize("left", ["file", "rocksdb"])
def test_a_log_that_is_cut_takes_it_from_the_backend_left_behind(tmp_path: Path, left: str) -> None:
    """What that has of the lost records must not pass for units of those put at their place."""
    stored, root = StoredOffsets(), tmp_path / "store"
    kept = StoreMode(OTHER[left])
    with open_store(root, OTHER[left]) as store:
        stored.put(store, 40)
    for step in (StoreMode(f"double-write-{kept}"), kept):
        change_mode(root, step, config(OTHER[left]))
    lost = sorted(phy for phys in stored.phys.values() for phy in phys)[20]
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[lost + 100] ^= 1
    path.write_bytes(data)
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    for phys in stored.phys.values():
        phys[:] = [phy for phy in phys if phy < lost]
    with MessageStore.open(root, PLAIN, recovery=RecoveryOptions(cut_at=lost)) as store:
        assert store.max_phy_offset() == lost
        for number in range(30):  # other queues, other sizes
            queue_id = 4 - number % 2
            result = store.put_message(Message("t", b"y" * number, queue_id))
            stored.phys[QueueKey("t", queue_id)].append(result.phy_offset)
    assert change_mode(root, StoreMode(f"double-write-{kept}")).detached == {}
    stored.check(root)
    with MessageStore.open(root, read_only=True) as store:
        assert store.verify().is_clean


# ---- what speaks against a step


def test_no_step_leads_further_than_a_neighbour(tmp_path: Path) -> None:
    root = plain_store(tmp_path / "store", StoredOffsets())
    with pytest.raises(
        RefusedStoreError, match="to rocksdb in one step: expected double-write-file"
    ):
        change_mode(root, StoreMode("rocksdb"))
    assert backend_state(root).mode is None


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_the_inner_states_are_passed_in_one_step_with_the_same_result(
    tmp_path: Path, name: str
) -> None:
    stored, root = StoredOffsets(), tmp_path / "store"
    with open_store(root, OTHER[name]) as store:
        stored.put(store, 20)
        end = store.max_phy_offset()
    set_mode(StorePaths(root), StoreMode(f"double-write-{OTHER[name]}"), {})
    slow = Path(shutil.copytree(root, tmp_path / "slow"))
    with pytest.raises(RefusedStoreError, match=" in one step: expected "):
        change_mode(root, StoreMode(name))
    done = change_mode(root, StoreMode(name), passing=True)
    assert (done.before, done.after) == (StoreMode(f"double-write-{OTHER[name]}"), name)
    assert done.lagging == backend_state(root).lagging == {OTHER[name]: end}
    for step in (StoreMode(f"double-write-{name}"), StoreMode(name)):
        change_mode(slow, step)
    assert backend_state(root) == backend_state(slow)
    with MessageStore.open(root, PLAIN) as store:
        assert [each.name for each in components_of(store).queues.backends()] == [name]
        stored.put(store, 5)


def test_a_step_waits_until_nobody_has_the_store_open(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, PLAIN) as store:
        StoredOffsets().put(store, 5)
        with pytest.raises(StoreLockedError):
            change_mode(root, StoreMode("double-write-file"))
        (step,) = possible_steps(root)
        assert "has the store open" in step.reasons[0]
    assert change_mode(root, StoreMode("double-write-file")).after == StoreMode("double-write-file")


def test_a_crashed_store_is_recovered_first(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", PLAIN) as store:
        StoredOffsets().put(store, 5)
        root = crash_image(store.root, tmp_path / "crashed")
    assert "needs recovery" in reasons(root, StoreMode("double-write-file"))


def test_batch_queues_and_a_reserved_topic_are_both_named(golden: Golden) -> None:
    root = golden("special-default")
    queues = root / "consumequeue"
    shutil.copytree(queues / "expired_1", queues / "CHECKPOINT_TOPIC")
    said = reasons(root, StoreMode("double-write-file"))
    assert "BatchCQ" in said
    assert "backend rocksdb cannot hold 1 topics: topic name 'CHECKPOINT_TOPIC'" in said


def test_topics_that_are_no_file_names_are_named(tmp_path: Path) -> None:
    config = PLAIN.model_copy(update={"enable_lmq": True})
    with MessageStore.open(tmp_path / "store", config, backend="rocksdb") as store:
        for number in range(7):  # light queues may have such names, on RocksDB alone
            names = {"INNER_MULTI_DISPATCH": f"%LMQ%a/b{number}"}
            assert store.put_message(Message("a", b"", 0, names)).ok
    said = reasons(tmp_path / "store", StoreMode("double-write-rocksdb"))
    assert "backend file cannot hold 7 topics" in said
    assert "'%LMQ%a/b0'" in said
    assert said.endswith("and 2 more")


def test_as_many_topics_as_are_named_leave_no_more(tmp_path: Path) -> None:
    config = PLAIN.model_copy(update={"enable_lmq": True})
    with MessageStore.open(tmp_path / "store", config, backend="rocksdb") as store:
        for number in range(5):
            names = {"INNER_MULTI_DISPATCH": f"%LMQ%a/b{number}"}
            assert store.put_message(Message("a", b"", 0, names)).ok
    said = reasons(tmp_path / "store", StoreMode("double-write-rocksdb"))
    assert "'%LMQ%a/b4'" in said
    assert "more" not in said


@pytest.mark.parametrize("journal", ["replacing", "rebuilding"])
def test_a_rebuild_is_finished_first(tmp_path: Path, journal: str) -> None:
    root = plain_store(tmp_path / "store", StoredOffsets())
    (root / "cqstore" / journal).touch()
    assert "a rebuild of queues is not finished" in reasons(root, StoreMode("double-write-file"))


def test_without_a_log_there_is_nothing_to_catch_up_from(tmp_path: Path) -> None:
    root = plain_store(tmp_path / "store", StoredOffsets())
    shutil.rmtree(root / "commitlog")
    said = reasons(root, StoreMode("double-write-file"))
    assert "the store has no commit log" in said
    assert "cannot read the store: found queues but no commit log" in said


def test_an_empty_folder_of_batch_queues_speaks_against_nothing(tmp_path: Path) -> None:
    root = plain_store(tmp_path / "store", StoredOffsets())
    (root / "batchconsumequeue").mkdir()
    assert all(step.is_possible for step in possible_steps(root))
    assert change_mode(root, StoreMode("double-write-file")).detached == {}


def test_no_old_file_goes_while_a_backend_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.store.service.dispatching.replay.REPLAY_UNITS", 4)
    monkeypatch.setattr("cqstore.store.service.dispatching.replay.MAX_REPLAY_UNITS", 4)
    started, start = list[str](), threading.Thread.start

    def note(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", note)
    ticks: list[int] = []
    change_mode(
        plain_store(tmp_path / "store", StoredOffsets()),
        StoreMode("double-write-file"),
        progress=ticks.append,
    )
    assert ticks == sorted(ticks) != []
    assert started.count("cqstore-expiry") == 1, "the store's of before"


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_a_backend_that_lags_is_neither_read_nor_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root, stored, read = tmp_path / "store", StoredOffsets(), OTHER[name]
    with open_store(root, read) as store, monkeypatch.context() as patched:
        stored.put(store, 10)
        refuse(patched, name, "put_batch")
        stored.put(store, 10)
    set_mode(StorePaths(root), StoreMode(f"double-write-{read}"), backend_state(root).lagging)
    assert f"{name} queues lag" in reasons(root, StoreMode(f"double-write-{name}"))
    with pytest.raises(RefusedStoreError, match="lag"):
        MessageStore.open(root, read_only=True, backend=name)
    (step,) = [step for step in possible_steps(root) if step.to == read]
    assert step.is_possible, "the one that is whole may be left alone"
    open_store(root, read).close()
    assert all(step.is_possible for step in possible_steps(root))
    stored.check(root)


def test_differences_keep_the_incomplete_one_from_being_read(golden: Golden) -> None:
    root = golden("basic-combine")
    topic = load_dump("basic-combine")["queues"][0]["topic"]
    with Database(root) as database:
        database.lose(0, 3, 4, topic=topic.encode())
    assert "2 units of the rocksdb queues are missing or different" in reasons(
        root, StoreMode("double-write-rocksdb")
    )
    done = cqstore("mode", root, "--verify", "--output", "jsonl", code=1)
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (row["topic"], row["from"], row["to"], row["lacking"]) == (topic, 3, 4, "rocksdb")
    with pytest.raises(
        RefusedStoreError, match="2 units of the rocksdb queues are missing or different"
    ):
        change_mode(root, StoreMode("rocksdb"), passing=True)
    assert change_mode(root, StoreMode("file")).lagging
    with MessageStore.open(root) as store:
        assert components_of(store).queues.name == "file"


# ---- the command


def shown(root: Path, verb: str) -> dict[str, object]:
    with unchanged(root):
        record = json.loads(cqstore(verb, root, "--output", "json").stdout)
    found: dict[str, object] = record[0] if isinstance(record, list) else record
    return found


def settle(root: Path) -> None:
    """Let the tables be old: a step waits where a broker may just have written them."""
    for path in (root / "config").rglob("*"):
        os.utime(path, (1, 1))


@pytest.mark.parametrize(
    "name", ["basic-combine", pytest.param("wide-combine", marks=pytest.mark.long)]
)
def test_the_command_shows_and_steps(golden: Golden, name: str) -> None:
    root = golden(name)
    settle(root)
    facts = shown(root, "mode")
    assert facts["state"] == "double-write-file"
    assert facts["step to file"] == facts["step to double-write-rocksdb"] == "possible"
    cqstore("mode", root, "--to", "rocksdb", code=2)
    cqstore("mode", root, "--to", "nonsense", code=2)
    cqstore("mode", root, "--to", "double-write-rocksdb")
    settle(root)
    cqstore("mode", root, "--to", "rocksdb")
    facts = shown(root, "mode")
    assert (facts["state"], facts["set"]) == ("rocksdb", "by cqstore mode")
    assert facts["kept, the one that is read first"] == "rocksdb"
    assert "file queues are left behind: complete up to phy offset" in str(
        shown(root, "info")["warnings"]
    )
    cqstore("check", root)
    cqstore("mode", root, "--verify", code=2)


def test_settings_decide_where_no_state_was_set(tmp_path: Path) -> None:
    stored = StoredOffsets()
    root = plain_store(tmp_path / "store", stored)
    with MessageStore.open(root, PLAIN) as store:
        assert components_of(store).queues.name == "file"
    with open_store(root, "rocksdb") as store:
        assert [each.name for each in components_of(store).queues.backends()] == ["rocksdb", "file"]
        stored.put(store, 10)
    with MessageStore.open(root, StoreConfig()) as store:  # both lie here: both are kept
        assert [each.name for each in components_of(store).queues.backends()] == ["file", "rocksdb"]
    with pytest.raises(RefusedStoreError, match="does not load the rocksdb queues"):
        open_store(root, "file", combineCQLoadingCQTypes="default")
    stored.check(root)
