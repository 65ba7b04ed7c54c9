"""Locks that a signal's handler, or the child of a fork, may find taken."""

import importlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.concurrency.checked_lock import CheckedLock, process_lock
from cqstore.store.errors import NestedCallError
from cqstore.store.journals.journal_manifest import KEPT_LOCK, register
from cqstore.store.paths import StorePaths
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadFallbacks, ReadKind
from tests.kit.forks import forked
from tests.kit.interrupts import run_interrupted
from tests.kit.mutations import in_time
from tests.kit.product_tree import ROOT, module_name, product_files

SECONDS = 20


def test_a_read_in_the_middle_of_the_count_of_a_read_waits_for_nothing() -> None:
    """A signal's handler reads: it would wait for its own thread."""
    fallbacks = ReadFallbacks()

    def add() -> None:
        fallbacks.add(ReadKind.PULL, FallbackReason.DECLINED)

    with in_time(SECONDS):
        for step in (add, fallbacks.counts):
            places = run_interrupted(step)
            assert places > 1
            for number in range(1, places + 1):
                run_interrupted(step, number, add)
                run_interrupted(step, number, fallbacks.counts)
    assert sum(fallbacks.counts().values()) > 2


def in_child_beside(lock: CheckedLock, step: Callable[[], object]) -> int:
    """Fork while another thread holds ``lock``; return how the child ends that does ``step``."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.entry():
            held.set()
            assert go_on.wait(SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(SECONDS)

    def do() -> None:
        with in_time(SECONDS):
            step()

    code = forked(do)
    go_on.set()
    holder.join(SECONDS)
    return code


def test_a_child_writes_journals_that_was_forked_while_another_thread_did(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    journal = paths.deleted_topics
    journal.parent.mkdir(parents=True)
    journal.write_text("")
    assert in_child_beside(KEPT_LOCK, lambda: register(journal)) == 0
    assert journal.name in (journal.parent / "kept").read_text()


def test_a_lock_of_the_process_stays_taken_in_a_child_of_the_thread_that_holds_it() -> None:
    lock = process_lock("a test")
    with lock.entry():

        def enter() -> None:
            with pytest.raises(NestedCallError):
                lock.entry()

        assert forked(enter) == 0
    with lock.entry():
        assert lock.is_mine()


def test_each_lock_of_a_module_is_free_in_a_child() -> None:
    """Else a child waits for a thread that did not come along."""
    locks: dict[str, CheckedLock] = {}
    for path in product_files(".py"):
        text = (ROOT / path).read_text()
        if "Lock(" not in text and "process_lock(" not in text:
            continue
        name = module_name(path)
        module = importlib.import_module(name)
        holders = [module, *(each for each in vars(module).values() if isinstance(each, type))]
        for holder in holders:
            for key, value in vars(holder).items():
                if isinstance(value, CheckedLock):
                    locks[f"{name}.{key}"] = value
    assert len(set(locks.values())) >= 3
    for name, lock in locks.items():
        assert in_child_beside(lock, lock.entry().__enter__) == 0, name
