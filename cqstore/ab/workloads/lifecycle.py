"""Workloads of a store's lifecycle: replay, expiry, restart after a stop and after a kill.

Replay and expiry work on temporary stores in the side's ``scratch``.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from cqstore.ab.stores import copies, killed_writer
from cqstore.ab.stores.equality import whole_digest
from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.ab.workloads.base import Setting, Turn, TurnResult, Workload
from cqstore.store.concurrency.processes import worker_environment
from cqstore.store.errors import StoreError
from cqstore.store.path_kind import is_dir
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore

_TOPIC = "cqstore-ab-{:08x}"
_LIST = 50
_REPLAYED = 60_000
"""Approximate maximum number of messages that are replayed."""
_MAX_QUEUES = 1000
"""Maximum number of queues whose offsets are the answer of an opened store."""


class _Lifecycle(Workload):
    """Workload of few, long operations that each open a store."""

    needs_open: ClassVar[bool] = False
    scales: ClassVar[bool] = False
    max_rounds: ClassVar[int] = 6
    passes: ClassVar[int] = 1

    def _one(self, turn: Turn, work: Callable[[TurnResult], tuple[str, int]]) -> TurnResult:
        """Return a turn of one operation; ``work`` times it and returns its answer and items."""
        done = TurnResult(operations=1, requests=[{"op": self.name, "turn": turn.number}])
        answer, done.items = work(done)
        done.answers = [answer]
        done.service = [int(done.spent.seconds * 1e9)]
        return done


class Dispatch(_Lifecycle):
    """Replay of a log like the store's into queues that do not exist yet.

    The log has a sample of the store's queues, with the same relative lengths, under other names.
    All sides put the same messages.
    """

    name = "dispatch"
    what = "Dispatch a record of a log like the store's to queues that are empty at first, durably."
    item = "messages"
    needs_messages: ClassVar[bool] = True

    def begin(self, side: SideStore, setting: Setting) -> None:
        """Put the messages to a temporary store."""
        side.remove_scratch()
        size = {"mapped_file_size_commit_log": setting.file_size}
        own = SideStore(side.scratch, side.backend, side.config.model_copy(update=size))
        body = bytes(max(setting.body_bytes, 1))
        order = _like(setting.lengths)
        with own.open_at(own.root) as store:
            for first in range(0, len(order), _LIST):
                store.put_messages([
                    Message(_TOPIC.format(zlib.crc32(topic.encode("utf-8", "surrogatepass"))), body,
                            queue_id, {"TAGS": "a"}, born_timestamp=1)
                    for topic, queue_id in map(setting.keys.__getitem__, order[first:first + _LIST])
                ])  # fmt: skip

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Open the log without queues, timed until the queues are flushed."""
        paths = StorePaths(side.scratch)
        for path in paths.root.iterdir():
            if path != paths.commit_log:
                shutil.rmtree(path) if is_dir(path) else path.unlink()
        done = TurnResult(requests=[{"op": self.name, "turn": turn.number}])
        with done.spent.timed():
            store = side.open_at(paths.root)
            store.flush()
        with store:
            digest, queues, units = whole_digest(store)
            done.operations = done.items = store.report.scanned_records
            side.count_written(store)
        done.answers = [f"{units} units in {queues} queues, digest {digest}"]
        return done


def _like(lengths: Sequence[int]) -> list[int]:
    """Return shuffled indexes of ``lengths``, each repeated in proportion to its length."""
    share = min(_REPLAYED / max(sum(lengths), 1), 1.0)
    counts = [max(round(length * share), 1) for length in lengths]
    places = np.repeat(np.arange(len(counts)), counts)
    order: list[int] = np.random.default_rng(0).permutation(places).tolist()
    return order


class Restart(_Lifecycle):
    """Opening the side's own store after it was closed."""

    name = "restart"
    what = "Open the store after a clean stop."
    item = "openings"
    count: ClassVar[int] = 2
    max_rounds: ClassVar[int] = 8

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Open and close it a few times."""
        done = TurnResult(operations=turn.count, items=turn.count)
        done.requests = [{"op": self.name, "opening": at} for at in range(turn.count)]
        for _ in range(turn.count):
            before = done.spent.seconds
            with done.spent.timed():
                side.open()
            done.service.append(int((done.spent.seconds - before) * 1e9))
            done.answers.append(_offsets(side.store, setting))
            side.close()
        return done


class RestartAfterKill(_Lifecycle):
    """Opening the side's own store after the process that put messages to it was killed.

    The messages are in a separate topic, which is deleted after each turn.
    """

    name = "restart-after-kill"
    what = "Open the store after its process was killed while it put messages."
    item = "openings"

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Let a process put messages and kill itself; then open the store.

        Raises:
            StoreError: the process ended before it killed itself.
        """
        request = {
            "root": str(side.root), "backend": side.backend, "body_bytes": setting.body_bytes,
            "config": side.config.model_dump(mode="json", exclude_unset=True),
        }  # fmt: skip
        ended = subprocess.run(
            [sys.executable, "-m", "cqstore.ab.stores.killed_writer", str(os.getpid())],
            input=json.dumps(request), text=True, check=False, capture_output=True,
            env=worker_environment(),
        )  # fmt: skip
        if ended.returncode != -signal.SIGKILL:
            raise StoreError(
                f"the writer process ended before it killed itself (exit code {ended.returncode}):"
                f" {ended.stderr[-500:]}"
            )
        return self._one(turn, lambda done: self._open(side, setting, done))

    def _open(self, side: SideStore, setting: Setting, done: TurnResult) -> tuple[str, int]:
        with done.spent.timed():
            side.open()
        store = side.store
        put = sum(store.max_offset(killed_writer.TOPIC, at) for at in range(killed_writer.QUEUES))
        answer = f"{put} messages recovered; {_offsets(store, setting)}"
        store.delete_topic(killed_writer.TOPIC)
        side.close()
        return answer, 1


class Expiry(_Lifecycle):
    """Deletion of the oldest log file with the units of its records."""

    name = "expiry"
    what = "Delete the oldest log file, and the units of its records."
    item = "files"

    def unsupported_reason(self, found: StoreSurvey) -> str:
        """Return a reason if the log has only one file, which is never deleted."""
        if found.min_phy_offset + found.log_file_size >= found.max_phy_offset:
            return "the log has one file, and the newest is never deleted"
        return ""

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Delete the oldest log file of a copy of the side's store."""
        return self._one(turn, lambda done: self._expire(side, setting, done))

    def _expire(self, side: SideStore, setting: Setting, done: TurnResult) -> tuple[str, int]:
        side.remove_scratch()
        copies.copy_tree(side.root, side.scratch, setting.max_phy_offset, setting.file_size)
        with side.open_at(side.scratch) as store:
            with done.spent.timed():
                report = store.delete_expired_files(setting.min_phy_offset + setting.file_size)
                store.flush()
            side.count_written(store)
            gone = f"{report.log_files} files, {report.log_bytes} bytes deleted"
            return f"{gone}; {_offsets(store, setting)}", report.log_files


def _offsets(store: MessageStore, setting: Setting) -> str:
    """Return a summary of the offsets of some queues."""
    ends = [(store.min_offset(*key), store.max_offset(*key)) for key in setting.keys[:_MAX_QUEUES]]
    lows, highs = (sum(each) for each in zip(*ends, strict=True)) if ends else (0, 0)
    digest = zlib.crc32(repr(ends).encode())
    return f"{len(ends)} queues: sum of min {lows}, of max {highs}, digest {digest:08x}"
