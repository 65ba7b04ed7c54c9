"""FollowedBroker: follows a running master with several sides at once, and compares their costs.

Each side is a process with a store of its own, a connection of its own, and the same log. At the
end all sides get the same last byte, and their queues are compared before anything is judged.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cqstore.ab.live.follow_costs import FollowCosts
from cqstore.ab.live.follower_worker import Usage
from cqstore.ab.measuring.machine_facts import this_machine
from cqstore.ab.results.result import (
    Answers,
    Cache,
    Difference,
    Footprint,
    Method,
    Proof,
    Result,
    Shape,
)
from cqstore.ab.sides.side import SideSpec
from cqstore.ab.sides.side_process import SideProcess
from cqstore.ab.stores.ab_workspace import ScratchFolder
from cqstore.replication.endpoint import endpoint
from cqstore.store.errors import StoreError

_WORKER = "cqstore.ab.live.follower_worker"
_SAMPLES = 20
"""Samples per round."""
_MAX_SPACING = 60.0
_LOOK_SECONDS = 0.1
_MIN_FREE = 0.05
"""Share of the disk that must stay free."""
_LIMITS = (
    "Reads are not measured: ab run and ab live compare them.",
    "The ages of records depend on the clocks of both machines, the same for all sides.",
    "Nothing expires during the run: no side deletes a log file.",
)


@dataclass(frozen=True, slots=True)
class FollowPlan:
    """Which master to follow, with which sides, and for how long."""

    host: str
    port: int
    sides: Sequence[SideSpec]
    folder: Path
    seconds: float
    rounds: int
    matters: Sequence[str] = ()
    command: Sequence[str] = ()


class FollowedBroker:
    """One run: ``measure``, once."""

    def __init__(self, plan: FollowPlan) -> None:
        self._plan = plan
        self._began = time.monotonic()
        self._made = datetime.now(UTC).isoformat(timespec="seconds")
        self._costs = FollowCosts()
        self._sides: dict[str, SideProcess] = {}
        self._stopped = ""

    def measure(
        self, on_stage: Callable[[str, float], object], is_stopped: Callable[[], bool]
    ) -> Result:
        """Follow until the time is over or ``is_stopped``; return the result, remove the folder.

        Raises:
            StoreError: a side failed, or the sides do not have the same log.
        """
        plan = self._plan
        with ScratchFolder(plan.folder):
            try:
                for number, spec in enumerate(plan.sides):
                    self._start(spec, plan.folder / f"side-{number}")
                self._stopped = self._follow(on_stage, is_stopped)
                on_stage("comparing", 0.98)
                return self._result(self._same_end())
            finally:
                for side in self._sides.values():
                    side.stop()

    def _start(self, spec: SideSpec, root: Path) -> None:
        side = self._sides[spec.name] = SideProcess(spec, str(root), {}, _WORKER)
        side.request("follow", host=self._plan.host, port=self._plan.port, name=spec.name)

    def _follow(
        self, on_stage: Callable[[str, float], object], is_stopped: Callable[[], bool]
    ) -> str:
        """Run the rounds; return why they ended before the time was over, or an empty string."""
        plan, began = self._plan, time.monotonic()
        length = plan.seconds / plan.rounds
        for number in range(plan.rounds):
            self._costs.begin(self._usages())
            end = began + (number + 1) * length
            while time.monotonic() < end:
                if not _sleep(min(length / _SAMPLES, _MAX_SPACING), is_stopped):
                    return "stopped by a signal"
                self._costs.add(self._usages(), time.monotonic() - began)
                on_stage("following", (time.monotonic() - began) / plan.seconds * 0.97)
                disk = shutil.disk_usage(plan.folder)
                if disk.free < _MIN_FREE * disk.total:
                    return f"less than {_MIN_FREE:.0%} of the disk was free"
            self._costs.end()
        return ""

    def _usages(self) -> dict[str, Usage]:
        """Return the usage of each side now.

        Raises:
            StoreError: a side failed, or the logs of two sides begin at different offsets.
        """
        found = {
            name: Usage.model_validate(side.request("usage")) for name, side in self._sides.items()
        }
        begins = {name: each.begin for name, each in found.items() if each.begin >= 0}
        if len({*begins.values()}) > 1:
            raise StoreError(
                f"the sides' logs begin at different offsets ({begins}): the master began a new"
                " log file while they connected. Run the command again"
            )
        return found

    def _same_end(self) -> tuple[dict[str, tuple[str, int, int]], dict[str, Footprint]]:
        """Give all sides the same end of the log; return digests and resources of the queues."""
        roots = dict(zip(self._sides, range(len(self._sides)), strict=True))
        ends = {name: side.request("stop_following") for name, side in self._sides.items()}
        most = max(ends, key=ends.__getitem__)
        for name, side in self._sides.items():
            if ends[name] < ends[most]:
                root = self._plan.folder / f"side-{roots[most]}"
                side.request("catch_up", root=str(root), end=ends[most])
        digests, feet = {}, {}
        for name, side in self._sides.items():
            feet[name] = Footprint.model_validate(side.request("footprint"))
            digest, queues, units = side.request("whole_digest")
            digests[name] = (digest, queues, units)
        return digests, feet

    def _result(
        self, ended: tuple[dict[str, tuple[str, int, int]], dict[str, Footprint]]
    ) -> Result:
        plan, (digests, feet) = self._plan, ended
        digest, queues, units = digests[plan.sides[0].name]
        different = {name: found for name, found in digests.items() if found[0] != digest}
        answers = Answers(
            compared=units, different=len(different), first=_differences(digests, different)
        )
        seconds = time.monotonic() - self._began
        not_measured = [*_LIMITS]
        if self._stopped:
            not_measured.append(
                f"The run ended after {seconds:.0f} of {plan.seconds:.0f} s: {self._stopped}."
            )
        workloads = list(self._costs.workloads(answers))
        return Result(
            kind="follow", made=self._made, command=list(plan.command),
            machine=this_machine(plan.folder, {}), store=_no_store(endpoint(plan.host, plan.port)),
            sides=[
                spec.described("one log each", footprint=feet[spec.name]) for spec in plan.sides
            ],
            method=Method.today(
                seed=0, rounds=self._costs.rounds, cache=Cache.WARM,
                warm_up="The first round does not count: it includes the master's last log file.",
            ),
            workloads=workloads, matters=list(plan.matters), samples=self._costs.samples,
            proof=None if different else Proof(queues=queues, units=units, digest=digest),
            not_measured=not_measured, seconds=seconds,
        )  # fmt: skip


def _sleep(seconds: float, is_stopped: Callable[[], bool]) -> bool:
    """Sleep; return False at once if ``is_stopped``."""
    end = time.monotonic() + seconds
    while not is_stopped():
        if (left := end - time.monotonic()) <= 0:
            return True
        time.sleep(min(left, _LOOK_SECONDS))
    return False


def _differences(
    digests: dict[str, tuple[str, int, int]], different: dict[str, tuple[str, int, int]]
) -> list[Difference]:
    if not different:
        return []
    answers = {
        name: f"{queues} queues, {units} units, digest {digest}"
        for name, (digest, queues, units) in digests.items()
    }
    return [Difference(workload="cpu", operation={"op": "queues"}, answers=answers)]


def _no_store(root: str) -> Shape:
    return Shape(
        root=root, topics=0, queues=0, units=0, log_bytes=0, log_files=0, units_of_queue={},
        share_of_hottest={},
    )  # fmt: skip
