"""PlanParts: the queues of a plan, cut into parts that tasks read.

One part is read in this process. Several are read in one process per core, or on Spark.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from cqstore.migration.markers import new_attempt
from cqstore.migration.plan.part_task import (
    PartChecks,
    PartDone,
    PartQueue,
    lines_path,
    plan_part,
    queues_path,
)
from cqstore.migration.preflight.preflight_report import NameCount, PreflightFinding
from cqstore.migration.preflight.queue_survey import unreadable_queues
from cqstore.migration.tasks import ran_in, run_tasks
from cqstore.migration.workspace import Workspace
from cqstore.store.concurrency.task_worker import unwrap
from cqstore.store.errors import os_errors
from cqstore.store.files import make_folder, reading
from cqstore.store.path_kind import exists
from cqstore.store.queue.bulk import BulkBackend
from cqstore.store.queue.queue_location import QueuePlace

PART_QUEUES = 20_000
PART_UNITS = 2_000_000
"""Maximum size of a part; the units of one queue are not divided."""


class PlanParts:
    """The parts of one plan, below the folder ``planning`` of its workspace.

    A killed command leaves the folder; the next one removes it. Each command has a folder of its
    own in it, so a task of a killed one cannot write to the parts of the next.
    """

    def __init__(self, space: Workspace) -> None:
        self._space = space
        self._folder = space.planning / new_attempt()
        self._done: list[PartDone] = []
        self._count = 0
        self.units = 0
        """Units of all queues, moved or not."""
        self.ran_in = ""
        """Where the tasks ran."""

    def write(self, queues: Iterable[PartQueue]) -> None:
        """Write the files of the parts.

        Raises:
            StoreIOError: a file cannot be written.
        """
        self.remove()
        folder, file = self._folder, None
        with os_errors("write the queues of the plan", folder):
            make_folder(folder)
            try:
                file = self._write(queues)
            finally:
                if file is not None:
                    file.close()

    def _write(self, queues: Iterable[PartQueue]) -> IO[bytes]:
        """Write the files of the parts; return the last one, which is still open."""
        file = self._begin()
        count = units = 0
        for queue in queues:
            size = queue.end - queue.begin
            if count and (count >= PART_QUEUES or units + size > PART_UNITS):
                file.close()
                file, count, units = self._begin(), 0, 0
            file.write(queue.line())
            count, units = count + 1, units + size
            self.units += size
        return file

    def _begin(self) -> IO[bytes]:
        self._count += 1
        return queues_path(self._folder, self._count - 1).open("wb")

    def run(
        self, source: QueuePlace, target: str, segment_units: int, checks: PartChecks | None,
        master: str, progress: Callable[[int], object],
    ) -> None:  # fmt: skip
        """Read the units of all parts. ``progress`` is called with the number of units.

        Raises:
            StoreError: a unit is missing or cannot be read, and there are no ``checks``.
        """
        limits = [checks.min_phy_offset, checks.max_phy_offset] if checks is not None else None
        same = {
            "source": source.to_fields(), "folder": str(self._folder), "target": target,
            "segment_units": segment_units, "checks": limits,
        }  # fmt: skip
        items = [json.dumps({**same, "part": number}) for number in range(self._count)]

        def tick(done: int) -> None:
            progress(self.units * done // len(items))

        texts = run_tasks(plan_part, items, master, tick, alone=True)
        self._done = [PartDone(*json.loads(text)) for text in texts]
        self.ran_in = ran_in(master, len(items), alone=True)
        progress(self.units)

    def findings(self, checks: PartChecks, target: BulkBackend) -> list[PreflightFinding]:
        """Return the findings about the units of all parts."""
        totals, unreadable = checks.totals(), NameCount()
        for each in self._done:
            totals.add_fields(each.faults or {})
            unreadable.add_fields(each.unreadable or {})
        found = totals.findings(holes_refuse=target.needs_whole_queues)
        return [*unreadable_queues(unreadable), *found]

    def raise_error(self) -> None:
        """Raise the error of the first queue that cannot be moved, if there is one."""
        for each in self._done:
            if each.error is not None:
                unwrap(*each.error)

    def lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield the lines of all slices, with the units of each.

        Raises:
            StoreIOError: a file cannot be read.
        """
        for number, each in enumerate(self._done):
            path = lines_path(self._folder, number)
            with os_errors("read the lines of a part", path), reading(path) as file:
                yield from zip(file, each.units, strict=True)

    def remove(self) -> None:
        """Delete the folder ``planning``.

        Raises:
            StoreIOError: a file cannot be removed.
        """
        if exists(self._space.planning):
            with os_errors("remove the parts of a plan", self._space.planning):
                shutil.rmtree(self._space.planning)
