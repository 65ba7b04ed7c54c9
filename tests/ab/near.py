"""Sides without a process of their own: a worker in this one, or turns that are written down."""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

from cqstore.ab.sides.side import SideSpec
from cqstore.ab.sides.side_process import SideProcess
from cqstore.ab.sides.side_worker import SideWorker, TurnReport, encoded
from cqstore.ab.workloads.timing import digests
from cqstore.store.concurrency.task_worker import guarded, unwrap
from cqstore.store.settings.config import StoreConfig

Answers = Callable[[int, int], list[str]]
"""What a side answers in the turn of a number, with so many operations."""


class NearSide(SideProcess):
    """A side whose worker runs here; what is asked and answered goes through JSON all the same."""

    def __init__(self, spec: SideSpec, root: str, mix: dict[str, int]) -> None:
        super().__init__(spec, root, mix)

    def start(self) -> None:
        self.worker = SideWorker()

    @property
    def pid(self) -> int:
        return os.getpid()

    def request(self, request: str, /, **arguments: object) -> Any:
        given = json.loads(json.dumps(arguments))
        return unwrap(*json.loads(json.dumps(guarded(getattr(self.worker, request), **given))))

    def stop(self) -> None:
        self.worker.close()


class WrittenDown(SideProcess):
    """A side whose turns take and answer what a test says; ``log`` keeps what it was asked."""

    def __init__(
        self, name: str, log: list[tuple[Any, ...]], answers: Answers, cost: float = 1e-4
    ) -> None:
        self.spec = SideSpec(name, name, name, StoreConfig(), {})
        self._log = log
        self._answers = answers
        self._cost = cost
        self._last: list[str] = []

    def start(self) -> None:
        self._log.append((self.spec.name, "start", ()))

    def begin(self) -> None:
        self._log.append((self.spec.name, "begin", ()))

    def stop(self) -> None:
        self._log.append((self.spec.name, "stop", ()))

    @property
    def pid(self) -> int:
        return os.getpid()

    def request(self, request: str, /, **arguments: object) -> Any:
        self._log.append((self.spec.name, request, arguments))
        if request != "answers":
            return None
        block = arguments["block"]
        assert isinstance(block, int)
        first = 256 * block
        return [({"op": "o", "at": at}, text) for at, text in enumerate(self._last)][first:][:256]

    def turn(self, number: int, count: int, *, drop: bool) -> TurnReport:
        self._log.append((self.spec.name, "turn", (number, count, drop)))
        self._last = found = self._answers(number, count)
        return TurnReport.model_validate({
            "operations": count, "items": 2 * count, "seconds": self._cost * count,
            "cpu_seconds": 3.0, "read_bytes": 4, "written_bytes": 5, "pss_bytes": 6,
            "backend_written": {}, "service": encoded([1000 + number]),
            "intended": encoded([2000 + number] if drop else []),
            "service_ns": {"p50": 7}, "intended_ns": {"p50": 8}, "answered": len(found),
            "digests": digests(found), "answers": hashlib.sha256(repr(found).encode()).hexdigest(),
            "due_seconds": count / 50,
        })  # fmt: skip
