"""The sides' stores: built from the log and proved equal, each in its own process."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Self

from cqstore.ab.results.result import Difference, Footprint, Point, Proof, Side
from cqstore.ab.sides.side import SideSpec
from cqstore.ab.sides.side_process import SideProcess, renew
from cqstore.ab.stores import copies, equality
from cqstore.ab.stores.projected_points import LOG_FILE_BYTES, points, units_a_queue
from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.units import QueueKey

PROOF = "queues"
OnEvent = Callable[[str], object]


class Sides:
    """All sides, from ``__enter__`` to ``__exit__``; the reference is the first."""

    def __init__(
        self,
        root: Path,
        found: StoreSurvey,
        specs: Sequence[SideSpec],
        folder: Path,
        mix: dict[str, int],
    ) -> None:
        """Take the specification of the sides; no file is touched, no process started."""
        self._root, self._found, self._folder, self._mix = root, found, folder, mix
        self._specs = specs
        self.processes: list[SideProcess] = []
        self.described: list[Side] = []
        """Description of each side for the result."""
        self.versions: dict[str, str] = {}
        """Versions of the libraries that the sides have loaded."""
        self.proof: Proof | None = None
        """Set if all sides have the same queues."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes at once."""
        for process in self.processes:
            process.stop()

    def build(self, on_event: OnEvent) -> list[Difference]:
        """Build each side's queues from the log; return differences from the reference.

        Raises:
            CorruptionError: the queues built from the log differ from those of the original store.
            StoreError: a side cannot be built.
        """
        found, digests = self._found, []
        for number, spec in enumerate(self._specs):
            on_event(f"building {spec.name}")
            root = self._folder / f"side-{number}"
            way = copies.share_log(
                found.log_folders, root / "commitlog", found.max_phy_offset, found.log_file_size
            )
            copies.bring_journals(self._root, root, found)
            process = SideProcess(spec, str(root), self._mix)
            self.processes.append(process)
            seconds, _ = process.request("build")
            digests.append(tuple(process.request("whole_digest")))
            self.described.append(spec.described(way, seconds))
        return self._proof(digests)

    def _proof(self, digests: list[tuple[str, int, int]]) -> list[Difference]:
        """Return the differences of the sides from the reference; set ``proof`` if there are none.

        Raises:
            CorruptionError: all sides differ from the queues of the store.
        """
        digest, queues, units = digests[0]
        differences = [
            self._difference(process)
            for process, other in zip(self.processes[1:], digests[1:], strict=True)
            if other != digests[0]
        ]
        shape = self._found.shape
        if not differences and (queues, units) != (shape.queues, shape.units):
            raise CorruptionError(
                "the queues built from the log differ from those of the store (cqstore check)",
                path=self._root, expected=f"{shape.units} units in {shape.queues} queues",
                got=f"{units} units in {queues} queues",
            )  # fmt: skip
        if not differences:
            self.proof = Proof(queues=queues, units=units, digest=digest)
        return differences

    def _difference(self, other: SideProcess) -> Difference:
        """Return the first unit or queue that differs between a side and the reference."""
        pair = (self.processes[0], other)
        files = [self._folder / f"queues-{number}" for number in range(2)]
        for process, path in zip(pair, files, strict=True):
            process.request("queue_digests", path=str(path))
        mine, theirs = (_digests_in(path) for path in files)
        first = equality.first_difference(mine, theirs)
        names = [process.spec.name for process in pair]
        if first is None:
            return Difference(workload=PROOF, operation={"op": "queues"}, answers={})
        key, *answers = first
        operation: dict[str, int | str | float | bool | None] = {
            "op": "queue", "topic": key.topic, "queueId": key.queue_id,
        }  # fmt: skip
        if answers[0] == answers[1]:
            offset, answers = self._unit(pair, key)
            operation |= {"op": "unit", "offset": offset}
        return Difference(
            workload=PROOF, operation=operation, answers=dict(zip(names, answers, strict=True))
        )

    def _unit(self, pair: Sequence[SideProcess], key: QueueKey) -> tuple[int, list[str]]:
        files = [self._folder / f"units-{number}" for number in range(2)]
        for process, path in zip(pair, files, strict=True):
            process.request("unit_rows", topic=key.topic, queue_id=key.queue_id, path=str(path))
        with files[0].open() as first, files[1].open() as second:
            for mine, theirs in zip_longest(first, second, fillvalue="none"):
                if mine != theirs:
                    answers = [mine.strip(), theirs.strip()]
                    offset = next(text.partition(":")[0] for text in answers if ":" in text)
                    return int(offset), answers
        return -1, ["", ""]

    def measure_footprints(self) -> None:
        """Measure the resources of each side's queues, each in a fresh process."""
        renew(self.processes)
        for number, process in enumerate(self.processes):
            footprint = Footprint.model_validate(process.request("footprint"))
            self.described[number] = self.described[number].model_copy(
                update={"footprint": footprint}
            )
            versions = process.request("versions")
            if process.spec.twin_of is None:
                self.versions |= {f"{process.spec.name}: {key}": text
                                  for key, text in versions.items()}  # fmt: skip

    def measure_points(self, target: int, on_event: OnEvent) -> list[Point]:
        """Return the resources of each side at several numbers of queues."""
        measured = []
        shape = self._found.shape
        each = units_a_queue(shape.units, shape.queues)
        for spec in self._specs:
            if spec.twin_of is not None:
                continue
            small = spec.config.model_copy(update={"mapped_file_size_commit_log": LOG_FILE_BYTES})
            own = replace(spec, config=small)
            for queues in points(target, shape.queues):
                on_event(f"{spec.name}: {queues:,} queues")
                units = queues * each
                footprint = self._point(own, queues, units)
                measured.append(
                    Point(side=spec.name, queues=queues, units=units, footprint=footprint)
                )
        return measured

    def _point(self, spec: SideSpec, queues: int, units: int) -> Footprint:
        root = self._folder / "point"
        with self._lent(spec, root) as process:
            process.request("fill", queues=queues, units=units)
        with self._lent(spec, root) as process:
            footprint = Footprint.model_validate(process.request("footprint"))
        shutil.rmtree(root)
        return footprint

    @contextmanager
    def _lent(self, spec: SideSpec, root: Path) -> Iterator[SideProcess]:
        """Start a process for a side's store for the block; it is closed cleanly, or ended."""
        process = SideProcess(spec, str(root), self._mix)
        try:
            yield process
            process.finish()
        finally:
            process.stop()


def _digests_in(path: Path) -> Iterator[equality.QueueDigest]:
    with path.open() as file:
        for line in file:
            yield equality.QueueDigest(*json.loads(line))
