"""``python -m cqstore.ab.sides.side_worker PARENT``: the process of one side.

A request is a line of JSON on standard input, ``[name, arguments]``; its outcome is a line on
standard output, see ``guarded``. The process ends with
its parent, or when the input ends. Only the parent handles Ctrl-C.
"""

import gc
import json
import os
import signal
import sys
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cqstore.ab.measuring import measures
from cqstore.ab.measuring.histograms import histogram, percentiles
from cqstore.ab.parent import die_with_parent
from cqstore.ab.stores import equality
from cqstore.ab.stores.projected_points import fill
from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.trace.operations import Operation
from cqstore.ab.workloads import workloads
from cqstore.ab.workloads.base import Setting, Turn, TurnResult, Workload
from cqstore.ab.workloads.timing import BLOCK, digests
from cqstore.store.concurrency.task_worker import guarded
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig


class TurnReport(BaseModel):
    """Report of one turn, from a side to its parent."""

    operations: int
    items: int
    seconds: float
    cpu_seconds: float
    read_bytes: int
    written_bytes: int
    backend_written: dict[str, int]
    pss_bytes: int
    service: str
    """HdrHistogram V2, Base64."""
    intended: str
    service_ns: dict[str, int]
    intended_ns: dict[str, int]
    answered: int
    digests: list[str]
    """Digest of each block of answers."""
    answers: str
    """Digest of all answers."""
    due_seconds: float


class SideWorker:
    """Handler of a side's requests; each public method is a request."""

    housekeeping = False
    """See ``SideStore``."""

    def __init__(self) -> None:
        self._side: SideStore
        self._workload: Workload
        self._setting: Setting
        self._done = TurnResult()

    def begin(self, root: str, backend: str, config: dict[str, Any], mix: dict[str, int]) -> None:
        """Set the store and the workloads of this process; touches no file."""
        self._side = SideStore(
            Path(root), backend, StoreConfig.from_mapping(config), housekeeping=self.housekeeping
        )
        self._workloads = workloads(mix)

    # ---- the store

    def build(self) -> tuple[float, int]:
        """Build the queues from the log; return seconds and units."""
        return self._side.build()

    def whole_digest(self) -> tuple[str, int, int]:
        """Return the digest of all queues, the number of queues, and the number of units."""
        self._side.open()
        return equality.whole_digest(self._side.store)

    def queue_digests(self, path: str) -> None:
        """Write a line for each queue to ``path``."""
        with Path(path).open("w") as file:
            file.writelines(
                json.dumps(each) + "\n" for each in equality.queue_digests(self._side.store)
            )

    def unit_rows(self, topic: str, queue_id: int, path: str) -> None:
        """Write a line for each unit of a queue to ``path``."""
        rows = equality.unit_rows(self._side.store, QueueKey(topic, queue_id))
        with Path(path).open("w") as file:
            file.writelines(f"{row}\n" for row in rows)

    def footprint(self) -> dict[str, Any]:
        """Return the resources of the queues after opening the store."""
        return self._side.footprint().model_dump()

    def sample(self) -> tuple[int, int]:
        """Return the memory of this process and the disk space of the side's queues."""
        return measures.pss_bytes(), self._side.disk_bytes()

    def versions(self) -> dict[str, str]:
        """Return the backend's description of itself without numbers and paths."""
        facts = components_of(self._side.store).queues.describe().items()
        return {
            name: value
            for name, value in facts
            if isinstance(value, str) and not value.isdecimal() and "/" not in value
        }

    def close(self) -> None:
        """Close the side's store, if it is open."""
        self._side.close()

    def fill(self, queues: int, units: int) -> None:
        """Put messages to a new store with that number of queues, see ``projected_points``."""
        fill(self._side, queues, units)

    # ---- workloads

    def begin_workload(self, name: str, setting: dict[str, Any]) -> None:
        """Prepare the turns of a workload."""
        self._workload = self._workloads[name]
        self._setting = Setting.model_validate(setting)
        if self._workload.needs_open:
            self._side.open()
        else:
            self._side.close()
        self._workload.begin(self._side, self._setting)
        gc.collect()

    def turn(self, number: int, count: int, *, drop: bool) -> dict[str, Any]:
        """Run one turn; with ``drop`` after dropping the store from the page cache."""
        if drop:
            self._side.drop_cache()
        gc.collect()
        counted = self._side.written()
        read, written = measures.input_output()
        done = self._workload.turn(self._side, self._setting, Turn(number, count))
        read_then, written_then = measures.input_output()
        counted_then = self._side.written()
        self._done = done
        report = TurnReport(
            operations=done.operations, items=done.items,
            seconds=done.spent.seconds, cpu_seconds=done.spent.cpu_seconds,
            read_bytes=read_then - read, written_bytes=written_then - written,
            backend_written={cause: counted_then[cause] - counted[cause] for cause in counted_then},
            pss_bytes=measures.pss_bytes(),
            service=encoded(done.service), intended=encoded(done.intended),
            service_ns=percentiles(done.service), intended_ns=percentiles(done.intended),
            answered=len(done.answers), digests=digests(done.answers), due_seconds=done.due_seconds,
            answers=sha256("\n".join(done.answers).encode("utf-8", "surrogatepass")).hexdigest(),
        )  # fmt: skip
        return report.model_dump()

    def answers(self, block: int) -> list[tuple[dict[str, Any], str]]:
        """Return the operations and answers of one block of the last turn."""
        pairs = zip(self._done.requests, self._done.answers, strict=True)
        return [
            (_to_fields(request), _printable(answer))
            for request, answer in islice(pairs, block * BLOCK, (block + 1) * BLOCK)
        ]

    def end_workload(self) -> None:
        """Clean up after the workload."""
        self._done = TurnResult()
        self._workload.end(self._side, self._setting)


def _to_fields(request: Operation | dict[str, int | str]) -> dict[str, Any]:
    if not isinstance(request, dict):
        request = request.model_dump(by_alias=True, exclude_none=True)
    return {name: _printable(value) if isinstance(value, str) else value
            for name, value in request.items()}  # fmt: skip


def _printable(text: str) -> str:
    """Return text that JSON can contain, for a name that is not valid Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


def encoded(nanoseconds: list[int]) -> str:
    """Return a histogram of latencies as text; empty without latencies."""
    if not nanoseconds:
        return ""
    text: bytes = histogram(nanoseconds).encode()
    return text.decode()


def main(worker: SideWorker) -> None:
    """Answer requests to ``worker`` until the parent closes the input or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(int(sys.argv[1]))
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed is no answer
        for line in sys.stdin:
            name, arguments = json.loads(line)
            answers.write(json.dumps(guarded(getattr(worker, name), **arguments)) + "\n")
            answers.flush()
    worker.close()


if __name__ == "__main__":
    main(SideWorker())
