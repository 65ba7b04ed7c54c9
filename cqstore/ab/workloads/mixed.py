"""Mixed: several threads read while one writes, each operation of the trace once."""

import threading
from collections.abc import Mapping
from itertools import chain
from typing import ClassVar

from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.trace import derived
from cqstore.ab.trace.operations import Operation, Put
from cqstore.ab.workloads.base import Setting, Turn, TurnResult
from cqstore.ab.workloads.reads import ReadWorkload
from cqstore.ab.workloads.timing import run_calls


class Mixed(ReadWorkload):
    """Mix of operations; a turn ends when all threads have run their operations.

    Messages are put to a separate topic, so that the readers' answers do not depend on the order of
    the threads; the topic is deleted after each turn.
    """

    paced: ClassVar[bool] = False

    def __init__(self, mix: Mapping[str, int]) -> None:
        """``mix`` is the share of each kind of operation."""
        shares = ", ".join(f"{kind} {part}" for kind, part in mix.items())
        super().__init__(
            "mixed", f"Run the next operation of a mix in several threads: {shares}.", "items",
            derived.mixed(dict(mix)),
        )  # fmt: skip

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Run the readers and the writer in parallel."""
        operations = self.slice(turn)
        done = TurnResult(requests=operations, operations=len(operations))
        store = side.store
        writes = [at for at, each in enumerate(operations) if isinstance(each, Put)]
        reads = [at for at, each in enumerate(operations) if not isinstance(each, Put)]
        shares = [writes, *(reads[number :: setting.readers] for number in range(setting.readers))]
        answered: list[list[object]] = [[] for _ in shares]
        service: list[list[int]] = [[] for _ in shares]
        calls = [[operations[at].bind(store) for at in share] for share in shares]
        threads = [
            threading.Thread(target=run_calls, args=each)
            for each in zip(calls, answered, service, strict=True)
        ]
        with done.spent.timed():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        done.service += chain.from_iterable(service)
        answers = dict(zip(chain.from_iterable(shares), chain.from_iterable(answered), strict=True))
        for at, operation in enumerate(operations):
            done.record(operation, answers[at])
        _delete_topic(side, operations)
        return done


def _delete_topic(side: SideStore, operations: list[Operation]) -> None:
    topics = {each.topic for each in operations if isinstance(each, Put)}
    if topics:
        side.store.delete_topics(topics)
