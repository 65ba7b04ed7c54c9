"""SideProcess: the parent's handle of a side's process."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cqstore.ab.sides.side import SideSpec
from cqstore.ab.sides.side_worker import TurnReport
from cqstore.store.concurrency.processes import worker_environment
from cqstore.store.concurrency.task_worker import unwrap
from cqstore.store.errors import StoreError

SIDE_WORKER = "cqstore.ab.sides.side_worker"


class SideProcess:
    """The process of one side; it ends with ``stop``, with the parent, or by itself."""

    def __init__(
        self, spec: SideSpec, root: str, mix: dict[str, int], program: str = SIDE_WORKER
    ) -> None:
        """Start the process for the store in ``root``; ``program`` is its module."""
        self.spec, self.root = spec, Path(root)
        self._begin = {
            "root": root, "backend": spec.backend, "mix": mix,
            "config": spec.config.model_dump(mode="json", exclude_unset=True),
        }  # fmt: skip
        self._program = program
        self.start()
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        """Start a process, which imports its modules; the previous one has ended."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._program, str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=worker_environment(),
        )  # fmt: skip

    def begin(self) -> None:
        """Set the store and the workloads of a process that was started; touches no file.

        Raises:
            StoreError: the process did not start.
        """
        self.request("begin", **self._begin)

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def request(self, request: str, /, **arguments: object) -> Any:
        """Send a request, see ``cqstore.ab.sides.side_worker.SideWorker``; wait for its answer.

        Raises:
            StoreError: the request failed, or the process has ended.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([request, arguments]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            code = process.wait()
            raise StoreError(
                f"the process of side {self.spec.name} ended (exit code {code}), see above"
            )
        return unwrap(*json.loads(line))

    def turn(self, number: int, count: int, *, drop: bool) -> TurnReport:
        """Run one turn of the current workload."""
        return TurnReport.model_validate(
            self.request("turn", number=number, count=count, drop=drop)
        )

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def finish(self) -> None:
        """Close the side's store, then end the process."""
        self.request("close")
        self.stop()


def renew(sides: Sequence[SideProcess]) -> None:
    """Close each side's store and end its process; start new ones, all at the same time.

    Raises:
        StoreError: a store could not be closed, or a process did not start.
    """
    for side in sides:
        side.finish()
    for side in sides:
        side.start()
    for side in sides:
        side.begin()
