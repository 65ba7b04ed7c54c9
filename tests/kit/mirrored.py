"""Stores with double write that mirror every read, and what became of the reads."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from store.service.message_store import MessageStore
from store.service.mirroring import mirror as mirror_module
from store.service.mirroring.figures import FiguresSnapshot
from store.service.mirroring.mirror import Mirror
from store.service.mirroring.verdict import Outcome
from tests.kit.double_write import open_store

LIMIT_SECONDS = 60


def open_mirrored(root: Path, read: str = "file", **changes: object) -> MessageStore:
    """Open a store with double write that mirrors every read, unless ``changes`` say otherwise."""
    store = open_store(root, read, **{"ab_share": 1.0, **changes})
    until(lambda: mirror_of(store)._goes_on or bool(mirror_of(store)._failure))
    return store


def by_hand(patched: pytest.MonkeyPatch) -> None:
    """Let mirrors that are made from now on look at nothing by themselves, see ``drive``."""
    patched.setattr(mirror_module, "LOOK_SECONDS", 3600)


def mirror_of(store: MessageStore) -> Mirror:
    assert store._mirror is not None
    return store._mirror


def drive(store: MessageStore) -> int:
    """Mirror all that waits, in this thread; return how many reads that were."""
    mirror, done = mirror_of(store), 0
    while (read := mirror._waiting.take()) is not None:
        mirror._mirror(read)
        done += 1
    return done


def figures(store: MessageStore) -> FiguresSnapshot:
    snapshot = store.metrics.snapshot().mirror
    assert snapshot is not None
    return snapshot.figures


def outcomes(store: MessageStore) -> dict[Outcome, int]:
    """How many reads had each outcome, without zeros."""
    found = figures(store)
    return {outcome: n for outcome in Outcome if (n := found.count(outcome))}


def until(condition: Callable[[], bool]) -> None:
    """Let other threads go on until ``condition`` holds."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        os.sched_yield()
