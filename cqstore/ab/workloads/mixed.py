"""Mixed: several threads read while one writes, each operation of the trace once."""

import threading
from collections.abc import Mapping
from typing import ClassVar

from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.ab.trace import derived
from cqstore.ab.trace.operations import Operation, Put
from cqstore.ab.workloads.base import NO_MESSAGES, Setting, Turn, TurnResult
from cqstore.ab.workloads.reads import ReadWorkload
from cqstore.ab.workloads.timing import Call, run_calls


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

    def unsupported_reason(self, found: StoreSurvey) -> str:
        """Return a reason if there is no message to read."""
        return "" if found.keys else NO_MESSAGES

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Run the readers and the writer in parallel."""
        operations = self.slice(turn)
        done = TurnResult(requests=operations, operations=len(operations))
        store = side.store
        writes = [at for at, each in enumerate(operations) if isinstance(each, Put)]
        reads = [at for at, each in enumerate(operations) if not isinstance(each, Put)]
        shares = [writes, *(reads[number :: setting.readers] for number in range(setting.readers))]
        parts = [_Part([operations[at].bind(store) for at in share]) for share in shares]
        threads = [threading.Thread(target=part.run) for part in parts]
        with done.spent.timed():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        answers: dict[int, object] = {}
        for share, part in zip(shares, parts, strict=True):
            answers |= zip(share, part.answers, strict=True)
            done.service += part.service
        for at, operation in enumerate(operations):
            done.record(operation, answers[at])
        _delete_topic(side, operations)
        return done


class _Part:
    """The operations and answers of one thread."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls
        self.answers: list[object] = []
        self.service: list[int] = []

    def run(self) -> None:
        run_calls(self._calls, self.answers, self.service)


def _delete_topic(side: SideStore, operations: list[Operation]) -> None:
    topics = {each.topic for each in operations if isinstance(each, Put)}
    if topics:
        side.store.delete_topics(topics)
